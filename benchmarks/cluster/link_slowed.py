"""A link slowed tenfold under load: `python -m benchmarks cluster slow_link`.

Three raylets on one host, two of them behind links of 1 Gbit/s and 1 ms, with a place each. Once the daemon has tuned
itself, the link to the last host gets a tenth of its rate and ten times its delay; later it is restored. Measured for
each change: seconds until the daemon's events state less than half, or more than twice, the place's former link rate;
seconds until another plan is live after that; frames per second before, until that plan, and under the final plan.
`events`: how often the daemon reported a changed link meanwhile.
"""

from __future__ import annotations

import time
from typing import Annotated, Final

import typer

from benchmarks.report.report import Report
from benchmarks.report.results import Row
from benchmarks.rigs.control import events_since, is_watching, live_plan, next_event
from benchmarks.rigs.far_hosts import FarHosts, check_host, far_daemon, far_hosts
from benchmarks.rigs.slow_link import GIGABIT
from benchmarks.rigs.steady_load import SteadyLoad
from shisha_rt.client import Client

_HOSTS: Final = 3
_PLACE: Final = f"far{_HOSTS}"
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
    report, rows = Report("slow_link"), list[Row]()
    with (
        far_hosts(_HOSTS) as hosts,
        far_daemon(f"zoo:{model}", hosts, ["--objective", "throughput"]) as daemon,
        Client(daemon.endpoint, timeout_s=120) as control,
        SteadyLoad(daemon.endpoint, _IN_FLIGHT) as load,
    ):
        report.step("tuning")
        _settle(control, load)
        for _ in range(times):
            for what, rate, delay_s in (("a tenth", GIGABIT / 10, 10 * _DELAY_S), ("as before", GIGABIT, _DELAY_S)):
                report.step(what)
                rows.append({"link": what, **_change(hosts, control, load, rate, delay_s)})
        tally = load.stop()
        load.check()
    sums = {name: count for name, count in tally.row.items() if name != "answered"}
    rows = [{"network": model, **row, **sums} for row in rows]
    report.keep(f"a link slowed tenfold under load, {model}", rows, name="cluster_slow_link")


def _change(hosts: FarHosts, control: Client, load: SteadyLoad, rate: float, delay_s: float) -> Row:
    before, plan_before = _frames_a_second(load, _RATE_S), live_plan(control)
    places = {place["name"]: place for place in control.status()["places"]}
    known, slower = places[_PLACE]["link"]["there_bytes_per_s"], rate < GIGABIT
    since, began_s = next_event(control), time.time()
    hosts.link.set(rate, delay_s, [_HOSTS - 2])

    def noticed_s() -> float | None:
        for event in events_since(control, since):
            if event["kind"] == "link_changed" and event["place"] == _PLACE:
                times = event["there_bytes_per_s"] / known
                if times < 0.5 if slower else times > 2:
                    return float(event["time_s"])
        return None

    def live_s() -> float | None:
        live = [event["time_s"] for event in events_since(control, since) if event["kind"] == "plan_live"]
        return next((at_s for at_s in live if at_s >= (noticed_s() or 0.0)), None)

    load.wait(lambda: noticed_s() is not None, _NOTICED_S)
    load.wait(lambda: live_s() is not None, _NOTICED_S)
    seen_s, replanned_s, now_s = noticed_s(), live_s(), time.time()
    meanwhile_s = (replanned_s or now_s) - began_s
    meanwhile = load.answered_since(began_s) - load.answered_since(began_s + meanwhile_s)
    _settle(control, load)
    return {
        "noticed s": None if seen_s is None else seen_s - began_s,
        "another plan s": None if replanned_s is None else replanned_s - began_s,
        "frames/s before": before,
        "frames/s until then": meanwhile / meanwhile_s,
        "frames/s at the end": _frames_a_second(load, _RATE_S),
        "events": sum(event["kind"] == "link_changed" for event in events_since(control, since)),
        "plan before": str(plan_before),
        "plan at the end": str(live_plan(control)),
    }


def _settle(control: Client, load: SteadyLoad) -> None:
    """Wait until the tuner only watches."""
    time.sleep(1.0)
    load.wait(lambda: is_watching(control), _TUNED_S)


def _frames_a_second(load: SteadyLoad, seconds: float) -> float:
    began_s = time.time()
    time.sleep(seconds)
    return load.answered_since(began_s) / (time.time() - began_s)
