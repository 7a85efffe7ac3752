"""A whole network as OpenVINO runs it, bound to the arena's slots: for a stage that has all layers.

It is read from the cleaned model's file, and nothing of it is cut. Its weights are this process's own, in a form of the
engine's. Before it serves it is held against ONNX Runtime, in the same process and on the same processor: an engine may
round otherwise, but not compute something else.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shisha_rt.costs.agreement import Apart, how_far_apart
from shisha_rt.costs.engine_trials import why_apart
from shisha_rt.model.index import ModelIndex
from shisha_rt.model.reader.onnx_reader import CLEAN_FILE
from shisha_rt.process.arena import Arena
from shisha_rt.tensors import NUMPY_OF
from stages.engines.bound_arrays import check_fits
from stages.engines.moved import moved
from stages.engines.onnxruntime.segment import OptimisedSegment
from stages.engines.openvino.session import CompiledNetwork, load_openvino
from stages.engines.session import Array, Threads
from stages.jobs.noise import run_on_something
from stages.memory_limit import is_for_memory


class WholeOnOpenVino:
    """One shape of the network; `layout` as in `OptimisedModel`.

    Raises Failure where OpenVINO is not installed, and whatever it raises for a network that it does not run.
    """

    def __init__(self, folder: Path, index: ModelIndex, layout: int, threads: Threads, weight_bytes: int) -> None:
        self.inputs, self.outputs = index.inputs, index.outputs
        ends = (*self.inputs, *self.outputs)
        self.frame_bytes = weight_bytes + sum(spec.size_bytes for spec in ends)
        self._file, self._threads = folder / CLEAN_FILE, threads
        self._compiled = CompiledNetwork(self._file, "fp32", threads)
        self._is_broken = False
        self._layout = layout
        self._bound: dict[int, tuple[Any, Sequence[Array]]] = {}  # requests, with the memory that they refer to

    def warm(self) -> None:
        """Run once on memory of its own."""
        self.answers({spec.name: np.full(spec.shape, spec.made_up, NUMPY_OF[spec.datatype]) for spec in self.inputs})

    def answers(self, given: dict[str, Array]) -> dict[str, Array]:
        """What it makes of these inputs, on memory of its own."""
        made = {spec.name: np.zeros(spec.shape, NUMPY_OF[spec.datatype]) for spec in self.outputs}
        self._compiled.infer(self._request([given[spec.name] for spec in self.inputs], list(made.values())))
        return made

    def bind(self, arena: Arena, slot: int) -> None:
        """Have it done before a frame comes to `slot`."""
        regions = arena.layouts[self._layout].regions
        inputs = [arena.view(slot, regions[spec.name]) for spec in self.inputs]
        outputs = [arena.view(slot, regions[spec.name]) for spec in self.outputs]
        self._bound[slot] = self._request(inputs, outputs), (*inputs, *outputs)

    def run(self, arena: Arena, slot: int) -> None:
        """Compute the network on the tensors of `slot`, in place in the arena.

        Once the engine could not have the memory for a frame it has none for any other (2026.4): it compiles anew.
        """
        if self._is_broken:
            self._bound.clear()
            self._compiled = CompiledNetwork(self._file, "fp32", self._threads)
            self._is_broken = False
        if slot not in self._bound:
            self.bind(arena, slot)
        try:
            self._compiled.infer(self._bound[slot][0])
        except RuntimeError as error:
            self._is_broken = is_for_memory(error)
            raise

    def give_back(self) -> None:
        """Have the engine give back what runs have made it keep; the next one takes it anew."""
        self._compiled.give_back()

    def apart_from(self, usual: OptimisedSegment) -> float:
        """How far its answers lie from those of ONNX Runtime on frames of noise, relative to an output's largest value.

        Raises ValueError where that is more than rounding explains.
        """
        inputs = [(spec.name, spec.shape, spec.datatype) for spec in self.inputs]
        whole = {spec.name: spec.made_up for spec in self.inputs if spec.made_up}
        given, right = run_on_something(lambda feeds: (feeds, usual.answers(feeds)), inputs, first=1, whole=whole)
        apart: Apart = how_far_apart(self.answers(given), right, usual.answers(moved(given)))
        if why := why_apart(apart.difference, apart.unlike):
            raise ValueError(f"OpenVINO computes this network otherwise than ONNX Runtime: {why}")
        return max(apart.difference or 0.0, apart.unlike or 0.0)

    def _request(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Any:
        check_fits(self.inputs, inputs)
        check_fits(self.outputs, outputs)
        return self._compiled.request(inputs, outputs)


def load_for_all_of(cores: Collection[int]) -> None:
    """Load the engine as if this process might use all of `cores`, the cores of its teams, and not only its own.

    It counts those of the process's first thread, once. Raises Failure where it is not installed.
    """
    first_thread = os.getpid()
    own = os.sched_getaffinity(first_thread)
    os.sched_setaffinity(first_thread, cores)
    try:
        load_openvino()
    finally:
        os.sched_setaffinity(first_thread, own)
