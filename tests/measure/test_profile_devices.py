"""Profiles of devices as the daemon gets them: measured for real, and kept."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from shisha_rt.costs.operator_costs import OperatorCosts
from shisha_rt.errors import BadInput, Failure
from shisha_rt.machine.config.device_files import devices_of
from shisha_rt.machine.config.machine_file import parse_machine
from shisha_rt.machine.host.cores import usable_cores
from shisha_rt.machine.machine import Machine
from shisha_rt.measure import device_profile
from shisha_rt.measure.compile import Tell, compile_model, silent
from shisha_rt.measure.compiled import Compiled
from shisha_rt.measure.costs_of_model import layer_costs
from shisha_rt.measure.device_profile import DeviceProfile, profile_devices
from shisha_rt.measure.make_ready import make_ready
from shisha_rt.measure.sitting import measure
from shisha_rt.messages.device_profiling import DeviceProfilingJob, Profiled
from tests.model.networks import network, odd_network, weight, write
from tests.processor import X86
from tests.stages.test_segments import residual
from tests.wording import says

WITHOUT_OPENVINO = pytest.mark.skipif(find_spec("openvino") is None, reason="needs the extra openvino")


@pytest.fixture(scope="module")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return compile_model(residual(tmp_path_factory.mktemp("residual")), plain="heavy")


@pytest.fixture
def compiled(compiled_once: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiled:
    """A small network with branches; what is measured is kept in a cache of the test's own."""
    (tmp_path / "cache" / "shisha-rt").mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return compiled_once


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[DeviceProfilingJob]:
    """What children have been asked to run so far."""
    asked: list[DeviceProfilingJob] = []

    def noting(subject: str, module: str, job: DeviceProfilingJob, answer: type[Profiled], tell: Tell) -> Profiled:
        asked.append(job)
        return measure(subject, module, job, answer, tell)

    monkeypatch.setattr(device_profile, "measure", noting)
    return asked


def machine(*devices: str, places: int = 1) -> Machine:
    listed = ", ".join(f'"{name}"' for name in devices)
    text = "".join(f'[[place]]\nname = "p{i}"\ncore_count = 1\ndevices = [{listed}]\n' for i in range(places))
    return parse_machine(text, name="paper", source="paper.toml")


def profiled(compiled: Compiled, on: Machine, place: int = 0, messages: list[str] | None = None) -> DeviceProfile:
    chosen = on.places[place]
    return profile_devices(
        compiled, on, chosen, devices_of(on, chosen), silent if messages is None else messages.append
    )


def small_doubles() -> onnx.ModelProto:
    """Each operator by itself OpenVINO would run; not the three in one piece."""
    nodes = [
        helper.make_node("Gemm", ["x", "v"], ["ta"]),
        helper.make_node("Relu", ["ta"], ["tb"]),
        helper.make_node("Gemm", ["tb", "w"], ["y"]),
    ]
    weights = {"v": weight(16, 8).astype(np.float64), "w": weight(8, 5).astype(np.float64)}
    return network(nodes, {"x": [3, 16]}, {"y": [3, 5]}, weights, element=TensorProto.DOUBLE)


def assert_equal(first: OperatorCosts, other: OperatorCosts) -> None:
    assert first.devices == other.devices
    np.testing.assert_array_equal(first.time_s, other.time_s)


def test_a_second_start_measures_nothing(compiled: Compiled, jobs: list[DeviceProfilingJob]) -> None:
    messages: list[str] = []
    on = machine("ort_serial", "ort_parallel", places=2)
    first = profiled(compiled, on, messages=messages)
    assert messages[0].startswith("measuring the operators of residual under ort_serial, ort_parallel on core")
    assert messages[-1].endswith(": 100%")
    assert first.seconds > 0
    assert first.costs.time_s.shape == (len(compiled.model.graph.operators), 2)
    assert np.isfinite(first.costs.time_s).all()
    assert (first.costs.time_s >= 0).all()
    assert (first.costs.time_s.sum(axis=0) > 0).all()
    assert all(device.transfer_in is not None for device in first.costs.devices)

    job, *_ = made = list(jobs)  # what seemed best may have been run too
    assert (first.node_runs, first.edge_runs) == (len(job.node_runs), len(job.edge_runs))
    assert first.node_runs == 2
    assert first.edge_runs >= 1

    messages.clear()
    again, beside = profiled(compiled, on, messages=messages), profiled(compiled, on, place=1)
    assert jobs == made
    assert messages == []
    for other in (again, beside):  # the other place is of the same class
        assert other.seconds == 0
        assert (other.node_runs, other.edge_runs) == (first.node_runs, first.edge_runs)
        assert_equal(other.costs, first.costs)


def test_a_device_costs_the_same_whatever_stands_beside_it(compiled: Compiled, jobs: list[DeviceProfilingJob]) -> None:
    both = profiled(compiled, machine("ort_serial", "ort_parallel"))
    before = len(jobs)  # what seemed best may have been run too
    alone = profiled(compiled, machine("ort_parallel"))
    assert (alone.node_runs, alone.edge_runs) == (1, 0)
    np.testing.assert_array_equal(alone.costs.time_s[:, 0], both.costs.time_s[:, 1])
    assert len(jobs) == before  # alone it has no price of entry either


