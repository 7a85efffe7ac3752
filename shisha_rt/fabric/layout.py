"""What lies where in a slot. Only a layout says so; everyone derives the same one from the model's index.

Every tensor that may cross a cut has a fixed, page-aligned offset, whatever the plan: a change of plan moves no data,
and a stage that is run again finds its input where it was. The price is address space, not memory: pages that no
live plan touches are never there (the arena is sparse).
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from dataclasses import dataclass

from shisha_rt.fabric.model_index import ModelIndex, TensorSpec


@dataclass(frozen=True, slots=True)
class Region:
    """A tensor's room: `offset_bytes` from the start of the slot. Its size is worked out once, not for each frame."""

    tensor: TensorSpec
    offset_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Layout:
    """`number` travels with descriptors and preparations; there is one layout per daemon for now."""

    number: int
    slot_bytes: int
    regions: Mapping[str, Region]


def layout_of(index: ModelIndex) -> Layout:
    """Inputs, outputs and crossing tensors one after the other, each on a page of its own."""
    regions: dict[str, Region] = {}
    offset = 0
    for tensor in index.tensors:
        regions[tensor.name] = Region(tensor, offset, tensor.size_bytes)
        offset = page_aligned(offset + max(tensor.size_bytes, 1))
    return Layout(0, offset, regions)


def page_aligned(size_bytes: int) -> int:
    return -(-size_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
