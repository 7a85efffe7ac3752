"""Notifications to the service manager that started the daemon: systemd, or another that knows sd_notify(3).

A notification is a datagram, lines of NAME=VALUE, to the UNIX socket that NOTIFY_SOCKET names. No call blocks: what a
manager does not read is sent again later; if it has gone, nothing is sent. Without a manager all calls do nothing.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import socket
import time
from collections.abc import Callable, Iterator, MutableMapping
from typing import Final

log = logging.getLogger(__name__)

_STATUS_EVERY_S: Final = 5.0
_PART_OF_WATCHDOG: Final = 1 / 4
"""`look` is called only every quarter of a second, and pings have to come within half of the watchdog's time."""


class ServiceManager:
    """Removes the manager's variables from `environment`: a child process must not notify in the daemon's name."""

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        address = environment.pop("NOTIFY_SOCKET", "")
        watchdog_us, watched = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
        self._to = "\0" + address[1:] if address[:1] == "@" else address  # @ marks an abstract address
        self._socket: socket.socket | None = None
        if address[:1] in ("/", "@"):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        is_watched = watchdog_us.isdecimal() and watched in ("", str(os.getpid()))
        self._alive_every_s = int(watchdog_us) / 1e6 * _PART_OF_WATCHDOG if is_watched else math.inf
        self._alive_s = self._status_s = -math.inf
        self._status = ""
        self._unsent: dict[str, str] = {}

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def tell(self, status: str) -> None:
        """Report the state in one line, which `systemctl status` shows."""
        if status != self._status:
            self._status = status
            self._notify(STATUS=" ".join(status.split()))

    def ready(self) -> None:
        self._status_s = -math.inf  # send a new status at the next `look`
        self._notify(READY="1")

    @contextlib.contextmanager
    def reloading(self) -> Iterator[None]:
        """Report that files are being read again, and at the end that the daemon is ready, even after an error."""
        self._notify(RELOADING="1", MONOTONIC_USEC=str(time.monotonic_ns() // 1000))
        try:
            yield
        finally:
            self._notify(READY="1")

    def stopping(self) -> None:
        self._notify(STOPPING="1")

    def look(self, now_s: float, status: Callable[[], str]) -> None:
        """Called periodically: report `status()`, ping the watchdog, and send again what was not read.

        Only the loop calls this, so the watchdog notices a stuck loop.
        """
        if self._socket is None:
            return
        if now_s >= self._status_s + _STATUS_EVERY_S:
            self._status_s = now_s
            self.tell(status())
        if now_s >= self._alive_s + self._alive_every_s:
            self._alive_s = now_s
            self._notify(WATCHDOG="1")
        elif self._unsent:
            self._notify()

    def _notify(self, **lines: str) -> None:
        """Send variables, and those of earlier calls that the manager has not read."""
        if self._socket is None:
            return
        if "READY" in lines:  # both in one message would read as a reload that is over
            self._unsent.pop("RELOADING", None)
        self._unsent |= lines
        text = "\n".join(f"{name}={value}" for name, value in self._unsent.items())
        try:
            self._socket.sendto(text.encode(errors="replace"), self._to)
        except BlockingIOError:
            return  # it is sent with the next one
        except OSError as error:
            log.info("the service manager cannot be told: %s", error.strerror)
        self._unsent.clear()
