"""Relays and far ends as real processes on loopback, and a test that plays the daemon to them."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import psutil

from shisha_rt.core.lifecycle.events import Descriptor
from shisha_rt.measure.compiled import Compiled
from shisha_rt.messages import worker as messages
from shisha_rt.messages.worker import FarConfig, FarUp, FromWorker, ToWorker, WorkerConfig
from shisha_rt.model.spans import Span
from shisha_rt.process.arena import Arena
from shisha_rt.process.channel import Channel
from shisha_rt.process.child import Child, start_child
from shisha_rt.process.fork_line import SERVER
from shisha_rt.process.layout import layouts_of
from shisha_rt.process.output_room import OUTPUT_BYTES
from tests.commands import command_of
from tests.waiting import PATIENCE_S


class FarPlace:
    """A relay, and where its far end is once that has been started. `links`: what has been said of the link."""

    def __init__(self, compiled: Compiled, arena: Arena, index: int = 0, count: int = 1) -> None:
        self.incarnation = 10 + index
        self.channel, theirs = Channel.pair()
        self.config = WorkerConfig(
            place=f"far{index}",
            place_index=index,
            place_count=count,
            cores=(),
            threads=1,
            incarnation=self.incarnation,
            channel_fd=theirs.fileno(),
            engine_folders=tuple(str(shape.engine_folder) for shape in compiled.each),
            arena_fd=arena.fd,
            slot_count=arena.slot_count,
            parent_pid=os.getpid(),
            output_bytes=arena.layout.output_bytes,
        )
        arena.clear_sign(index, time.monotonic_ns())
        self.relay = start_child(
            "stages.far.relay",
            msgspec.json.encode(self.config).decode(),
            pass_fds=[theirs.fileno(), arena.fd],
            stderr=subprocess.PIPE,
        )
        theirs.close()
        self.links: list[messages.LinkSeen] = []
        hail = self.said()
        assert isinstance(hail, messages.Hail)
        self.hail = hail
        self.far: Child | None = None

    def start_far(self, near_key: str | None = None) -> FarUp:
        """Start the far end; it is not connected to yet."""
        config = FarConfig(self.config, "127.0.0.1", near_key or self.hail.public_key, os.getpid())
        self.far = start_child(
            "stages.far.host",
            msgspec.json.encode(config).decode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.far.stdout is not None
        return msgspec.json.decode(self.far.stdout.readline(), type=FarUp)

    def connect(self, far: FarUp | None = None) -> None:
        """Until its worker is ready."""
        far = far or self.start_far()
        self.tell(messages.Connect(far.endpoint, far.public_key))
        assert self.said() == messages.Ready(self.incarnation)

    def tell(self, message: ToWorker, beside: int | None = None) -> None:
        self.channel.send(messages.TO_WORKER.encode(message), beside)

    def said(self) -> FromWorker:
        """The next message of the relay, but for those of its link."""
        while True:
            ready, _, _ = select.select([self.channel], [], [], PATIENCE_S)
            assert ready, "the relay says nothing"
            data = self.channel.take()
            assert data is not None, self.last_words()
            message = messages.FROM_WORKER.decode(data)
            if not isinstance(message, messages.LinkSeen):
                return message
            self.links.append(message)

    def prepare(self, *work: Span, epoch: int = 1, stage: int = 0) -> messages.Prepared:
        self.tell(messages.Prepare(epoch, stage, work))
        answer = self.said()
        assert isinstance(answer, messages.Prepared), answer
        return answer

    def part(self, frame: int, slot: int, *, epoch: int = 1, stage: int = 0) -> Descriptor:
        return Descriptor(self.incarnation, frame, 0, stage, epoch, slot)

    def run(self, part: Descriptor, layout: int = 0) -> messages.Done:
        self.tell(messages.Run(part, layout))
        answer = self.said()
        assert isinstance(answer, messages.Done), answer
        assert answer.part == part
        return answer

    def ends(self) -> int:
        """The relay's exit status, waited for."""
        assert select.select([self.relay.pidfd], [], [], PATIENCE_S)[0], "the relay does not end"
        return self.relay.wait()

    def far_is_gone(self) -> bool:
        return self.far is None or self.far.poll() is not None

    def last_words(self) -> str:
        self.ends()
        assert self.relay.stderr is not None
        lines = self.relay.stderr.read().decode().strip().splitlines()
        return lines[-1] if lines else ""

    def close(self) -> None:
        self.relay.end()
        if self.far is not None:
            self.far.end()
        self.channel.close()


@contextlib.contextmanager
def arena_of(compiled: Compiled, places: int = 1, slots: int = 3, output_bytes: int = OUTPUT_BYTES) -> Iterator[Arena]:
    layouts = layouts_of([shape.index.tensors for shape in compiled.each], output_bytes)
    arena = Arena.create(layouts, slots, places)
    for place in range(places):
        arena.set_speed(place, 1.0)
    try:
        yield arena
    finally:
        arena.close()


@contextlib.contextmanager
def far_places(compiled: Compiled, arena: Arena, count: int = 1) -> Iterator[Sequence[FarPlace]]:
    """Not connected yet."""
    with contextlib.ExitStack() as closing:
        places = []
        for index in range(count):
            place = FarPlace(compiled, arena, index, count)
            closing.callback(place.close)
            places.append(place)
        yield places


def put_noise(arena: Arena, compiled: Compiled, slot: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for spec in compiled.index.inputs:
        view = arena.view(slot, arena.layout.regions[spec.name])
        view[...] = rng.standard_normal(view.shape).astype(view.dtype)


def children_of(pid: int) -> list[int]:
    """Those that live, but for its fork server."""
    living = {child.pid: command_of(child) for child in psutil.Process(pid).children()}
    return [child for child, command in living.items() if command and SERVER not in command]
