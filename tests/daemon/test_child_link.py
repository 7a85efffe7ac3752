"""The line to a process of the daemon's: real processes, killed and started again, and a clock that the test moves."""

from __future__ import annotations

import errno
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import psutil
import pytest

from shisha_rt.core.tuning.events import PlannedAhead
from shisha_rt.daemon.children import preparer_link
from shisha_rt.daemon.children.child_link import ChildLink, ChildProgram
from shisha_rt.daemon.children.preparer_link import PreparerLink
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.daemon.prepared import Preparation
from shisha_rt.daemon.settings import Settings
from shisha_rt.machine.config.machine_file import parse_machine
from shisha_rt.process.channel import Channel
from shisha_rt.process.child import _Servers, _starts
from shisha_rt.process.codec import Codec
from shisha_rt.process.pulse import SILENCE_S, Pulse
from tests.commands import command_of
from tests.waiting import until

ECHO = """
import os, sys
import msgspec
from shisha_rt.process.channel import Channel

channel = Channel.inherited(int(sys.argv[1]))
channel.send(msgspec.msgpack.encode(os.getpid()))
while True:
    channel.send(channel.wait())
"""


PLANNER = """
import sys
from shisha_rt.daemon.prepared import FROM_PREPARER, TO_PREPARER, PlansAhead
from shisha_rt.process.channel import Channel

channel = Channel.inherited(int(sys.argv[1]))
channel.beat()
TO_PREPARER.decode(channel.wait())
channel.send(FROM_PREPARER.encode(PlansAhead({})))
channel.wait()
"""

Said: TypeAlias = int | str


@dataclass(frozen=True)
class Died:
    reason: str


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


class Child:
    """A link, all that it heard and was told. A process says its own id first, and then what it hears."""

    def __init__(
        self,
        module: str,
        poller: Poller,
        greeting: Sequence[object] = (),
        *,
        idle: bool = False,
        silence_s: float = SILENCE_S,
    ) -> None:
        program: ChildProgram[object, Said] = ChildProgram(module, Codec(object), Codec(Said))
        self.link = ChildLink(program, poller, Died)
        self.link.silence_s = silence_s
        if idle:
            self.link.start_later(greeting)
        else:
            self.link.start(greeting)
        self.heard: list[Said] = []
        self.deaths: list[str] = []
        self._poller = poller

    def look(self) -> None:
        self.link.look()

    def poll(self) -> Iterator[object]:
        yield from self._poller.poll(0.02)

    def _take(self, events: Iterable[object]) -> None:
        for event in events:
            if isinstance(event, Died):
                self.deaths.append(event.reason)
            else:
                assert isinstance(event, Said)
                self.heard.append(event)

    def until(self, true: Callable[[], bool]) -> None:
        def look() -> None:
            self._take(self.poll())
            self.look()

        until(true, every_s=0, meanwhile=look)

    def until_heard(self, count: int) -> list[Said]:
        """The first `count` messages since the last call."""
        self.until(lambda: len(self.heard) >= count)
        messages, self.heard = self.heard[:count], self.heard[count:]
        return messages

    def kill(self) -> int:
        """Kill the process, which has said its id, and wait until the link has noticed; returns that id."""
        (pid,) = (message for message in self.heard if isinstance(message, int))
        os.kill(pid, signal.SIGKILL)
        self.until(lambda: not psutil.pid_exists(pid))
        return pid


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("shisha_rt.daemon.children.child_link.time", clock)
    return clock


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "echo_child.py").write_text(ECHO)
    (tmp_path / "planning_child.py").write_text(PLANNER)
    known = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path) if known is None else f"{tmp_path}{os.pathsep}{known}")


@pytest.fixture
def start(modules: None) -> Iterator[Callable[..., Child]]:
    with ExitStack() as closing:
        poller = Poller()
        closing.callback(poller.close)

        def start(greeting: Sequence[object] = (), module: str = "echo_child", **how: Any) -> Child:
            child = Child(module, poller, greeting, **how)
            closing.callback(child.link.close)
            return child

        yield start


def test_messages_come_in_order_after_the_greeting(start: Callable[..., Child]) -> None:
    child = start(["hello", 1])
    for number in range(2, 10):
        child.link.send(number)
    pid, *rest = child.until_heard(11)
    assert psutil.pid_exists(int(pid))
    assert rest == ["hello", *range(1, 10)]
    assert child.deaths == []


def test_an_idle_link_has_no_process_before_there_is_something_to_say(start: Callable[..., Child]) -> None:
    child = start(["old"], idle=True)
    before = {*psutil.Process().children()}
    child.look()
    child.link.greet("hello")
    assert before.issuperset(psutil.Process().children())
    child.link.send("a")
    assert child.until_heard(3)[1:] == ["hello", "a"]
    child.link.greet("b")
    assert child.until_heard(1) == ["b"]
    assert child.deaths == []


