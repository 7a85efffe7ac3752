"""The daemon: all components wired together, and the one loop that serves.

The loop reads sockets, pidfds and signals, and passes events to the shell. It waits only in `poll`, and never runs long
at a stretch (R10): reading the model, optimising it and building segments happen before it starts or in other
processes.
"""

from __future__ import annotations

import logging
import math
import os
import resource
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import zmq

from shisha_rt import __version__
from shisha_rt.core import event_log
from shisha_rt.core.lifecycle.events import PlaceDown, PlaceUp, Stop, Tick
from shisha_rt.core.lifecycle.lifecycle import Lifecycle
from shisha_rt.core.tuning.events import HostSeen, Look, PeriodsCounted, PlaceReturned, ProfilerSaid
from shisha_rt.core.tuning.profiler_messages import ModelProfiled, NotProfiled
from shisha_rt.core.tuning.recalibration import Recalibration
from shisha_rt.core.tuning.state import Profiles
from shisha_rt.daemon.children.children import Children
from shisha_rt.daemon.children.preparer_link import PreparerLink
from shisha_rt.daemon.counting import Counting
from shisha_rt.daemon.fleet.far_places import FarPlaces
from shisha_rt.daemon.fleet.supervisor import LOOK_EVERY_S, Supervisor
from shisha_rt.daemon.fleet.watch import HangLimits
from shisha_rt.daemon.front.access_control import AccessControl
from shisha_rt.daemon.front.addresses import Addresses
from shisha_rt.daemon.front.gateway import Arrived, Gateway
from shisha_rt.daemon.front.http_messages import GrpcListens, HttpCounted
from shisha_rt.daemon.front.lines import Lines
from shisha_rt.daemon.front.regions import Regions
from shisha_rt.daemon.front.requests import Requests, SeveralFrames
from shisha_rt.daemon.front.sharing import Sharing
from shisha_rt.daemon.front.web import Web
from shisha_rt.daemon.gauges import Gauges
from shisha_rt.daemon.host_share import HostShare
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.daemon.loop.signals import Signalled, Signals
from shisha_rt.daemon.loop.undisturbed import undisturbed
from shisha_rt.daemon.metrics import MetricsPage
from shisha_rt.daemon.operations import Operations
from shisha_rt.daemon.planning import first_cores, largest_request_bytes
from shisha_rt.daemon.prepared import PreparedModel
from shisha_rt.daemon.releases import Releases
from shisha_rt.daemon.service_manager import ServiceManager
from shisha_rt.daemon.shell import Shell
from shisha_rt.daemon.status import Status
from shisha_rt.daemon.tracing import Tracer, Tracing
from shisha_rt.errors import BadInput, Error, Failure
from shisha_rt.machine.host.cpu_use import family
from shisha_rt.machine.host.leases import CoreLeases
from shisha_rt.machine.host.memory import free_memory_ratio, own_memory_bytes
from shisha_rt.measure.compiled import Compiled
from shisha_rt.messages.traces import ServeTraces, TracesCounted
from shisha_rt.process.arena import Arena
from shisha_rt.process.budgets import Budgets
from shisha_rt.process.child import fork_server, reap_orphan
from shisha_rt.process.layout import Layout, layouts_of
from shisha_rt.protocol.exceptions import error_for
from shisha_rt.protocol.limits import Limits
from shisha_rt.protocol.request import InferRequest
from shisha_rt.protocol.signature import Signature

if TYPE_CHECKING:
    from shisha_rt.hosts.joined import Joined

log = logging.getLogger(__name__)

_DRAIN_S: Final = 30.0
_LAST_ANSWERS_S: Final = 5.0
_MOST_REGIONS: Final = 1024
_DESCRIPTORS_A_REGION: Final = 4  # the region's own and its connection's, a direct line's, and one for everything else
_PART_OF_MEMORY: Final = 4
_MOST_FRAMES: Final = 32
_FRAMES_BYTES: Final = 32 << 20  # for the frames of one request and of its answer together


