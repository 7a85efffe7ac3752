"""The daemon: everything wired together, and the one loop that serves it.

The loop reads sockets, pidfds and signals, and hands what it finds to the shell; it never waits for anything but
`poll`, and never runs long at a stretch (R10): reading the model, optimising it and building segments happen before
it starts or in other processes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import msgspec
import zmq

from shisha_rt.cache import cache_folder
from shisha_rt.costs.costs import Costs
from shisha_rt.costs.costs_file import costs_object
from shisha_rt.costs.layer_costs import LayerCosts
from shisha_rt.costs.operator_costs import OperatorCosts
from shisha_rt.daemon.children.child_link import ChildLink
from shisha_rt.daemon.fleet.link import Link
from shisha_rt.daemon.fleet.supervisor import LOOK_EVERY_S, Supervisor
from shisha_rt.daemon.front.gateway import Gateway
from shisha_rt.daemon.journal import Journal
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.daemon.loop.signals import signal_bytes
from shisha_rt.daemon.metrics import Metrics
from shisha_rt.daemon.operations import Control
from shisha_rt.daemon.shell import Shell
from shisha_rt.errors import BadInput, Failure
from shisha_rt.fabric.arena import Arena
from shisha_rt.fabric.budgets import Budgets
from shisha_rt.fabric.layout import layout_of
from shisha_rt.lifecycle.events import Stop, Tick, WorkerGone
from shisha_rt.lifecycle.lifecycle import Lifecycle
from shisha_rt.lifecycle.policy import Policy
from shisha_rt.machine.device import Device
from shisha_rt.machine.machine import Machine
from shisha_rt.pipeline.exact import exact_plan
from shisha_rt.pipeline.seed import seed
from shisha_rt.pipeline.tune import DEFAULT_ALPHA, DEFAULT_HEURISTIC
from shisha_rt.placement.placed_costs import PlacedCosts
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.verify import problems
from shisha_rt.ready.best_plans import BestPlans
from shisha_rt.ready.compile import Compiled
from shisha_rt.tuning import placer_messages as pm
from shisha_rt.tuning import tuner_messages as tm
from shisha_rt.tuning.placing import Placing
from shisha_rt.tuning.search_run import Options
from shisha_rt.tuning.tuning import State, Tuning
from shisha_rt.wire.limits import Limits
from shisha_rt.wire.request import Signature

log = logging.getLogger(__name__)

TUNER: Final = "shisha_rt.daemon.children.tuner"
PLACER: Final = "shisha_rt.daemon.children.placer"

_UNREAD_RETRY_S: Final = 0.002
_DRAIN_S: Final = 30.0


class Daemon:
    """One model on one machine. `run` serves until `stop` is called (SIGTERM and SIGINT call it).

    `stored`: what layers cost here, by which a machine with modelled timing is paced, and where the strategy `guided`
    begins. Raises `BadInput` if it is needed and not given. `operator_costs` has each place's, where places have
    devices, and `solver` places operators on those. `fresh`: the best plan of earlier runs is neither used nor
    replaced.
    """

    def __init__(
        self,
        compiled: Compiled,
        machine: Machine,
        endpoint: str,
        metrics_port: int,
        *,
        policy: Policy | None = None,
        slot_count: int | None = None,
        stored: LayerCosts | PlacedCosts | None = None,
        operator_costs: Mapping[str, OperatorCosts] | None = None,
        solver: str = "exact",
        strategy: str = "seed",
        fresh: bool = False,
    ) -> None:
        if machine.timing == "modelled" and stored is None:
            raise BadInput(
                f'{machine.source}: timing = "modelled": measured costs are needed and there are none yet, '
                'expected "measured"'
            )
        policy = policy or Policy()
        limits = Limits(max_message_bytes=_largest_message(compiled), max_in_flight=policy.max_in_flight)
        self._compiled = compiled
        self._machine = machine
        self._strategy = strategy
        told = None if stored is None else _told(stored, machine.time_scale)
        self._knows_costs = told is not None
        self._best_by_costs = exact_plan(told).plan if told is not None and strategy == "guided" else None
        self._reserved_bytes: dict[str, int] = {}
        self._stopping = False
        self._stop_at_s = float("inf")
        self._closing = contextlib.ExitStack()
        try:
            self.metrics = Metrics()
            self._closing.callback(self.metrics.close)
            self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
            self._closing.callback(self._context.term)
            graph = compiled.model.graph
            self.gateway = Gateway(
                self._context,
                endpoint,
                Signature(compiled.model.name, graph.inputs, graph.outputs),
                limits,
                self.metrics.undeliverable.inc,
            )
            self._closing.callback(self.gateway.close)
            self.metrics_page = self.metrics.serve(metrics_port)
            self._poller = Poller()
            self._closing.callback(self._poller.close)
            link = Link()
            names = [place.name for place in machine.places]
            # Two parts for each worker, and slack at both ends: admission and answers never hold one up.
            lifecycle = Lifecycle(names, slot_count or 2 * len(names) + 2, policy)
            arena = Arena.create(layout_of(compiled.index), lifecycle.slot_count, len(names))
            self._closing.callback(arena.close)
            limited = [memory.name for memory in machine.memories if memory.bandwidth_bytes_per_s is not None]
            self._budgets = Budgets(limited)
            self._closing.callback(self._budgets.close)
            devices = {place: costs.devices for place, costs in (operator_costs or {}).items()}
            supervisor = Supervisor(machine, arena, self._budgets, self._poller, link, compiled, devices)
            self._closing.callback(supervisor.end_all)
            self._tuner: ChildLink[tm.ToTuner, tm.FromTuner] | None = None
            if strategy != "seed":
                greeting = [] if told is None else [tm.StoredCosts(msgspec.json.encode(costs_object(told)))]
                self._tuner = ChildLink(TUNER, self._poller, tm.TO_TUNER.encode, tm.FROM_TUNER.decode, greeting)
                self._closing.callback(self._tuner.close)
            self._placer: ChildLink[pm.ToPlacer, pm.FromPlacer] | None = None
            if operator_costs:
                known = pm.greeting(str(compiled.model_folder), solver, operator_costs)
                self._placer = ChildLink(PLACER, self._poller, pm.TO_PLACER.encode, pm.FROM_PLACER.decode, known)
                self._closing.callback(self._placer.close)
        except BaseException:
            self._closing.close()
            raise
        self.shell = Shell(
            lifecycle,
            arena=arena,
            index=compiled.index,
            link=link,
            supervisor=supervisor,
            journal=Journal(),
            metrics=self.metrics,
            make_plan=self._own_choice,
            time_scale=machine.time_scale,
            modelled_s=_stored_cpu_s(stored) if machine.timing == "modelled" else lambda *_: 0.0,
        )
        kept = None if fresh else cache_folder() / "plans.sqlite"
        self._best_plans = BestPlans(kept, compiled.engine_folder.parent.name, machine)
        self.tuning = self._make_tuning(lifecycle.slot_count + 2)
        self._placing = self._make_placing(devices, solver) if self._placer is not None else None
        self.control = Control(
            self.shell, compiled, machine, limits, self.tuning, devices=devices, placing=self._placing
        )
        supervisor.said = self.shell.worker_said
        supervisor.gone = self._worker_gone
        self._poller.watch_socket(
            self.gateway.socket, lambda: self.gateway.receive(self.shell.admission, self.control.answer)
        )
        for memory in machine.memories:
            if memory.bandwidth_bytes_per_s is not None:
                self.metrics.bandwidth.labels(memory.name).set(memory.bandwidth_bytes_per_s)

    def _make_tuning(self, warm_up: int) -> Tuning:
        tuner = self._tuner
        tuning = Tuning(
            places=self._machine.places,
            available=lambda: self.shell.lifecycle.places.available,
            legal_cuts=self._compiled.index.legal_cuts,
            knows_costs=self._knows_costs,
            options=Options(self._strategy, DEFAULT_ALPHA, DEFAULT_HEURISTIC.balance),
            warm_up=warm_up,
            best_plans=self._best_plans,
            journal=self.shell.journal,
            send=tuner.send if tuner is not None else lambda message: None,
            propose=self.shell.propose,
            on_trial=self._trial_done,
        )
        if tuner is not None:
            tuner.said = tuning.said
            tuner.died = self._tuner_died
        self.shell.on_live = tuning.plan_live
        self.shell.on_part = tuning.frame_done
        self.shell.on_replanned = self._replanned
        return tuning

    def _make_placing(self, devices: Mapping[str, tuple[Device, ...]], solver: str) -> Placing:
        placer, shell, tuning = self._placer, self.shell, self.tuning
        assert placer is not None
        placing = Placing(
            solver=solver,
            operator_counts=[layer.last_operator - layer.first_operator + 1 for layer in self._compiled.layers],
            devices={place: [device.name for device in its] for place, its in devices.items()},
            telemetry=shell.telemetry,
            journal=shell.journal,
            send=placer.send,
            propose=shell.propose_placed,
            searching=lambda: tuning.searching,
            on_solved=self.metrics.placement_solves.labels(solver).inc,
        )
        placer.said = placing.said
        placer.died = placing.placer_died
        shell.place = placing.place

        def live(epoch: int, plan: Plan) -> None:
            placing.plan_live(epoch, plan)
            tuning.plan_live(epoch, plan)

        shell.on_live = live
        return placing

    def _replanned(self) -> None:
        """A plan of the daemon's own choice is live, at the start or after the loss of a place: tuning begins there.

        A start with the plan that tuning had ended with begins by watching it.
        """
        if self._tuner is None or self.tuning.state is State.PAUSED or self.tuning.live is None:
            return
        best = self._best_plans.load()
        if self.tuning.state is State.OFF and best is not None and best.plan == self.tuning.live[1]:
            self.tuning.resume_watching(best)
        elif self.tuning.state is not State.TUNING or self.tuning.run.epoch != self.tuning.live[0]:
            self.tuning.begin("a new plan of the daemon's own")

    def _trial_done(self, verdict: str) -> None:
        self.metrics.trials.labels(verdict).inc()
        if self.tuning.run.trials > 1:  # the first measures where the search starts
            self.metrics.moves.inc()

    def _own_choice(self, available: tuple[str, ...]) -> Plan:
        """The plan that tuning ended with last time, or else the best by stored costs, if it fits; else the seed."""
        best = self._best_plans.load() if self._tuner is not None else None
        if best is not None and set(best.plan.places) <= set(available):
            faults = problems(
                best.plan,
                layer_count=len(self._compiled.layers),
                places=available,
                legal_cuts=self._compiled.legal_cuts,
            )
            if not faults:
                return best.plan
        if self._best_by_costs is not None and set(self._best_by_costs.places) <= set(available):
            return self._best_by_costs
        return self._seed(available)

    def _seed(self, available: tuple[str, ...]) -> Plan:
        places = [place for place in self._machine.places if place.name in available]
        return seed([layer.weight for layer in self._compiled.layers], places, legal_cuts=self._compiled.legal_cuts)

    # --- serving ----------------------------------------------------------------------------------------------

    def run(self, on_ready: Callable[[], None] = lambda: None, turn: Callable[[], None] = lambda: None) -> None:
        """Serve. `on_ready` is called once frames can be sent, `turn` after every turn of the loop.

        Raises `Failure`, with the root cause, if no plan can be made live at the start.
        """
        with self._closing, signal_bytes() as signal_fd:
            self._serve(signal_fd, on_ready, turn)
            self.shell.post(Stop())
            self.gateway.outbox.flush()
            # The last answers are with ZeroMQ's own thread: give it a moment to hand them to the kernel.
            self.gateway.socket.setsockopt(zmq.LINGER, 1000)

    def stop(self) -> None:
        """Stop admitting, answer what is in flight, then end. Again: do not wait any longer."""
        self._stop_at_s = time.monotonic() + (0.0 if self._stopping else _DRAIN_S)
        self._stopping = True
        self.control.drain()

    def _serve(self, signal_fd: int, on_ready: Callable[[], None], turn: Callable[[], None]) -> None:
        shell, poller = self.shell, self._poller
        poller.watch(signal_fd, lambda: self._signalled(signal_fd))
        ready, look_at_s = False, 0.0
        shell.post(Tick())
        wait_s = 0.0
        while not (self._stopping and (shell.lifecycle.idle or time.monotonic() >= self._stop_at_s)):
            poller.poll(wait_s)
            now_s = time.monotonic()
            wake_s = shell.lifecycle.next_wake_s()
            if wake_s is not None and wake_s <= now_s:
                shell.post(Tick())
                wake_s = shell.lifecycle.next_wake_s()
            if now_s >= look_at_s:
                look_at_s = now_s + LOOK_EVERY_S
                self._look()
            self.gateway.outbox.flush()
            if not ready:
                ready = self._check_start(on_ready)
            turn()
            wait_s = max(0.0, (look_at_s if wake_s is None else min(wake_s, look_at_s)) - now_s)
            if not self.gateway.outbox.empty:
                wait_s = min(wait_s, _UNREAD_RETRY_S)

    def _signalled(self, signal_fd: int) -> None:
        for _ in os.read(signal_fd, 64):
            self.stop()

    def _worker_gone(self, gone: WorkerGone) -> None:
        worker = self.shell.lifecycle.places.workers.get(gone.incarnation)
        if worker is not None:
            self.shell.journal.write(
                "worker_gone", place=worker.place, incarnation=gone.incarnation, reason=gone.reason
            )
        self.shell.post(gone)

    def _tuner_died(self, reason: str) -> None:
        self.shell.journal.write("tuner_died", reason=reason)
        self.tuning.tuner_died(f"the tuner's process died ({reason})")

    def _look(self) -> None:
        """Every so often: hung workers, and the gauges of the metrics page."""
        shell = self.shell
        expected: dict[str, float] = {}
        for epoch in shell.lifecycle.epochs.live.values():
            for i, stage in enumerate(epoch.plan.stages):
                service_s = shell.telemetry.window(epoch.number, i).median_service_s or 0.0
                expected[stage.place] = max(service_s * self._machine.time_scale, expected.get(stage.place, 0.0))
        for incarnation, reason in shell.supervisor.look(expected):
            shell.supervisor.kill(incarnation, reason)
        if self._tuner is not None:
            self._tuner.look()
        if self._placer is not None and self._placing is not None:
            self._placer.look()
            self._placing.look()
            self._show_placement(self._placing)
        shell.update_gauges()
        self.metrics.tuner.state(self.tuning.doing)
        self.metrics.gap.set(self.tuning.gap_ratio)
        self._count_reserved()

    def _show_placement(self, placing: Placing) -> None:
        newest = self.shell.lifecycle.epochs.newest
        self.metrics.placement_cost.clear()
        for i, stage in enumerate(newest.plan.stages if newest is not None else ()):
            predicted_s = placing.predicted_s(newest.number, i) if newest is not None else None
            if predicted_s is not None:
                self.metrics.placement_cost.labels(stage.place).set(predicted_s)

    def _count_reserved(self) -> None:
        for memory in self._machine.memories:
            if memory.bandwidth_bytes_per_s is not None:
                reserved_bytes = self._budgets.reserved_bytes(memory.name)
                counted = self._reserved_bytes.get(memory.name, 0)
                self.metrics.reserved.labels(memory.name).inc(reserved_bytes - counted)
                self._reserved_bytes[memory.name] = reserved_bytes

    def _check_start(self, on_ready: Callable[[], None]) -> bool:
        """Ready with the first live plan; a place that cannot be brought up at the start ends the daemon."""
        if self.shell.lifecycle.epochs.newest is not None:
            self.shell.journal.write("ready", endpoint=self.gateway.endpoint, metrics=self.metrics_page)
            on_ready()
            return True
        for place in self.shell.lifecycle.places.by_name.values():
            if place.restarts > 3:
                raise Failure(f"the worker on {place.name} does not start: {place.last_error}")
        if self.shell.fault is not None:
            if self.shell.bad_machine is not None:
                raise BadInput(f"{self._machine.source}: {self.shell.bad_machine}")
            raise Failure(f"the first plan cannot be prepared: {self.shell.fault}")
        return False


def _largest_message(compiled: Compiled) -> int:
    graph = compiled.model.graph
    tensors = (*graph.inputs, *graph.outputs)
    return sum(tensor.size_bytes for tensor in tensors) + Limits().max_header_bytes


def _stored_cpu_s(stored: LayerCosts | PlacedCosts | None) -> Callable[[str, int, int], float]:
    assert stored is not None  # it was refused before
    return lambda place, first, last: stored.segment_cpu_s(first, last, place)


def _told(stored: LayerCosts | PlacedCosts, time_scale: float) -> Costs:
    """The stored costs in the time of measurements, from which the stretching has been taken out."""
    costs = stored.costs()
    return replace(costs, time_s=costs.time_s / time_scale)
