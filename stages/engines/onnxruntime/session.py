"""A session of ONNX Runtime, bound to arrays or to the arena's slots.

A binding holds raw addresses, which the engine does not check: shapes and sizes are compared when it is made. An output
whose shape depends on the data is made in the engine's own memory, and copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import onnxruntime as ort

from shisha_rt.process.arena import Arena
from shisha_rt.tensors import Tensor, size_bytes
from stages.engines.session import Array, Bound, CpuClock, Ends, EngineSession
from stages.noise import run_on_something

_HERE: Final = "cpu"


class OrtSession(EngineSession):
    """A built session. Its model's weights may be mapped from a file, or be private memory of this process."""

    def __init__(self, session: ort.InferenceSession, ends: Ends, weight_bytes: int) -> None:
        super().__init__(ends, weight_bytes)
        self._session = session
        self._open_outputs = [(i, spec) for i, spec in enumerate(ends.outputs) if spec.open_axes]

    def bind(self, arrays: Mapping[str, Array]) -> Bound:
        """As `EngineSession.bind`. An output without an array in `arrays` is made in the engine's memory."""
        binding, run = self._binding(arrays), self._session.run_with_iobinding

        def compute(_: CpuClock, _kept: object = arrays) -> tuple[float, ...]:
            run(binding)
            return ()

        return compute

    def on_slot(self, arena: Arena, slot: int, layout: int = 0) -> Bound:
        if not self._open_outputs:
            return super().on_slot(arena, slot, layout)
        regions = arena.layouts[layout].regions
        closed = [spec.name for spec in self.ends.both if not spec.open_axes]
        binding = self._binding({name: arena.view(slot, regions[name]) for name in closed})
        run = self._session.run_with_iobinding

        def compute(_: CpuClock) -> tuple[float, ...]:
            run(binding)
            self._take_open_outputs(binding, arena, slot, layout)
            return ()

        return compute

    def apart(self) -> Bound:
        """As `EngineSession.apart`, on made-up values that the operators accept: on others they may fail."""

        def compute(_: CpuClock) -> tuple[float, ...]:
            self._run_on_something(None)
            return ()

        return compute

    def answers(self, given: Mapping[str, Array]) -> dict[str, Array]:
        names = [spec.name for spec in self.ends.outputs]
        return dict(zip(names, self._session.run(names, dict(given)), strict=True))

    def give_back(self) -> None:
        """Run once more, with the option to release memory beyond the engine's initial allocation after the run."""
        options = ort.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", f"{_HERE}:0")
        self._run_on_something(options)

    def _run_on_something(self, options: ort.RunOptions | None) -> None:
        names = [spec.name for spec in self.ends.outputs]
        run_on_something(lambda given: self._session.run(names, given, options), self.ends.inputs)

    def _binding(self, arrays: Mapping[str, Array]) -> ort.IOBinding:
        binding = self._session.io_binding()
        for spec in self.ends.inputs:
            binding.bind_input(*_address(spec, self.ends.fitting(spec, arrays)))
        for spec in self.ends.outputs:
            if spec.name in arrays:
                binding.bind_output(*_address(spec, self.ends.fitting(spec, arrays)))
            else:
                binding.bind_output(spec.name, _HERE)
        return binding

    def _take_open_outputs(self, binding: ort.IOBinding, arena: Arena, slot: int, layout: int) -> None:
        """Copy outputs of variable shape to the slot, and drop the engine's buffers, which its next run would reuse.

        If an output does not fit, only its shape is written: a read of that output then fails.
        """
        made = binding.get_outputs()
        for i, spec in self._open_outputs:
            region, shape = arena.layouts[layout].regions[spec.name], tuple(made[i].shape())
            _check_shape(spec, shape)
            arena.set_shape(slot, region, shape)
            if size_bytes(spec.datatype, shape) <= region.room_bytes:
                arena.view(slot, region)[...] = made[i].numpy()
            binding.bind_output(spec.name, _HERE)


def _address(spec: Tensor, array: Array) -> tuple[object, ...]:
    return spec.name, _HERE, 0, array.dtype.type, array.shape, array.ctypes.data


def _check_shape(spec: Tensor, shape: tuple[int, ...]) -> None:
    """Check the size of axes that are not open; if all are open, the number of axes may differ, too."""
    if len(spec.open_axes) == len(spec.shape):
        return
    expected = [None if axis in spec.open_axes else size for axis, size in enumerate(spec.shape)]
    if len(shape) != len(expected) or any(
        wanted not in (None, size) for wanted, size in zip(expected, shape, strict=True)
    ):
        raise ValueError(f"output {spec.name!r} came out as {list(shape)}, expected {expected}")
