"""`plan get`, `plan set` and `place set`: what a daemon is told by commands, and how what it refuses is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shisha_rt.errors import Error
from tests.cli.conftest import Run
from tests.serving.daemon_process import DaemonProcess
from tests.wording import says


def test_a_plan_there_and_back(run: Run, daemon: DaemonProcess, tmp_path: Path) -> None:
    kept = run("plan", "get", "--endpoint", daemon.endpoint)
    assert kept.object == daemon.control.plan()
    file = tmp_path / "plan.json"
    file.write_text(kept.out)
    answer = run("plan", "set", file, "--endpoint", daemon.endpoint, "--json").object
    assert (answer["outcome"], answer["epoch"]) == ("live", daemon.control.plan()["epoch"])
    assert run("plan", "set", file, "--endpoint", daemon.endpoint).out.startswith(
        f"epoch {answer['epoch'] + 1} is live: "
    )


@pytest.mark.parametrize("command", ["plan get", "models load m", "models undo m", "models unload m"])
def test_commands_whose_result_is_json_anyway_take_json_for_their_errors(run: Run, command: str) -> None:
    ran = run(*command.split(), "--json", "--endpoint", "nowhere")
    assert ran.complaint_of(Error.BAD_ENDPOINT)
    assert ran.object["error"]["kind"] == Error.BAD_ENDPOINT


def test_a_plan_that_is_refused(run: Run, daemon: DaemonProcess, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps([{"first": 0, "last": 0, "places": ["nowhere"]}]))
    ran = run("plan", "set", file, "--endpoint", daemon.endpoint)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith("shisha-rt: refused: ")
    assert "cannot be read" in run("plan", "set", tmp_path / "none.json").complaint_of(Error.UNREADABLE_FILE)


def test_a_place_down_and_up(run: Run, daemon: DaemonProcess) -> None:
    assert run("place", "set", "slow0", "--down", "--endpoint", daemon.endpoint).out == "place slow0, state down\n"
    answer = run("place", "set", "slow0", "--up", "--endpoint", daemon.endpoint, "--json").object
    assert answer["place"] == "slow0"
    daemon.wait_for_workers()


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("place", "set", "slow9", "--down"), Error.UNKNOWN_PLACE),
        (("place", "set", "slow0", "--speed", 0.5, "--device", "pim"), Error.UNKNOWN_DEVICE),
        (("status", "--model", "another"), Error.UNKNOWN_MODEL),
        (("plan", "get", "--model", "another"), Error.UNKNOWN_MODEL),
    ],
)
def test_a_name_that_the_daemon_does_not_know_is_bad_input(
    run: Run, daemon: DaemonProcess, words: tuple[str, ...], kind: Error
) -> None:
    assert run(*words, "--endpoint", daemon.endpoint).complaint_of(kind)


def test_a_device_without_a_name_slows_down_no_whole_place(run: Run, daemon: DaemonProcess) -> None:
    ran = run("place", "set", "slow0", "--speed", 0.5, "--device", "", "--endpoint", daemon.endpoint)
    assert ran.complaint_of(Error.WRONG_OPTION)


@pytest.mark.parametrize(
    ("stages", "named"),
    [
        ([], "stages = []"),
        ([{"first": 0, "last": 0, "places": ["a"]}] * 100_000, "stages = "),
        ([{"first": 0, "last": 0, "places": ["a"], "btach": 4}], "stages[0].btach: … expected batch"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_before_a_daemon_is_asked(
    run: Run, tmp_path: Path, stages: list[object], named: str
) -> None:
    file = tmp_path / "plan.json"
    for written in stages, {"stages": stages, "trials": 3}:
        file.write_text(json.dumps(written))
        assert run("plan", "set", file).complaint_of(Error.WRONG_VALUE) == says(f"…{file}: {named}…")


@pytest.mark.parametrize("speed", ["nan", -1, 0, 1.5])
def test_a_speed_that_is_none(run: Run, speed: object) -> None:
    assert "--speed" in run("place", "set", "a", "--speed", speed).complaint


@pytest.mark.parametrize("options", [(), ("--up", "--down"), ("--up", "--speed", 0.5)])
def test_one_thing_at_a_time(run: Run, options: tuple[object, ...]) -> None:
    assert run("place", "set", "a", *options).complaint.endswith("--up, --down and --speed")


def test_the_endpoint_may_stand_in_the_environment(
    run: Run, daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHISHA_ENDPOINT", daemon.endpoint)
    assert run("plan", "get").object == daemon.control.plan()
    assert run("status", "--json").object["pid"] == daemon.pid
