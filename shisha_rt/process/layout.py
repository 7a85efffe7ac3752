"""Where each tensor lies in a slot. Only a layout says so; every process derives the same one from the model's index.

Every tensor that may cross a cut has a fixed, page-aligned offset, whatever the plan: a change of plan moves no data,
and a stage that runs again finds its input where it was. The price is address space, not memory: the arena is sparse,
so pages that no live plan touches do not exist.

The buffers of one tensor lie side by side over all slots. So those of neighbouring slots are one tensor of several
frames without a copy, if a frame's tensor is a multiple of a cache line.

An output whose shape depends on the data has a buffer of fixed size, and before it the shape that it has in the slot:
its rank and its sizes, as 64-bit integers.

A model that is served in several shapes has a layout for each of them, one behind the other in every slot. So what a
frame of one shape no longer needs is given back regardless of frames of other shapes.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from shisha_rt.process.output_room import OUTPUT_BYTES
from shisha_rt.tensors import Tensor

MAX_RANK: Final = 31
SHAPE_BYTES: Final = 8 * (1 + MAX_RANK)
_LINE_BYTES: Final = 64  # engines want tensors aligned to it, and two frames' are never in one cache line


@dataclass(frozen=True, slots=True)
class Region:
    """A tensor's buffers in all slots, `stride_bytes` apart. `offset_bytes`: bytes of a slot before this tensor's.

    `size_bytes`: of one buffer; if the shape depends on the data, its first `SHAPE_BYTES` hold the shape. The stride is
    worked out once, not for each frame.
    """

    tensor: Tensor
    offset_bytes: int
    size_bytes: int
    stride_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "stride_bytes", max(1, -(-self.size_bytes // _LINE_BYTES)) * _LINE_BYTES)

    @property
    def is_gapless(self) -> bool:
        """Whether neighbouring slots' tensors follow each other without a gap."""
        return self.stride_bytes == self.size_bytes and not self.tensor.open_axes

    @property
    def room_bytes(self) -> int:
        """Bytes of the buffer that are for values."""
        return self.size_bytes - SHAPE_BYTES if self.tensor.open_axes else self.size_bytes


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of a slot for one shape of the model.

    `slot_bytes`: the bytes of a slot that the layout takes up. `output_bytes`: the buffer of each tensor whose shape
    depends on the data.
    """

    slot_bytes: int
    regions: Mapping[str, Region]
    output_bytes: int


def layouts_of(shapes: Iterable[Iterable[Tensor]], output_bytes: int = OUTPUT_BYTES) -> tuple[Layout, ...]:
    """One layout for each shape of a model: the tensors of its index, one after the other, each at the start of a page.

    A tensor has one buffer in a slot, so it is there once.
    """
    layouts: list[Layout] = []
    offset = 0
    for tensors in shapes:
        start_bytes, regions = offset, dict[str, Region]()
        for tensor in tensors:
            size_bytes = SHAPE_BYTES + output_bytes if tensor.open_axes else tensor.size_bytes
            regions[tensor.name] = Region(tensor, offset, size_bytes)
            offset = page_aligned(offset + max(size_bytes, 1))
        layouts.append(Layout(offset - start_bytes, regions, output_bytes))
    return tuple(layouts)


def page_aligned(size_bytes: int) -> int:
    return -(-size_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
