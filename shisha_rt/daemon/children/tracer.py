"""The daemon's link to the tracer, a process that exports frames' traces, and counters of what it sent and lost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from shisha_rt.core import event_log
from shisha_rt.daemon.children.child_link import ChildLink, ChildProgram
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.daemon.metrics import MetricsPage
from shisha_rt.messages import traces as tm

log = logging.getLogger(__name__)

_TRACER: Final = ChildProgram("shisha_rt.traces.process", tm.TO_TRACER, tm.FROM_TRACER)
_LAST_TRACES_S: Final = 2.0
_MOST_AT_ONCE: Final = 64


class Tracer:
    """Keeps the process running. `settings` None: no traces are exported, and no process runs.

    `page`: counts frames whose traces were sent or lost. `send`: hands a frame's trace to the process; None if no
    process runs. Traces are handed over several at a time, at the next look at the latest.
    """

    def __init__(self, settings: tm.ServeTraces | None, poller: Poller, page: MetricsPage) -> None:
        self._page = page
        self._link = ChildLink(_TRACER, poller, lambda reason: event_log.TracerEnded(reason=reason))
        self._waiting: list[msgspec.Raw] = []
        self.send: Callable[[tm.FrameTraced], object] | None = None
        if settings is not None:
            self._link.start([settings])
            self.send = self._put

    @property
    def pid(self) -> int | None:
        """Process id; None while none runs."""
        return self._link.pid

    def look(self) -> Iterator[object]:
        """Called periodically: hand over waiting traces, restart the process if it has died."""
        self._flush()
        return self._link.look()

    def _put(self, traced: tm.FrameTraced) -> None:
        self._waiting.append(msgspec.Raw(tm.FRAME_TRACED.encode(traced)))
        if len(self._waiting) >= _MOST_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._link.send(tm.FramesTraced(tuple(self._waiting)))
            self._waiting.clear()

    def count(self, counted: tm.TracesCounted) -> None:
        self._page.count("shisha_traces", "sent", by=counted.sent)
        self._page.count("shisha_traces", "lost", by=counted.lost)
        if counted.lost:
            log.warning("traces of %d frames are lost: %s", counted.lost, counted.why)

    def finish(self) -> None:
        """Wait, for a limited time, until the last traces have been sent; called after the last answer."""
        self._flush()
        self._link.send(tm.EndTraces())
        self._link.wait(_LAST_TRACES_S)

    def close(self) -> None:
        self._link.close()
