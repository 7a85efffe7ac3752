"""How commands talk to a daemon: how long they wait for an answer, and how errors are reported."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from shisha_rt.client import Client, InvalidArgument, NotFound, ShishaError
from shisha_rt.errors import BadInput, Error, Failure

REACH_S: Final = 5.0
"""How long a command waits for an answer: plenty, as a daemon on this machine answers at once."""


@contextlib.contextmanager
def plainly(*, sends_random: bool = False) -> Iterator[None]:
    """Context that turns errors of the client into errors of the command: one line, which says what to do.

    `sends_random`: the frames have random values.
    """
    try:
        yield
    except (InvalidArgument, NotFound) as error:  # an endpoint that is none, a name that the daemon does not know
        raise BadInput(error.message, error.kind) from None
    except ShishaError as error:
        raise Failure(f"{error.message}{on_random(error) if sends_random else ''}", error.kind) from None


def on_random(error: ShishaError) -> str:
    """A hint to append to the error of a frame of random values: '' unless the values may be the cause."""
    return "; the inputs were random, and --input sends others" if error.kind == Error.TASK_FAILED else ""


def events_from(client: Client, since: int = 0) -> Iterator[dict[str, Any]]:
    """Yield all events of a daemon from number `since` on; many events come in several answers."""
    while (page := client.events(since))["events"]:
        yield from page["events"]
        since = page["next"]
