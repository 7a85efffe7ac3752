"""Tensors of a slot to a carrier, and from a carrier into a slot. Incoming ones are checked before they are copied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from shisha_rt.messages.worker import LARGEST_PING_BYTES
from shisha_rt.process.arena import Arena
from shisha_rt.process.layout import MAX_RANK, Layout, Region
from stages.far.carrier import CarrierBroken
from stages.far.messages import Sent


def largest_tensor_bytes(layouts: Sequence[Layout]) -> int:
    """The largest size of a tensor or message."""
    return max(LARGEST_PING_BYTES, *(region.size_bytes for layout in layouts for region in layout.regions.values()))


def send_of(regions: Sequence[Region], arena: Arena, slot: int) -> tuple[tuple[Sent, ...], list[memoryview]]:
    """Names of the tensors in these regions, and their bytes in place. Raises `NoRoom` as `Arena.raw` does."""
    shapes = [arena.shape(slot, region) if region.tensor.open_axes else () for region in regions]
    sent = tuple(Sent(region.tensor.name, shape) for region, shape in zip(regions, shapes, strict=True))
    return sent, [arena.raw(slot, region).data for region in regions]


def receive(
    sent: Sequence[Sent],
    tensors: Sequence[memoryview],
    expected: Sequence[str],
    regions: Mapping[str, Region],
    arena: Arena,
    slot: int,
) -> None:
    """Copy tensors into `slot`. Raises CarrierBroken if their names, order or sizes are not as `expected`, and `NoRoom`
    if a tensor of variable size is too large.
    """
    if [tensor_sent.name for tensor_sent in sent] != list(expected) or len(tensors) != len(sent):
        raise CarrierBroken(f"tensors {[tensor_sent.name for tensor_sent in sent]} came, expected {list(expected)}")
    for tensor_sent, data in zip(sent, tensors, strict=True):
        region = regions[tensor_sent.name]
        if region.tensor.open_axes:
            rank, usual_rank = len(tensor_sent.shape), len(region.tensor.shape)
            any_rank = len(region.tensor.open_axes) == usual_rank  # if all axes are open, their number may differ, too
            fits = rank <= MAX_RANK if any_rank else rank == usual_rank
            if not fits or min(tensor_sent.shape, default=0) < 0:
                raise CarrierBroken(f"tensor {tensor_sent.name!r} came with the shape {list(tensor_sent.shape)}")
            arena.set_shape(slot, region, tensor_sent.shape)
        room = arena.raw(slot, region)
        if data.nbytes != room.nbytes:
            raise CarrierBroken(f"tensor {tensor_sent.name!r} came with {data.nbytes} bytes, expected {room.nbytes}")
        room[:] = np.frombuffer(data, np.uint8)
