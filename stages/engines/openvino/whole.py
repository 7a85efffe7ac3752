"""A whole network as OpenVINO runs it, bound to the arena's slots: for a stage that has all layers.

It is read from the cleaned model's file, and not cut. Its weights are private memory of this process, in the engine's
own form. Before it serves, it is compared with ONNX Runtime in the same process and on the same processor: an engine
may round differently, but must not compute something else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

import numpy as np

from shisha_rt.costs.agreement import Apart, how_far_apart
from shisha_rt.costs.engine_trials import why_apart
from shisha_rt.model.index import ModelIndex
from shisha_rt.model.reader.onnx_reader import CLEAN_FILE
from shisha_rt.process.arena import Arena
from shisha_rt.tensors import NUMPY_OF, Tensor
from stages.engines.bound_arrays import check_fits
from stages.engines.moved import moved
from stages.engines.onnxruntime.segment import OptimisedSegment
from stages.engines.openvino.frames import network_of_frames
from stages.engines.openvino.session import CompiledNetwork, load_openvino, read_network
from stages.engines.session import Array, CpuClock, Threads
from stages.jobs.noise import run_on_something
from stages.memory_limit import is_for_memory

_LARGE_BYTES: Final = 16 << 20
"""From this size of a model's files on, the number of frames is open: several copies of the weights would cost more."""
_MOST_FIXED: Final = 8
"""For larger batches the number of frames is always open: each fixed number is another network."""


class _Network:
    """The network, compiled for one number of frames, or for a range of them.

    After a run has failed for lack of memory, all others fail, too (2026.4): the network is then compiled anew, once
    no request refers to the old one.
    """

    def __init__(self, read: Callable[[], Any], threads: Threads) -> None:
        self._read, self._threads = read, threads
        self._compiled: CompiledNetwork | None = None
        self.compiled()
        self.bound: WeakSet[_Bound] = WeakSet()

    def compiled(self) -> CompiledNetwork:
        if self._compiled is None:
            self._compiled = CompiledNetwork(self._read(), "fp32", self._threads)
        return self._compiled

    def run(self, bound: _Bound) -> None:
        try:
            self.compiled().infer(bound.request())
        except RuntimeError as error:
            if is_for_memory(error):
                for each in self.bound:
                    each.forget()
                self._compiled = None
            raise

    def give_back(self) -> None:
        if self._compiled is not None:
            self._compiled.give_back()


