"""The client's socket: one DEALER, its monitor (the watch), and the `Conversation` over both. Only `wait` blocks.

Once a daemon on this host has given the client a direct line, all requests go there, and their answers come there; the
socket remains for what the daemon says unasked, and to show when it is gone.

The blocking and the asyncio client both use this class, and differ only in how they wait for its file descriptors. The
subtleties of ZeroMQ are handled here:
- Each connection has a socket of its own, and libzmq does not reconnect it: a request is only sent while a daemon is
  connected, and messages queued for a broken connection are dropped with its socket. So no request reaches a restarted
  daemon without the caller's knowledge. (ZMQ_IMMEDIATE does the same, but also drops answers not read yet.)
- The sockets' descriptors are edge-triggered: after each signal and each send, read until nothing is left.
- Before reading, descriptors are polled or EVENTS is queried: reading from an empty socket raises an exception, which
  takes longer than everything else.
- Messages are read before the watch, so that answers that came before the connection broke still count.
- The kernel's TCP keep-alive is used, not ZeroMQ's heartbeats. Heartbeats queue behind requests that a busy daemon has
  not read, so the daemon would count as lost; and if the client has gone by then, libzmq (4.3.5) aborts the daemon's
  process as it answers them.
- If an address serves several models, it refers clients to each model's own daemon (`follow`). A client that loses
  that daemon, or is sent away by it, connects to the public address again. Either way it gets new sockets.
- A refused handshake is tried again by later calls.
- A socket whose watch is closed first, as the garbage collector may do, makes libzmq's thread wait for the watch for
  good, and with it all sockets of the process: so also a client that nobody closes has its sockets closed in order.
- A forked child has the sockets, but not the threads behind them: a call there would never end, and would be about the
  parent's requests and memory. So a client works only in the process that made it.
Shell.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import resource
import socket
import time
import uuid
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, cast

import msgspec
import zmq
from numpy.typing import DTypeLike
from zmq.utils.monitor import parse_monitor_message

from shisha_rt.client.lent_memory import LentMemory
from shisha_rt.client.local_socket import AGAIN_S, Question, take_line
from shisha_rt.endpoint import TO_CONNECT_TO, can_be_connected_to, default_endpoint
from shisha_rt.errors import Error
from shisha_rt.process.channel import Channel, ChannelBroken
from shisha_rt.protocol.conversation import Conversation, Outgoing, RequestOutcome
from shisha_rt.protocol.exceptions import ResourceExhausted, ShishaError, Timeout, error_for, malformed
from shisha_rt.protocol.frame_tensors import Array, Shape, is_large
from shisha_rt.protocol.header import Buffer
from shisha_rt.protocol.keys import ClientKeys
from shisha_rt.protocol.line import pack, unpack
from shisha_rt.protocol.multipart import (
    CONTEXT_DESCRIPTORS,
    are_descriptors_left,
    can_be_read,
    receive_parts,
    send_parts,
)

Context: TypeAlias = zmq.Context[Any]
"""A pyzmq context of either kind, blocking or asyncio."""

TIMEOUT_S: Final = 30.0
PROBE_S: Final = 1.0
"""After so long without an answer, a waiting client probes whether the daemon is still the same."""
_KEEPALIVE: Final = {
    zmq.TCP_KEEPALIVE: 1,
    zmq.TCP_KEEPALIVE_IDLE: 1,
    zmq.TCP_KEEPALIVE_INTVL: 1,
    zmq.TCP_KEEPALIVE_CNT: 3,
}
_RECONNECT_S: Final = 0.1
_GREETED_MS: Final = int(2e3 * TIMEOUT_S)
"""How long a listener may take to greet: the kernel accepts connections for a stopped daemon, too, and a call of the
default timeout shall end while it is known that somebody listens.
"""
_NEVER_MS: Final = 24 * 3600 * 1000
_LOOKED_S: Final = 1e-3
"""Within this time `look` does not check the connection again."""
_LONGEST_WAIT_S: Final = 3600.0
"""Of one wait for a message, which is in whole milliseconds: a call with a longer timeout waits again."""
_DESCRIPTORS: Final = 4  # of a connection: its sockets and the watch
_LINE_DESCRIPTORS: Final = 4
"""Of a direct line: itself, a region's connection and memory, and a large message, which ZeroMQ needs none for."""
_LOST: Final = "the connection to {} was lost with the request under way; it may have been run"
# Plain numbers, as combining enum members takes longer than the call.
_EVENTS: Final = int(zmq.EVENTS)
_POLLIN: Final = int(zmq.POLLIN)
_POLLOUT: Final = int(zmq.POLLOUT)
_WATCHED: Final = (
    zmq.EVENT_CONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CONNECT_RETRIED
)
_NOT_THERE: Final = frozenset({zmq.EVENT_DISCONNECTED, zmq.EVENT_CONNECT_RETRIED})
_BROKEN_OFF: Final = 3
"""After so many handshakes in a row that end without a reason, the daemon counts as refusing us; fewer may have another
cause, such as a daemon that has just been killed.
"""


