"""What engines take on a whole network, kept from one start to the next."""

from __future__ import annotations

import importlib.metadata
import logging
import signal
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from shisha_rt.cache import cache_folder
from shisha_rt.costs.engine_trials import EnginesTried, EngineTime, EngineTrial, why_not
from shisha_rt.costs.profiles import DISTURBED
from shisha_rt.machine.host.cores import usable_cores
from shisha_rt.measure import engines, installed
from shisha_rt.measure.compile import compile_model
from shisha_rt.measure.compiled import Compiled
from shisha_rt.measure.database import open_database
from shisha_rt.measure.engines import engines_tried, known_engines
from shisha_rt.measure.installed import installed_engines
from shisha_rt.measure.place_class import PlaceClass
from shisha_rt.measure.sitting import ALONE, Sitting
from shisha_rt.process.job import how_ended
from tests.stages.test_calibrate import paper_machine
from tests.stages.test_segments import residual


@pytest.fixture(scope="module")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return compile_model(residual(tmp_path_factory.mktemp("residual")))


@pytest.fixture
def compiled(compiled_once: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiled:
    """What engines take is kept in a cache of the test's own."""
    (tmp_path / "cache" / "shisha-rt").mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return compiled_once


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Threads of each job, none of which is run: each answers with a share of the cores that others had."""
    jobs: list[int] = []

    def measured(
        compiled: Compiled, place_class: PlaceClass, sitting: Sitting, budget_s: float, precision: str
    ) -> EnginesTried:
        threads = place_class.setting.threads
        jobs.append(threads)
        times = () if sitting.beside else (EngineTime(threads, 1.0, 1.0, runs=5),)
        return EnginesTried((EngineTrial("onnxruntime", "1", runs=True, times=times),), 1 / len(jobs))

    monkeypatch.setattr(engines, "_measured", measured)
    return jobs


def test_engines_are_tried_once(compiled: Compiled) -> None:
    """On one thread and on those of all places that are alike."""
    machine = paper_machine(1.0, 1.0)
    assert known_engines(compiled, machine) is None or len(installed_engines()) == 1
    messages: list[str] = []
    tried = engines_tried(compiled, machine, Sitting(messages.append), budget_s=0.1)
    threads = sorted({1, min(2, len(usable_cores()))})
    assert [trial.version for trial in tried.engines] == list(installed_engines().values())
    assert all([time.threads for time in trial.times] == threads for trial in tried.engines)
    assert "each engine on" in messages[0]
    messages.clear()
    assert engines_tried(compiled, machine, Sitting(messages.append)) == tried == known_engines(compiled, machine)
    assert messages == []
    assert known_engines(compiled, paper_machine(1.0, 1.0, 1.0, 1.0)) is None or len(usable_cores()) < 4


def test_without_a_second_engine_runs_of_several_frames_are_still_to_be_found_out(
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "is_installed", lambda name: name != "openvino")
    assert known_engines(compiled, paper_machine(1.0)) is None
    (trial,) = engines_tried(compiled, paper_machine(1.0), ALONE, budget_s=0.1).engines
    assert (trial.engine, [time.frames for time in trial.batch_times]) == ("onnxruntime", [4])


def test_another_version_is_tried_anew(compiled: Compiled, asked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    machine = paper_machine(1.0)
    engines_tried(compiled, machine, ALONE)
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "99")
    engines_tried(compiled, machine, ALONE)
    assert asked == [1, 1]


def test_what_was_disturbed_is_tried_again_if_wanted_and_the_calmer_stays(compiled: Compiled, asked: list[int]) -> None:
    machine = paper_machine(1.0)
    assert engines_tried(compiled, machine, ALONE).others_ratio == 1
    assert engines_tried(compiled, machine, ALONE).others_ratio == 1
    asked += [1] * int(1 / DISTURBED - 3)
    assert DISTURBED < engines_tried(compiled, machine, Sitting(renew=True)).others_ratio < 1
    asked += [1] * 9
    calm = engines_tried(compiled, machine, Sitting(renew=True))
    assert calm.others_ratio < DISTURBED
    count = len(asked)
    assert engines_tried(compiled, machine, Sitting(renew=True)) == calm
    assert len(asked) == count


def test_what_was_given_up_is_used_and_not_kept(compiled: Compiled, asked: list[int]) -> None:
    machine = paper_machine(1.0)
    (trial,) = engines_tried(compiled, machine, Sitting(beside=1)).engines
    assert trial.times == ()
    engines_tried(compiled, machine, ALONE)
    assert len(asked) == 2


def test_what_was_tried_with_more_engines_is_not_tried_again_with_fewer(
    compiled: Compiled, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `check` tries all of them before `serve` is asked for exact answers; but not the other way round."""
    monkeypatch.setattr(engines, "installed_engines", lambda precision: {"onnxruntime": precision})
    machine = paper_machine(1.0)
    engines_tried(compiled, machine, ALONE)
    assert known_engines(compiled, machine, "any") is None
    engines_tried(compiled, machine, ALONE, precision="any")
    assert len(asked) == 2
    (cache_folder() / engines.FILE_NAME).unlink()
    engines_tried(compiled, machine, ALONE, precision="any")
    assert known_engines(compiled, machine) == known_engines(compiled, machine, "any") is not None
    engines_tried(compiled, machine, ALONE)
    assert len(asked) == 3


def test_an_engine_that_memory_was_too_short_for_is_tried_again(
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = EngineTrial("openvino", "2", runs=False, reason=how_ended(-signal.SIGKILL))
    right = EngineTrial("onnxruntime", "1", runs=True, times=(EngineTime(1, 1.0, 1.0, runs=5),))
    monkeypatch.setattr(engines, "_measured", lambda *_: EnginesTried((right, lost)))
    monkeypatch.setattr(engines, "installed_engines", lambda precision: {"onnxruntime": "1", "openvino": "2"})
    machine = paper_machine(1.0)
    assert why_not(engines_tried(compiled, machine, ALONE).engines[1])
    assert known_engines(compiled, machine) is None


def test_a_file_that_cannot_be_used_costs_no_answer(
    compiled: Compiled, asked: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    (cache_folder() / engines.FILE_NAME).mkdir()
    caplog.set_level(logging.WARNING)
    (trial,) = engines_tried(compiled, paper_machine(1.0), ALONE).engines
    assert len(trial.times) == 1
    (line,) = caplog.messages
    assert str(cache_folder() / engines.FILE_NAME) in line


def test_a_record_of_another_form_is_none(compiled: Compiled, asked: list[int]) -> None:
    machine = paper_machine(1.0)
    tried = engines_tried(compiled, machine, ALONE)
    (key,) = engines._classes(compiled, machine, "exact")
    path = cache_folder() / engines.FILE_NAME
    with closing(open_database(path, engines._TABLE)) as database:
        database.execute("UPDATE tried SET record = ?", (b"\xc0",))
    assert engines._load([key]) == {}
    assert engines_tried(compiled, machine, ALONE) == replace(tried, others_ratio=0.5)
