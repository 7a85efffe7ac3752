"""`shisha-rt events`: the daemon's own account of what happened and why."""

from __future__ import annotations

import json
import time
from typing import Annotated, Final

import typer

from shisha_rt.cli.options import Endpoint, Key, ServerKey
from shisha_rt.show.event_words import clock, in_words

_AT_ONCE: Final = 1000
_LOOK_EVERY_S: Final = 0.5


def events(
    endpoint: Endpoint = None,
    key: Key = None,
    server_key: ServerKey = None,
    since: Annotated[int, typer.Option(metavar="N", min=0, help="Start with the event of this number.")] = 0,
    follow: Annotated[bool, typer.Option("--follow", help="Go on as events happen, until Ctrl-C.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object; with --follow one for each event, a line each.")
    ] = False,
) -> None:
    """Print what happened in a running daemon, oldest first: plans, trials of the tuner, deaths, changes of places.

    A trial tells what was measured, the verdict, why the plan was tried, and the plan: its places with their layers.

    \b
    Examples:
      shisha-rt events
      shisha-rt events --follow
      shisha-rt events --since 120 --json | jq '.events[] | select(.kind == "trial")'
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    from shisha_rt.cli.drive.reach import REACH_S, plainly
    from shisha_rt.client import Client
    from shisha_rt.client.link import ENDPOINT

    kept = []
    with plainly(), Client(endpoint or ENDPOINT, timeout_s=REACH_S, secret_key=key, server_key=server_key) as client:
        while True:
            page = client.events(since, _AT_ONCE)
            since = page["next"]
            for event in page["events"]:
                if as_json and not follow:
                    kept.append(event)
                else:
                    print(json.dumps(event) if as_json else f"{event['event']:>5}  {clock(event)}  {in_words(event)}")
            if page["events"]:
                continue
            if not follow:
                break
            print(end="", flush=True)
            time.sleep(_LOOK_EVERY_S)
    if as_json:
        print(json.dumps({"events": kept, "next": since}))
