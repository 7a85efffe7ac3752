"""The daemon's link to the process that prepares its model (`preparer`)."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from typing import Final

from shisha_rt.core.tuning.events import PlannedAhead
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.daemon.prepared import (
    FROM_PREPARER,
    TO_PREPARER,
    FromPreparer,
    ModelPrepared,
    NoAccess,
    PlansAhead,
    Preparation,
    PreparationStep,
    PreparedModel,
    Refused,
)
from shisha_rt.errors import Error, Failure
from shisha_rt.process.channel import GONE, ChannelBroken
from shisha_rt.process.child import start_with_channel
from shisha_rt.process.job import how_ended
from shisha_rt.process.pulse import Pulse, await_message

_MODULE: Final = "shisha_rt.daemon.children.preparer"
_ENDS_WITHIN_S: Final = 5.0
_TELL_EVERY_S: Final = 10.0


class PreparerLink:
    """Call `ask`, `wait`, `watch` (for the plans made ahead), then `look` periodically; in any case `close`."""

    def __init__(self) -> None:
        self._poller: Poller | None = None
        self._closed = False
        self._child, self._channel = start_with_channel(_MODULE)
        self._pulse = Pulse(self._child.pid)

    def ask(self, asked: Preparation) -> None:
        with contextlib.suppress(ChannelBroken):  # the process has died: `wait` says how
            self._channel.send(TO_PREPARER.encode(asked))

    def wait(self, tell: Callable[[str], None]) -> PreparedModel:
        """Wait for the prepared model. Raises what `prepare` raises in the process; Failure if it dies or hangs.

        `tell` is called with each step, and every `_TELL_EVERY_S` while a step lasts.
        """
        at = "loading"
        while True:
            match self._next():
                case None:
                    tell(f"still {at}")
                case PreparationStep(text=at):
                    tell(at)
                case ModelPrepared(model=model):
                    return model
                case Refused() | NoAccess() as refused:
                    raise refused.error

    def _next(self) -> FromPreparer | None:
        """The next message; None if none has come for `_TELL_EVERY_S`."""
        try:
            data = await_message(self._channel, self._pulse, _TELL_EVERY_S)
        except ChannelBroken as broken:
            gone = str(broken) == GONE
            how = f"has died: {how_ended(self._child.wait())}" if gone else f"was ended: {broken}"
            raise Failure(f"the process that prepares the model {how}", Error.CHILD_DIED) from None
        return None if data is None else FROM_PREPARER.decode(data)

    def watch(self, poller: Poller) -> None:
        """Have `poller` yield the plans made ahead."""
        self._poller = poller
        poller.watch(self._channel.fileno(), self._hear)
        poller.watch(self._child.pidfd, self._gone)

    def look(self) -> None:
        """Kill the process if it hangs: without its plans ahead, plans are made when they are wanted."""
        if not self._closed and self._pulse.look(self._channel.beats) is not None:
            self._child.kill()

    def _hear(self) -> Iterator[PlannedAhead]:
        assert self._poller is not None
        with contextlib.suppress(ChannelBroken):
            data = self._channel.take()
            if data is None and self._channel.open:  # a heartbeat
                return
            if data is not None and isinstance(message := FROM_PREPARER.decode(data), PlansAhead):
                yield PlannedAhead(message.plans)
        self._poller.unwatch(self._channel.fileno())
        self._child.terminate()  # the process has nothing more to do; the loop does not wait for its end

    def _gone(self) -> Iterator[object]:
        self.close()
        return iter(())

    def close(self) -> None:
        """End the process, if it has not ended; it has `_ENDS_WITHIN_S` to clean up."""
        if self._closed:
            return
        self._closed = True
        if self._poller is not None:
            self._poller.unwatch(self._channel.fileno())
            self._poller.unwatch(self._child.pidfd)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.terminate()
            self._child.wait(_ENDS_WITHIN_S)
        self._child.end()
        self._channel.close()
