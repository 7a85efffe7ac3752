"""`shisha-rt events`: the daemon's own account of what happened and why."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from shisha_rt.cli.options import DaemonOptions, takes
from shisha_rt.show.event_words import clock, in_words

_AT_ONCE: Final = 1000
_LOOK_EVERY_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class EventsOptions(DaemonOptions):
    since: Annotated[int, typer.Option(metavar="N", min=0, help="Start with the event of this number.")] = 0
    follow: Annotated[bool, typer.Option("--follow", help="Go on as events happen, until Ctrl-C.")] = False
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object; with --follow one for each event, a line each.")
    ] = False


@takes(EventsOptions)
def events(options: EventsOptions) -> None:
    """Print what happened in a running daemon, oldest first.

    Plans, trials of the tuner, deaths of workers, changes of places.

    A trial tells what was measured, the verdict, why the plan was tried, and the plan: its places with their layers.

    \b
    Examples:
      shisha-rt events
      shisha-rt events --follow
      shisha-rt events --since 120 --json | jq '.events[] | select(.kind == "trial")'
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    kept, since = [], options.since
    with options.client() as client:
        if options.model is None and not options.as_json and "models" in client.status():
            print("These are the host's events; those of a model: --model NAME", file=sys.stderr)
        instance = client.call("server_metadata")["instance"]
        while True:
            page = client.events(since, _AT_ONCE)
            since = page["next"]
            for event in page["events"]:
                if options.as_json and not options.follow:
                    kept.append(event)
                else:
                    words = f"{event['event']:>5}  {clock(event)}  {in_words(event)}"
                    print(json.dumps(event) if options.as_json else words)
            if page["events"]:
                continue
            if not options.follow:
                break
            print(end="", flush=True)
            time.sleep(_LOOK_EVERY_S)
            before, instance = instance, client.call("server_metadata")["instance"]
            if instance != before:  # another daemon, which numbers its events anew
                since = 0
    if options.as_json:
        print(json.dumps({"events": kept, "next": since}))