def test_who_hears_a_message_may_start_another_process(start: Callable[..., Child]) -> None:
    child, heard = start(["one", "two"]), list[object]()

    def look() -> None:
        for event in child.poll():
            heard.append(event)
            if event == "one":
                child.link.start(["anew"])

    until(lambda: "anew" in heard, meanwhile=look)
    assert not any(isinstance(event, Died) for event in heard)


def test_what_the_channel_has_no_room_for_is_sent_later(start: Callable[..., Child]) -> None:
    """1.5 MB at once, to a process that has hardly begun to start."""
    greeting = [f"{number} {'x' * 50_000}" for number in range(30)]
    child = start(greeting)
    assert child.until_heard(31)[1:] == greeting


def test_what_is_not_understood_is_passed_over(start: Callable[..., Child], caplog: pytest.LogCaptureFixture) -> None:
    child = start([["no", "word"], "hello"])
    with caplog.at_level(logging.WARNING):
        assert child.until_heard(2)[1:] == ["hello"]
    assert "a message of echo_child was not understood" in caplog.text


def test_a_killed_process_is_followed_by_one_that_is_greeted(start: Callable[..., Child], clock: Clock) -> None:
    child = start(["hello"])
    child.until(lambda: len(child.heard) == 2)
    killed = child.kill()
    child.link.send("lost with the process")
    child.heard.clear()
    clock.now_s += 1
    follower, *rest = child.until_heard(2)
    assert follower != killed
    assert rest == ["hello"]
    assert child.deaths == ["killed by signal 9 (SIGKILL)"]
    child.link.send("on")
    assert child.until_heard(1) == ["on"]


def test_what_was_not_sent_yet_is_lost_with_the_process(start: Callable[..., Child], clock: Clock) -> None:
    child = start(["hello"])
    child.until(lambda: len(child.heard) == 2)
    (pid,) = (message for message in child.heard if isinstance(message, int))
    os.kill(pid, signal.SIGSTOP)  # it reads no more: most of this stays with the link
    for _ in range(30):
        child.link.send("x" * 50_000)
    child.kill()
    child.heard.clear()
    clock.now_s += 1
    assert child.until_heard(2)[1:] == ["hello"]
    child.link.send("on")
    assert child.until_heard(1) == ["on"]


def has_deaths(child: Child, count: int) -> bool:
    return len(child.deaths) == count


def test_a_process_that_dies_soon_is_followed_after_a_delay_that_doubles(
    start: Callable[..., Child], clock: Clock
) -> None:
    child = start()
    for deaths, delay_s in enumerate((0.1, 0.2, 0.4)):
        child.until(lambda: len(child.heard) == 1)
        child.kill()
        child.heard.clear()
        clock.now_s += 0.99 * delay_s
        child.look()
        assert len(child.deaths) == deaths
        clock.now_s += 0.02 * delay_s
        child.until(partial(has_deaths, child, deaths + 1))


def test_a_process_that_had_lived_for_a_while_is_followed_at_once(start: Callable[..., Child], clock: Clock) -> None:
    child = start()
    for _ in range(2):
        child.until(lambda: len(child.heard) == 1)
        clock.now_s += 11
        child.kill()
        child.heard.clear()
    child.until(lambda: child.deaths == ["killed by signal 9 (SIGKILL)"] * 2)


def not_in_the_main_thread(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*arguments: object) -> object:
        assert threading.current_thread() is not threading.main_thread()
        return function(*arguments)

    return called


def test_the_loop_starts_none_itself(start: Callable[..., Child], monkeypatch: pytest.MonkeyPatch) -> None:
    """It waited for the fork of each, tens of milliseconds, and for the imports of one that was not expected."""
    first, idle = start(), start(["hello"], idle=True)
    first.until_heard(1)
    monkeypatch.setattr(_Servers, "start", not_in_the_main_thread(_Servers.start))
    idle.link.send("a")
    assert idle.until_heard(3)[1:] == ["hello", "a"]
    idle.link.start_soon(["anew"])
    idle.heard.clear()
    idle.until(lambda: "anew" in idle.heard)
    os.kill(int(idle.heard[0]), signal.SIGKILL)
    idle.until(lambda: bool(idle.deaths))
    assert not first.deaths