class _Bound:
    """A network bound to arrays, in the order of its inputs and outputs. A call computes the outputs."""

    __slots__ = ("__weakref__", "_inputs", "_network", "_outputs", "_request")

    def __init__(self, network: _Network, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        self._network, self._inputs, self._outputs = network, inputs, outputs
        self._request: Any = None
        self.request()
        network.bound.add(self)

    def request(self) -> Any:
        if self._request is None:
            self._request = self._network.compiled().request(self._inputs, self._outputs)
        return self._request

    def forget(self) -> None:
        """Drop the request, and so its reference to the compiled network."""
        self._request = None

    def __call__(self) -> None:
        self._network.run(self)


class WholeOnOpenVino:
    """One shape of the network; `layout` as in `OptimisedModel`.

    Raises Failure if OpenVINO is not installed, and whatever it raises for a network that it cannot run.
    """

    def __init__(self, folder: Path, index: ModelIndex, layout: int, threads: Threads, weight_bytes: int) -> None:
        self.inputs, self.outputs = index.inputs, index.outputs
        ends = (*self.inputs, *self.outputs)
        self.frame_bytes = weight_bytes + sum(spec.size_bytes for spec in ends)
        self._folder, self._threads = folder, threads
        self._network = _Network(lambda: read_network(folder / CLEAN_FILE), threads)
        self._layout = layout
        self._bound: dict[int, _Bound] = {}

    def of_frames(self, most: int, *, large_bytes: int = _LARGE_BYTES) -> dict[int, FramesOnOpenVino]:
        """Networks for batches of up to `most` frames, by number of frames; each network has weights of its own.

        An open number costs a few tenths of a millisecond a run (2026.4), a fixed one another copy of the weights: the
        size of the model's files decides. Raises as `network_of_frames`.
        """
        if most > _MOST_FIXED or sum(file.stat().st_size for file in self._folder.iterdir()) >= large_bytes:
            return dict.fromkeys(range(2, most + 1), self._of_frames(2, most))
        sizes = {2**power for power in range(1, most.bit_length()) if 2**power <= most} | {most}
        return {size: self._of_frames(size, size) for size in sorted(sizes)}

    def _of_frames(self, least: int, most: int) -> FramesOnOpenVino:
        network = _Network(lambda: network_of_frames(self._folder, least, most), self._threads)
        return FramesOnOpenVino(network, self.inputs, self.outputs)

    def warm(self) -> None:
        """Run once on memory of its own."""
        self.answers({spec.name: np.full(spec.shape, spec.made_up, NUMPY_OF[spec.datatype]) for spec in self.inputs})

    def answers(self, given: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs for these inputs, on memory of its own."""
        made = {spec.name: np.zeros(spec.shape, NUMPY_OF[spec.datatype]) for spec in self.outputs}
        self._bind([given[spec.name] for spec in self.inputs], list(made.values()))()
        return made

    def bind(self, arena: Arena, slot: int) -> None:
        """Bind the network to `slot` before the first frame comes there."""
        regions = arena.layouts[self._layout].regions
        inputs = [arena.view(slot, regions[spec.name]) for spec in self.inputs]
        outputs = [arena.view(slot, regions[spec.name]) for spec in self.outputs]
        self._bound[slot] = self._bind(inputs, outputs)

    def run(self, arena: Arena, slot: int) -> None:
        """Compute the network on the tensors of `slot`, in place in the arena."""
        if slot not in self._bound:
            self.bind(arena, slot)
        self._bound[slot]()

    def give_back(self) -> None:
        """Have the engine release memory that it keeps from runs; the next run allocates it again."""
        self._network.give_back()

    def apart_from(self, usual: OptimisedSegment) -> float:
        """How far its answers are from ONNX Runtime's on a frame of noise, relative to an output's largest value.

        Raises ValueError if that is more than rounding explains.
        """
        inputs = [(spec.name, spec.shape, spec.datatype) for spec in self.inputs]
        whole = {spec.name: spec.made_up for spec in self.inputs if spec.made_up}
        given, right = run_on_something(lambda feeds: (feeds, usual.answers(feeds)), inputs, first=1, whole=whole)
        apart: Apart = how_far_apart(self.answers(given), right, usual.answers(moved(given)))
        if why := why_apart(apart.difference, apart.unlike):
            raise ValueError(f"OpenVINO computes this network otherwise than ONNX Runtime: {why}")
        return max(apart.difference or 0.0, apart.unlike or 0.0)

    def _bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> _Bound:
        check_fits(self.inputs, inputs)
        check_fits(self.outputs, outputs)
        return _Bound(self._network, inputs, outputs)


class FramesOnOpenVino:
    """The network on arrays that hold several frames one behind the other, as `built.batched` has them."""

    def __init__(self, network: _Network, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        self._network, self._inputs, self._outputs = network, inputs, outputs

    def go_on(self, arrays: Mapping[str, Array]) -> Callable[[CpuClock], tuple[float, ...]]:
        """A function that reads its inputs from `arrays`, by name, and writes its outputs there.

        It returns what `BuiltStage.run` does.
        """
        inputs, outputs = ([arrays[spec.name] for spec in specs] for specs in (self._inputs, self._outputs))
        bound = _Bound(self._network, inputs, outputs)

        def go(_: CpuClock) -> tuple[float, ...]:
            bound()
            return ()

        return go

    def give_back(self) -> None:
        """As `WholeOnOpenVino`."""
        self._network.give_back()


def load_for_all_of(cores: Collection[int]) -> None:
    """Load the engine so that it may use all of `cores`, which are for teams, and not only the process's own.

    The engine counts the cores of the process's first thread, once. Raises Failure if it is not installed.
    """
    first_thread = os.getpid()
    own = os.sched_getaffinity(first_thread)
    os.sched_setaffinity(first_thread, cores)
    try:
        load_openvino()
    finally:
        os.sched_setaffinity(first_thread, own)
