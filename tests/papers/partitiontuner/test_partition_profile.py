"""Profiles of partitions as the daemon gets them: measured for real, each id once, and kept for every model."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from shisha_rt.costs.operator_costs import OperatorCosts
from shisha_rt.errors import BadInput, Error, Failure
from shisha_rt.machine.config.device_files import devices_of
from shisha_rt.machine.config.machine_file import parse_machine
from shisha_rt.machine.machine import Machine
from shisha_rt.measure.compile import Tell, compile_model, silent
from shisha_rt.measure.compiled import Compiled
from shisha_rt.measure.profile_store import ProfileStore
from shisha_rt.measure.sitting import measure
from shisha_rt.messages.device_profiling import PartitionProfilingJob, PartitionsTimed
from shisha_rt.model.input_sizes import InputSizes
from shisha_rt.model.zoo import zoo_path
from shisha_rt.papers.partitiontuner import partition_profile
from shisha_rt.papers.partitiontuner.partition_profile import PartitionProfile, profile_partitions
from shisha_rt.placement.operator_groups import DEFAULT_PATTERNS, Pattern
from tests.measure.test_profile_devices import WITHOUT_OPENVINO, machine, small_doubles
from tests.model.int8 import qdq_network
from tests.model.networks import odd_network, write
from tests.real import REAL
from tests.stages.test_segments import early_output, residual
from tests.wording import raised, says

CONV_RELU, ADD_RELU, CONV_ADD_RELU = ("Conv", "Relu"), ("Add", "Relu"), ("Conv", "Add", "Relu")
ENGINES = machine("ort_serial", "openvino")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache and a profile store of the test's own."""
    zoo = zoo_path("squeezenet").parents[3]
    folder = tmp_path / "cache"
    (folder / "shisha-rt").mkdir(parents=True)
    (folder / "shisha-rt" / "zoo").symlink_to(zoo / "zoo")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder / "shisha-rt"


@pytest.fixture
def compiled(tmp_path: Path) -> Compiled:
    """Operators: 0 Conv, 1 Relu, 2 and 3 Convs that read it, 4 Add, 5 Relu, 6 Conv, 7 GlobalAveragePool."""
    return compile_model(residual(tmp_path), plain="heavy")


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[PartitionProfilingJob]:
    """What children have been asked to measure so far."""
    asked: list[PartitionProfilingJob] = []

    def noting(
        subject: str, module: str, job: PartitionProfilingJob, answer: type[PartitionsTimed], tell: Tell
    ) -> PartitionsTimed:
        asked.append(job)
        return measure(subject, module, job, answer, tell)

    monkeypatch.setattr(partition_profile, "measure", noting)
    return asked


def profiled(
    compiled: Compiled,
    on: Machine,
    patterns: Sequence[Pattern] = DEFAULT_PATTERNS,
    place: int = 0,
    messages: list[str] | None = None,
) -> PartitionProfile[OperatorCosts]:
    chosen_place = on.places[place]
    tell = silent if messages is None else messages.append
    return profile_partitions(compiled, on, chosen_place, devices_of(on, chosen_place), patterns, tell)


def groups_of(profile: PartitionProfile[OperatorCosts]) -> list[tuple[tuple[int, ...], int]]:
    assert all(0 < group.time_s < 1 for group in profile.costs.groups)
    return sorted((group.operators, group.device) for group in profile.costs.groups)


