"""Hosts and actors killed under load, and the effect on frames: `python -m benchmarks cluster kills`.

Three raylets on one host, two of them behind links of 1 Gbit/s and 1 ms, with a place each, and one place on the
daemon's host. At random moments a raylet is killed with all that runs on it, and another one starts on its host; or
only a place's actor is killed. Every frame must be answered once, in order, and like the first answer to the same
input (see `rigs/steady_load.py`).
"""

from __future__ import annotations

import random
import time
from itertools import pairwise
from typing import Annotated, Final

import psutil
import typer

from benchmarks.report.report import Report
from benchmarks.report.results import Row
from benchmarks.rigs.control import events_since
from benchmarks.rigs.far_hosts import FarHosts, check_host, far_daemon, far_hosts
from benchmarks.rigs.steady_load import SteadyLoad
from shisha_rt.client import Client

_IN_FLIGHT: Final = 8
_HOSTS: Final = 3
_ACTOR_S: Final = 90.0
_BACK_S: Final = 90.0
_BEFORE_S: Final = (0.3, 3.0)


def kills(
    model: Annotated[str, typer.Option(help="A network of the zoo.")] = "squeezenet",
    count: Annotated[int, typer.Option(min=1, help="Raylets, and as many actors.")] = 20,
    seed: Annotated[int, typer.Option(help="Of the moments, and of who is killed.")] = 0,
) -> None:
    """Raylets and actors killed at random moments under load: frames lost, doubled, reordered, different."""
    check_host("cluster kills")
    report = Report("kills")
    generator = random.Random(seed)
    victims = ["raylet", "actor"] * count
    generator.shuffle(victims)
    began_s = time.monotonic()
    with far_hosts(_HOSTS) as hosts:
        with (
            far_daemon(f"zoo:{model}", hosts, ["--strategy", "guided"], local=True) as daemon,
            Client(daemon.endpoint, timeout_s=120) as control,
            SteadyLoad(daemon.endpoint, _IN_FLIGHT) as load,
        ):
            load.wait(lambda: len(load.answers) > 20, 60)
            killed = []
            for number, victim in enumerate(victims):
                time.sleep(generator.uniform(*_BEFORE_S))
                load.check()
                report.step(f"{number + 1} of {len(victims)}: {victim}, {len(load.answers)} frames answered")
                killed.append((time.time(), _kill(victim, hosts, generator)))
            back = load.wait(lambda: all(place["state"] == "up" for place in control.status()["places"]), _BACK_S)
            time.sleep(2.0)
            tally = load.stop()
            load.check()
            status = control.status()
            events = events_since(control)
        left = hosts.left()
        keepers = [raylet.process.pid for raylet in (hosts.cluster.head, *hosts.raylets)]
        started = [child.pid for pid in keepers for child in psutil.Process(pid).children(recursive=True)]
    left += [str(pid) for pid in (*keepers, *started) if psutil.pid_exists(pid)]
    answered_s = [at_s for at_s, _ in load.answers]
    row: Row = {
        "network": model,
        "raylets killed": sum(what == "raylet" for _, what in killed),
        "actors killed": sum(what == "actor" for _, what in killed),
        **{"doubled or out of order" if name == "out of order" else name: count for name, count in tally.row.items()},
        "left running": len(left),
        "run again": status["frames"]["replayed"],
        "all places back": "yes" if back else "no",
        "longest gap s": max(after - before for before, after in pairwise(answered_s)),
        "epochs": status["plan"]["epoch"],
        "hosts that came": sum(event["kind"] == "host_came" for event in events),
        "minutes": (time.monotonic() - began_s) / 60,
    }
    report.show(f"raylets and actors killed under load, {model}", [row])
    if left:
        print("left running:", *left, sep="\n  ")
    report.save([row], "cluster_kills")


def _kill(victim: str, hosts: FarHosts, generator: random.Random) -> str:
    if victim == "raylet":
        number = generator.randrange(_HOSTS)
        hosts.raylets[number].kill()
        time.sleep(generator.uniform(0.0, 2.0))
        hosts.again(number)
        return victim
    until_s = time.monotonic() + _ACTOR_S
    while time.monotonic() < until_s:
        if actors := [actor for number in range(_HOSTS) for actor in hosts.actors(number)]:
            generator.choice(actors).kill()
            return victim
        time.sleep(0.1)
    return "nobody"
