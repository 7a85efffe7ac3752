"""Tensors of a place's stages between its arena and the line. Incoming ones are checked before they are copied."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from shisha_rt.core.lifecycle.events import Descriptor
from shisha_rt.messages.worker import LARGEST_PING_BYTES, WorkerConfig
from shisha_rt.model.reader import index_file
from shisha_rt.model.spans import Span
from shisha_rt.process.arena import Arena
from shisha_rt.process.layout import MAX_RANK, Region, layouts_of
from stages.engines.onnxruntime.parts import Boundaries, read_parts
from stages.far.carrier import Carried, CarrierBroken
from stages.far.messages import DoneFar, PrepareFar, RunFar, TensorBeside


class NotPrepared(Exception):
    """A part's stage, layout or slot is not known here."""


class FarModel:
    """Where tensors lie in a slot, and which tensors enter and leave stages, for each shape of the model.

    Raises OSError and MsgspecError if this host does not have the model.
    """

    def __init__(self, config: WorkerConfig) -> None:
        folders = [Path(folder) for folder in config.engine_folders]
        indexes = [index_file.read_index(folder) for folder in folders]
        self.layouts = layouts_of([index.tensors for index in indexes], config.output_bytes)
        self._boundaries = [
            Boundaries(read_parts(folder), [spec.name for spec in index.outputs])
            for folder, index in zip(folders, indexes, strict=True)
        ]

    @property
    def largest_bytes(self) -> int:
        sizes = (region.size_bytes for layout in self.layouts for region in layout.regions.values())
        return max(LARGEST_PING_BYTES, *sizes)

    def ends(self, work: Sequence[Span]) -> tuple[tuple[tuple[str, ...], ...], tuple[tuple[str, ...], ...]]:
        """The tensors that these layers read from others, and that others need of them; each by layout."""
        ends = [boundaries.of(work) for boundaries in self._boundaries]
        return tuple(tuple(reads) for reads, _ in ends), tuple(tuple(makes) for _, makes in ends)


class _Crossing(NamedTuple):
    """The tensors of a stage that this end sends, and that it receives, in one layout."""

    sent: list[Region]
    received: list[Region]
    received_bytes: int


class Shipping:
    """What passes between an arena's slots and the line, for the stages that are prepared.

    `sends`: whether this end sends the tensors that stages read, or those that they make; it receives the others.
    """

    def __init__(self, arena: Arena, sends: Literal["reads", "makes"]) -> None:
        self._arena = arena
        self._sends = sends
        self._prepared: dict[tuple[int, int], list[_Crossing]] = {}

    def prepare(self, stage: PrepareFar) -> None:
        sends, receives = (stage.reads, stage.makes) if self._sends == "reads" else (stage.makes, stage.reads)
        crossing = []
        for layout, *names in zip(self._arena.layouts, sends, receives, strict=True):
            sent, received = ([layout.regions[name] for name in tensors] for tensors in names)
            crossing.append(_Crossing(sent, received, sum(region.size_bytes for region in received)))
        self._prepared[stage.order.epoch, stage.order.stage] = crossing

    def retire(self, epoch: int) -> None:
        self._prepared = {key: crossing for key, crossing in self._prepared.items() if key[0] != epoch}

    def send(self, part: Descriptor, layout: int) -> tuple[tuple[TensorBeside, ...], list[memoryview]]:
        """The part's tensors for the other end: their names, and their bytes in place.

        Raises NotPrepared, and `NoRoom` as `Arena.raw` does.
        """
        arena, slot, regions = self._arena, part.slot, self._crossing(part, layout).sent
        shapes = [arena.shape(slot, region) if region.tensor.open_axes else () for region in regions]
        sent = tuple(TensorBeside(region.tensor.name, shape) for region, shape in zip(regions, shapes, strict=True))
        return sent, [arena.raw(slot, region).data for region in regions]

    def received_bytes(self, part: Descriptor, layout: int) -> int:
        """Bytes of the part's tensors that the other end sends. Raises NotPrepared."""
        return self._crossing(part, layout).received_bytes

    def receive(self, part: Descriptor, layout: int, message: RunFar | DoneFar, carried: Carried) -> None:
        """Copy the tensors that came with a message into the part's slot.

        Raises CarrierBroken if their names, order or sizes are not as expected, NotPrepared, and `NoRoom` if a tensor
        of variable size is too large.
        """
        regions = self._crossing(part, layout).received
        came, names = [sent.name for sent in message.tensors], [region.tensor.name for region in regions]
        if came != names or len(carried.tensors) != len(names):
            raise CarrierBroken(f"tensors {came} came, expected {names}")
        for sent, data, region in zip(message.tensors, carried.tensors, regions, strict=True):
            if region.tensor.open_axes:
                _check_rank(sent, region)
                self._arena.set_shape(part.slot, region, sent.shape)
            room = self._arena.raw(part.slot, region)
            if data.nbytes != room.nbytes:
                raise CarrierBroken(f"tensor {sent.name!r} came with {data.nbytes} bytes, expected {room.nbytes}")
            room[:] = np.frombuffer(data, np.uint8)

    def _crossing(self, part: Descriptor, layout: int) -> _Crossing:
        crossing = self._prepared.get((part.epoch, part.stage))
        if crossing is None or not 0 <= layout < len(crossing) or not 0 <= part.slot < self._arena.slot_count:
            raise NotPrepared(f"it is not prepared for stage {part.stage} of epoch {part.epoch}")
        return crossing[layout]


def _check_rank(sent: TensorBeside, region: Region) -> None:
    """If all axes of a tensor are open, their number may differ from the usual one, too."""
    rank, usual_rank = len(sent.shape), len(region.tensor.shape)
    fits = rank <= MAX_RANK if len(region.tensor.open_axes) == usual_rank else rank == usual_rank
    if not fits or min(sent.shape, default=0) < 0:
        raise CarrierBroken(f"tensor {sent.name!r} came with the shape {list(sent.shape)}")