def test_a_second_start_measures_nothing(compiled: Compiled, jobs: list[PartitionProfilingJob]) -> None:
    messages: list[str] = []
    on = machine("ort_serial", "ort_parallel", places=2)
    first = profiled(compiled, on, messages=messages)
    assert messages[0] == says("measuring 7 partitions of … under ort_serial, ort_parallel on core…")
    assert messages[-1].endswith(": 100%")
    # Both Convs after the first Relu are the same; so are the Relus.
    assert (first.partitions, first.distinct, first.measured) == (9, 7, 7)
    assert first.seconds > 0
    assert first.in_words == f"9 partitions, 7 of them distinct, 7 measured in {first.seconds:.3g} s"
    assert first.costs.time_s.shape == (8, 2)
    assert ((first.costs.time_s > 0) & (first.costs.time_s < 1)).all()
    np.testing.assert_array_equal(first.costs.time_s[[1, 2]], first.costs.time_s[[5, 3]])
    assert groups_of(first) == [((0, 1), 0), ((0, 1), 1)]

    messages.clear()
    again, beside = profiled(compiled, on, messages=messages), profiled(compiled, on, place=1)
    assert messages == []
    assert len(jobs) == 1
    for other in (again, beside):  # the other place is of the same class
        assert (other.partitions, other.distinct, other.measured, other.seconds) == (9, 7, 0, 0)
        np.testing.assert_array_equal(other.costs.time_s, first.costs.time_s)
        assert other.costs.groups == first.costs.groups


def test_only_what_is_new_is_measured(compiled: Compiled, tmp_path: Path, jobs: list[PartitionProfilingJob]) -> None:
    """Other groups, another network, another device."""
    on = machine("ort_serial")
    before = profiled(compiled, on)
    more = profiled(compiled, on, [CONV_RELU, ADD_RELU, CONV_ADD_RELU])
    assert (more.partitions, more.measured) == (12, 2)
    assert {*jobs[-1].partitions} == {(4, 5), (2, 4, 5)}  # or (3, 4, 5), which is the same
    assert groups_of(more) == [((0, 1), 0), ((2, 4, 5), 0), ((3, 4, 5), 0), ((4, 5), 0)]
    np.testing.assert_array_equal(more.costs.time_s, before.costs.time_s)

    (tmp_path / "other").mkdir()
    named = residual(tmp_path / "other").rename(tmp_path / "other" / "renamed.onnx")
    assert profiled(compile_model(named, plain="heavy"), on).measured == 0
    assert profiled(compile_model(early_output(tmp_path), plain="heavy"), on).measured > 0

    wider = profiled(compiled, machine("ort_serial", "ort_parallel"))
    assert wider.measured == wider.distinct
    np.testing.assert_array_equal(wider.costs.time_s[:, :1], before.costs.time_s)  # the first measurement stays


