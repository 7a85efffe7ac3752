"""The Prometheus face of the daemon. Names and labels are promises; `docs/metrics.md` explains each.

Workers report to the daemon and only the daemon exports. The page is served by a thread of the client library's; it
reads the library's own (locked) values, never the daemon's state.
"""

from __future__ import annotations

import math
import threading
from typing import Final
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Enum, Gauge, Histogram, PlatformCollector, ProcessCollector
from prometheus_client import start_http_server as serve_http

from shisha_rt.errors import BadInput
from shisha_rt.tuning.tuning import WAITING, State

_BUCKETS_S: Final = (
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
)  # fmt: skip
_STAGE: Final = ("stage", "place")


class Metrics:
    """Every metric of one daemon, in a registry of its own (several daemons may share a process)."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self.frames = Counter(
            "shisha_frames", "Requests answered, by how: OK or an error code.", ["outcome"], registry=registry
        )
        self.latency = Histogram(
            "shisha_frame_latency_seconds",
            "From receipt of a frame to its answer; answered with a result only.",
            buckets=_BUCKETS_S,
            registry=registry,
        )
        self.in_flight = Gauge("shisha_frames_in_flight", "Frames accepted and not answered yet.", registry=registry)
        self.service = Histogram(
            "shisha_stage_service_seconds",
            "Time that a stage's worker took for one frame.",
            _STAGE,
            buckets=_BUCKETS_S,
            registry=registry,
        )
        self.layers = Gauge("shisha_stage_layers", "Layers of each stage of the live plan.", _STAGE, registry=registry)
        self.queue = Gauge(
            "shisha_stage_queue_frames", "Frames waiting for or with a stage's worker.", _STAGE, registry=registry
        )
        self.throughput = Gauge(
            "shisha_pipeline_throughput_fps", "1 / median service time of the slowest stage.", registry=registry
        )
        self.bottleneck = Gauge("shisha_pipeline_bottleneck_stage", "The slowest stage, from 0.", registry=registry)
        self.epoch = Gauge("shisha_plan_epoch", "Number of the live plan.", registry=registry)
        self.plans = Counter(
            "shisha_plan_proposals", "Proposed plans, by how they ended: live, refused, dropped.", ["outcome"],
            registry=registry,
        )  # fmt: skip
        self.restarts = Counter("shisha_worker_restarts", "Workers started again.", ["place"], registry=registry)
        self.replayed = Counter("shisha_frames_replayed", "Parts run again after a death.", registry=registry)
        self.stale = Counter("shisha_stale_replies", "Worker replies that matched nothing.", registry=registry)
        self.undeliverable = Counter(
            "shisha_answers_undeliverable", "Answers given up: their client left or does not read.", registry=registry
        )
        self.speed = Gauge(
            "shisha_place_speed_ratio",
            "Speed of a place relative to this host.",
            ["place", "emulated"],
            registry=registry,
        )
        self.bandwidth = Gauge(
            "shisha_memory_bandwidth_bytes_per_second",
            "Emulated bandwidth of a memory; only memories that have a limit.",
            ["memory"],
            registry=registry,
        )
        self.reserved = Counter(
            "shisha_memory_reserved_bytes",
            "Bytes moved through a memory that has a limit.",
            ["memory"],
            registry=registry,
        )
        self.debt_dropped = Counter(
            "shisha_pacing_dropped_seconds",
            "Lateness that an emulated place gave up making up for: figures of that time are too slow.",
            ["place"],
            registry=registry,
        )
        self.placement_cost = Gauge(
            "shisha_placement_cost_seconds",
            "Predicted time of a place's stage with the live placement of its operators on devices.",
            ["place"],
            registry=registry,
        )
        self.placement_solves = Counter(
            "shisha_placement_solves", "Plans whose operators were placed on devices.", ["solver"], registry=registry
        )
        self.device_speed = Gauge(
            "shisha_device_speed_ratio",
            "Emulated speed of a place's device relative to its own.",
            ["place", "device"],
            registry=registry,
        )
        self.trials = Counter(
            "shisha_tuner_trials", "Plans measured by the tuner, by verdict.", ["outcome"], registry=registry
        )
        self.moves = Counter("shisha_tuner_moves", "Plans measured that were reached by a move.", registry=registry)
        self.tuner = Enum(
            "shisha_tuner_state",
            "What the tuner is doing.",
            states=[*(state.value for state in State), WAITING],
            registry=registry,
        )
        self.gap = Gauge(
            "shisha_tuner_gap_ratio",
            "Slowest stage of the best plan over the lower bound by known costs; NaN: no bound is known.",
            registry=registry,
        )
        self.gap.set(math.nan)
        self._server: WSGIServer | None = None
        self._thread: threading.Thread | None = None

    def serve(self, port: int) -> str:
        """Serve `/metrics` on 127.0.0.1; port 0 means any free one. Returns the page's address."""
        try:
            self._server, self._thread = serve_http(port, "127.0.0.1", self.registry)
        except OSError as error:
            raise BadInput(f"metrics port {port} on 127.0.0.1: {error.strerror}; expected a free port") from None
        return f"http://127.0.0.1:{self._server.server_port}/metrics"

    def close(self) -> None:
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
