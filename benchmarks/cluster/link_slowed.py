"""A link slowed tenfold under load: `python -m benchmarks cluster slow_link`.

Three raylets on one host, two of them behind links of 1 Gbit/s and 1 ms, a place on each. Once the daemon has tuned
itself, the link to the last host has a tenth of its rate and ten times its delay; later it is as before again. Seconds
from then until the daemon's event says that the link is another one, and until another plan is live; frames a second
before, from then until that plan, and under the plan that it ends with.
"""

from __future__ import annotations

import time
from typing import Annotated, Any, Final

import typer

from benchmarks.report.facts import facts
from benchmarks.report.progress import Progress
from benchmarks.report.results import Row, save_csv, show
from benchmarks.rigs.far_hosts import FarHosts, check_host, far_daemon, far_hosts, wait_for
from benchmarks.rigs.journal import Event, events_since, next_event
from benchmarks.rigs.slow_link import GIGABIT
from benchmarks.rigs.steady_load import SteadyLoad
from shisha_rt.client import Client
from shisha_rt.plan.form import plan_of

_HOSTS: Final = 3
_IN_FLIGHT: Final = 12
_TUNED_S: Final = 150.0
_NOTICED_S: Final = 60.0
_RATE_S: Final = 5.0
_DELAY_S: Final = 1e-3


def slow_link(
    model: Annotated[str, typer.Option(help="A network of the zoo.")] = "squeezenet",
    times: Annotated[int, typer.Option(min=1, help="How often it is slowed, and as often as before again.")] = 2,
) -> None:
    """A link slowed tenfold under load: seconds until it is noticed and replanned, and frames."""
    check_host("cluster slow_link")
    about = facts(f"cluster slow_link --model {model} --times {times}")
    progress = Progress("slow_link")
    rows: list[Row] = []
    with (
        far_hosts(_HOSTS) as hosts,
        far_daemon(f"zoo:{model}", hosts, ["--objective", "throughput"]) as daemon,
        Client(daemon.endpoint, timeout_s=120) as control,
        SteadyLoad(daemon.endpoint, _IN_FLIGHT) as load,
    ):
        progress.step("tuning")
        _settle(control, load)
        for _ in range(times):
            for what, rate, delay_s in (
                ("a tenth", GIGABIT / 10, 10 * _DELAY_S),
                ("as before", GIGABIT, _DELAY_S),
            ):
                progress.step(what)
                rows.append({"link": what, **_change(hosts, control, load, rate, delay_s)})
        tally = load.stop()
        load.check()
    sums = {"sent": tally.sent, "lost": tally.lost, "refused": tally.errors, "out of order": tally.out_of_order}
    rows = [{"network": model, **row, **sums, "different": tally.different} for row in rows]
    progress.done()
    show(f"a link slowed tenfold under load, {model}", rows)
    save_csv("cluster_slow_link", rows, about)


def _change(hosts: FarHosts, control: Client, load: SteadyLoad, rate: float, delay_s: float) -> Row:
    before, plan_before = _frames_a_second(load, _RATE_S), _plan(control)
    since, began_s, answered = next_event(control), time.time(), len(load.answers)
    hosts.link.set(rate, delay_s, [_HOSTS - 2])

    def noticed() -> list[Event]:
        return [one for one in events_since(control, since) if one["kind"] == "link_changed"]

    wait_for(lambda: bool(noticed()), _NOTICED_S)
    seen = noticed()
    wait_for(lambda: _plan(control) != plan_before, _NOTICED_S)
    replanned_s, changed = time.time() - began_s, _plan(control) != plan_before
    meanwhile = len(load.answers) - answered
    _settle(control, load)
    return {
        "noticed s": seen[0]["time"] - began_s if seen else None,
        "another plan s": replanned_s if changed else None,
        "frames/s before": before,
        "frames/s until then": meanwhile / replanned_s,
        "frames/s at the end": _frames_a_second(load, _RATE_S),
        "plan before": str(plan_before),
        "plan at the end": str(_plan(control)),
    }


def _plan(control: Client) -> Any:
    return plan_of(control.plan()["stages"])


def _settle(control: Client, load: SteadyLoad) -> None:
    """Until the tuner only watches."""

    def watches() -> bool:
        load.check()
        return bool(control.call("tuner_get")["tuner"]["state"] == "watching")

    time.sleep(1.0)
    wait_for(watches, _TUNED_S)


def _frames_a_second(load: SteadyLoad, seconds: float) -> float:
    began_s = time.time()
    time.sleep(seconds)
    return load.answered_since(began_s) / (time.time() - began_s)
