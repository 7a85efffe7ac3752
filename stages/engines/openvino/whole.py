"""A whole network as OpenVINO runs it, for a stage that has all layers.

It is read from the cleaned model's file, and not cut. Its weights are private memory of this process, in the engine's
own form. Before it serves, it is compared with ONNX Runtime in the same process and on the same processor: an engine
may round differently, but must not compute something else.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import onnx

from shisha_rt.costs.agreement import how_far_apart
from shisha_rt.costs.engine_trials import why_apart
from shisha_rt.machine.device import Precision
from shisha_rt.model.batch_axes import MixesFrames
from shisha_rt.model.batches import follow_batch
from shisha_rt.model.free_batch import integers_of, open_shape
from shisha_rt.model.index import ModelIndex
from shisha_rt.model.reader.onnx_reader import CLEAN_FILE, read_clean
from shisha_rt.plan.engine import EngineName, is_exact
from stages.engines.openvino.session import CompiledNetwork, OpenVinoSession, load_openvino, read_network
from stages.engines.session import Ends, EngineSession, Threads
from stages.noise import moved, run_on_something

_LARGE_BYTES: Final = 16 << 20
"""From this size of a model's files on, the number of frames is open: several copies of the weights would cost more."""
_MOST_FIXED: Final = 8
"""For larger batches the number of frames is always open: each fixed number is another network."""


class WholeOnOpenVino(OpenVinoSession):
    """One shape of the network. `engine`: `openvino`, or `openvino_bf16`.

    Raises Failure if OpenVINO is not installed, or this processor has no bfloat16 for it, and whatever it raises for a
    network that it cannot run.
    """

    def __init__(
        self, folder: Path, index: ModelIndex, threads: Threads, weight_bytes: int, engine: EngineName = "openvino"
    ) -> None:
        self._engine, self._folder, self._threads, self._axes = engine, folder, threads, index.batch_axes
        self.precision: Precision = "fp32" if is_exact(engine) else "bf16"
        super().__init__(
            lambda: CompiledNetwork(read_network(folder / CLEAN_FILE), self.precision, threads),
            Ends(index.inputs, index.outputs),
            weight_bytes,
        )

    def of_frames(self, most: int, *, large_bytes: int = _LARGE_BYTES) -> dict[int, OpenVinoSession]:
        """Networks for batches of up to `most` frames, by number of frames; each network has weights of its own.

        An open number costs a few tenths of a millisecond a run (2026.4), a fixed one another copy of the weights: the
        size of the model's files decides. Raises as `network_of_frames`.
        """
        if most > _MOST_FIXED or sum(file.stat().st_size for file in self._folder.iterdir()) >= large_bytes:
            return dict.fromkeys(range(2, most + 1), self._of_frames(2, most))
        sizes = {2**power for power in range(1, most.bit_length()) if 2**power <= most} | {most}
        return {size: self._of_frames(size, size) for size in sorted(sizes)}

    def _of_frames(self, least: int, most: int) -> OpenVinoSession:
        def compiled() -> CompiledNetwork:
            return CompiledNetwork(network_of_frames(self._folder, least, most), self.precision, self._threads)

        return OpenVinoSession(compiled, replace(self.ends, axes=self._axes), self.weight_bytes)

    def compare(self, usual: EngineSession) -> None:
        """Measure `difference` from ONNX Runtime's answer on a noise frame. Raises ValueError if beyond rounding."""
        given, right = run_on_something(lambda feeds: (feeds, usual.answers(feeds)), self.ends.inputs, first=1)
        apart = how_far_apart(self.answers(given), right, usual.answers(moved(given)))
        if why := why_apart(*apart, self._engine):
            raise ValueError(f"OpenVINO computes this network otherwise than ONNX Runtime: {why}")
        self.difference = max(apart.difference or 0.0, apart.unlike or 0.0)


def load_for_all_of(cores: Collection[int]) -> None:
    """Load the engine so that it may use all of `cores`, which are for teams, and not only the process's own.

    The engine counts the cores of the process's first thread, once. Raises Failure if it is not installed.
    """
    first_thread = os.getpid()
    own = os.sched_getaffinity(first_thread)
    try:
        with contextlib.suppress(OSError):  # the control group was moved to other cores
            os.sched_setaffinity(first_thread, cores)
        load_openvino()
    finally:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(first_thread, own)


def network_of_frames(folder: Path, least: int, most: int) -> Any:
    """Read the cleaned model in `folder` as an `openvino.Model` for `least` to `most` frames, which may be equal.

    No file is written and no weight is read: the shapes of inputs, and those that Reshape operators state, are changed
    in the engine's own graph.

    Raises MixesFrames if an operator mixes frames, ValueError if OpenVINO has replaced a Reshape by another operator,
    and whatever the engine raises.
    """
    import openvino

    graph = read_clean(folder)
    followed = follow_batch(graph, integers_of(onnx.load(folder / CLEAN_FILE, load_external_data=False).graph))
    for number, reason in followed.mixing.items():
        raise MixesFrames(f"operator {number}: {reason}")
    stated = {}
    for number, axis in followed.reshaped.items():
        name = graph.operators[number].outputs[0]
        stated[name] = open_shape(graph.tensors[name].shape, axis)
    network = read_network(folder / CLEAN_FILE)
    for operator in network.get_ordered_ops():
        if operator.get_type_name() == "Reshape":
            for name in operator.output(0).get_names() & stated.keys():
                shape = openvino.op.Constant(stated.pop(name))
                operator.input(1).replace_source_output(shape.output(0))
    if stated:
        raise ValueError(f"what makes {next(iter(stated))!r} is no Reshape to OpenVINO")
    shapes = {tensor.name: [openvino.Dimension(size) for size in tensor.shape] for tensor in graph.inputs}
    for shape_of_input in shapes.values():
        rows = shape_of_input[0].get_length()  # of a frame: 1, unless the model was exported for several
        shape_of_input[0] = openvino.Dimension(least * rows, most * rows)
    network.reshape({name: openvino.PartialShape(shape) for name, shape in shapes.items()})
    return network
