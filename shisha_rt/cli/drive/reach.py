"""How commands talk to a daemon: how long they wait for an answer, and how errors are reported."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from shisha_rt.client import Client, InvalidArgument, ShishaError
from shisha_rt.errors import BadInput, Error, Failure

REACH_S: Final = 5.0
"""A daemon that runs on this machine answers at once."""


@contextlib.contextmanager
def plainly(*, sends_random: bool = False) -> Iterator[None]:
    """Turn errors of the client into the command's own errors: one line, which says what to do.

    `sends_random`: the frames are made up.
    """
    try:
        yield
    except InvalidArgument as error:  # raised by the client for an invalid endpoint
        raise BadInput(error.message, error.kind) from None
    except ShishaError as error:
        raise Failure(f"{error.message}{on_random(error) if sends_random else ''}", error.kind) from None


def on_random(error: ShishaError) -> str:
    """What to add to the error of a random frame: '' unless the network itself may not take its values."""
    return "; the inputs were random, and --input sends others" if error.kind == Error.TASK_FAILED else ""


def events_from(client: Client, since: int = 0) -> Iterator[dict[str, Any]]:
    """A daemon's events so far, of which an answer may have only a part."""
    while (page := client.events(since))["events"]:
        yield from page["events"]
        since = page["next"]
