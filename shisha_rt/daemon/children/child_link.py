"""A child process that works for the daemon, and the channel to it.

A process that dies is started again: at once if it had lived for a while, else after a delay that doubles. Messages
sent meanwhile are lost, as are those that the process had received: whoever is told of the death, by `died`, sends them
again. A process that hangs (`process/pulse.py`) is killed, which frees its resources.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.process.channel import GONE, Channel, ChannelBroken
from shisha_rt.process.child import Child, ChildStart, begin_with_channel, end_in_words
from shisha_rt.process.codec import Codec
from shisha_rt.process.pulse import SILENCE_S, Pulse
from shisha_rt.process.readable import is_readable

log = logging.getLogger(__name__)

ToT = TypeVar("ToT")
FromT = TypeVar("FromT")

_LIVED_S: Final = 10.0
"""A process that has lived for longer is started again at once."""
_MEANWHILE_S: Final = 0.02
_FIRST_DELAY_S: Final = 0.1
_MAX_DELAY_S: Final = 10.0


class ChildProgram(NamedTuple, Generic[ToT, FromT]):
    """A module that runs as `python -m MODULE CHANNEL PARENT`, and the codecs of messages to and from it."""

    module: str
    to: Codec[ToT]
    by: Codec[FromT]


class ChildLink(Generic[ToT, FromT]):
    """Keeps a process of `program` running, from `start` to `close`; each such process is sent the greeting first.

    For each message of the process `poller` yields `said(message)`. After a death, once the next process runs, it
    yields `died(reason)`. Messages sent between are dropped. `on`: whether a process is to run. `silence_s`: a process
    without a sign of life for this long hangs.
    """

    silence_s = SILENCE_S

    def __init__(
        self,
        program: ChildProgram[ToT, FromT],
        poller: Poller,
        died: Callable[[str], object],
        said: Callable[[FromT], object] = lambda message: message,
    ) -> None:
        self._program = program
        self._poller = poller
        self._said = said
        self._died = died
        self._greeting: Sequence[ToT] = ()
        self._beside: Sequence[int] = ()
        self._delay_s = 0.0
        self._start: ChildStart | None = None
        self._child: Child | None = None
        self._channel: Channel | None = None
        self._pulse: Pulse | None = None
        self._started_s = self._again_at_s = 0.0
        self._reason: str | None = None
        self._idle = False
        self.on = False

    def start(self, greeting: Sequence[ToT] = (), beside: Sequence[int] = ()) -> None:
        """As `start_soon`, and wait until the process runs. Raises OSError, and keeps none running, if none can."""
        self.start_soon(greeting, beside)
        assert self._start is not None
        try:
            self._run(self._start)
        except OSError:
            self.on = False
            raise

    def start_soon(self, greeting: Sequence[ToT] = (), beside: Sequence[int] = ()) -> None:
        """Begin to start the process, anew if it runs. `beside`: further descriptors that it inherits.

        Raises OSError, and keeps none running, if no descriptor is available. If no process is, that counts as a death.
        """
        self.stop()
        self._greeting, self._beside = greeting, beside
        self._reason, self._delay_s = None, 0.0
        self._begin()

    def start_later(self, greeting: Sequence[ToT]) -> None:
        """Start the process only when the first message is sent to it."""
        self._greeting, self._idle = greeting, True

    def take_over(self, line: tuple[Child, Channel], greeting: Sequence[ToT]) -> None:
        """Keep a process running that somebody else has started, and has sent its greeting."""
        self._greeting, self.on = greeting, True
        self._watch_channel(line[1])
        self._watch_child(line[0])

    def _begin(self) -> None:
        """Begin to start the process. What is sent meanwhile reaches it after the greeting."""
        start, channel = begin_with_channel(self._program.module, self._beside)
        self.on, self._start = True, start
        self._poller.watch(start.fileno(), self._has_started)
        self._watch_channel(channel)
        for message in self._greeting:
            self._write(message)

    def _has_started(self) -> Iterator[object]:
        assert self._start is not None
        try:
            self._run(self._start)
        except OSError as error:
            log.warning("%s could not be started: %s", self._program.module, error)
            self._reason = self._reason or "it could not be started"
            self._put_off()
            return
        if self._reason is not None:
            reason, self._reason = self._reason, None
            yield self._died(reason)

    def _run(self, start: ChildStart) -> None:
        """Watch the process that has been started; wait for it if it has not. Raises OSError if it could not be."""
        self._poller.unwatch(start.fileno())
        self._start = None
        try:
            self._watch_child(start.child())
        except OSError:
            self._close_channel()
            raise

    def _watch_channel(self, channel: Channel) -> None:
        self._channel = channel
        self._poller.watch(channel.fileno(), self._hear)

    def _watch_child(self, child: Child) -> None:
        self._started_s = time.monotonic()
        self._child = child
        self._pulse = Pulse(child.pid, self.silence_s)
        self._poller.watch(child.pidfd, self._ended)
        if self._channel is not None and not self._channel.open:  # it broke meanwhile
            child.kill()

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    def send(self, message: ToT) -> None:
        """Send a message, in order; first start the process after `start_later`. While the channel is full it waits."""
        if self._idle:
            self._idle = False
            try:
                self._begin()
            except OSError as error:
                self._not_begun(error)
        # Before a death is told, nobody knows that what was sent before is lost.
        if self._channel is not None and self._channel.open and (self._start is None or self._reason is None):
            self._write(message)

    def _write(self, message: ToT) -> None:
        self._or_kill(lambda channel: channel.send(self._program.to.encode(message)))

    def greet(self, message: ToT) -> None:
        """Make this the first message to each later process; a process that runs already is sent it, too."""
        self._greeting = [message]
        if not self._idle:
            self.send(message)

    def _or_kill(self, send: Callable[[Channel], None]) -> None:
        """Call `send`; kill a process that reads no messages, so that a new one replaces it."""
        assert self._channel is not None
        try:
            send(self._channel)
        except ChannelBroken as broken:
            if str(broken) != GONE:  # a process that has ended by itself has an exit status, which says more
                self._reason = f"it takes no messages: {broken}"
            self._kill()

    def _kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    def _hear(self) -> Iterator[object]:
        channel = self._channel
        if channel is None:
            return
        try:
            for data in channel.receive():
                try:
                    yield self._said(self._program.by.decode(data))
                except msgspec.MsgspecError as error:
                    log.warning("a message of %s was not understood: %s", self._program.module, error)
                if self._channel is not channel:
                    return  # the receiver of the message has ended the process, or started another
        except ChannelBroken as broken:
            self._reason = f"it is not understood: {broken}"
            self._kill()
        if not channel.open:
            self._poller.unwatch(channel.fileno())

    def _ended(self) -> Iterator[object]:
        how = end_in_words(self._end())
        if time.monotonic() - self._started_s > _LIVED_S:
            self._delay_s = self._again_at_s = 0.0
        else:
            self._put_off()
        self._reason = self._reason or how
        self.look()
        return iter(())

    def look(self) -> None:
        """Called periodically: send waiting messages, kill the process if it hangs, restart a dead one when due."""
        if self._channel is not None and self._channel.waiting and self._channel.open:
            self._or_kill(Channel.flush)
        if self._child is not None and self._channel is not None:
            assert self._pulse is not None
            hangs = self._pulse.look(self._channel.beats)
            if hangs is not None:
                self._reason = hangs
                self._kill()
        elif self.on and self._start is None and time.monotonic() >= self._again_at_s:
            try:
                self._begin()
            except OSError as error:
                self._not_begun(error)

    def _not_begun(self, error: OSError) -> None:
        log.warning("%s could not be started: %s", self._program.module, error)
        self.on, self._reason = True, self._reason or "it could not be started"
        self._put_off()

    def _put_off(self) -> None:
        self._delay_s = min(max(2 * self._delay_s, _FIRST_DELAY_S), _MAX_DELAY_S)
        self._again_at_s = time.monotonic() + self._delay_s

    def wait(self, within_s: float, meanwhile: Callable[[], object]) -> None:
        """Wait at most `within_s` for the end of the child, which has been asked to end. Calls `meanwhile` often."""
        ends_s = time.monotonic() + within_s
        while self._child is not None and not is_readable(self._child.pidfd, _MEANWHILE_S):
            meanwhile()
            if time.monotonic() >= ends_s:
                break

    def stop(self) -> None:
        """As `close`, but without waiting for the end of the process."""
        self.on = self._idle = False
        if self._start is not None:
            self._poller.unwatch(self._start.fileno())
            self._start.drop()
            self._start = None
        if self._child is not None:
            self._poller.unwatch(self._child.pidfd)
            self._child.end_soon()
            self._child = None
        self._close_channel()

    def close(self) -> None:
        """End the process, if it has not ended itself, and keep none running."""
        self.on = self._idle = False
        if self._start is not None:
            with contextlib.suppress(OSError):
                self._run(self._start)
        if self._child is not None:
            self._end()

    def _end(self) -> int:
        assert self._child is not None
        child, self._child = self._child, None
        self._poller.unwatch(child.pidfd)
        status = child.end()  # before the channel is closed, on which the process would log an error
        self._close_channel()
        return status

    def _close_channel(self) -> None:
        if self._channel is not None:
            self._poller.unwatch(self._channel.fileno())
            self._channel.close()
            self._channel = None
