"""Real profile runs of a small network: their structure, never the times themselves."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from shisha_rt.machine.device import Device
from shisha_rt.machine.host.cores import usable_cores
from shisha_rt.measure.compile import compile_model
from shisha_rt.measure.compiled import Compiled
from shisha_rt.messages.calibration import Progress
from shisha_rt.messages.device_profiling import DeviceProfilingJob, Profiled
from shisha_rt.placement.device_profile import Run, device_times, runs_to_profile
from shisha_rt.process.job import run_job
from tests.model.networks import odd_network, write
from tests.stages.test_calibrate import at_work, between_reports
from tests.stages.test_segments import residual
from tests.waiting import until

SERIAL = Device("serial", "serial.toml", "onnxruntime", "serial", "fp32", threads=1)
PARALLEL = Device("parallel", "parallel.toml", "onnxruntime", "parallel", "fp32")
OPENVINO = Device("openvino", "openvino.toml", "openvino", "openvino", "fp32")
WITHOUT_OPENVINO = pytest.mark.skipif(find_spec("openvino") is None, reason="needs the extra openvino")


def job_of(compiled: Compiled, devices: tuple[Device, ...], threads: int = 1) -> DeviceProfilingJob:
    runs = runs_to_profile(compiled.model.graph, devices)
    return DeviceProfilingJob(
        model_folder=str(compiled.model_folder),
        cores=usable_cores()[:threads],
        threads=threads,
        devices=devices,
        node_runs=tuple(run.assignment for run in runs.node_runs),
        edge_runs=tuple(run.assignment for run in runs.edge_runs),
        budget_s=0.2,
        min_rounds=3,
        max_rounds=10,
    )


def decode(line: bytes) -> Progress | Profiled:
    return msgspec.json.decode(line, type=Progress | Profiled)


def profile(job: DeviceProfilingJob) -> tuple[list[float], Profiled]:
    """The ratios of the progress, and the answer."""
    said: list[bytes] = []
    run_job("stages.jobs.profile_devices", msgspec.json.encode(job).decode(), failed="it failed", hear=said.append)
    *lines, last = map(decode, said)
    assert isinstance(last, Profiled)
    return [line.done_ratio for line in lines if isinstance(line, Progress)], last


def placed_by(run: Run, devices: Sequence[Device]) -> tuple[int, ...]:
    """(operators,) devices, as a job has them; operators follow one another without a gap."""
    index_of = {device.name: index for index, device in enumerate(devices)}
    assert [part.first for part in run] == [0, *(part.last + 1 for part in run[:-1])]
    return tuple(index_of[part.device] for part in run for _ in range(part.first, part.last + 1))


@pytest.mark.parametrize(
    "devices",
    [
        pytest.param((PARALLEL,), id="alone"),
        pytest.param((SERIAL, PARALLEL), id="onnxruntime"),
        pytest.param((SERIAL, OPENVINO), id="both-engines", marks=WITHOUT_OPENVINO),
    ],
)
def test_every_run_is_made_and_progress_only_grows(tmp_path: Path, devices: tuple[Device, ...]) -> None:
    compiled = compile_model(residual(tmp_path), plain="heavy")
    job = job_of(compiled, devices)
    ratios, answer = profile(job)
    assert len(ratios) >= 3
    assert ratios == sorted(ratios)
    assert ratios[-1] == 1
    runs = (*answer.node_runs, *answer.edge_runs)
    assert [placed_by(run, devices) for run in runs] == [*job.node_runs, *job.edge_runs]
    assert all(part.time_s > 0 for run in runs for part in run)
    for device, run in zip(devices, answer.node_runs, strict=True):
        (part,) = run
        assert part.device == device.name
        assert len(part.operators_s) == len(compiled.model.graph.operators)
        assert sum(part.operators_s) > 0
    assert all(part.operators_s == () for run in answer.edge_runs for part in run)
    for times, run in zip(
        device_times(compiled.model.graph, devices, answer.node_runs, answer.edge_runs), answer.node_runs, strict=True
    ):
        assert times.operators_s.sum() == pytest.approx(run[0].time_s)


@WITHOUT_OPENVINO
def test_operators_that_an_engine_does_not_know_are_the_answer(tmp_path: Path) -> None:
    compiled = compile_model(write(odd_network(), tmp_path), plain="heavy")
    _, answer = profile(job_of(compiled, (SERIAL, OPENVINO)))
    why = "some operators are not for device openvino: it does not run Det 'Det_1'"
    assert answer == Profiled(incapable=((), (1,)), reasons=("", why))


@pytest.mark.skipif(len(usable_cores()) < 2, reason="needs two cores")
def test_two_threads(tmp_path: Path) -> None:
    compiled = compile_model(residual(tmp_path), plain="heavy")
    _, answer = profile(job_of(compiled, (SERIAL, PARALLEL), threads=2))
    assert all(part.time_s > 0 for run in answer.node_runs for part in run)


@pytest.mark.skipif(len(usable_cores()) < 2, reason="needs two cores")
def test_neighbours_run_the_cleaned_model_meanwhile(tmp_path: Path) -> None:
    compiled = compile_model(residual(tmp_path), plain="heavy")
    job = msgspec.structs.replace(job_of(compiled, (SERIAL,)), neighbours=usable_cores()[1:2])
    with between_reports("stages.jobs.profile_devices", job) as (_, lines):
        (neighbour,) = at_work(compiled.model_folder)
        *progress, answer = map(decode, lines())
        assert progress
        assert isinstance(answer, Profiled)
    until(lambda: at_work(compiled.model_folder) == [], f"the end of neighbour {neighbour}")