@pytest.mark.parametrize("again", [False, True])
def test_one_that_is_stopped_while_it_starts_leaves_nothing(
    start: Callable[..., Child], monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    may_start, begin = threading.Event(), _Servers.start
    monkeypatch.setattr(_Servers, "start", lambda *order: may_start.wait() and begin(*order))
    child = start(idle=True)
    child.link.send("lost")
    if again:
        child.link.start_soon()
    else:
        child.link.stop()
    may_start.set()
    remains = []
    if again:
        remains = child.until_heard(1)
    else:
        until(lambda: _starts._asked.empty(), "its start")
    until(lambda: echoing() == remains, "the end of the other")


def echoing() -> list[int]:
    return [child.pid for child in psutil.Process().children() if "echo_child" in command_of(child)]


def test_one_that_cannot_be_started_is_tried_again(
    start: Callable[..., Child], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    child, begin, failures = start(["hello"], idle=True), _Servers.start, [1, 2]

    def refused(*order: Any) -> int:
        if failures:
            failures.pop()
            raise BlockingIOError(errno.EAGAIN, "no more processes")
        return begin(*order)

    monkeypatch.setattr(_Servers, "start", refused)
    child.link.send("lost")

    def waited() -> bool:
        clock.now_s += 1
        return bool(child.deaths)

    child.until(waited)
    assert len(child.deaths) == 1
    assert child.until_heard(2)[1:] == ["hello"]


def test_a_process_that_is_stopped_is_ended_and_followed(start: Callable[..., Child]) -> None:
    """One that was stopped in the midst of a search was waited for without end."""
    child = start(["hello"], silence_s=2.0)
    child.until(lambda: len(child.heard) == 2)
    (pid,) = (message for message in child.heard if isinstance(message, int))
    os.kill(pid, signal.SIGSTOP)
    child.until(lambda: bool(child.deaths))
    child.until(lambda: not psutil.pid_exists(pid))
    assert child.deaths[0].startswith("it hangs: no sign of")
    child.heard.clear()
    assert child.until_heard(2)[1:] == ["hello"]


def test_a_sign_of_life_is_not_the_end_of_planning_ahead(modules: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever took longer than the first sign of life was lost."""
    monkeypatch.setattr(preparer_link, "_MODULE", "planning_child")
    with ExitStack() as closing:
        poller = Poller()
        closing.callback(poller.close)
        link = PreparerLink()
        closing.callback(link.close)
        link.watch(poller)
        heard: list[object] = []

        def look() -> None:
            heard.extend(poller.poll(0.02))

        until(lambda: link._channel.beats, every_s=0, meanwhile=look)
        machine = parse_machine('[[place]]\nname = "a"\ncores = [0]\n', name="small", source="small")
        link.ask(Preparation(Settings(""), machine, False, (logging.INFO, "")))
        until(lambda: heard or link._closed, every_s=0, meanwhile=look)
        assert heard == [PlannedAhead({})]


@pytest.mark.long
def test_a_process_that_waits_for_something_else_lives_by_its_signs_and_by_no_other(tmp_path: Path) -> None:
    """Its main thread reads no messages; without its signs it counts as hung."""
    script = tmp_path / "waits.py"
    script.write_text(
        "import sys, threading\nfrom shisha_rt.process.parent import line_to_parent\n"
        "channel = line_to_parent(sys.argv[1:])\nthreading.Event().wait()"
    )
    channel, theirs = Channel.pair()
    fd = theirs.fileno()
    with subprocess.Popen([sys.executable, script, str(fd), str(os.getpid())], pass_fds=[fd]) as process:
        theirs.close()
        try:
            said, silent, end_s = Pulse(process.pid), Pulse(process.pid), time.monotonic() + 60
            while (hangs := silent.look()) is None:
                assert time.monotonic() < end_s
                assert channel.take() is None
                assert said.look(channel.beats) is None
                time.sleep(0.2)
            assert channel.beats > 3
            assert hangs.startswith("it hangs: no sign of")
        finally:
            process.kill()
    channel.close()


def test_a_process_that_cannot_start_says_so_by_its_exit_status(start: Callable[..., Child], clock: Clock) -> None:
    child = start(module="no_such_module")

    def waited() -> bool:
        clock.now_s += 1
        return bool(child.deaths)

    child.until(waited)
    assert child.deaths[0] == "exit status 1"


def test_closing_ends_the_process_and_may_be_repeated(start: Callable[..., Child]) -> None:
    child = start()
    (pid,) = child.until_heard(1)
    child.link.close()
    child.until(lambda: not psutil.pid_exists(int(pid)))
    child.link.send("to nobody")
    child.link.close()
    assert child.deaths == []


def test_a_process_that_is_ended_does_not_complain_of_its_channel(
    start: Callable[..., Child], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    child = start()
    child.until_heard(1)
    close = Channel.close

    def close_and_wait(channel: Channel) -> None:
        close(channel)
        time.sleep(0.5)

    monkeypatch.setattr(Channel, "close", close_and_wait)
    child.link.close()
    assert capfd.readouterr().err == ""