_SILENT_S: Final = 5.0
"""A client that has waited so long for a daemon logs that none is there. Commands wait no longer than this at all."""

log = logging.getLogger(__name__)


class Patience:
    """The timeout of a call, over all its steps; inf: none. Raises `InvalidArgument` for what is no number."""

    def __init__(self, timeout_s: float) -> None:
        if math.isnan(timeout_s):
            raise malformed(f"timeout_s is {timeout_s}; expected seconds, or inf")
        self.timeout_s = timeout_s
        self._began_s = time.monotonic()

    @property
    def waited_s(self) -> float:
        return time.monotonic() - self._began_s

    @property
    def left_s(self) -> float:
        return max(0.0, self.timeout_s - self.waited_s)


class Link:
    """`socket` and `watch` are for waiting on; only this class reads and writes them. `memory` None: none is shared.

    `endpoint`: the address that the client was given. `at`: the one it is connected to; if `endpoint` serves several
    models, that of the daemon of `model`, if that is reachable. `turns`: how often the descriptors have been replaced.
    `silence_s`: a daemon that has been probed, and has sent nothing at all for so long, counts as lost.
    """

    def __init__(
        self,
        endpoint: str | None,
        context: Context | None,
        keys: ClientKeys | None,
        memory: LentMemory | None,
        model: str | None,
        silence_s: float = math.inf,
    ) -> None:
        self.endpoint = endpoint = endpoint or default_endpoint()
        if not can_be_connected_to(endpoint):
            raise error_for(Error.BAD_ENDPOINT, f"endpoint {endpoint!r}: {TO_CONNECT_TO}")
        self.memory = memory
        self.conversation = Conversation(memory, model)
        self._keys = keys
        self.turns = 0
        if not are_descriptors_left(CONTEXT_DESCRIPTORS):
            raise _too_many_open(f"client of {endpoint}")
        self._context = zmq.Context.instance() if context is None else zmq.Context(shadow=context)
        self._looked_s = 0.0
        self._silence_s = silence_s
        self._has_said = False
        self._is_closed = self._is_amid = False
        self._process = os.getpid()
        self._barred = _Barred(endpoint, self._keys)
        self._line: Channel | None = None
        self._asked: Question | None = None
        self._lost: list[RequestOutcome] = []  # what `drain` has still to return
        self._connect(endpoint)

    def _connect(self, endpoint: str) -> None:
        """Make the sockets and connect them; raises InvalidArgument for an invalid address, ResourceExhausted."""
        self.socket, self.watch, self._end_sockets = self._sockets(endpoint)
        self.at = endpoint
        self.connected = self._is_accepted = False
        self._unanswered = 0  # how often a probe was due with the one before unanswered, and nothing else heard
        self._again_s = math.inf  # when to replace the socket, as no daemon is connected
        self._ask_line_s = 0.0  # when a line may be asked for
        self._set_polled()

    def _sockets(self, endpoint: str) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes], Callable[[], object]]:
        """A socket that connects to `endpoint`, its watch, and what closes both."""
        end: Callable[[], object] | None = None
        try:
            ours: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
            end = ours.close
            ours.linger = 0
            ours.set(zmq.IPV6, int("[" in endpoint))
            for option, value in _KEEPALIVE.items():
                ours.set(option, value)
            ours.set(zmq.RECONNECT_IVL, _NEVER_MS)
            ours.set(zmq.HANDSHAKE_IVL, _GREETED_MS)
            if self._keys is not None:
                ours.set(zmq.CURVE_PUBLICKEY, self._keys.own.public.encode())
                ours.set(zmq.CURVE_SECRETKEY, self._keys.own.secret.encode())
                ours.set(zmq.CURVE_SERVERKEY, self._keys.server.encode())
            # pyzmq would name the watch after a descriptor, which may be in use again before the name is free.
            watch: zmq.Socket[bytes] = ours.get_monitor_socket(_WATCHED, f"inproc://watch-{uuid.uuid4().hex}")
            end = weakref.finalize(self, _close, self._process, ours, watch)
            watch.linger = 0
            ours.connect(cast(Any, os.fsencode(endpoint)))  # a path may have any bytes; as str it must be UTF-8
        except BaseException as error:
            if end is not None:
                end()
            if not isinstance(error, zmq.ZMQError):
                raise
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise _too_many_open(f"connection to {endpoint}", self._context) from None
            reason = zmq.strerror(error.errno or 0)
            raise error_for(Error.BAD_ENDPOINT, f"endpoint {endpoint!r}: {reason}; {TO_CONNECT_TO}") from None
        return ours, watch, end

    def follow(self) -> bool:
        """Connect to the model's own daemon if the address refers to one that is reachable; return whether it did."""
        if self.at is not self.endpoint or not self.conversation.leads or self.conversation.in_flight:
            return False
        lead = self.conversation.leads_to
        if lead is None or _why_not_near(lead) is not None:
            self.conversation.leads = False
            return False
        self._turn_to(lead)
        return True

    @property
    def is_to_leave(self) -> bool:
        """Whether another daemon takes over from the one that `follow` has connected to."""
        return self.conversation.moved and self.at is not self.endpoint

    def leave(self) -> None:
        """Connect to the public address again. Nothing may be in flight."""
        self._turn_to(self.endpoint)

    def _turn_to(self, endpoint: str) -> None:
        """Connect anew; without the descriptors for that, `drain` tries it again later."""
        self.conversation.lose("the client turned to another connection")
        self._close_line()
        end_sockets, was_at = self._end_sockets, self.at
        try:
            self._connect(endpoint)
        except ResourceExhausted:
            self.connected = False
            self._again_s = time.monotonic() + _RECONNECT_S
            return
        if endpoint != was_at:
            self._barred = _Barred(endpoint, self._keys)
        end_sockets()
        self.turns += 1

    @property
    def closed(self) -> bool:
        """Whether it is closed, or another process's, from which this one was forked."""
        return self._is_closed or bool(self.socket.closed) or os.getpid() != self._process

    def _check_whole(self) -> None:
        """Raises FailedPrecondition in a signal's handler that has come between two parts of a message."""
        if self._is_amid:
            raise error_for(
                Error.CLIENT_MISUSED,
                "a signal's handler has interrupted a call of the client amid a message; expected it to call later",
            )

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise error_for(
                Error.CLIENT_MISUSED,
                f"the client was made in process {self._process}, before this one was forked from it; expected one made"
                " here",
            )

    def close(self) -> None:
        if not self.closed:
            self._is_closed = True  # first, so that it is closed also if Ctrl-C comes in between
            self._close_line()
            self._end_sockets()
            if self.memory is not None:
                self.memory.forget()

    def _close_line(self) -> None:
        asked, line = self._asked, self._line
        self._asked = self._line = None
        if asked is not None:
            asked.end.close()
        if line is not None:
            self.turns += 1
            line.shut_down()

    @property
    def awaits_line(self) -> bool:
        """Whether a direct line is still to come, or to be asked for, as again after a refusal.

        A line might overtake frames that were sent before, and may not name regions that they named.
        """
        if self._line is not None or self.memory is None or self.conversation.local_socket is None:
            return False
        may_ask = time.monotonic() >= self._ask_line_s and not self.memory.shared and not self.conversation.has_frames
        return may_ask or self._asked is not None

    def advance_line(self, wait_s: float = 0.0) -> None:
        """Ask for a direct line, unless one has been asked for, and wait up to `wait_s` for the answer.

        Not while this process is so short of descriptors that large messages could not be sent by it.
        """
        path = self.conversation.local_socket
        assert path is not None
        try:
            if self._asked is None and not are_descriptors_left(_LINE_DESCRIPTORS):
                raise OSError(errno.EMFILE, "too few for a line")
            asked = self._asked = self._asked or Question(path, b'{"op":"line"}')
            if not asked.has_answer(wait_s):
                return
            self._line = take_line(asked.end, self.conversation.instance)
            self._set_polled()
            self.turns += 1
        except (OSError, ValueError, msgspec.MsgspecError):
            if self._asked is not None:
                self._asked.end.close()
        except BaseException:
            self._break_off()
            raise
        self._asked = None
        self._ask_line_s = time.monotonic() + AGAIN_S

    def _set_polled(self) -> None:
        """What `wait` polls, by whether there is something to send; a line comes last.

        Beside a line the sockets' descriptors are: to poll a socket itself takes it seven system calls.
        """
        polled: list[zmq.Socket[bytes] | int] = [self.watch, self.socket]
        if self._line is not None:
            polled = [int(self.watch.fileno()), int(self.socket.fileno()), self._line.fileno()]
        self._is_drained = False
        self._readable = [(each, _POLLIN) for each in polled]
        self._writable = [*self._readable[:-1], (polled[-1], _POLLIN | _POLLOUT)]

    @property
    def descriptors(self) -> list[int]:
        """Descriptors that show when `drain` has something to do, but for the line's."""
        return [int(self.socket.fileno()), int(self.watch.fileno())]

    @property
    def line_descriptor(self) -> int | None:
        """The descriptor that shows when `drain_line` has something to do; None: there is no direct line."""
        return None if self._line is None else self._line.fileno()

    @property
    def sharing(self) -> bool:
        return self.memory is not None and self.memory.shared

    def might_lend(self, shape: Shape, dtype: DTypeLike) -> bool:
        """Whether it makes sense to ask for an array of this shape and dtype in shared memory."""
        return self.memory is not None and not self.closed and is_large(shape, dtype)

    def empty(self, shape: Shape, dtype: DTypeLike) -> Array | None:
        """Return an array in shared memory; None if none is free, until `memory` gets more."""
        return None if self.memory is None else self.memory.empty(shape, dtype)

    def try_send(self, outgoing: Outgoing, *, copy: bool = True) -> bool:
        """Put a request in flight; False if no daemon takes it now. Without `copy` its arrays must not change.

        Raises `Unavailable` if the request uses memory that was lent on a connection lost since, and
        `PermissionDenied` or `Unavailable` while the daemon refuses us.
        """
        if self.closed:
            self._check_process()
            raise error_for(Error.CLIENT_MISUSED, "the client is closed")
        if self._barred.why is not None:
            self._try_again()
        self.conversation.check(outgoing)
        if not self.connected:
            return False
        try:
            self.conversation.sends(outgoing)  # before it is sent: a call within a signal's handler may read its answer
            is_sent = self._send(outgoing, copy=copy)
            if not is_sent:
                self.conversation.not_sent(outgoing)
        except BaseException:
            self._break_off()
            raise
        return is_sent

    def _send(self, outgoing: Outgoing, *, copy: bool) -> bool:
        try:
            if self._line is not None:
                return self._line.try_send(pack(outgoing.parts))
            self._is_amid = True
            send_parts(self.socket, outgoing.parts, copy=copy)
        except (zmq.Again, ChannelBroken):  # of a line that is broken `drain` makes an end
            return False
        finally:
            self._is_amid = False
        return True

    def probe(self) -> list[RequestOutcome]:
        """Probe the daemon; while a request waits, call this once in `PROBE_S`. Return the outcomes that it settles:
        all in flight are lost with a daemon that has been silent for too long.

        Silence is counted in probes, so that time in which this process was stopped itself does not count.
        """
        outgoing = self.conversation.probe()
        if outgoing is not None:
            self.try_send(outgoing)
            return []
        self._unanswered += 1
        settled = self.drain() if self._unanswered * PROBE_S > self._silence_s else []
        if self._unanswered * PROBE_S > self._silence_s:  # nothing has come by now
            silent = f"the daemon at {self.at} has said nothing for {self._silence_s:g} s: it may be stopped"
            settled += self.conversation.lose(f"{silent}; the request may have been run")
            self._turn_to(self.endpoint)
        return settled

    def abandon(self, request_id: str) -> bool:
        """Stop waiting for a request; return whether a cancellation could be sent to the daemon at once."""
        self._lost = [lost for lost in self._lost if lost[0] != request_id]
        try:
            if not self.conversation.abandon(request_id) or self.closed or not self.connected or self._is_amid:
                return False
            return self._send(self.conversation.ask("cancel", {"target": request_id}), copy=True)
        except BaseException:
            self._break_off()
            raise

    def _break_off(self) -> None:
        """End the connection, as an exception from outside (Ctrl-C) has come while a message was sent or read: half of
        one may be on its way, and an answer lost. All in flight end as `Unavailable` at the next `drain`.
        """
        self._is_amid = False
        amid = f"the connection to {self.at} was given up, as a call was broken off amid a message"
        self._lost += self.conversation.lose(f"{amid}; the request may have been run")
        self._close_line()
        self.connected, self._again_s, self._looked_s = False, 0.0, 0.0

    def wait(self, timeout_s: float, *, to_send: bool = False) -> list[RequestOutcome] | None:
        """Wait for a message or a change of the connection, with `to_send` also until a request can be sent; None if
        neither came.

        Reads only one message, as checking for another takes as long as waiting for it.
        """
        self._check_whole()
        if self.closed:
            self._check_process()
            return self.drain()
        if self._line is not None and not self._is_drained and (settled := self.drain()):
            return settled
        watched = self._writable if to_send and self.connected and not self._lacks else self._readable
        try:
            events = zmq.zmq_poll(watched, math.ceil(min(timeout_s, self.again_in_s, _LONGEST_WAIT_S) * 1e3))
        except zmq.ZMQError:
            if not self.closed:
                raise
            return self.drain()  # a signal's handler has closed the client
        self._looked_s = time.monotonic()
        if not events:
            return None if self._looked_s < self._again_s else self.drain()
        which: Any
        which, event = events[0]
        if which is self.socket:
            return self._read() if event & _POLLIN else []
        if self._line is not None and which == self._line.fileno():
            return (self._read_line() if event & ~_POLLOUT else None) or []
        return self.drain()

    def look(self) -> list[RequestOutcome]:
        """`drain`, to notice a lost connection, if not done just now.

        Raises FailedPrecondition in a forked child, and in a signal's handler amid a message.
        """
        self._check_process()
        self._check_whole()
        if time.monotonic() < self._looked_s + _LOOKED_S:
            return []
        is_quiet = self._line is not None and self._is_drained and not zmq.zmq_poll(self._readable, 0)
        return [] if is_quiet else self.drain()

    def drain(self) -> list[RequestOutcome]:
        """Read all messages and connection events; return the outcomes that they settle. Replace the socket if due."""
        settled, self._lost = self._lost, []
        if self.closed:
            # Not in a forked child: it would end the parent's memory.
            return settled + self.conversation.lose("the client was closed") if os.getpid() == self._process else []
        self._is_drained = False
        settled += self._read_all()
        self._looked_s = time.monotonic()
        try:
            while can_be_read(self.watch):
                monitor_message = parse_monitor_message(self.watch.recv_multipart(zmq.DONTWAIT))
                event, was_connected = monitor_message["event"], self.connected
                self._is_accepted = event not in _NOT_THERE
                self.connected = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
                self._barred.hear(event, int(monitor_message["value"]))
                if event == zmq.EVENT_DISCONNECTED:
                    settled += self._read_all()  # messages that came after the first reading
                    settled += self.conversation.lose(_LOST.format(self.at))
                if event in _NOT_THERE and not self._barred.is_over:
                    is_first = was_connected or self.at is not self.endpoint
                    self._again_s = min(self._again_s, self._looked_s + (0.0 if is_first else _RECONNECT_S))
            self._is_drained = True
            if self._looked_s >= self._again_s:
                self._turn_to(self.endpoint)
        except BaseException:
            self._break_off()
            raise
        return settled

    def _read_all(self) -> list[RequestOutcome]:
        settled: list[RequestOutcome] = []
        while can_be_read(self.socket):
            settled += self._read()
        return settled + self._read_lines()

    def drain_line(self) -> list[RequestOutcome]:
        """As `drain`, of the direct line alone: enough when its descriptor shows that something has come."""
        settled = self._read_lines()
        return settled + self.drain() if self._line is None else settled

    def _read_lines(self) -> list[RequestOutcome]:
        settled: list[RequestOutcome] = []
        while self._line is not None and (read := self._read_line()) is not None:
            settled += read
        return settled

    def _read_line(self) -> list[RequestOutcome] | None:
        """As `_read`, of the direct line; None if nothing has come. With the line, all that is in flight is lost."""
        assert self._line is not None
        try:
            message = self._line.take()
            if message is not None:
                return self._take(unpack(message))
        except ChannelBroken:
            pass
        except ValueError:
            self._line.close()
        except BaseException:
            self._break_off()
            raise
        if self._line.open:
            return None
        why = _LOST.format(self.at)
        if not are_descriptors_left(1):  # before the line's own is free again
            why += f"; an answer may have found no descriptor, as {_files_open()}"
        self._close_line()
        self.connected = False
        self._set_polled()
        settled = self.conversation.lose(why)
        self._again_s = time.monotonic()
        return settled

    @property
    def again_in_s(self) -> float:
        """Seconds until `drain` next tries to reach a daemon; inf while one is connected or being tried."""
        return max(0.0, self._again_s - time.monotonic())

    def _try_again(self) -> None:
        """Raise the daemon's refusal if it is recent; otherwise clear it and try again, as it may no longer hold."""
        barred = self._barred
        assert barred.why is not None
        if time.monotonic() < barred.until_s:
            raise barred.why
        self._barred = _Barred(self.at, self._keys)
        if barred.is_over:
            self._turn_to(self.at)

    def _read(self) -> list[RequestOutcome]:
        """Read the message that has come; return the outcomes that it settles."""
        try:
            return self._take([frame.buffer for frame in self._received()])
        except zmq.Again:  # a call within a signal's handler has read it, and settled what it brought
            return []
        except BaseException:
            self._break_off()
            raise

    def _received(self) -> list[zmq.Frame]:
        self._is_amid = True
        try:
            return receive_parts(self.socket)
        finally:
            self._is_amid = False

    def _take(self, parts: Sequence[Buffer]) -> list[RequestOutcome]:
        settled = self.conversation.receive(parts)
        self._unanswered = 0
        if self.conversation.in_doubt:
            settled += self.probe()
        return settled

    @property
    def _lacks(self) -> str:
        """The reason if the direct line is free, but this process lacks what the last request needs; else empty."""
        return "" if self._line is None else self._line.lacks

    def wait_s(self, patience: Patience) -> float:
        """The longest to wait before the next attempt to send; logs once that no daemon is there yet."""
        if self._lacks:
            return min(patience.left_s, _RECONNECT_S)
        if self.connected or self._has_said:
            return patience.left_s
        if patience.waited_s < _SILENT_S:
            return min(patience.left_s, _SILENT_S - patience.waited_s)
        self._has_said = True
        how = "start one there with: shisha-rt serve MODEL.onnx"
        log.warning("no daemon at %s yet, waiting for up to %g s; %s", self.endpoint, patience.timeout_s, how)
        return patience.left_s

    @property
    def stirring(self) -> bool:
        """Whether `try_send` or `drain` has work now. If not, a descriptor will signal the next change."""
        if self.closed:
            return False
        # The descriptor of a new socket signals nothing before it has been looked at.
        if not self.connected and can_be_read(self.watch):
            return True
        awaited = _POLLIN | _POLLOUT if self.connected and self._line is None else _POLLIN
        return bool(cast("int", self.socket.get(_EVENTS)) & awaited)

    def refused(self, patience: Patience) -> ShishaError:
        """The error for a request that could not be sent in time."""
        within = f"within {patience.timeout_s:g} s"
        if (self._lacks or not self.connected) and not are_descriptors_left(1 if self.connected else _DESCRIPTORS):
            return _too_many_open(f"request to {self.endpoint} {within}")
        if self._lacks:
            raised = "expected limits of files and memory that allow it (ulimit -f, ulimit -v)"
            message = f"no room for a request to {self.endpoint} {within}: {self._lacks}; {raised}"
            return error_for(Error.TOO_MANY_OPEN, message)
        if self.connected:
            return Timeout(f"the daemon at {self.endpoint} took no request {within}", kind=Error.NO_ANSWER)
        if self._is_accepted:
            silent = f"who listens at {self.endpoint} said nothing {within}: it may be stopped, or busy"
            return Timeout(silent, kind=Error.NO_ANSWER)
        if isinstance(_why_not_near(self.endpoint), PermissionError):
            barred = f"this user may not connect to {self.endpoint}; expected a socket, and folders, open to it"
            return error_for(Error.NO_DAEMON, barred)
        return error_for(
            Error.NO_DAEMON, f"no daemon at {self.endpoint} {within}; start one there with: shisha-rt serve MODEL.onnx"
        )

    def silence(self, request_id: str, patience: Patience) -> Timeout:
        return Timeout(
            f"no answer from the daemon at {self.endpoint} within {patience.timeout_s:g} s", request_id, Error.NO_ANSWER
        )


