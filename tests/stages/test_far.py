"""A place on another host, on this one: a real relay, a real far end and its worker, with this test as the daemon."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
import pytest
import zmq

from shisha_rt.measure.compile import compile_model
from shisha_rt.measure.compiled import Compiled
from shisha_rt.messages import worker as messages
from shisha_rt.model.split import Split
from shisha_rt.model.zoo import resolve_model
from shisha_rt.process.arena import Arena
from shisha_rt.process.lent import LentPiece, create_region
from tests.stages.far_places import FarPlace, arena_of, children_of, far_places, put_noise
from tests.waiting import until
from tests.wording import says


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return compile_model(resolve_model("zoo:squeezenet", lambda _: None))


def layers_of(compiled: Compiled) -> int:
    return len(compiled.layers)


def output_in(arena: Arena, compiled: Compiled, slot: int) -> npt.NDArray[Any]:
    return np.array(arena.view(slot, arena.layout.regions[compiled.index.outputs[0].name]))


def test_two_stages_on_two_hosts_answer_as_one_worker_does(compiled: Compiled) -> None:
    last = layers_of(compiled) - 1
    with arena_of(compiled, 3) as arena, far_places(compiled, arena, 3) as (first, second, whole):
        for place in (first, second, whole):
            place.connect()
            assert place.links, "the link is measured before the worker is ready"
        first.prepare((0, 9))
        second.prepare((10, last), stage=1)
        whole.prepare((0, last), epoch=2)
        for frame in range(4):
            put_noise(arena, compiled, 0, frame)
            put_noise(arena, compiled, 1, frame)
            first.run(first.part(frame, 0))
            done = second.run(second.part(frame, 0, stage=1))
            whole.run(whole.part(frame, 1, epoch=2))
            assert done.cpu_s > 0
            assert np.array_equal(output_in(arena, compiled, 0), output_in(arena, compiled, 1))
            assert output_in(arena, compiled, 0).any()


def test_two_parts_are_out_at_a_time(compiled: Compiled) -> None:
    last = layers_of(compiled) - 1
    with arena_of(compiled) as arena, far_places(compiled, arena) as (place,):
        place.connect()
        place.prepare((0, last))
        for slot in range(2):
            put_noise(arena, compiled, slot, slot)
            place.tell(messages.Run(place.part(slot, slot), 0))
        dones = [place.said(), place.said()]
        assert [done.part.frame for done in dones if isinstance(done, messages.Done)] == [0, 1]
        assert not np.array_equal(output_in(arena, compiled, 0), output_in(arena, compiled, 1))


def test_what_clients_lend_is_copied_by_the_relay(compiled: Compiled) -> None:
    last = layers_of(compiled) - 1
    (image,), (scores,) = compiled.index.inputs, compiled.index.outputs
    with arena_of(compiled) as arena, far_places(compiled, arena) as (place,):
        place.connect()
        place.prepare((0, last))
        put_noise(arena, compiled, 0, 5)
        place.run(place.part(0, 0))
        region = create_region(image.size_bytes + scores.size_bytes)
        os.pwrite(region, arena.raw(0, arena.layout.regions[image.name]).tobytes(), 0)
        place.tell(messages.Lend(7), region)
        part = place.part(1, 1)
        reads = (LentPiece(image.name, 7, 0, image.size_bytes),)
        writes = (LentPiece(scores.name, 7, image.size_bytes, scores.size_bytes),)
        place.tell(messages.Run(part, 0, 0, reads, writes))
        assert isinstance(place.said(), messages.Done)
        expected = arena.raw(0, arena.layout.regions[scores.name]).tobytes()
        assert os.pread(region, scores.size_bytes, image.size_bytes) == expected
        place.tell(messages.TakeBack(7))
        place.tell(messages.Run(place.part(2, 1), 0, 0, reads, writes))
        failed = place.said()
        assert isinstance(failed, messages.Failed)
        assert "its region is" in failed.reason
        os.close(region)


def test_shards_are_refused(compiled: Compiled) -> None:
    with arena_of(compiled) as arena, far_places(compiled, arena) as (place,):
        place.connect()
        split = Split((0, 0), "channels", (32, 32), 0)
        place.tell(messages.Prepare(1, 0, ((0, 0),), split=split))
        answer = place.said()
        assert isinstance(answer, messages.PrepareFailed)
        assert answer.reason == says("a place on …")


def begun(place: FarPlace, compiled: Compiled) -> int:
    """With a part out; returns the far worker's process."""
    place.connect()
    place.prepare((0, layers_of(compiled) - 1))
    assert place.far is not None
    (worker,) = children_of(place.far.pid)
    return worker