class Daemon:
    """One model on one machine. `run` serves until `stop` is called, by SIGTERM and SIGINT too.

    `manager`: the service manager to notify. The daemon owns, and closes: `joined`, the cluster with the places of
    other hosts; `share`, this daemon's share of the host (default: the cores of its machine, no leases).
    """

    def __init__(
        self,
        prepared: PreparedModel,
        addresses: Addresses,
        manager: ServiceManager | None = None,
        joined: Joined | None = None,
        share: HostShare | None = None,
    ) -> None:
        ready, settings = prepared.ready, prepared.planning.settings
        self._manager = ServiceManager({}) if manager is None else manager
        self._closing, self._stop_at_s = ExitStack(), math.inf
        self._own = self._closing.enter_context  # what is owned last is closed first
        self._signals = self._own(closing(Signals()))
        self._preparer: PreparerLink | None = None
        self._share = self._own(closing(share or HostShare(ready.machine, CoreLeases(None))))
        self._recalibration = Recalibration(prepared.others_ratio)
        self._instance = uuid.uuid4().hex
        try:
            cores, self._poller = first_cores(prepared), self._own(closing(Poller()))
            counting = self._own(closing(Counting(cores.lifecycle.policy.target_s)))
            layouts = layouts_of([shape.index.tensors for shape in ready.compiled.each], settings.max_output_bytes)
            regions = self._open(prepared, addresses, counting, _limits(ready.compiled, layouts, cores.lifecycle))
            self._far = self._own(closing(FarPlaces(joined, self._poller)))
            supervisor = self._supervisor(prepared, layouts, cores.lifecycle.frames.slot_count)
            self._children = self._own(closing(Children(self._poller, prepared, supervisor.arena)))
            self.shell = Shell(
                cores,
                supervisor,
                self._children,
                Requests(supervisor.arena, regions),
                counting,
                Tracing(addresses.settings.trace_ratio, self._tracer.send),
                Releases(ready.machine, self._share, self._beside_workers, self._measure_elsewhere),
                prepared.pacing,
            )
        except BaseException:
            self._closing.close()
            raise
        self._status = Status(self.shell, self._children, prepared, self._instance, self._share)
        self._gauges = Gauges(self.shell, self._budgets, self._share)
        self._operations = Operations(self._status, self.gateway, self._sharing.path)
        self._hears = self._what_comes()

    def _open(self, prepared: PreparedModel, addresses: Addresses, page: MetricsPage, limits: Limits) -> Regions:
        """Open the addresses. Returns the regions of memory that clients are lent there."""
        compiled, settings, regions = prepared.ready.compiled, addresses.settings, Regions(*_most_regions())
        version, endpoint = prepared.planning.settings.version, settings.endpoint
        self._access = AccessControl(addresses, partial(page.count, "shisha_access_refused"))
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._closing.callback(context.term)
        one_frame = next((shape.index.whole for shape in compiled.each if shape.index.whole), "")
        graphs = [replace(shape.model.graph, inputs=shape.index.inputs) for shape in compiled.each]
        signature = Signature.of(compiled.model.name, graphs, limits.max_frames, one_frame, version)
        security = self._access.security
        self.gateway = self._own(closing(Gateway(context, endpoint, signature, limits, regions, page.count, security)))
        self.gateway.listen(self._poller, self.gateway.receive)
        self._lines = self._own(closing(Lines(self.gateway, self._poller, regions.most)))
        self._sharing = self._own(
            closing(Sharing(self.gateway.endpoint, self._instance, regions, self._lines, self._poller))
        )
        about = (compiled.model.name, version, __version__, self._instance)
        traces = None if settings.otlp is None else ServeTraces(settings.otlp, *about)
        self._tracer = self._own(closing(Tracer(traces, self._poller, page)))
        self.web = self._own(closing(Web(self.gateway, self._access, self._poller, page)))
        return regions

    def _supervisor(self, prepared: PreparedModel, layouts: Sequence[Layout], slot_count: int) -> Supervisor:
        """Make the supervisor, and what its workers share: the arena, and the budgets of memories with a bandwidth."""
        ready, settings = prepared.ready, prepared.planning.settings
        arena = self._own(closing(Arena.create(layouts, slot_count, len(ready.machine.places))))
        limited = [memory.name for memory in ready.machine.memories if memory.bandwidth_bytes_per_s is not None]
        self._budgets = self._own(closing(Budgets(limited)))
        patience, most_bytes = HangLimits(frame_s=settings.hang_s), settings.max_worker_bytes
        return self._own(
            closing(Supervisor(ready, arena, self._budgets, self._poller, self._far, patience, most_bytes))
        )

    def plan_ahead(self, preparer: PreparerLink) -> None:
        """Own, from now on, the process that has prepared the model, and plans ahead."""
        self._preparer = self._own(closing(preparer))
        preparer.watch(self._poller)

    # --- serving ----------------------------------------------------------------------------------------------

    def run(self, on_ready: Callable[[], None] = lambda: None, turn: Callable[[], None] | None = None) -> None:
        """Serve. `on_ready` is called once frames can be sent, `turn` after every turn of the loop.

        Raises `Failure`, with the root cause, if no plan can be made live at the start.
        """
        hears = self._signals.heard(self._poller, read_again=self._access.path is not None)
        with self._closing, undisturbed(), hears:
            try:
                self._serve(on_ready, turn)
            finally:  # every client gets an answer, even after an internal error
                self.shell.supervisor.end_all()  # first: once answered, a client may reuse the memory that it lent
                self.shell.post(Stop(), "the end")
                self.shell.releases.close()
                for reply in [*self.gateway.waiting.values()]:  # of what the fault, or a child's end, left undone
                    reply.send_error(error_for(Error.STOPPED, "the daemon stopped before it was done"))
                self._refuse_what_comes()
                for part in (self.web, self._tracer, self._far):
                    part.finish(self._refuse_what_comes)
                self._refuse_what_comes()
                # The last answers are with ZeroMQ's own thread: give it a moment to hand them to the kernel.
                self.gateway.socket.setsockopt(zmq.LINGER, 1000)

    def stop(self) -> None:
        """Admit no more frames, answer those in flight, then end. A second call ends the daemon without waiting."""
        self._stop_at_s = time.monotonic() + (0.0 if self._stopping else _DRAIN_S)
        self._manager.stopping()
        self._operations.drain()

    @property
    def _stopping(self) -> bool:
        return self._stop_at_s < math.inf

    def _serve(self, on_ready: Callable[[], None], turn: Callable[[], None] | None) -> None:
        shell, lifecycle, hears = self.shell, self.shell.cores.lifecycle, self._hears
        ready, look_at_s = False, 0.0
        shell.post(Tick(), "start")
        wait_s = 0.0
        while self._stop_at_s == math.inf or not self._is_over():
            now_s = time.monotonic()
            if now_s >= look_at_s:  # in a turn without polling, to keep turns short
                look_at_s = now_s + LOOK_EVERY_S
                self._look(now_s)
            else:
                for event in self._poller.poll(wait_s):
                    hears[type(event)](event)
                now_s = time.monotonic()
            if shell.requests.regions.left:
                shell.take_back_regions()
            wake_s = lifecycle.next_wake_s()
            if wake_s is not None and wake_s <= now_s:
                shell.post(Tick(), "the clock")
                wake_s = lifecycle.next_wake_s()
            if not ready:
                ready = self._check_start(on_ready)
            if turn is not None:
                turn()
            self.web.full.is_set = lifecycle.frames.streams.is_full
            wake_s = min(look_at_s, self.gateway.tend(now_s), look_at_s if wake_s is None else wake_s)
            wait_s = 0.0 if shell.sweep.some() else max(0.0, wake_s - now_s)

    def _refuse_what_comes(self) -> None:
        """Answer whoever asks at the end: without an answer nobody could know that the request was not run."""
        for arrived in (*self.gateway.receive(), *self._lines.read()):
            arrived.reply.send_error(error_for(Error.DRAINING, "the daemon is ending, and does no more"))
        self.gateway.outbox.flush(math.inf)

    def _is_over(self) -> bool:
        """Whether all frames in flight are answered, or the time to wait for them is over.

        While ZeroMQ's queues are full, answers stay in the outbox: slow readers get `_LAST_ANSWERS_S` to take them.
        """
        now_s = time.monotonic()
        if self.shell.cores.lifecycle.idle:
            if not self.gateway.outbox.waiting:
                return True
            self._stop_at_s = min(self._stop_at_s, now_s + _LAST_ANSWERS_S)
        return now_s >= self._stop_at_s

    def _what_comes(self) -> Mapping[type, Callable[[Any], object]]:
        """Handlers of all events of the loop, by type: the shell's, and those of requests, signals and the like."""
        return {
            **self.shell.hears,
            Arrived: self._arrived,
            Signalled: lambda e: self._read_access() if e.read_again else self.stop(),
            HttpCounted: self._http_counted,
            GrpcListens: self.web.grpc_listens,
            TracesCounted: self._tracer.count,
            ProfilerSaid: self._profiler_said,
        }

    def _arrived(self, arrived: Arrived) -> None:
        request, reply = arrived.request, arrived.reply
        if isinstance(request, InferRequest):
            client = reply.client if request.caller is None else (reply.client, request.caller)
            if request.frames == 1:
                reply.frames = (self.shell.submit(client, request, reply.send_frame).frame,)
                return
            several = SeveralFrames(request, self.gateway.signature, reply.send_frame)
            reply.frames = several.submit(partial(self.shell.submit, client))
        else:
            self._operations.answer(request, reply)

    def _http_counted(self, counted: HttpCounted) -> None:
        self.web.count(counted)
        self.shell.counting.turned_away(counted.turned_away)

    def _profiler_said(self, said: ProfilerSaid) -> None:
        match said.message:
            case ModelProfiled(others_ratio=ratio, left_out=left_out):
                self._recalibration.measured(ratio, left_out)
            case NotProfiled(reason=reason):
                log.warning("what layers cost could not be measured, so nothing is tuned: %s", reason)
        self.shell.post(said, "the profiler")

    def _take(self, event: object) -> None:
        self._hears[type(event)](event)

    def _read_access(self) -> None:
        users = self.web.read_access(self._manager)
        if users is not None:
            self.shell.write(event_log.AccessRead(users=len(users.users)), "a signal")

    def _look(self, now_s: float) -> None:
        """Called every `LOOK_EVERY_S`: find hung workers, restart children, let the cores look, update gauges."""
        shell = self.shell
        lifecycle = shell.cores.lifecycle
        expected: dict[str, float] = {}
        for epoch in lifecycle.epochs.live.values():
            for lead, run_s in shell.telemetry.expected_s(epoch.number, epoch.plan).items():
                expected[lead] = max(run_s * self._status.machine.time_scale, expected.get(lead, 0.0))
        parts = {worker.incarnation: len(worker.out) for worker in lifecycle.places.workers.values()}
        for hung in shell.supervisor.look(expected, parts):
            self._take(hung)
        for child in (self._children, self.web.link, self._tracer, self._far.link):
            child.look()
        if self._preparer is not None:
            self._preparer.look()
        if shell.cores.tuning.choice.profiles is Profiles.KNOWN and self._far.links.changed(now_s):
            self._profile()  # plans by the new link speeds; nothing is measured again
        shell.post(Look(), "the clock")
        shell.post(shell.counting.frames(lifecycle.frames.streams, shell.in_flight), "the clock")
        shell.own_frames.look(now_s)
        shell.look_at_releases(now_s)
        self._sharing.look()
        reap_orphan()
        periods = self._share.periods()
        if periods is not None:
            shell.post(PeriodsCounted(periods.periods, periods.throttled_periods), "the clock")
        if self._share.is_due(now_s):
            self._look_at_host(now_s)
        self._gauges.update(now_s)
        self._manager.look(now_s, self._status.line)

    def _look_at_host(self, now_s: float) -> None:
        """Bring places up and take places down as the host's limits change; new places come up before others go."""
        shell, cause = self.shell, "the host"
        allotted = self._share.look(now_s, self._processes, self._is_in_use)
        shell.post(HostSeen(self._share.others_ratio, free_memory_ratio()), cause)
        if self._recalibration.look(now_s, self._share.others_ratio, shell.in_flight):
            self._profile(renew=True)
        if allotted is not None:
            shell.write(allotted, cause)
            for place in allotted.taken:
                shell.releases.wanted(place)
                shell.post(PlaceUp(place), cause)
                shell.post(PlaceReturned(place), cause)
        # At each look, as the last available place does not go down, and is to once there is another.
        for place in sorted(self._share.released.intersection(shell.cores.lifecycle.available)):
            shell.post(PlaceDown(place), cause)
            shell.repace(place)

    def _is_in_use(self, place: str) -> bool:
        """Whether a place has a process, or some worker still has threads of a team there."""
        return self.shell.cores.lifecycle.places.by_name[place].incarnation is not None or place in self.shell.releases

    def _processes(self) -> tuple[list[int], set[int]]:
        """Pids of this daemon and its children, and pids of clients."""
        workers = [process.pid for process in self.shell.supervisor.processes.values() if process.pid is not None]
        own, *children = self._beside_workers()
        families = {pid for child in children for pid in family(child)}
        return [own, *workers, *families], self._sharing.pids

    def _beside_workers(self) -> list[int]:
        """Pids of this daemon, which comes first, and of its children except workers; with the fork server's family."""
        children = *self._children.pids, *filter(None, [self.web.link.pid, self._tracer.link.pid])
        forks = fork_server()
        return [os.getpid(), *children, *(() if forks is None else family(forks))]

    def _measure_elsewhere(self) -> None:
        """Restart profiling, if it runs, without a place that has been taken down."""
        if self._children.profiling:
            self._profile()

    def _profile(self, *, renew: bool = False) -> None:
        choice, down = self.shell.cores.tuning.choice, self.shell.cores.lifecycle.places.down
        for event in self._children.profile(self._far.links.planned_by, down, choice, renew=renew):
            self._take(event)

    def _check_start(self, on_ready: Callable[[], None]) -> bool:
        """Return whether the daemon is ready: a plan is live, and clients can connect over HTTP and gRPC.

        Raises `Failure` or `BadInput` if a worker does not start, or the first plan cannot be prepared.
        """
        cores = self.shell.cores
        if cores.lifecycle.live is not None and self.web.listens:
            self.shell.write(event_log.Readied(endpoint=self.gateway.endpoint, metrics=self.web.metrics_page), "start")
            self._manager.ready()
            on_ready()
            begins = cores.tuning.choice.profiles is Profiles.COMING
            if begins:
                self.shell.write(event_log.ProfilingBegan(), "start")
            if begins or cores.tuning.findings.awaited:
                self._profile()
            return True
        for place in cores.lifecycle.places.by_name.values():
            if max(place.restarts, place.failed_starts) > 3:
                raise Failure(f"the worker on {place.name} does not start: {place.last_error}", Error.WORKER_FAILED)
        fault = cores.tuning.fault
        if fault is not None:
            if fault.bad_machine is not None:
                raise BadInput(f"{self._status.machine.source}: {fault.bad_machine}", Error.MACHINE_UNFIT)
            raise Failure(f"the first plan cannot be prepared: {fault.reason}", Error.PLAN_UNPREPARED)
        return False