_WITH_KEYS: Final = "expected secret_key (--key) and server_key (--server-key)"
_OTHER_KEY: Final = "expected one whose public key is server_key (--server-key)"


class _Barred:
    """Whether the daemon refuses us, and `why`. `is_over`: the refusal is definite; only later calls try again."""

    def __init__(self, endpoint: str, keys: ClientKeys | None) -> None:
        self._endpoint = endpoint
        self._keys = keys
        self._broken_off = 0
        self.why: ShishaError | None = None
        self.until_s = 0.0
        self.is_over = False

    def hear(self, event: int, value: int) -> None:
        """Note an event of the watch."""
        keys, is_protocol = self._keys, event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self.why, self._broken_off = None, 0
        elif event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            key = "" if keys is None else f" {keys.own.public}"
            self._because(Error.UNKNOWN_KEY, f"does not know this key{key}; expected one of its allow-list's")
        elif is_protocol and value != zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
            self._because(Error.NOT_A_DAEMON, "does not speak as a daemon does; expected one of shisha-rt")
        elif is_protocol and keys is None:
            self._because(Error.KEYS_MISSING, f"asks for keys; {_WITH_KEYS}")
        elif is_protocol:
            self._because(Error.KEYS_UNWANTED, "asks for no keys; expected none (secret_key, server_key)")
        elif event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
            self._broken_off += 1
            if self._broken_off >= _BROKEN_OFF:
                no_key = f"it may ask for keys: {_WITH_KEYS}; or it is no endpoint, but HTTP"
                reason = no_key if keys is None else _OTHER_KEY
                self._because(Error.HANDSHAKE_BROKEN, f"breaks off each handshake; {reason}")
        self.is_over |= is_protocol or event == zmq.EVENT_HANDSHAKE_FAILED_AUTH

    def _because(self, kind: Error, what: str) -> None:
        self.why = error_for(kind, f"the daemon at {self._endpoint} {what}")
        self.until_s = time.monotonic() + _RECONNECT_S


