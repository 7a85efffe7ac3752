"""Partitions cut out and timed for real: their structure and what they compute, never the times themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from shisha_rt.machine.host.cores import usable_cores
from shisha_rt.measure.compile import compile_model
from shisha_rt.measure.compiled import Compiled
from shisha_rt.messages.calibration import Progress
from shisha_rt.messages.device_profiling import PartitionProfilingJob
from shisha_rt.placement.segments import segment
from stages.jobs import profile_partitions
from stages.jobs.profile_partitions import time_partitions
from tests.model.int8 import dynamic_network, qdq_network
from tests.model.networks import odd_network, write
from tests.stages.clean_models import branching, evaluated, random_feeds, saved, whole
from tests.stages.test_profile_devices import OPENVINO, PARALLEL, SERIAL, WITHOUT_OPENVINO
from tests.stages.test_segments import residual


def job_of(compiled: Compiled, *partitions: tuple[int, ...], openvino: bool = False) -> PartitionProfilingJob:
    return PartitionProfilingJob(
        model_folder=str(compiled.model_folder),
        cores=usable_cores()[:1],
        threads=1,
        devices=(SERIAL, OPENVINO) if openvino else (SERIAL, PARALLEL),
        partitions=partitions,
        budget_s=0.01,
        min_rounds=3,
        max_rounds=4,
    )


@pytest.mark.parametrize(("most_sessions", "most_bytes"), [(64, 1 << 30), (4, 1 << 30), (1, 1 << 30), (64, 0)])
def test_in_batches_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_sessions: int, most_bytes: int
) -> None:
    """Every partition is timed on every device, and progress only grows."""
    monkeypatch.setattr("stages.jobs.profile_partitions._MOST_SESSIONS", most_sessions)
    monkeypatch.setattr("stages.jobs.profile_partitions._MOST_BYTES", most_bytes)
    progress: list[Progress] = []
    compiled = compile_model(residual(tmp_path), plain="heavy")
    partitions = ((0,), (0, 1), (2,), (3, 4, 5), (7,))
    job = job_of(compiled, *partitions)
    times = time_partitions(job, progress.append).times
    assert [len(row) for row in times] == [2] * len(partitions)
    assert all(
        time is not None and time.cpu_s > 0 and time.wall_s > 0 and 3 <= time.runs <= 4 for row in times for time in row
    )
    ratios = [report.done_ratio for report in progress]
    assert ratios == sorted(ratios)
    assert ratios[-1] == pytest.approx(1)
    graph = compiled.model.graph
    (conv, _), (conv_relu, _), *_ = times
    assert conv is not None is not conv_relu
    read = graph.inputs[0].size_bytes + sum(graph.constants[name].size_bytes for name in graph.operators[0].inputs[1:])
    assert conv.moved_bytes == conv_relu.moved_bytes == read + graph.tensors[graph.operators[0].outputs[0]].size_bytes


@WITHOUT_OPENVINO
def test_what_an_engine_does_not_know_has_no_time(tmp_path: Path) -> None:
    compiled = compile_model(write(odd_network(), tmp_path), plain="heavy")
    job = job_of(compiled, (0,), (1,), (0, 1), openvino=True)
    are_timed = [[time is not None for time in row] for row in time_partitions(job, lambda _: None).times]
    assert are_timed == [[True, True], [True, False], [True, False]]


@WITHOUT_OPENVINO
@pytest.mark.parametrize(("build", "compared"), [(qdq_network, "QuantizeLinear"), (dynamic_network, "MatMulInteger")])
def test_what_an_engine_computes_wrong_has_no_time(
    build: Callable[[], onnx.ModelProto], compared: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it computes in integers; here nothing is right enough."""
    monkeypatch.setattr(profile_partitions, "most_apart", lambda _: -1.0)
    compiled = compile_model(write(build(), tmp_path), plain="heavy")
    types = [operator.op_type for operator in compiled.model.graph.operators]
    floats = next(i for i, op_type in enumerate(types) if op_type in ("Relu", "Mul"))
    job = job_of(compiled, (types.index(compared),), (floats,), openvino=True)
    are_timed = [[time is not None for time in row] for row in time_partitions(job, lambda _: None).times]
    assert are_timed == [[True, False], [True, True]]


@pytest.mark.parametrize("operators", [(0,), (2, 3), (2, 3, 4), (0, 4), (5, 7), tuple(range(8))])
def test_operators_as_a_model_of_their_own(tmp_path: Path, operators: tuple[int, ...]) -> None:
    """It computes what they do in the whole one, wherever they stand there."""
    model = saved(branching(), tmp_path)
    everything = whole(model)
    values = random_feeds(model, everything)
    for i in range(len(model.graph.operators)):
        alone = segment(model.graph, i, i, "a")
        values |= evaluated(model, alone, {name: values[name] for name in alone.inputs})
    part = model.part(operators)
    assert [operator.name for operator in part.graph.operators] == [model.graph.operators[i].name for i in operators]
    cut = segment(part.graph, 0, len(operators) - 1, "a")
    assert cut.inputs == tuple(tensor.name for tensor in part.graph.inputs)
    answers = evaluated(part, cut, {name: values[name] for name in cut.inputs})
    assert answers.keys() == {*cut.outputs} == {tensor.name for tensor in part.graph.outputs}
    for name, value in answers.items():
        np.testing.assert_allclose(value, values[name], rtol=1e-4, atol=1e-5)
