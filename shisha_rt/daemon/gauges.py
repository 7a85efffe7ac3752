"""Periodic update of gauges, and of counters of totals that others keep; `counting.py` updates metrics at events."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from shisha_rt.daemon.host_share import RELEASED, HostShare
from shisha_rt.daemon.shell import Shell
from shisha_rt.machine.machine import Machine
from shisha_rt.plan.plan import Plan
from shisha_rt.process.budgets import Budgets

if TYPE_CHECKING:
    from shisha_rt.core.tuning.placing import Placing


class Gauges:
    """`update` is called periodically from the loop. Only the frames in flight are counted when a page is written, so
    that no page has a frame both answered and in flight.
    """

    def __init__(self, shell: Shell, budgets: Budgets, share: HostShare) -> None:
        self._shell = shell
        self._share = share
        self._budgets = budgets
        self._counted = dict(self._totals())  # the totals at the last update, by counter
        self._shown: int | None = None
        self._queued: Mapping[int, int] = {}  # frames by stage, at the last update
        self._standings: dict[str, str] = {}
        metrics = shell.counting
        metrics.gauge("shisha_frames_in_flight").set_function(lambda: shell.in_flight)
        metrics.gauge("shisha_target_seconds").set(shell.counting.target_s)
        for place in self._machine.places:  # counters must show 0 first, for queries of their increase
            metrics.count("shisha_worker_restarts", place.name, by=0)
            metrics.count("shisha_pacing_dropped_seconds", place.name, by=0)
        if shell.cores.placing is not None:
            metrics.count("shisha_placement_solves", shell.cores.placing.solver, by=0)
        for memory in self._machine.memories:
            if memory.bandwidth_bytes_per_s is not None:
                bandwidth = metrics.gauge("shisha_memory_bandwidth_bytes_per_second")
                bandwidth.labels(memory.name).set(memory.bandwidth_bytes_per_s)

    @property
    def _machine(self) -> Machine:
        return self._shell.cores.tuning.choice.machine

    def update(self, now_s: float) -> None:
        cores, metrics = self._shell.cores, self._shell.counting
        regions = self._shell.requests.regions
        metrics.gauge("shisha_lent_regions").set(regions.count)
        metrics.gauge("shisha_lent_bytes").set(regions.size_bytes)
        metrics.tuner.state(cores.tuning.doing(now_s))
        metrics.gauge("shisha_tuner_gap_ratio").set(cores.tuning.search.gap_ratio)
        metrics.objective.state(cores.tuning.choice.objective)
        used = cores.tuning.switching.utilisation
        metrics.gauge("shisha_load_ratio").set(math.nan if used is None else used)
        self._count_on()
        self._show_places()
        self._show_host()
        self._show_links()
        live = cores.lifecycle.live
        if live is not None:
            self._show_plan(*live)

    def _show_places(self) -> None:
        places = self._shell.cores.lifecycle.places
        for name in places.by_name:
            standing = RELEASED if name in self._share.released else places.standing(name)
            if standing != self._standings.get(name):
                self._shell.counting.place.labels(name).state(standing)
                self._standings[name] = standing

    def _totals(self) -> Iterator[tuple[tuple[str, ...], float]]:
        """Yield the totals that others keep: a counter (its name and label), and the total."""
        frames, share = self._shell.cores.lifecycle.frames, self._share
        yield ("shisha_frames_replayed",), frames.replayed
        yield ("shisha_stale_replies",), frames.stale_replies
        yield ("shisha_frames_in_time",), self._shell.counting.in_time
        yield ("shisha_host_periods",), share.throttling.periods
        yield ("shisha_host_throttled_periods",), share.throttling.throttled_periods
        yield ("shisha_host_throttled_seconds",), share.throttling.throttled_s
        yield ("shisha_host_pressure_seconds",), share.pressure_s or 0.0
        yield ("shisha_host_others_cpu_seconds",), share.others_s
        for package, joules in share.energy.joules.items():
            yield ("shisha_host_energy_joules", package), joules
        for memory in self._machine.memories:
            if memory.bandwidth_bytes_per_s is not None:
                yield ("shisha_memory_reserved_bytes", memory.name), self._budgets.reserved_bytes(memory.name)

    def _count_on(self) -> None:
        """Add to each counter what its total has grown: counters start at 0, though the kernel's totals do not."""
        for counter, total in self._totals():
            self._shell.counting.count(*counter, by=max(0.0, total - self._counted.get(counter, 0.0)))
            self._counted[counter] = total

    def _show_host(self) -> None:
        metrics, share = self._shell.counting, self._share
        for name, limit in (
            ("shisha_host_quota_cores", share.limits.quota_cores),
            ("shisha_host_memory_limit_bytes", share.memory_limit_bytes),
        ):
            metrics.gauge(name).set(math.inf if limit is None else limit)
        metrics.gauge("shisha_host_shared_cores").set(len(share.shared))

    def _show_links(self) -> None:
        """Show links as their relays measured them last."""
        metrics = self._shell.counting
        for place, seen in self._shell.supervisor.far.links.take_new():
            for name, way in (("there", seen.there), ("back", seen.back)):
                metrics.gauge("shisha_link_latency_seconds").labels(place, name).set(way.latency_s)
                metrics.gauge("shisha_link_bandwidth_bytes_per_second").labels(place, name).set(way.bytes_per_s)

    def _show_plan(self, epoch: int, plan: Plan) -> None:
        shell, metrics = self._shell, self._shell.counting
        if epoch != self._shown:
            self._show_stages(epoch, plan)
        self._queued = shell.cores.lifecycle.frames.queued(epoch)
        if shell.cores.placing is not None:
            self._show_costs(epoch, plan, shell.cores.placing)
        rate = shell.telemetry.rate(epoch, plan)
        energy_j = math.inf if rate is None else rate.energy_j
        metrics.gauge("shisha_frame_energy_joules").set(energy_j if math.isfinite(energy_j) else math.nan)
        if rate is not None and rate.bottleneck_s:
            metrics.gauge("shisha_pipeline_throughput_fps").set(1 / rate.bottleneck_s)
            metrics.gauge("shisha_pipeline_bottleneck_stage").set(rate.slowest_stage)

    def _show_stages(self, epoch: int, plan: Plan) -> None:
        """Set gauges that change with the plan only, as looking labels up costs more than setting values."""
        metrics = self._shell.counting
        layers, queue = metrics.gauge("shisha_stage_layers"), metrics.gauge("shisha_stage_queue_frames")
        layers.clear()
        queue.clear()
        for i, stage in enumerate(plan.stages):
            for lead in stage.leads:
                layers.labels(i, lead).set(stage.layer_count)
            queue.labels(i, ",".join(stage.leads)).set_function(partial(self._in_queue, i))
        metrics.gauge("shisha_plan_epoch").set(epoch)
        self._shown = epoch

    def _in_queue(self, stage: int) -> int:
        return self._queued.get(stage, 0) if self._shell.in_flight else 0

    def _show_costs(self, epoch: int, plan: Plan, placing: Placing) -> None:
        cost = self._shell.counting.gauge("shisha_placement_cost_seconds")
        cost.clear()
        for i, stage in enumerate(plan.stages):
            predicted_s = placing.predicted_s(epoch, i)
            if predicted_s is not None:
                for lead in stage.leads:
                    cost.labels(lead).inc(predicted_s)  # summed over all stages of the lead
