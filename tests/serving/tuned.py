"""A daemon that tunes itself on emulated places, where one plan is best by far: what the tests of tuning need."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

from shisha_rt.client import Client
from tests.serving.daemon_process import DaemonProcess
from tests.serving.load import Load
from tests.waiting import until

Events = list[dict[str, Any]]


def unequal_machine(folder: Path) -> Path:
    """A fast place and one nine times slower, both emulated, on the first core and the last."""
    cores = sorted(os.sched_getaffinity(0))
    path = folder / "unequal.toml"
    path.write_text(
        "".join(
            f'[[place]]\nname = "{name}"\ncores = [{core}]\nspeed = {speed}\nrank = {rank}\n'
            for name, core, speed, rank in (("fast0", cores[0], 0.45, 1), ("slow0", cores[-1], 0.05, 2))
        )
    )
    return path


def tuned(model: Path, folder: Path, *arguments: object) -> DaemonProcess:
    """One search, for one objective, unless `arguments` say otherwise."""
    options = ("--machine", unequal_machine(folder), "--strategy", "shisha", "--objective", "throughput")
    return DaemonProcess(folder, model, *options, *arguments)


def events(client: Client, kind: str, since: int = 0) -> Events:
    return [event for event in client.events(since, 10_000)["events"] if event["kind"] == kind]


def tuner(client: Client) -> dict[str, Any]:
    tuning: dict[str, Any] = client.call("tuner_get")["tuner"]
    return tuning


def await_state(client: Client, *states: str) -> None:
    until(lambda: tuner(client)["state"] in states, f"a tuner that is {' or '.join(states)}", every_s=0.05)


def await_trials(client: Client, count: int, load: Load) -> None:
    """Until the tuner has measured `count` plans more, with a load that lives."""
    total = tuner(client)["trials_total"] + count

    def measured() -> bool:
        assert load.is_alive()
        assert load.faults == []
        return bool(tuner(client)["trials_total"] >= total)

    until(measured, f"{count} more trials", every_s=0.05)


def verdicts(trials: Events) -> Counter[str]:
    return Counter(trial["verdict"] for trial in trials)
