"""`demo`: a real run, and that nothing of it is left whatever ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import psutil
import pytest

from shisha_rt.cache import publish
from shisha_rt.cli.demo import DemoOptions, _machine, show_demo
from shisha_rt.cli.drive.child_daemon import child_daemon
from shisha_rt.errors import BadInput, Error, Failure
from shisha_rt.extras import pip_install
from shisha_rt.machine.allotment import CpuLimits
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.plan.form import plan_of, written
from shisha_rt.plan.plan import Plan
from shisha_rt.process.child import fork_server
from shisha_rt.show.figure import NoFigure, save_pipelines
from shisha_rt.show.stages import rate_seen
from tests.cli.conftest import Run
from tests.cli.statuses import FORK, branches, copies, team
from tests.serving.daemon_process import leftovers
from tests.serving.identity_model import LAYERS, write_identity_model
from tests.waiting import PATIENCE_S, until
from tests.wording import says

_MARK = "SHISHA_RT_TEST_DEMO"


@pytest.fixture(scope="module")
def small_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In its zoo a network that takes hardly any time has the name of the demo's own."""
    cache = tmp_path_factory.mktemp("cache")

    def build(folder: Path) -> None:
        write_identity_model(folder, name="squeezenet")

    publish(cache / "shisha-rt" / "zoo" / "v1" / "squeezenet", build)
    return cache


