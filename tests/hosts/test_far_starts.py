"""Far ends that do not come up, or that nobody wants any more: an actor asked without Ray."""

from __future__ import annotations

import os
import threading
import time

import msgspec
import pytest
import zmq

from benchmarks.rigs.raylets import lacking_ray
from shisha_rt.hosts.actor import FarHost
from shisha_rt.hosts.model_files import manifest_of
from shisha_rt.measure.compile import compile_model, engine_key
from shisha_rt.measure.compiled import Compiled
from shisha_rt.messages.worker import WorkerConfig
from shisha_rt.model.zoo import resolve_model

pytestmark = pytest.mark.skipif(lacking_ray() is not None, reason="needs Ray: the extra `ray`")

INCARNATION = 7


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return compile_model(resolve_model("zoo:squeezenet"))


@pytest.fixture
def host() -> FarHost:
    return FarHost()


def worker() -> bytes:
    return msgspec.json.encode(
        WorkerConfig(
            place="far",
            place_index=0,
            place_count=1,
            cores=(),
            threads=1,
            incarnation=INCARNATION,
            channel_fd=-1,
            engine_folders=(),
            arena_fd=-1,
            slot_count=2,
            parent_pid=os.getpid(),
        )
    )


def key() -> str:
    return zmq.curve_keypair()[0].decode()


def test_of_one_that_does_not_come_up_nothing_is_kept(host: FarHost) -> None:
    said, reason = host.start(INCARNATION, worker(), key())  # without a model
    assert not said
    assert reason
    with pytest.raises(KeyError):
        host.wait(INCARNATION)


def test_one_whose_relay_is_gone_before_it_was_started_ends_at_once(host: FarHost, compiled: Compiled) -> None:
    """It would wait for its relay else, for half a minute."""
    assert not host.bring(msgspec.json.encode(manifest_of(compiled, engine_key())), [])
    answers: list[tuple[str, str]] = []
    starting = threading.Thread(target=lambda: answers.append(host.start(INCARNATION, worker(), key())))
    starting.start()
    while INCARNATION not in host._far:
        time.sleep(0)
    host.end(INCARNATION)
    starting.join()
    _, reason = answers[0]
    assert (reason or host.wait(INCARNATION)) == "killed by signal 9 (SIGKILL)"
