"""The daemon's answers about itself: overall status, the live plan, statistics. Changes nothing."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Mapping
from typing import Any

from shisha_rt import __version__
from shisha_rt.core.tuning.telling import description
from shisha_rt.daemon.children.children import Children
from shisha_rt.daemon.fleet.telemetry import pooled
from shisha_rt.daemon.host_share import RELEASED, HostShare
from shisha_rt.daemon.prepared import PreparedModel
from shisha_rt.daemon.shell import Shell
from shisha_rt.machine.machine import Machine, Place
from shisha_rt.plan.form import written


class Status:
    """`instance` identifies this run of the daemon: a client that sees it change has lost its frames."""

    def __init__(
        self, shell: Shell, children: Children, prepared: PreparedModel, instance: str, share: HostShare
    ) -> None:
        ready = prepared.ready
        self.instance = instance
        self.version = prepared.planning.settings.version
        self.shell = shell
        self._children = children
        self.share = share
        self.compiled = ready.compiled
        self.devices = ready.devices
        self._started_s = time.monotonic()

    @property
    def machine(self) -> Machine:
        """The machine as it is now."""
        return self.shell.cores.tuning.choice.machine

    @property
    def ready(self) -> bool:
        """Whether a frame sent now would be admitted, and the live plan can run it."""
        lifecycle = self.shell.cores.lifecycle
        return lifecycle.can_run and not lifecycle.frames.draining

    def is_emulated(self, place: Place) -> bool:
        return self.machine.is_emulated(place, self.devices.get(place.name, ()))

    def everything(self) -> dict[str, object]:
        """The whole answer to `status`. Times are in seconds, medians over the last frames of each stage."""
        lifecycle, tuning = self.shell.cores.lifecycle, self.shell.cores.tuning
        preparing, fault = lifecycle.epochs.preparing, tuning.fault
        epoch, stages = self._stages()
        live = lifecycle.live
        rate = None if live is None else self.shell.telemetry.rate(*live)
        draining = lifecycle.frames.draining
        return {
            "state": "draining" if draining else "serving" if epoch is not None else "starting",
            "ready": self.ready,
            "version": __version__,
            "instance": self.instance,
            "pid": os.getpid(),
            "uptime_s": round(time.monotonic() - self._started_s, 3),
            "model": self._model(),
            "machine": self._described_machine(),
            "host": self.share.described(),
            "plan": {"epoch": epoch, "stages": stages},
            "preparing": preparing.number if preparing else None,
            "beside": beside[0] if (beside := lifecycle.beside) is not None else None,
            "tuner": description(tuning, time.monotonic()),
            "profiler_waits_s": self._children.profiler_waits_s,
            "objective": tuning.choice.objective,
            "throughput_fps": 1 / rate.bottleneck_s if rate is not None and rate.bottleneck_s else None,
            "bottleneck_s": None if rate is None else rate.bottleneck_s,
            "bottleneck_stage": None if rate is None else rate.slowest_stage,
            "latency_s": None if rate is None else rate.latency_s,
            "energy_j": rate.energy_j if rate is not None and math.isfinite(rate.energy_j) else None,
            "places": self._places(),
            "frames": self._frames(),
            "slow_frame": self.shell.tracing.slow(),
            "fault": fault.reason if fault is not None else None,
            "next_event": self.shell.journal.next,
        }

    def _model(self) -> dict[str, object]:
        return {
            "name": self.compiled.model.name,
            "layers": len(self.compiled.layers),
            "legal_cuts": len(self.compiled.legal_cuts),
            "engine": self.compiled.index.engine,
            "form": self.compiled.index.form,
            "shapes": [
                {
                    "inputs": {tensor.name: tensor.shape for tensor in shape.model.graph.inputs},
                    "frames": self.shell.counting.by_shape[number],
                }
                for number, shape in enumerate(self.compiled.each)
            ],
        }

    def _described_machine(self) -> dict[str, object]:
        return {
            "name": self.machine.name,
            "emulated": any(map(self.is_emulated, self.machine.places)),
            "timing": self.machine.timing,
            "time_scale": self.machine.time_scale,
            "memories": [
                {"name": memory.name, "bandwidth_bytes_per_s": memory.bandwidth_bytes_per_s}
                for memory in self.machine.memories
            ],
        }

    def _frames(self) -> dict[str, object]:
        lifecycle, counting = self.shell.cores.lifecycle, self.shell.counting
        target_s = counting.target_s
        return {
            "in_flight": self.shell.in_flight,
            "slots": lifecycle.frames.slot_count,
            "slots_free": len(lifecycle.frames.free_slots),
            "answered": dict(counting.outcomes),
            **({} if math.isinf(target_s) else {"target_ms": 1e3 * target_s, "in_time": counting.in_time}),
            "replayed": lifecycle.frames.replayed,
            "busy_s": counting.compute_s,
        }

    def line(self) -> str:
        """One line for people: the plan, its throughput, and what the tuner does."""
        live, cores = self.shell.cores.lifecycle.live, self.shell.cores
        if live is None:
            return "starting"
        epoch, plan = live
        rate = self.shell.telemetry.rate(epoch, plan)
        up_to = f"up to {1 / rate.bottleneck_s:.1f} frames/s, " if rate is not None and rate.bottleneck_s else ""
        doing = "draining" if cores.lifecycle.frames.draining else cores.tuning.doing(time.monotonic())
        return f"epoch {epoch}: {plan}; {up_to}{doing}"

    def plan(self) -> dict[str, object]:
        """The answer to `plan`: the live epoch and its stages in the written form, with median service times."""
        live = self.shell.cores.lifecycle.live
        if live is None:
            return {"epoch": None, "stages": []}
        epoch, plan = live
        services_s = [pooled(windows)["service_s"] for windows in self.shell.telemetry.windows(epoch, plan)]
        return {"epoch": epoch, "stages": written(plan, service_s=services_s)}

    def statistics(self) -> Mapping[str, object]:
        """Statistics as the Open Inference Protocol defines them. Copying in and out counts as time in the queue."""
        counted = self.shell.counting
        succeeded = counted.outcomes.get("OK", 0)
        compute = {
            "compute_input": _took(succeeded, 0.0),
            "compute_infer": _took(succeeded, counted.compute_s),
            "compute_output": _took(succeeded, 0.0),
        }
        stats = {
            "name": self.compiled.model.name,
            "version": self.version,
            "last_inference": counted.last_ms,
            "inference_count": succeeded,
            "execution_count": succeeded,
            "inference_stats": {
                "success": _took(succeeded, counted.latency_s),
                "fail": _took(counted.outcomes.total() - succeeded, counted.failed_s),
                "queue": _took(succeeded, counted.queue_s),
                **compute,
                "cache_hit": _took(0, 0.0),
                "cache_miss": _took(0, 0.0),
            },
            "batch_stats": [{"batch_size": 1, **compute}] if succeeded else [],
            "latency_counts": counted.latencies(),
        }
        return {"model_stats": [stats]}

    def _stages(self) -> tuple[int | None, list[dict[str, Any]]]:
        """The live epoch, and its stages with their times and placements."""
        live, placing = self.shell.cores.lifecycle.live, self.shell.cores.placing
        if live is None:
            return None, []
        epoch, plan = live
        stages = written(plan)
        queued = self.shell.cores.lifecycle.frames.queued(epoch)
        batches = self.shell.cores.lifecycle.epochs.live[epoch].batches
        all_windows = self.shell.telemetry.windows(epoch, plan)
        for index, (stage, windows) in enumerate(zip(stages, all_windows, strict=True)):
            stage |= pooled(windows)
            if batches[index] > 1:
                runs = [frames for window in windows for frames in window.run_frames]
                stage |= {"batch": batches[index], "run_frames": statistics.fmean(runs) if runs else None}
            stage["queued"] = queued.get(index, 0)
            segments_s = windows[0].segments_s
            stage["placement"] = None if placing is None else placing.describe(epoch, index, segments_s)
            stage["teams"] = [
                {
                    "places": team,
                    "service_s": window.median_service_s,
                    "waited_s": window.median_waited_s,
                    "frames": window.frames,
                    "state": self.shell.cores.lifecycle.places.by_name[team[0]].phase.name.lower(),
                }
                for team, window in zip(plan.stages[index].teams, windows, strict=True)
            ]
        return epoch, stages

    def _places(self) -> list[dict[str, object]]:
        processes = {process.place: process.pid for process in self.shell.supervisor.processes.values()}
        places = self.shell.cores.lifecycle.places
        known, available, released = places.by_name, places.available, self.share.released
        return [
            {
                "name": place.name,
                "state": RELEASED if place.name in released else known[place.name].phase.name.lower(),
                "available": place.name in available,
                "given_up": known[place.name].given_up,
                "pid": processes.get(place.name),
                "cores": place.cores,
                **self._where(place),
                "threads": place.threads,
                "speed": place.speed,
                "power_w": place.power_w,
                "memory": place.memory,
                "devices": self._device_states(index, place.name),
                "emulated": self.is_emulated(place),
                "restarts": known[place.name].restarts,
                "last_error": known[place.name].last_error or None,
            }
            for index, place in enumerate(self.machine.places)
        ]

    def _where(self, place: Place) -> Mapping[str, object]:
        """The host of a place on another host, and the link to it; None for places on this host, and while unknown."""
        far = self.shell.supervisor.far
        there, link = far.hosts.get(place.name), far.links.seen.get(place.name)
        return {"host": None if there is None else there.host, "link": None if link is None else link.fields}

    def _device_states(self, index: int, place: str) -> list[dict[str, object]]:
        devices = self.devices.get(place, ())
        speeds = [self.shell.supervisor.arena.device_speed(index, number) for number in range(len(devices))]
        return [
            {
                "name": device.name,
                "emulated": device.described or speed != 1,
                "exact": device.exact,
                "speed": speed,
            }
            for device, speed in zip(devices, speeds, strict=True)
        ]


def _took(count: int, seconds: float) -> Mapping[str, int]:
    return {"count": count, "ns": round(seconds * 1e9)}
