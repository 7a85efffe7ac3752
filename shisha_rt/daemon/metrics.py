"""The daemon's Prometheus metrics. Names and labels stay stable; `docs/metrics.md` explains each.

Workers report to the daemon, and only the daemon exports. The page is written by threads beside the loop; they read the
client library's own (locked) values and plain numbers, never the daemon's state.

What every frame updates is plain numbers that only the loop writes: the client library takes a lock and walks through
the buckets, about 4 us for each value, and each frame has three. A page may show a value in a count that is not yet in
the sum.

On loopback the client library serves the page. On an address that other hosts can reach, the HTTP process serves it
(see `http.metrics`), with TLS and tokens, and fetches the text from here: so no bytes from a stranger reach the
daemon's own process, whose threads all compete with its loop.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from socketserver import StreamRequestHandler, TCPServer, ThreadingUnixStreamServer
from typing import Any, Final, TypeAlias

from prometheus_client import CollectorRegistry, Counter, PlatformCollector, ProcessCollector
from prometheus_client import start_http_server as serve_http
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from shisha_rt.daemon.front.http_address import HttpAddress
from shisha_rt.daemon.front.ipc_socket import peer_of
from shisha_rt.errors import BadInput, Error

BUCKETS_S: Final = (
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
)  # fmt: skip
BUCKETS_FRAMES: Final = (1, 2, 4, 8, 16, 32, 64, 128)
_PATIENCE_S: Final = 10.0
_STAGE: Final = ("stage", "place")
_LINK: Final = ("place", "way")

_Table: TypeAlias = tuple[tuple[str, str, tuple[str, ...]], ...]
"""Name, help text and labels of each metric."""

FRAMES: Final = ("shisha_frames", "Requests answered, by how: OK or an error code.", ("outcome",))
COUNTERS: Final[_Table] = (
    FRAMES,
    ("shisha_frames_in_time", "Frames answered with a result within the target.", ()),
    ("shisha_plan_proposals", "Proposed plans, by how they ended: live, refused, dropped.", ("outcome",)),
    ("shisha_worker_restarts", "Workers started again.", ("place",)),
    ("shisha_frames_replayed", "Parts run again after a death.", ()),
    ("shisha_stale_replies", "Worker replies that matched nothing.", ()),
    ("shisha_answers_undeliverable", "Answers given up: their client left or does not read.", ()),
    ("shisha_connections_cut", "Clients cut off, as a message of theirs went on beyond its size.", ()),
    ("shisha_http_requests", "Requests over HTTP, by the status of their answer.", ("status",)),
    ("shisha_grpc_requests", "Requests over gRPC, by the code of their answer.", ("code",)),
    ("shisha_traces", "Frames whose traces were to be sent, by what became of them: sent, lost.", ("outcome",)),
    ("shisha_access_refused", "Requests of those who may not make them, by why.", ("reason",)),
    ("shisha_memory_reserved_bytes", "Bytes moved through a memory that has a limit.", ("memory",)),
    (
        "shisha_pacing_dropped_seconds",
        "Lateness that an emulated place gave up making up for: figures of that time are too slow.",
        ("place",),
    ),
    ("shisha_placement_solves", "Plans whose operators were placed on devices.", ("solver",)),
    ("shisha_host_periods", "Periods of the CPU quota in which this control group ran.", ()),
    ("shisha_host_throttled_periods", "Those of them in which it had used up its quota.", ()),
    ("shisha_host_throttled_seconds", "For how long its cores stood still then, each counted.", ()),
    ("shisha_host_pressure_seconds", "For how long some thread of it had to wait for a core.", ()),
    (
        "shisha_host_others_cpu_seconds",
        "CPU time of the places' cores that other programs took, and other guests of the hypervisor.",
        (),
    ),
    (
        "shisha_host_energy_joules",
        "What a package of this host drew, by its counters, whoever used it; none where they cannot be read.",
        ("package",),
    ),
    ("shisha_tuner_trials", "Plans measured by the tuner, by verdict.", ("outcome",)),
    ("shisha_tuner_moves", "Layers that passed from a stage to its neighbour, from one trial to the next.", ()),
)
HISTOGRAMS: Final[_Table] = (
    ("shisha_frame_latency_seconds", "From receipt of a frame to its answer; answered with a result only.", ()),
    ("shisha_stage_service_seconds", "Time that a stage took for one frame; place: the lead of the team.", _STAGE),
    ("shisha_run_frames", "Frames that a run computed together, of stages whose runs may have several.", _STAGE),
)
GAUGES: Final[_Table] = (
    ("shisha_frames_in_flight", "Frames accepted and not answered yet.", ()),
    ("shisha_target_seconds", "Within which frames are to be answered; +Inf: no target.", ()),
    ("shisha_lent_regions", "Regions of memory that clients share with the daemon.", ()),
    ("shisha_lent_bytes", "Bytes of these regions.", ()),
    ("shisha_stage_layers", "Layers of each stage of the live plan, by lead.", _STAGE),
    ("shisha_stage_queue_frames", "Frames waiting for or with a stage; place: all its leads.", _STAGE),
    ("shisha_pipeline_throughput_fps", "What the slowest pool of the live plan allows.", ()),
    ("shisha_frame_energy_joules", "Of a frame in the live plan, by the power that the machine file states.", ()),
    ("shisha_pipeline_bottleneck_stage", "The slowest stage, from 0.", ()),
    ("shisha_plan_epoch", "Number of the live plan.", ()),
    ("shisha_place_speed_ratio", "Speed of a place relative to this host.", ("place", "emulated")),
    (
        "shisha_memory_bandwidth_bytes_per_second",
        "Emulated bandwidth of a memory; only memories that have a limit.",
        ("memory",),
    ),
    ("shisha_link_latency_seconds", "Of the way to a place on another host (there) or back.", _LINK),
    ("shisha_link_bandwidth_bytes_per_second", "What passes on the way to a place on another host or back.", _LINK),
    (
        "shisha_placement_cost_seconds",
        "Predicted time of a place's stage with the live placement of its operators on devices.",
        ("place",),
    ),
    ("shisha_device_speed_ratio", "Emulated speed of a place's device relative to its own.", ("place", "device")),
    (
        "shisha_tuner_gap_ratio",
        "Slowest stage of the best plan over the lower bound by known costs; NaN: no bound is known.",
        (),
    ),
    ("shisha_host_quota_cores", "The CPU quota; +Inf: none.", ()),
    ("shisha_host_memory_limit_bytes", "The control group's limit of memory; +Inf: none.", ()),
    ("shisha_host_shared_cores", "Cores of places that another daemon has leased, too.", ()),
    ("shisha_load_ratio", "What comes, over what the best plan for latency can do; NaN: that is not known.", ()),
)


class CountsByLabel(Collector):
    """A counter with one label. `counts`: by the label's value."""

    def __init__(self, name: str, text: str, label: str, counts: Mapping[str, int]) -> None:
        self._about = name, text, label
        self._counts = counts

    def collect(self) -> Iterator[CounterMetricFamily]:
        name, text, label = self._about
        family = CounterMetricFamily(name, text, labels=[label])
        for value, count in list(self._counts.items()):
            family.add_metric([value], count)
        yield family

    describe = collect


