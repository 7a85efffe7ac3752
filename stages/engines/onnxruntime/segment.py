"""A stage as ONNX Runtime runs it: a cut of the graph that was compiled for it, bound to the arena's slots.

Weights stay in the file that every worker maps, so a cut is only a few hundred nodes, which have been serialised
beforehand (see `parts`). So a build holds the interpreter lock, without which no frame can start, for microseconds
instead of milliseconds.

A binding is made once for each slot and holds raw addresses, which the engine does not check: shapes and sizes are
compared here instead. An output whose shape depends on the data is made in the engine's own memory, and copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import onnxruntime as ort

from shisha_rt.model.index import ModelIndex
from shisha_rt.model.spans import Span
from shisha_rt.process.arena import Arena
from shisha_rt.process.layout import Region
from shisha_rt.tensors import NUMPY_OF, Tensor, size_bytes
from stages.engines.onnxruntime.options import as_built_options, optimising_options
from stages.engines.onnxruntime.parts import Boundaries, read_parts
from stages.engines.session import ONE_THREAD, Array, CpuClock, Threads
from stages.jobs.noise import run_on_something

_HERE: Final = "cpu"


class OptimisedModel:
    """The whole graph (without weight values), from which segments are cut. In form "as_is" each cut is optimised.

    `layout`: the number of this index's layout in the arena.
    """

    def __init__(self, folder: Path, index: ModelIndex, layout: int = 0) -> None:
        self._folder = str(folder)
        self._layout = layout
        self._parts = read_parts(folder)
        self._specs = {spec.name: spec for spec in index.tensors}
        self._options = optimising_options if index.form == "as_is" else as_built_options
        self.batch_axes = index.batch_axes
        self._boundaries = Boundaries(self._parts, [spec.name for spec in index.outputs])

    def segment(self, work: Sequence[Span], threads: Threads = ONE_THREAD) -> OptimisedSegment:
        """Build one or more runs of layers as one session."""
        ends = self._parts.inputs, self._parts.outputs
        return OptimisedSegment(*self._session(work, ends, threads), self._layout)

    def segment_of_many(self, work: Sequence[Span], threads: Threads = ONE_THREAD) -> SegmentOfMany:
        """The same for batches of any size, of layers that allow it (see `model.batches`)."""
        return SegmentOfMany(*self._session(work, (self._parts.inputs_of_many, self._parts.outputs_of_many), threads))

    def _session(
        self, work: Sequence[Span], ends: tuple[Mapping[str, bytes], Mapping[str, bytes]], threads: Threads
    ) -> tuple[ort.InferenceSession, list[Tensor], list[Tensor], int]:
        """A session with its inputs, outputs and bytes of weights. `ends`: the model's parts for inputs and outputs."""
        parts = self._parts
        layers = {layer for first, last in work for layer in range(first, last + 1)}
        here = [node for node in parts.nodes if node.layer in layers]
        read = dict.fromkeys(name for node in here for name in node.reads)
        constants = [parts.constants[name] for name in read if name in parts.constants]
        inputs, outputs = ([self._specs[name] for name in names] for names in self._boundaries.of(work))
        model = (
            parts.header,
            *(node.part for node in here),
            *(constant.part for constant in constants),
            *(ends[0][spec.name] for spec in inputs),
            *(ends[1][spec.name] for spec in outputs),
        )
        session = ort.InferenceSession(
            b"".join(model),
            self._options(self._folder, threads),
            providers=["CPUExecutionProvider"],
        )
        return session, inputs, outputs, sum(constant.size_bytes for constant in constants)


class SegmentOfMany:
    """A stage that computes batches, on arrays of several frames. `weight_bytes`: of its weights."""

    def __init__(
        self, session: ort.InferenceSession, inputs: list[Tensor], outputs: list[Tensor], weight_bytes: int
    ) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.weight_bytes = weight_bytes
        self._session = session

    def go_on(self, arrays: Mapping[str, Array]) -> Callable[[CpuClock], tuple[float, ...]]:
        """A function that reads its inputs from `arrays`, by name, and writes its outputs there.

        It returns what `BuiltStage.run` does.
        """
        binding = self._session.io_binding()
        for spec in self.inputs:
            binding.bind_input(*_array(spec, arrays[spec.name]))
        for spec in self.outputs:
            binding.bind_output(*_array(spec, arrays[spec.name]))
        run = partial(self._session.run_with_iobinding, binding)
        return lambda _: run() or ()


def _array(spec: Tensor, array: Array) -> tuple[object, ...]:
    if array.dtype != NUMPY_OF[spec.datatype] or not array.flags.c_contiguous:
        raise ValueError(f"tensor {spec.name!r} is {spec.datatype}, row-major; its array is {array.dtype}")
    return spec.name, _HERE, 0, array.dtype.type, array.shape, array.ctypes.data