def _why_not_near(endpoint: str) -> Exception | None:
    """Why `endpoint` is no IPC address at which a daemon listens and this process may connect; None if it is."""
    try:
        if not endpoint.startswith("ipc://"):
            raise ValueError(endpoint)
        with socket.socket(socket.AF_UNIX) as asking:
            asking.setblocking(False)  # a daemon that stands still has accepted as many as it can
            asking.connect(endpoint.removeprefix("ipc://"))
    except (OSError, ValueError) as error:
        return error
    return None


def _close(process: int, ours: zmq.Socket[bytes], watch: zmq.Socket[bytes]) -> None:
    """Close a link's sockets, also if nobody has closed the link, in the process that made them."""
    if os.getpid() == process and not ours.closed:
        ours.disable_monitor()
        watch.close()
        ours.close()


def _files_open() -> str:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"this process may have {limit} files open"


def _too_many_open(wanting: str, context: Context | None = None) -> ShishaError:
    """The error where this process, or else the `context`, may open nothing more."""
    if context is None or not are_descriptors_left(_DESCRIPTORS):
        reason = f"{_files_open()}; expected a higher limit (ulimit -n)"
    else:
        reason = f"its context may have {context.get(zmq.MAX_SOCKETS)} sockets; expected another (context)"
    return error_for(Error.TOO_MANY_OPEN, f"too much is open for a {wanting}: {reason}, or that clients are closed")