@pytest.fixture
def _small(small_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(small_cache))


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runtime folder of the test's own, where the demo may write, and a mark on every process that comes of it."""
    folder = tmp_path / "runtime"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setenv(_MARK, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return folder


def descendants(mark: Path) -> list[psutil.Process]:
    """Living processes that carry the mark, but for this one and its own fork server, which outlives tests."""
    processes = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(_MARK) == str(mark) and process.pid not in (os.getpid(), fork_server()):
                processes.append(process)
        except (psutil.Error, OSError):
            continue
    return processes


def assert_nothing_left(mark: Path, runtime: Path) -> None:
    until(lambda: not descendants(mark), "the end of every process of the demo")
    assert leftovers(runtime) == []


@pytest.mark.usefixtures("_small")
def test_the_whole_of_it(run: Run, tmp_path: Path, runtime: Path) -> None:
    ran = run("demo", "--seconds", 0.3, "--png", tmp_path / "all.png", "--json")
    assert (ran.status, ran.err) == (0, "")
    summary = ran.object
    assert (summary["model"], summary["seed"]["stages"][-1]["last"]) == ("squeezenet", LAYERS - 1)
    assert summary["machine"] == {"name": "demo", "emulated": True}
    assert summary["sent"] == summary["answered"] > 50
    assert (summary["lost"], summary["out_of_order"], summary["different"], summary["errors"]) == (0, 0, 0, 0)
    assert summary["faults"] == []
    assert summary["gaps"]["longest_s"] >= summary["gaps"]["change_s"] >= summary["gaps"]["median_s"] > 0
    assert summary["epochs"] >= len(summary["trials"]) > 1  # each trial is an epoch, and going back to the best is one
    walked, tuned = (
        [trial for trial in summary["trials"] if trial["strategy"] == name] for name in ("shisha", "guided")
    )
    assert summary["trials"] == [*walked, *tuned]
    assert walked[0]["verdict"] == tuned[0]["verdict"] == "first"
    assert layers(summary["seed"]["stages"]) == layers(walked[0]["stages"])
    for act, trials, strategy in ((summary["walk"], walked, "shisha"), (summary["guided"], tuned, "guided")):
        best = max((trial for trial in trials if trial["verdict"] in ("first", "better")), key=fps)
        assert layers(act["stages"]) == layers(best["stages"])
        assert act["tuner_throughput_fps"] == best["throughput_fps"] >= trials[0]["throughput_fps"]
        assert summary["tuning"][strategy]["seconds"] > 0
    for act in (summary["seed"], summary["walk"], summary["guided"]):
        assert act["throughput_fps"] == pytest.approx(act["frames"] / act["seconds"])
        assert act["gain"] == act["throughput_fps"] / summary["seed"]["throughput_fps"]
        rate = rate_seen(act["stages"])
        assert rate is not None
        if all(len(stage["places"]) == 1 for stage in act["stages"]):  # copies, however unlike, are told as one
            assert rate.bottleneck_s == pytest.approx(1 / act["tuner_throughput_fps"])
    assert f"shisha_plan_epoch {summary['epochs']}.0" in summary["metrics"]
    assert 'shisha_place_speed_ratio{emulated="true",place="fast0"} 0.63' in summary["metrics"]
    assert summary["png"] == str(tmp_path / "all.png")
    assert (tmp_path / "all.png").read_bytes().startswith(b"\x89PNG")
    assert_nothing_left(tmp_path, runtime)


def layers(stages: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(stage["first"], stage["last"], *stage["places"]) for stage in stages]


def fps(trial: dict[str, Any]) -> float:
    return float(trial["throughput_fps"] or 0.0)


@pytest.mark.long
def test_what_a_reader_sees(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where searches take too long, and are stopped at their best plans; and without the extra `plot`."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr("shisha_rt.cli.demo._SEARCH_S", 0.0)
    show_demo(DemoOptions(0.3))
    said = capsys.readouterr()
    assert said.err == ""
    seen = [
        "1 of 3 · Shisha's seed\n26 layers cut",
        "EMULATED on core",
        "the seed\n",
        "3 of 3 · guided, as serve does\n",
        "best by measured costs\n",
        "best of 1 so far; a daemon goes",
    ]
    seen += ["none lost, all in order", "guided, as serve does  ", "machine demo (EMULATED)", "slowest ┓"]
    seen += ["shisha_plan_epoch", "shisha-rt submit", f"matplotlib is missing: {pip_install('plot')}"]
    for text in seen:
        assert text in said.out
    assert "\x1b" not in said.out  # nothing for a terminal where there is none
    assert not (tmp_path / "demo.png").exists()


@pytest.mark.parametrize(
    "number", [signal.SIGINT, *(pytest.param(end, marks=pytest.mark.long) for end in (signal.SIGTERM, signal.SIGKILL))]
)
@pytest.mark.usefixtures("_small")
def test_whatever_ends_it_nothing_is_left(tmp_path: Path, runtime: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "shisha_rt", "demo", "--seconds", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        assert demo.stderr is not None
        began_s = time.monotonic()
        while "serves as it is" not in (line := demo.stdout.readline()):  # frames flow
            assert line, demo.stderr.read()
            assert time.monotonic() < began_s + PATIENCE_S
        demo.send_signal(number)
        _, said = demo.communicate(timeout=PATIENCE_S)
    assert demo.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[number]
    assert said == ""
    assert_nothing_left(tmp_path, runtime)


@pytest.mark.usefixtures("_small")
def test_a_daemon_that_refuses_to_start_says_why_as_serve_does() -> None:
    with (
        pytest.raises(BadInput, match='strategy = "nonsense": '),
        child_daemon("zoo:squeezenet", "--strategy", "nonsense"),
    ):
        pytest.fail("it serves")


@pytest.mark.usefixtures("_small")
def test_a_daemon_that_dies_says_why(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def dies(show: Any) -> Any:
        os.kill(show.daemon.pid, signal.SIGKILL)
        raise Failure("the daemon went away")

    monkeypatch.setattr("shisha_rt.cli.demo._Show.run", dies)
    ran = run("demo", "--json")
    assert (ran.status, ran.kind) == (1, "daemon_failed")
    assert "-9" in ran.only_error


@pytest.mark.usefixtures("_small")
def test_a_tuner_that_does_not_end(runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shisha_rt.cli.demo._LIMIT_S", -1.0)
    with pytest.raises(Failure, match="within -1 s"):
        show_demo(DemoOptions(0.3, as_json=True))
    assert_nothing_left(tmp_path, runtime)


def test_a_picture_in_no_folder(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "none"
    complaint = run("demo", "--png", folder / "a.png").complaint_of(Error.UNWRITABLE_FILE)
    assert complaint == says(f"shisha-rt: --png {folder}/a.png: …")


@pytest.mark.parametrize(
    ("usable", "expected"),
    [
        ((0, 1), {"fast0": 0, "fast1": 1, "slow0": 0, "slow1": 1}),
        ((0, 1, 2), {"fast0": 0, "fast1": 1, "slow0": 0, "slow1": 1}),
        ((1, 4, 5), {"fast0": 1, "fast1": 4, "slow0": 1, "slow1": 4}),
        ((7,), {"fast0": 7, "slow0": 7}),
    ],
)
def test_a_machine_that_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, usable: tuple[int, ...], expected: dict[str, int]
) -> None:
    monkeypatch.setattr("shisha_rt.machine.host.this_machine.this_limits", lambda: CpuLimits(frozenset(usable)))
    text, about = _machine(tmp_path)
    machine, shipped = load_machine(text), load_machine("demo")
    assert {place.name: place.cores for place in machine.places} == {name: (core,) for name, core in expected.items()}
    assert machine.memories == shipped.memories
    for place in machine.places:
        as_shipped = shipped.place(place.name)
        assert (place.speed, place.rank, place.memory) == (as_shipped.speed, as_shipped.rank, as_shipped.memory)
    assert machine.name == "demo"
    assert "EMULATED" in about
    assert (text == "demo") is ("needs" not in about and "usable" not in about)


class TestFigure:
    PANEL: Final = "one", [{"first": 0, "last": 3, "places": ["a"], "service_s": 0.002}]
    PLACES: Final = MappingProxyType({"a": "0.5 of a core", "b": "0.1 of a core"})

    def test_it_is_a_png_whatever_it_is_called(self, tmp_path: Path) -> None:
        save_pipelines(tmp_path / "x.jpg", "a title", [self.PANEL, self.PANEL], self.PLACES)
        assert (tmp_path / "x.jpg").read_bytes().startswith(b"\x89PNG")

    def test_every_plan_has_one(self, tmp_path: Path) -> None:
        pools = Plan.chain([(0, 3, (("a",),)), (4, 5, (("b", "c"),)), (6, 9, (("a",),))])
        plans = (copies(1), copies(64), team(64), branches(10), FORK, pools)
        panels = [("one", written(plan, service_s=[0.001] * len(plan.stages))) for plan in plans]
        places = {place: "" for plan in plans for place in plan.places}
        for panel in panels:
            own = {name: places[name] for name in [*plan_of(panel[1]).places, "idle"] if name in places}
            save_pipelines(tmp_path / "x.png", "a title", [panel], own)

    def test_a_file_that_cannot_be_written(self, tmp_path: Path) -> None:
        with pytest.raises(NoFigure, match="Is a directory"):
            save_pipelines(tmp_path, "a title", [self.PANEL], self.PLACES)