class OptimisedSegment:
    """A built stage. `frame_bytes`: weights (`weight_bytes`), inputs and outputs that one frame moves."""

    def __init__(
        self,
        session: ort.InferenceSession,
        inputs: list[Tensor],
        outputs: list[Tensor],
        weight_bytes: int,
        layout: int,
    ) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.weight_bytes = weight_bytes
        self.frame_bytes = weight_bytes + sum(spec.size_bytes for spec in (*inputs, *outputs))
        self._session = session
        self._layout = layout
        self._bindings: dict[int, ort.IOBinding] = {}
        self._open_outputs = [(i, spec) for i, spec in enumerate(outputs) if spec.open_axes]

    def warm(self) -> None:
        """Run once on memory of its own: first-run allocations happen before a frame waits for them."""
        self._run_on_something(None)

    def give_back(self) -> None:
        """Run once more, with the option to release memory beyond the engine's initial allocation after the run."""
        options = ort.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", f"{_HERE}:0")
        self._run_on_something(options)

    def _run_on_something(self, options: ort.RunOptions | None) -> None:
        inputs = [(spec.name, spec.shape, spec.datatype) for spec in self.inputs]
        whole = {spec.name: spec.made_up for spec in self.inputs if spec.made_up}
        names = [spec.name for spec in self.outputs]
        run_on_something(lambda given: self._session.run(names, given, options), inputs, whole=whole)

    def answers(self, given: dict[str, Array]) -> dict[str, Array]:
        """The outputs for these inputs, on memory of its own."""
        names = [spec.name for spec in self.outputs]
        return dict(zip(names, self._session.run(names, given), strict=True))

    def compute(self, given: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs for these inputs, on memory of its own."""
        names = [spec.name for spec in self.outputs]
        return dict(zip(names, self._session.run(names, dict(given)), strict=True))

    def run(self, arena: Arena, slot: int) -> None:
        """Compute the stage on the tensors of `slot`, in place in the arena."""
        if slot not in self._bindings:
            self.bind(arena, slot)
        binding = self._bindings[slot]
        self._session.run_with_iobinding(binding)
        if self._open_outputs:
            self._take_open_outputs(binding, arena, slot)

    def bind(self, arena: Arena, slot: int) -> None:
        """Bind the stage to `slot` before the first frame comes there."""
        binding, regions = self._session.io_binding(), arena.layouts[self._layout].regions
        for spec in self.inputs:
            binding.bind_input(*_place(arena, slot, regions[spec.name], spec))
        for spec in self.outputs:
            if spec.open_axes:
                binding.bind_output(spec.name, _HERE)
            else:
                binding.bind_output(*_place(arena, slot, regions[spec.name], spec))
        self._bindings[slot] = binding

    def _take_open_outputs(self, binding: ort.IOBinding, arena: Arena, slot: int) -> None:
        """Copy outputs of variable shape to the slot, and drop the engine's buffers, which its next run would reuse.

        If an output does not fit, only its shape is written: a read of that output then fails.
        """
        made = binding.get_outputs()
        for i, spec in self._open_outputs:
            region, shape = arena.layouts[self._layout].regions[spec.name], tuple(made[i].shape())
            _check_shape(spec, shape)
            arena.set_shape(slot, region, shape)
            if size_bytes(spec.datatype, shape) <= region.room_bytes:
                arena.view(slot, region)[...] = made[i].numpy()
            binding.bind_output(spec.name, _HERE)


def _place(arena: Arena, slot: int, region: Region, spec: Tensor) -> tuple[object, ...]:
    _check_fits(region, spec)
    dtype = NUMPY_OF[spec.datatype]
    return spec.name, _HERE, 0, dtype.type, spec.shape, arena.address(slot, region)


def _check_shape(spec: Tensor, shape: tuple[int, ...]) -> None:
    """Check the size of axes that are not open; if all are open, the number of axes may differ, too."""
    if len(spec.open_axes) == len(spec.shape):
        return
    fits = len(shape) == len(spec.shape) and all(
        size == expected
        for axis, (size, expected) in enumerate(zip(shape, spec.shape, strict=True))
        if axis not in spec.open_axes
    )
    if not fits:
        expected = [None if axis in spec.open_axes else size for axis, size in enumerate(spec.shape)]
        raise ValueError(f"output {spec.name!r} came out as {list(shape)}, expected {expected}")


def _check_fits(region: Region, spec: Tensor) -> None:
    if region.tensor != spec:
        raise ValueError(f"tensor {spec.name!r} is {spec.datatype} {spec.shape}, its room in the slot is for "
                         f"{region.tensor.datatype} {region.tensor.shape}")  # fmt: skip