def gone(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    return True


@pytest.mark.parametrize("crash", [signal.SIGKILL, signal.SIGSEGV])
def test_its_worker_dies(compiled: Compiled, crash: signal.Signals) -> None:
    with arena_of(compiled) as arena, far_places(compiled, arena) as (place,):
        worker = begun(place, compiled)
        os.kill(worker, signal.SIGSTOP)
        place.tell(messages.Run(place.part(3, 0), 0))
        time.sleep(0.1)
        os.kill(worker, crash)
        os.kill(worker, signal.SIGCONT)
        killed = crash is signal.SIGKILL
        assert place.ends() == (messages.FAR_END_GONE if killed else 1)
        assert place.last_words() == f"its worker there: killed by signal {int(crash)} ({crash.name})"
        until(place.far_is_gone)


def test_its_far_end_is_killed(compiled: Compiled) -> None:
    with arena_of(compiled) as arena, far_places(compiled, arena) as (place,):
        worker = begun(place, compiled)
        os.kill(worker, signal.SIGSTOP)
        place.tell(messages.Run(place.part(3, 0), 0))
        assert place.far is not None
        place.far.kill()
        assert place.ends() == messages.FAR_END_GONE
        assert place.last_words() == says("… its far end: the connection ended")
        assert arena.sign(0).frame is None, "no frame is charged with the loss of a host"
        until(lambda: gone(worker))


def test_its_relay_is_killed(compiled: Compiled) -> None:
    with arena_of(compiled) as arena, far_places(compiled, arena) as (place,):
        worker = begun(place, compiled)
        place.relay.kill()
        until(place.far_is_gone)
        until(lambda: gone(worker))


def test_a_worker_that_is_stopped_falls_silent_on_the_board(compiled: Compiled) -> None:
    with arena_of(compiled) as arena, far_places(compiled, arena) as (place,):
        worker = begun(place, compiled)
        first = arena.sign(0).heartbeat_ns
        until(lambda: arena.sign(0).heartbeat_ns > first)
        os.kill(worker, signal.SIGSTOP)
        time.sleep(1.8)
        silent = arena.sign(0).heartbeat_ns
        time.sleep(0.5)
        assert arena.sign(0).heartbeat_ns == silent
        os.kill(worker, signal.SIGCONT)
        until(lambda: arena.sign(0).heartbeat_ns > silent)


def test_strangers_are_not_let_in(compiled: Compiled) -> None:
    """Neither without a key, nor with another, nor with noise; and they do not keep the relay out."""
    with arena_of(compiled) as arena, far_places(compiled, arena) as (place,), zmq.Context() as context:
        far = place.start_far()
        public, secret = zmq.curve_keypair()
        strangers = [context.socket(zmq.PAIR) for _ in range(3)]
        for stranger, keys in zip(strangers, ((far.public_key, public, secret), None, None), strict=True):
            stranger.set(zmq.LINGER, 0)
            if keys is not None:
                stranger.set(zmq.CURVE_SERVERKEY, keys[0].encode())
                stranger.set(zmq.CURVE_PUBLICKEY, keys[1])
                stranger.set(zmq.CURVE_SECRETKEY, keys[2])
            stranger.connect(far.endpoint)
            with contextlib.suppress(zmq.Again):
                stranger.send(b"let me in", zmq.NOBLOCK)
        time.sleep(0.3)
        place.connect(far)
        place.prepare((0, layers_of(compiled) - 1))
        for stranger in strangers:
            stranger.close()
        put_noise(arena, compiled, 0, 1)
        place.run(place.part(1, 0))


def test_nobody_listens(compiled: Compiled) -> None:
    with arena_of(compiled) as arena, far_places(compiled, arena) as (place,):
        place.tell(messages.Connect("tcp://127.0.0.1:1", place.hail.public_key))
        assert place.ends() == messages.FAR_END_GONE
        assert place.last_words() == says("… its far end: the other end …")


def test_the_far_end_is_another(compiled: Compiled) -> None:
    with arena_of(compiled) as arena, far_places(compiled, arena) as (place,):
        far = place.start_far()
        place.tell(messages.Connect(far.endpoint, place.hail.public_key))
        assert place.ends() == messages.FAR_END_GONE
        assert place.last_words().startswith("the line to")