def _most_regions() -> tuple[int, int]:
    """Limits of regions lent to clients, in number and in bytes, so that enough descriptors and memory are left."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = descriptors == resource.RLIM_INFINITY
    most = _MOST_REGIONS if unlimited else min(_MOST_REGIONS, descriptors // _DESCRIPTORS_A_REGION)
    return most, own_memory_bytes() // _PART_OF_MEMORY


def _limits(compiled: Compiled, layouts: Sequence[Layout], lifecycle: Lifecycle) -> Limits:
    """Limits of messages, by the largest shape; outputs whose shape depends on the data count as whole buffers."""
    names = [tensor.name for tensor in compiled.model.graph.outputs]
    answer_bytes = max(sum(layout.regions[name].room_bytes for name in names) for layout in layouts)
    request_bytes, most = largest_request_bytes(compiled), 1
    if not any(shape.index.whole for shape in compiled.each):
        room = min(_MOST_FRAMES, lifecycle.policy.max_in_flight, _FRAMES_BYTES // max(1, request_bytes + answer_bytes))
        most = 1 << max(0, room.bit_length() - 1)
    return Limits(
        max_message_bytes=most * (request_bytes + answer_bytes) + Limits().max_header_bytes,
        max_answer_bytes=max(1, most * answer_bytes),
        max_in_flight=lifecycle.policy.max_in_flight,
        max_frames=most,
    )