@pytest.mark.skipif(len(usable_cores()) < 2, reason="needs two cores")
def test_a_team_is_a_kind_of_its_own(compiled: Compiled, tmp_path: Path, jobs: list[DeviceProfilingJob]) -> None:
    on = machine("ort_parallel", places=2)
    ready = make_ready(residual(tmp_path), on, teams=True)
    ((team, costs),) = ready.team_costs.items()
    assert team == ("p0", "p1")
    assert costs.devices == ready.devices["p0"]
    alone, together = jobs
    assert (alone.threads, alone.lead) == (1, ())
    assert (together.threads, together.cores, together.lead) == (2, usable_cores()[:2], usable_cores()[:1])
    (measured,) = layer_costs(ready).costs().teams
    assert measured.places == team
    again = make_ready(residual(tmp_path), on)
    assert len(jobs) == 2  # kept
    assert layer_costs(again).costs().teams == ()


def test_places_with_described_devices_form_no_teams(compiled: Compiled, tmp_path: Path) -> None:
    ready = make_ready(residual(tmp_path), machine("cpu_s", places=2), teams=True)
    assert ready.single == {"p0", "p1"}
    assert ready.team_costs == {}


def test_described_devices_need_no_runs(compiled: Compiled, jobs: list[DeviceProfilingJob]) -> None:
    on_paper = profiled(compiled, machine("cpu_s", "pim"))
    assert (on_paper.node_runs, on_paper.edge_runs, on_paper.seconds) == (0, 0, 0.0)
    mixed = profiled(compiled, machine("pim", "ort_serial", "cpu_s"))
    assert [device.name for device in mixed.costs.devices] == ["pim", "ort_serial", "cpu_s"]
    np.testing.assert_array_equal(mixed.costs.time_s[:, [2, 0]], on_paper.costs.time_s)
    (job,) = jobs
    assert [device.name for device in job.devices] == ["ort_serial"]


@WITHOUT_OPENVINO
@X86
def test_bfloat16_is_refused_where_the_processor_has_none(compiled: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on one that has it, where OpenVINO can be kept from it."""
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_VNNI")
    has_it = "from tests.processor import openvino_computes_bf16 as has; print(has())"
    if subprocess.run([sys.executable, "-c", has_it], stdout=subprocess.PIPE, check=True).stdout == b"True\n":
        pytest.skip("OpenVINO cannot be kept from this processor's bfloat16")
    with pytest.raises(Failure) as failure:
        profiled(compiled, machine("ort_serial", "openvino_bf16"))
    assert str(failure.value) == says(
        "… of residual under ort_serial, openvino_bf16 could not … measured: "
        "OpenVINO has no bfloat16 … AVX-512 BF16 or AMX, or devices of fp32"
    )


@WITHOUT_OPENVINO
class TestWhatAnEngineCannotRun:
    def test_an_operator_that_it_does_not_know(
        self, compiled: Compiled, tmp_path: Path, jobs: list[DeviceProfilingJob]
    ) -> None:
        odd = compile_model(write(odd_network(), tmp_path), plain="heavy")
        both = machine("openvino", "ort_serial")
        costs = profiled(odd, both).costs
        assert np.isfinite(costs.time_s).tolist() == [[True, True], [False, True], [True, True]]
        before = len(jobs)
        assert_equal(profiled(odd, both).costs, costs)
        assert len(jobs) == before  # kept

    def test_doubles_which_it_computes_as_floats(self, compiled: Compiled, tmp_path: Path) -> None:
        doubles = compile_model(write(small_doubles(), tmp_path), plain="heavy")
        costs = profiled(doubles, machine("openvino", "ort_serial")).costs
        assert np.isfinite(costs.time_s).tolist() == [[False, True]] * 3

    def test_without_another_device(self, compiled: Compiled, tmp_path: Path) -> None:
        for built in (odd_network(), small_doubles()):
            model = compile_model(write(built, tmp_path), plain="heavy")
            with pytest.raises(BadInput, match="no device can"):
                profiled(model, machine("openvino"))


@pytest.mark.usefixtures("compiled")
def test_failure_carries_the_childs_last_words(tmp_path: Path) -> None:
    damaged = compile_model(residual(tmp_path), plain="heavy")
    for file in damaged.model_folder.glob("*.onnx"):
        file.write_bytes(b"\xff damaged")
    with pytest.raises(Failure, match=r"of residual under ort_serial could not .* measured: .*Error"):
        profiled(damaged, machine("ort_serial"))


def test_more_threads_than_this_host_has(compiled: Compiled) -> None:
    big = '[[place]]\nname = "big"\ncore_count = 4096\ndevices = ["ort_serial"]\n'
    with pytest.raises(BadInput, match=r"big\.toml: place big: threads = 4096: cannot be measured"):
        profiled(compiled, parse_machine(big, name="big", source="big.toml"))
