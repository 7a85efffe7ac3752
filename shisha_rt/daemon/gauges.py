"""Periodic update of gauges, and of counters kept elsewhere; `counting.py` has metrics updated as things happen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from prometheus_client import Gauge

from shisha_rt.daemon.host_share import RELEASED, HostShare
from shisha_rt.daemon.shell import Shell
from shisha_rt.machine.machine import Machine
from shisha_rt.plan.plan import Plan
from shisha_rt.process.budgets import Budgets

if TYPE_CHECKING:
    from shisha_rt.core.tuning.placing import Placing


class Gauges:
    """`update` is called periodically from the loop."""

    def __init__(self, shell: Shell, budgets: Budgets, share: HostShare) -> None:
        self._shell = shell
        self._share = share
        self._host_counts = self._host_counters()
        self._joules: dict[str, float] = {}
        self._budgets = budgets
        self._reserved_bytes: dict[str, int] = {}
        self._replayed = self._stale = self._in_time = 0
        self._shown: int | None = None
        self._queues: list[Gauge] = []
        self._standings: dict[str, str] = {}
        metrics = shell.counting.metrics
        metrics.gauge("shisha_target_seconds").set(shell.counting.target_s)
        for place in self._machine.places:  # counters must show 0 first, for queries of their increase
            metrics.counter("shisha_worker_restarts").labels(place.name)
            metrics.counter("shisha_pacing_dropped_seconds").labels(place.name)
        if shell.cores.placing is not None:
            metrics.counter("shisha_placement_solves").labels(shell.cores.placing.solver)
        for memory in self._machine.memories:
            if memory.bandwidth_bytes_per_s is not None:
                bandwidth = metrics.gauge("shisha_memory_bandwidth_bytes_per_second")
                bandwidth.labels(memory.name).set(memory.bandwidth_bytes_per_s)

    @property
    def _machine(self) -> Machine:
        return self._shell.cores.tuning.choice.machine

    def update(self, now_s: float) -> None:
        cores, metrics = self._shell.cores, self._shell.counting.metrics
        metrics.gauge("shisha_frames_in_flight").set(self._shell.in_flight)
        regions = self._shell.requests.regions
        metrics.gauge("shisha_lent_regions").set(regions.count)
        metrics.gauge("shisha_lent_bytes").set(regions.size_bytes)
        metrics.tuner.state(cores.tuning.doing(now_s))
        metrics.gauge("shisha_tuner_gap_ratio").set(cores.tuning.search.gap_ratio)
        metrics.objective.state(cores.tuning.choice.objective)
        used = cores.tuning.following.utilisation
        metrics.gauge("shisha_load_ratio").set(math.nan if used is None else used)
        self._count_frames()
        self._count_reserved()
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
                self._shell.counting.metrics.place.labels(name).state(standing)
                self._standings[name] = standing

    def _host_counters(self) -> dict[str, float]:
        share = self._share
        return {
            "shisha_host_periods": share.throttling.periods,
            "shisha_host_throttled_periods": share.throttling.throttled_periods,
            "shisha_host_throttled_seconds": share.throttling.throttled_s,
            "shisha_host_pressure_seconds": share.pressure_s or 0.0,
            "shisha_host_others_cpu_seconds": share.others_s,
        }

    def _show_host(self) -> None:
        """Update the host's metrics. Counters start at 0 with the daemon, though the kernel's counts do not."""
        metrics, share = self._shell.counting.metrics, self._share
        counts = self._host_counters()
        for name, count in counts.items():
            metrics.counter(name).inc(max(0.0, count - self._host_counts[name]))
        self._host_counts = counts
        for package, joules in share.energy.joules.items():
            counter = metrics.counter("shisha_host_energy_joules").labels(package)
            counter.inc(joules - self._joules.get(package, 0.0))
            self._joules[package] = joules
        for name, limit in (
            ("shisha_host_quota_cores", share.limits.quota_cores),
            ("shisha_host_memory_limit_bytes", share.memory_limit_bytes),
        ):
            metrics.gauge(name).set(math.inf if limit is None else limit)
        metrics.gauge("shisha_host_shared_cores").set(len(share.shared))

    def _show_links(self) -> None:
        """Show links as their relays measured them last."""
        metrics = self._shell.counting.metrics
        for place, seen in self._shell.supervisor.far.links.take_new():
            for name, way in (("there", seen.there), ("back", seen.back)):
                metrics.gauge("shisha_link_latency_seconds").labels(place, name).set(way.latency_s)
                metrics.gauge("shisha_link_bandwidth_bytes_per_second").labels(place, name).set(way.bytes_per_s)

    def _show_plan(self, epoch: int, plan: Plan) -> None:
        shell, metrics = self._shell, self._shell.counting.metrics
        if epoch != self._shown:
            self._show_stages(epoch, plan)
        queued = shell.cores.lifecycle.frames.queued(epoch)
        for i, queue in enumerate(self._queues):
            queue.set(queued.get(i, 0))
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
        metrics = self._shell.counting.metrics
        layers, queue = metrics.gauge("shisha_stage_layers"), metrics.gauge("shisha_stage_queue_frames")
        layers.clear()
        queue.clear()
        for i, stage in enumerate(plan.stages):
            for lead in stage.leads:
                layers.labels(i, lead).set(stage.layer_count)
        self._queues = [queue.labels(i, ",".join(stage.leads)) for i, stage in enumerate(plan.stages)]
        metrics.gauge("shisha_plan_epoch").set(epoch)
        self._shown = epoch

    def _show_costs(self, epoch: int, plan: Plan, placing: Placing) -> None:
        cost = self._shell.counting.metrics.gauge("shisha_placement_cost_seconds")
        cost.clear()
        for i, stage in enumerate(plan.stages):
            predicted_s = placing.predicted_s(epoch, i)
            if predicted_s is not None:
                for lead in stage.leads:
                    cost.labels(lead).inc(predicted_s)  # summed over all stages of the lead

    def _count_frames(self) -> None:
        frames, metrics = self._shell.cores.lifecycle.frames, self._shell.counting.metrics
        metrics.counter("shisha_frames_replayed").inc(frames.replayed - self._replayed)
        metrics.counter("shisha_stale_replies").inc(frames.stale_replies - self._stale)
        self._replayed, self._stale = frames.replayed, frames.stale_replies
        in_time = self._shell.counting.in_time
        metrics.counter("shisha_frames_in_time").inc(in_time - self._in_time)
        self._in_time = in_time

    def _count_reserved(self) -> None:
        for memory in self._machine.memories:
            if memory.bandwidth_bytes_per_s is not None:
                reserved_bytes = self._budgets.reserved_bytes(memory.name)
                counted = self._reserved_bytes.get(memory.name, 0)
                reserved = self._shell.counting.metrics.counter("shisha_memory_reserved_bytes")
                reserved.labels(memory.name).inc(reserved_bytes - counted)
                self._reserved_bytes[memory.name] = reserved_bytes
