"""Devices inside places, live: right answers whatever runs where, and placements that follow what devices take.

Described devices state times far above what this host needs, so what they take is exactly what is predicted, and a
test knows which placement is the best: on the place `left` the `special` device is the better one for every Conv.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from shisha_rt.client import Client, InvalidArgument, NotFound
from tests.serving.daemon_process import DaemonEnded, DaemonProcess, complaints_of
from tests.serving.identity_model import LAYERS, frame_of, write_identity_model
from tests.serving.load import Load, assert_kept
from tests.serving.page import scrape, values
from tests.serving.placed import described, machine_of, operators, placements, segments, used
from tests.serving.tuned import await_state, events, tuner
from tests.waiting import until
from tests.wording import says

HALVES: Final = [
    {"first": 0, "last": 4, "places": ["left"]},
    {"first": 5, "last": LAYERS - 1, "places": ["right"]},
]
MOVED: Final = [
    {"first": 0, "last": 5, "places": ["left"]},
    {"first": 6, "last": LAYERS - 1, "places": ["right"]},
]
OPERATORS: Final = (9, 7)
"""Of the stages of `HALVES`; layer 5, which `MOVED` moves, has two."""

SLOWED: Final = 0.1
"""At this speed `special` takes longer for a Conv than `general`."""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("machine")
    general = described(folder, "general", 400e-6, "*")
    special = described(folder, "special", 100e-6, "Conv", linked=True)
    steady = described(folder, "steady", 300e-6, "*")
    return machine_of(folder, left=[general, special], right=[steady])


@pytest.fixture(scope="module")
def running(identity: Path, machine: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """For all tests after which it is as it was but for its plan."""
    with DaemonProcess(tmp_path_factory.mktemp("running"), identity, "--machine", machine) as process:
        yield process


@pytest.fixture
def daemon(running: DaemonProcess) -> DaemonProcess:
    running.wait_for_workers()
    assert running.control.set_plan(HALVES)["outcome"] == "live"
    return running


@pytest.fixture
def client(daemon: DaemonProcess) -> Client:
    return daemon.control


def next_event(client: Client) -> int:
    return int(client.events(0, 10_000)["next"])


def kinds(client: Client, since: int) -> list[str]:
    return [event["kind"] for event in client.events(since, 10_000)["events"]]


def metric(daemon: DaemonProcess, name: str, label: str = "place") -> dict[str, float]:
    return values(scrape(daemon.metrics), name, label)


# --- what runs where ------------------------------------------------------------------------------------------


def test_status_tells_what_was_predicted_and_what_is_measured(client: Client, daemon: DaemonProcess) -> None:
    for number in range(20):
        assert (client.infer(frame_of(number)).output == frame_of(number)).all()
    status, by_place = client.status(), placements(client)
    assert (status["model"]["engine"], status["model"]["legal_cuts"]) == ("plain", LAYERS - 1)
    assert status["machine"]["emulated"] is True
    assert all(place["emulated"] for place in status["places"])
    devices = {place["name"]: place["devices"] for place in status["places"]}
    assert [(device["name"], device["speed"]) for device in devices["left"]] == [("general", 1), ("special", 1)]
    assert devices["right"] == [{"name": "steady", "emulated": True, "exact": True, "speed": 1}]

    left, right = by_place["left"], by_place["right"]
    assert segments(left) == [("special", 1), ("general", 1)] * 4 + [("special", 1)]
    assert segments(right) == [("steady", 7)]
    # Five of `left`'s operators are Convs; each takes one tensor over the link and brings one back.
    assert left["predicted_s"] == pytest.approx(5 * 160e-6 + 4 * 400e-6, rel=1e-3)
    assert right["predicted_s"] == pytest.approx(7 * 300e-6)
    for placement, count in zip((left, right), OPERATORS, strict=True):
        assert operators(placement) == count
        assert (placement["solver"], placement["outcome"]) == ("exact", "optimal")
        assert placement["reason"] == says("a plan was …")
        assert placement["lower_bound_s"] == pytest.approx(placement["predicted_s"])
        assert sum(s["predicted_s"] for s in placement["segments"]) == pytest.approx(placement["predicted_s"])
        for segment in placement["segments"]:
            assert segment["measured_s"] == pytest.approx(segment["predicted_s"], rel=1e-6), segment
    for stage in status["plan"]["stages"]:
        assert stage["service_s"] >= stage["placement"]["predicted_s"] * (1 - 1e-6)

    predicted_s = {place: placement["predicted_s"] for place, placement in by_place.items()}
    until(lambda: metric(daemon, "shisha_placement_cost_seconds") == pytest.approx(predicted_s), "the predicted times")
    solves = metric(daemon, "shisha_placement_solves_total", "solver")
    assert client.set_plan(HALVES)["outcome"] == "live"
    assert metric(daemon, "shisha_placement_solves_total", "solver") == {"exact": solves["exact"] + 1}


def test_a_moved_layer_is_placed_on_the_devices_of_its_new_place_at_once(client: Client) -> None:
    since = next_event(client)
    assert client.set_plan(MOVED)["outcome"] == "live"
    assert kinds(client, since) == ["placement_solved", "plan_preparing", "plan_live"]
    by_place = placements(client)
    assert (operators(by_place["left"]), operators(by_place["right"])) == (11, 5)
    assert used(client, "left") == {"general", "special"}
    assert used(client, "right") == {"steady"}
    assert by_place["right"]["predicted_s"] == pytest.approx(5 * 300e-6)


# --- what changes ---------------------------------------------------------------------------------------------


def test_a_convolution_and_the_relu_behind_it_on_two_places_by_the_other_solver(
    identity: Path, machine: Path, tmp_path: Path
) -> None:
    options = ("--machine", machine, "--layers", "operators", "--solver", "als")
    with DaemonProcess(tmp_path, identity, *options) as daemon:
        client = daemon.control
        model = client.status()["model"]
        assert (model["layers"], model["legal_cuts"], model["form"]) == (sum(OPERATORS), sum(OPERATORS) - 1, "as_is")
        for last in (0, 6):  # both are convolutions
            halves: list[dict[str, Any]] = [
                {"first": 0, "last": last, "places": ["right"]},
                {"first": last + 1, "last": sum(OPERATORS) - 1, "places": ["left"]},
            ]
            assert client.set_plan(halves)["outcome"] == "live"
            assert operators(placements(client)["right"]) == last + 1
            for number in range(10):
                assert (client.infer(frame_of(number)).output == frame_of(number)).all()
        assert {placement["solver"] for placement in placements(client).values()} == {"als"}
        assert metric(daemon, "shisha_placement_solves_total", "solver")["als"] >= 1


def test_a_slowed_device_is_left_and_no_frame_is_lost(identity: Path, machine: Path, tmp_path: Path) -> None:
    with DaemonProcess(tmp_path, identity, "--machine", machine) as daemon:
        client = daemon.control
        assert client.set_plan(HALVES)["outcome"] == "live"
        before = client.plan()["epoch"]
        with Load(daemon.endpoint) as load:
            load.wait_for_answers(50)
            assert used(client, "left") == {"general", "special"}
            since = next_event(client)
            answer = client.call("place_set", place="left", device="special", speed=SLOWED)
            assert (answer["place"], answer["device"], answer["speed"]) == ("left", "special", SLOWED)
            until(lambda: used(client, "left") == {"general"}, "a placement without the device")
            load.wait_for_answers(50)
            by_place, after = placements(client), client.plan()["epoch"]
        assert_kept(load)
        assert load.epochs == {before, after}
        assert kinds(client, since) == [
            "device_speed", "device_ratio", "placement_solved", "plan_preparing", "plan_live",
        ]  # fmt: skip
        (ratio,) = events(client, "device_ratio", since)
        assert (ratio["place"], ratio["device"], ratio["ratio"]) == ("left", "special", pytest.approx(10, rel=1e-3))
        assert by_place["left"]["predicted_s"] == pytest.approx(9 * 400e-6)
        assert "special on left" in by_place["left"]["reason"]
        shown = metric(daemon, "shisha_device_speed_ratio", "device")
        assert shown == {"general": 1, "special": SLOWED, "steady": 1}


def test_guided_tuning_starts_from_what_placements_cost(identity: Path, machine: Path, tmp_path: Path) -> None:
    with DaemonProcess(tmp_path, identity, "--machine", machine, "--strategy", "guided", "--fresh") as daemon:
        client = daemon.control
        with Load(daemon.endpoint) as load:
            await_state(client, "watching")
        assert_kept(load)
        tuning, solved = tuner(client), {event["plan"] for event in events(client, "placement_solved")}
        assert tuning["trials"] >= 1
        assert tuning["lower_bound_s"] > 0
        assert {trial["plan"] for trial in events(client, "trial")} <= solved
        # A layer of two operators takes 560 us on `left` and 600 us on `right`: each has to have some.
        assert set(placements(client)) == {"left", "right"}


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["guided", "shisha"])
def test_a_tuned_pipeline_has_its_operators_placed_anew_too(
    identity: Path, machine: Path, tmp_path: Path, strategy: str
) -> None:
    with DaemonProcess(tmp_path, identity, "--machine", machine, "--strategy", strategy, "--fresh") as daemon:
        client = daemon.control
        with Load(daemon.endpoint) as load:
            await_state(client, "watching")
            assert "special" in used(client, "left")
            client.call("place_set", place="left", device="special", speed=SLOWED)
            until(
                lambda: "special" not in used(client, "left") and tuner(client)["state"] == "watching",
                "a placement without the device",
                every_s=0.05,
            )
            load.wait_for_answers(20)
        assert_kept(load)


def test_workers_that_are_killed_come_back_with_their_placements(client: Client, daemon: DaemonProcess) -> None:
    before, epoch, since = placements(client), client.plan()["epoch"], next_event(client)
    with Load(daemon.endpoint) as load:
        for place in ("left", "right"):
            load.wait_for_answers(20)
            daemon.kill_worker(daemon.wait_for_workers()[place])
            load.wait_until_answered(load.sent)
        daemon.wait_for_workers()
        load.wait_for_answers(20)
    assert_kept(load)
    if events(client, "replan", since):  # a worker was long in coming, and another plan was made without its place
        return
    assert client.plan()["epoch"] == epoch
    after = placements(client)
    assert {place: segments(placement) for place, placement in after.items()} == {
        p: segments(placement) for p, placement in before.items()
    }


def placer_pid(daemon: DaemonProcess) -> int:
    (placer,) = daemon.running("shisha_rt.daemon.children.placer")
    return placer.pid


def test_when_a_place_is_lost_no_frame_waits_for_the_placer(client: Client, daemon: DaemonProcess) -> None:
    """Its solvers may take a minute a stage; what is live meanwhile is placed anew when they are done."""
    since = next_event(client)
    placer = placer_pid(daemon)
    os.kill(placer, signal.SIGSTOP)
    try:
        client.call("place_set", place="right", down=True)
        until(lambda: placements(client) == {"left": None}, "a plan without the place")
        assert (client.infer(frame_of(1)).output == frame_of(1)).all()
        assert [kind for kind in kinds(client, since) if not kind.startswith("worker")] == [
            "place_down", "replan", "placed_at_once", "plan_preparing", "plan_live", "place_released",
        ]  # fmt: skip
    finally:
        os.kill(placer, signal.SIGCONT)
    until(lambda: placements(client)["left"], "a placement by the solver")
    assert used(client, "left") == {"general", "special"}
    assert kinds(client, since).count("replan") == 1
    client.call("place_set", place="right", up=True)
    until(lambda: used(client, "right"), "the client's plan, with the place")


def test_a_placer_that_is_killed_is_started_again(client: Client, daemon: DaemonProcess) -> None:
    os.kill(placer_pid(daemon), signal.SIGKILL)
    assert client.set_plan(MOVED)["outcome"] == "live"
    assert used(client, "left") == {"general", "special"}
    (died,) = events(client, "placer_died")
    assert died["reason"] == "killed by signal 9 (SIGKILL)"


# --- what cannot be -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "complaint"),
    [
        ({"device": "npu", "speed": 0.5}, NotFound, "'left' has no 'npu';"),
        ({"device": "special", "speed": 1.5}, InvalidArgument, "1.5 is faster than"),
        ({"device": "special", "speed": 0}, InvalidArgument, "speed"),
        ({"device": "special"}, InvalidArgument, "exactly one of"),
        ({"device": "special", "down": True}, InvalidArgument, "device with speed"),
    ],
)
def test_bad_device_settings_are_refused(
    client: Client, arguments: dict[str, Any], error: type[Exception], complaint: str
) -> None:
    since = next_event(client)
    with pytest.raises(error, match=complaint):
        client.call("place_set", place="left", **arguments)
    assert events(client, "device_speed", since) == []


def test_an_operator_that_no_device_can_run(identity: Path, tmp_path: Path) -> None:
    machine = machine_of(tmp_path, left=[described(tmp_path, "convs", 400e-6, "Conv")])
    with pytest.raises(DaemonEnded) as ended:
        DaemonProcess(tmp_path, identity, "--machine", machine)
    assert ended.value.status == 2
    assert "operator Relu ('r0'): no device can" in complaints_of(ended.value.stderr)[-1]


# --- precision ------------------------------------------------------------------------------------------------


@pytest.fixture
def rounding(tmp_path: Path) -> Path:
    """A machine on which the better device for Convs computes in bfloat16."""
    general = described(tmp_path, "general", 400e-6, "*")
    rounded = described(tmp_path, "rounded", 100e-6, "Conv", linked=True, precision="bf16")
    return machine_of(tmp_path, left=[general, rounded])


def test_bfloat16_is_applied_where_it_is_permitted(identity: Path, rounding: Path, tmp_path: Path) -> None:
    with DaemonProcess(tmp_path, identity, "--machine", rounding, "--precision", "any") as daemon:
        assert used(daemon.control, "left") == {"general", "rounded"}
        (place,) = daemon.control.status()["places"]
        assert {device["name"]: device["exact"] for device in place["devices"]} == {"general": True, "rounded": False}
        for number in (1, 1000):
            answer, exact = daemon.control.infer(frame_of(number)).output, frame_of(number)
            # Once a value is rounded, which is to 8 bits, this network keeps it as it is.
            np.testing.assert_allclose(answer, exact, rtol=2**-8)
            assert (answer != exact).any()


@pytest.mark.long
def test_bfloat16_is_left_out_by_default(identity: Path, rounding: Path, tmp_path: Path) -> None:
    with DaemonProcess(tmp_path, identity, "--machine", rounding) as daemon:
        with Load(daemon.endpoint) as load:
            load.wait_for_answers(20)
        assert_kept(load)
        assert used(daemon.control, "left") == {"general"}
        (place,) = daemon.control.status()["places"]
        assert [device["name"] for device in place["devices"]] == ["general"]


# --- engines of this host -------------------------------------------------------------------------------------

_SHAPE: Final = (1, 64, 16, 16)
_SPACING: Final = 1000
"""Between the values of two frames: far more than what engines may round differently."""


@pytest.fixture(scope="module")
def larger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Large enough for what a device takes to be told from what calling it takes."""
    return write_identity_model(tmp_path_factory.mktemp("larger"), channels=_SHAPE[1], size=_SHAPE[2], name="larger")


