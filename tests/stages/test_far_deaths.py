"""Deaths at a place on another host, at any moment: the relay ends, says of what, and nothing is left anywhere."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import time
from pathlib import Path

import msgspec
import psutil
import pytest
import zmq

from shisha_rt.daemon.fleet.watch import HangLimits, Watch
from shisha_rt.measure.compile import compile_model
from shisha_rt.measure.compiled import Compiled
from shisha_rt.messages import worker as messages
from shisha_rt.messages.worker import FarConfig
from shisha_rt.model.zoo import resolve_model
from shisha_rt.process.arena import Arena
from shisha_rt.process.channel import ChannelBroken
from shisha_rt.process.child import start_child
from tests.stages.far_places import (
    FarPlace,
    arena_of,
    children_of,
    far_places,
    put_noise,
)
from tests.waiting import PATIENCE_S, until
from tests.wording import says


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return compile_model(resolve_model("zoo:squeezenet", lambda _: None))


def prepared(place: FarPlace, compiled: Compiled) -> int:
    """Its worker's process."""
    place.connect()
    place.prepare((0, len(compiled.layers) - 1))
    assert place.far is not None
    (worker,) = children_of(place.far.pid)
    return worker


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def compute(place: FarPlace, arena: Arena, compiled: Compiled, frame: int) -> None:
    """Until its worker has computed the frame, and waits: the place is emulated, and slower than a patient test."""
    put_noise(arena, compiled, 0, 1)
    arena.set_speed(0, 1e-5)
    place.tell(messages.Repace(at_once=False))
    place.tell(messages.Run(place.part(frame, 0), 0))
    until(lambda: arena.sign(0).paced_until_ns > 0)


@pytest.mark.parametrize("crash", [signal.SIGKILL, signal.SIGSEGV])
def test_the_frame_that_was_computed_is_charged(compiled: Compiled, crash: signal.Signals) -> None:
    """Whoever ended the worker, as it is with one on this host."""
    with arena_of(compiled) as arena, far_places(compiled, arena) as (place,):
        worker = prepared(place, compiled)
        compute(place, arena, compiled, 3)
        place.tell(messages.Run(place.part(4, 1), 0))
        os.kill(worker, crash)
        assert place.ends() == (messages.FAR_END_GONE if crash is signal.SIGKILL else 1)
        assert arena.sign(0).frame == 3
        assert place.last_words() == f"its worker there: killed by signal {int(crash)} ({crash.name})"


def test_a_worker_that_is_stopped_is_a_hang(compiled: Compiled) -> None:
    """As the daemon sees it, by the board alone."""
    with arena_of(compiled) as arena, far_places(compiled, arena) as (place,):
        worker, watch = prepared(place, compiled), Watch(HangLimits(), lambda: False)
        os.kill(worker, signal.SIGSTOP)
        reason, until_s = None, time.monotonic() + PATIENCE_S
        while reason is None and time.monotonic() < until_s:
            time.sleep(0.1)
            reason = watch.look(arena.sign(0), time.monotonic_ns(), 0.1, 0.0)
        assert reason is not None
        assert reason.startswith("no sign of life for 2.")


def test_a_stage_that_takes_long_is_no_hang(compiled: Compiled) -> None:
    with arena_of(compiled) as arena, far_places(compiled, arena) as (place,):
        prepared(place, compiled)
        compute(place, arena, compiled, 1)
        watch = Watch(HangLimits(silence_s=1.5, frame_s=0.5), lambda: False)
        for _ in range(20):
            time.sleep(0.1)
            assert watch.look(arena.sign(0), time.monotonic_ns(), 0.1, 0.0) is None


def test_a_far_end_without_its_model_says_so_before_it_listens(compiled: Compiled, tmp_path: Path) -> None:
    with arena_of(compiled) as arena, far_places(compiled, arena) as (place,):
        worker = msgspec.structs.replace(place.config, engine_folders=(str(tmp_path / "nothing"),))
        config = FarConfig(worker, "127.0.0.1", place.hail.public_key, os.getpid())
        order, pipe = msgspec.json.encode(config).decode(), subprocess.PIPE
        place.far = start_child("stages.far.host", order, stdout=pipe, stderr=pipe)
        assert place.far.stdout is not None
        assert place.far.stderr is not None
        assert place.far.wait(PATIENCE_S) == 1
        assert place.far.stdout.read() == b""
        (line,) = place.far.stderr.read().decode().splitlines()
        assert line.startswith("the far end of far0: ")
        assert str(tmp_path) in line


@pytest.mark.long
def test_a_far_end_that_never_hears_from_its_relay_ends(compiled: Compiled) -> None:
    with arena_of(compiled) as arena, far_places(compiled, arena) as (place,):
        place.start_far(zmq.curve_keypair()[0].decode())
        assert place.far is not None
        assert place.far.stderr is not None
        assert select.select([place.far.pidfd], [], [], 2 * PATIENCE_S)[0]
        (line,) = place.far.stderr.read().decode().splitlines()
        assert line == says("… far end of far0: its relay … within 30 s")


@pytest.mark.long
def test_a_relay_that_says_nothing_is_not_waited_for_for_ever(compiled: Compiled) -> None:
    with arena_of(compiled) as arena, far_places(compiled, arena) as (place,):
        worker = prepared(place, compiled)
        os.kill(place.relay.pid, signal.SIGSTOP)
        assert place.far is not None
        assert select.select([place.far.pidfd], [], [], 2 * PATIENCE_S)[0]
        until(lambda: gone(worker))


@pytest.mark.long
@pytest.mark.parametrize("victim", ["worker", "far end", "relay"])
@pytest.mark.parametrize("seed", range(6))
def test_any_of_them_dies_at_any_moment_under_load(compiled: Compiled, victim: str, seed: int) -> None:
    rng = random.Random(f"{victim} {seed}")
    with arena_of(compiled) as arena, far_places(compiled, arena) as (place,):
        worker = prepared(place, compiled)
        assert place.far is not None
        pids = {"worker": worker, "far end": place.far.pid, "relay": place.relay.pid}
        frame, sent, kill_s = 0, 0, time.monotonic() + rng.uniform(0.0, 0.3)
        while not select.select([place.relay.pidfd], [], [], 0)[0]:
            if kill_s is not None and time.monotonic() >= kill_s:
                os.kill(pids[victim], signal.SIGKILL)
                kill_s = float("inf")
            try:
                while sent - frame < 2:
                    put_noise(arena, compiled, sent % 3, sent)
                    place.tell(messages.Run(place.part(sent, sent % 3), 0))
                    sent += 1
            except ChannelBroken:
                assert select.select([place.relay.pidfd], [], [], PATIENCE_S)[0]
            if select.select([place.channel], [], [], 0.05)[0]:
                data = place.channel.take()
                if data is not None and isinstance(messages.FROM_WORKER.decode(data), messages.Done):
                    frame += 1
        status, running = place.ends(), arena.sign(0).frame
        assert status == {"relay": -signal.SIGKILL}.get(victim, messages.FAR_END_GONE)
        assert running is None or frame - 1 <= running < sent
        assert (
            place.last_words()
            == {
                "worker": "its worker there: killed by signal 9 (SIGKILL)",
                "far end": "the line to its far end: the connection ended",
                "relay": "",
            }[victim]
        )
        for pid in pids.values():
            until(lambda pid=pid: gone(pid))  # type: ignore[misc]