class PlainSeries:
    """Counts of values by bucket, the last one above all bounds, and their sum. `exemplars`: the last traced ones."""

    __slots__ = ("_bounds", "counts", "exemplars", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self.exemplars: dict[int, Exemplar] = {}

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def exemplify(self, value: float, trace_id: str) -> None:
        exemplar = Exemplar({"trace_id": trace_id}, value, time.time())
        self.exemplars[bisect_left(self._bounds, value)] = exemplar


class PlainHistogram(Collector):
    """A series for each combination of labels; `bounds`: upper bounds of the buckets, in order."""

    def __init__(self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        self._about = name, text, labels
        self._bounds = bounds
        self._series: dict[tuple[str, ...], PlainSeries] = {}
        if not labels:
            self.labels()

    def labels(self, *values: object) -> PlainSeries:
        key = tuple(map(str, values))
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = PlainSeries(self._bounds)
        return series

    def remove(self, *values: object) -> None:
        self._series.pop(tuple(map(str, values)), None)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        name, text, labels = self._about
        family = HistogramMetricFamily(name, text, labels=labels)
        names = [*map(str, self._bounds), "+Inf"]
        for values, series in list(self._series.items()):
            counts, exemplars = accumulate(series.counts[:]), series.exemplars.copy()
            buckets: list[tuple[str, float] | tuple[str, float, Exemplar]] = [
                (name, count, exemplars[bucket]) if bucket in exemplars else (name, count)
                for bucket, (name, count) in enumerate(zip(names, counts, strict=True))
            ]
            family.add_metric(values, buckets, series.sum)
        yield family

    describe = collect


class MetricsPage:
    """A registry, and the servers of its page, which run until `close`. `counters`: by name."""

    def __init__(self) -> None:
        self.counters: dict[str, Counter] = {}
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._closing = contextlib.ExitStack()

    def count(self, name: str, *labels: object, by: float = 1) -> None:
        counter = self.counters[name]
        (counter.labels(*labels) if labels else counter).inc(by)

    def serve(self, address: HttpAddress) -> str:
        """Serve `/metrics` at a loopback address; port 0 means any free port. Returns the page's URL."""
        try:
            server, thread = serve_http(address.port, address.host, self.registry)
        except OSError as error:
            port, host, reason = address.port, address.host, error.strerror
            raise BadInput(
                f"metrics port {port} on {host}: {reason}; expected a free port: --metrics PORT", Error.ADDRESS_TAKEN
            ) from None
        self._closing.callback(_end, server, thread)
        return f"http://{HttpAddress(address.host, server.server_port)}/metrics"

    def serve_inside(self) -> str:
        """Serve the text to the daemon's own processes; returns the name of the (abstract) UNIX socket.

        A client sends the value of HTTP's `Accept` in one line, and gets the content type in one line, then the text.
        """
        server = _Inside("", partial(_Text, self.registry))
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        self._closing.callback(_end, server, thread)
        return os.fsdecode(server.socket.getsockname())

    def close(self) -> None:
        self._closing.close()


def _end(server: TCPServer, thread: threading.Thread) -> None:
    server.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread, which otherwise checks for its end twice a second
    server.shutdown()
    server.server_close()
    thread.join()


class _Inside(ThreadingUnixStreamServer):
    """Metrics at an abstract socket with a name of the kernel's choice.

    Any user could connect to the socket, so the server accepts only processes of its own user.
    """

    daemon_threads = True

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return peer_of(request)[1] == os.geteuid()


class _Text(StreamRequestHandler):
    timeout = _PATIENCE_S

    def __init__(self, registry: CollectorRegistry, *connection: Any) -> None:
        self._registry = registry
        super().__init__(*connection)

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # the HTTP process has ended, or given up
            encode, content_type = choose_encoder(self.rfile.readline().decode("latin-1"))
            self.wfile.write(content_type.encode() + b"\n" + encode(self._registry))