@pytest.mark.parametrize(
    "devices",
    [
        ("ort_serial", "ort_parallel"),
        pytest.param(
            ("ort_serial", "openvino"),
            marks=[
                pytest.mark.long,
                pytest.mark.skipif(find_spec("openvino") is None, reason="openvino is not installed"),
            ],
        ),
    ],
)
def test_engines_take_over_from_each_other(larger: Path, tmp_path: Path, devices: tuple[str, str]) -> None:
    """Answers are the whole model's under whatever engine; and a slowed engine is left for the other one."""
    machine = machine_of(tmp_path, left=devices, right=())
    with DaemonProcess(tmp_path, larger, "--machine", machine) as daemon:
        client = daemon.control
        assert client.set_plan(HALVES)["outcome"] == "live"
        serve(client, 20)
        status = client.status()
        assert not status["machine"]["emulated"]
        assert [device["name"] for device in status["places"][1]["devices"]] == ["ort_parallel"]
        for placement, count in zip(placements(client).values(), OPERATORS, strict=True):
            assert operators(placement) == count
            assert all(segment["measured_s"] > 0 for segment in placement["segments"])
            assert 0 < placement["lower_bound_s"] <= placement["predicted_s"] * (1 + 1e-9)
        before = used(client, "left")
        for device in before:
            client.call("place_set", place="left", device=device, speed=0.05)
        other = set(devices) - before
        if other:  # else they have found work for both
            serve_until(client, lambda: used(client, "left") == other, f"the work to be left to {other}")
        serve(client, 20)


def serve(client: Client, frames: int) -> None:
    """Frames, each of which has to be answered as by the whole model: with itself, but for the last bits."""
    with client.stream() as stream:
        sent = [frame_of(_SPACING * number, _SHAPE) for number in range(frames)]
        for frame, answer in zip(sent, stream.run(sent), strict=True):
            np.testing.assert_allclose(answer.output, frame, rtol=0, atol=1e-5 * frame.max())


def serve_until(client: Client, true: Callable[[], bool], what: str) -> None:
    def served() -> bool:
        serve(client, 8)
        return true()

    until(served, what)