def test_in_several_jobs_what_is_there_is_kept(
    compiled: Compiled, jobs: list[PartitionProfilingJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shisha_rt.papers.partitiontuner.partition_profile.MOST_AT_ONCE", 6)
    messages: list[str] = []

    def tell(message: str) -> None:
        messages.append(message)
        if len(jobs) == 2:
            raise Failure("no more")

    on = machine("ort_serial")
    with pytest.raises(Failure, match="no more"):
        profile_partitions(compiled, on, on.places[0], devices_of(on, on.places[0]), on_progress=tell)
    assert messages[0] == says("measuring 6 of 7 partitions of … under ort_serial on core…")
    assert messages[-1].startswith("measuring 1 of 7 partitions")
    assert profiled(compiled, on).measured == 1


def test_described_devices_are_not_measured(compiled: Compiled, jobs: list[PartitionProfilingJob]) -> None:
    on_paper = profiled(compiled, machine("cpu_s", "pim"))
    assert (on_paper.partitions, on_paper.measured, on_paper.seconds) == (0, 0, 0)
    assert jobs == []
    mixed = profiled(compiled, machine("pim", "ort_serial", "cpu_s"))
    np.testing.assert_array_equal(mixed.costs.time_s[:, [2, 0]], on_paper.costs.time_s)
    assert groups_of(mixed) == [((0, 1), 1)]


@WITHOUT_OPENVINO
class TestBothEngines:
    @pytest.mark.long
    def test_the_partitions_of_squeezenet(self, jobs: list[PartitionProfilingJob]) -> None:
        compiled = compile_model(zoo_path("squeezenet"), plain="heavy")
        profile = profiled(compiled, ENGINES)
        assert (profile.partitions, profile.distinct, profile.measured) == (65 + 26, 37 + 18, 37 + 18)
        assert ((profile.costs.time_s > 0) & (profile.costs.time_s < 1)).all()
        assert len(groups_of(profile)) == 2 * 26
        (job,) = jobs
        assert len(job.partitions) == 55

    def test_an_operator_that_one_does_not_know(self, tmp_path: Path) -> None:
        """Nor a group with it. That is kept, too."""
        odd = compile_model(write(odd_network(), tmp_path), plain="heavy")
        for measured in (4, 0):
            profile = profiled(odd, ENGINES, [("Relu", "Det"), ("Det", "Relu")])
            assert profile.measured == measured + bool(measured)
            assert np.isfinite(profile.costs.time_s).tolist() == [[True, True], [True, False], [True, True]]
            assert groups_of(profile) == [((0, 1), 0), ((1, 2), 0)]

    def test_doubles_which_it_computes_as_floats(self, tmp_path: Path) -> None:
        doubles = compile_model(write(small_doubles(), tmp_path), plain="heavy")
        profile = profiled(doubles, ENGINES, [("Gemm", "Relu")])
        assert np.isfinite(profile.costs.time_s).tolist() == [[True, False]] * 3
        assert groups_of(profile) == [((0, 1), 0)]

    @pytest.mark.long
    def test_integers_that_stand_for_reals(self, tmp_path: Path) -> None:
        integers = compile_model(write(qdq_network(), tmp_path), plain="heavy")
        profile = profiled(
            integers, ENGINES, [("Conv", "Relu"), ("Conv", "QuantizeLinear"), ("Relu", "QuantizeLinear")]
        )
        assert np.isfinite(profile.costs.time_s).all()
        assert profile.distinct < profile.partitions
        assert len(groups_of(profile)) == 2 * (profile.partitions - len(integers.model.graph.operators)) > 0

    @REAL
    @pytest.mark.long
    def test_a_trained_network(self) -> None:
        detector = compile_model(zoo_path("text_detector"), InputSizes({"height": 64, "width": 64}), plain="heavy")
        profile = profiled(detector, ENGINES)
        assert np.isfinite(profile.costs.time_s).all()
        assert profile.distinct < profile.partitions / 2


class TestAStoreThatCannotBeUsed:
    def test_a_damaged_one(self, compiled: Compiled, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
        (cache / "profiles.sqlite").write_bytes(b"no database, and longer than a header of one would be" * 10)
        profile = profiled(compiled, machine("ort_serial"))
        assert np.isfinite(profile.costs.time_s).all()
        assert len(caplog.messages) <= 1

    def test_a_locked_one(self, compiled: Compiled, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
        path, on = cache / "profiles.sqlite", machine("ort_serial")
        with closing(sqlite3.connect(path)) as other, ProfileStore(path, patience_s=0.05) as store:
            other.execute("BEGIN EXCLUSIVE")
            profile = profile_partitions(compiled, on, on.places[0], devices_of(on, on.places[0]), store=store)
        assert profile.measured == profile.distinct
        assert np.isfinite(profile.costs.time_s).all()
        (line,) = caplog.messages
        assert line.endswith("cannot be used (database is locked); what has to be measured is not kept")


def test_failure_carries_the_childs_last_words(compiled: Compiled) -> None:
    for file in compiled.model_folder.glob("*.onnx"):
        file.write_bytes(b"\xff damaged")
    with pytest.raises(Failure, match=r"7 partitions of .* under ort_serial could not .* measured: .*Error"):
        profiled(compiled, machine("ort_serial"))


def test_more_threads_than_this_host_has(compiled: Compiled) -> None:
    big = '[[place]]\nname = "big"\ncore_count = 4096\ndevices = ["ort_serial"]\n'
    with raised(BadInput, Error.MACHINE_UNFIT, match=r"big\.toml: place big: threads = 4096: cannot be measured"):
        profiled(compiled, parse_machine(big, name="big", source="big.toml"))
