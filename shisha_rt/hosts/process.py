"""`python -m shisha_rt.hosts.process CHANNEL PARENT`: the cluster process, which joins a Ray cluster for the daemon.

It joins the cluster, reserves all places together (a placement group, with a bundle for each place), keeps an actor in
each bundle, and starts far ends through the actors. If an actor or its host dies, it asks for a new actor in the same
bundle, which Ray places on a host with free resources, now or when one joins. All other scheduling is left to Ray.

One loop handles messages of the daemon and results of calls to actors. Ray's own threads only wake it.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec

from shisha_rt.costs.link_speed import LinkSpeed
from shisha_rt.extras import pip_install
from shisha_rt.hosts import messages as cm
from shisha_rt.hosts.actor import FarHost
from shisha_rt.hosts.bundles import bundle_of, infeasible, selector_of, why_lacking
from shisha_rt.hosts.hosts import HostAbout, about_this_host, why_unfit
from shisha_rt.hosts.model_files import ModelManifest, ModelSender, SentPiece
from shisha_rt.hosts.probe import probe
from shisha_rt.hosts.ray_cluster import LOCAL, Unable, guard_local, in_a_line, join_cluster, living_nodes
from shisha_rt.machine.machine import Remote
from shisha_rt.messages.worker import FarUp
from shisha_rt.process.channel import Channel, ChannelBroken
from shisha_rt.process.parent import ignore_signals, line_to_parent
from shisha_rt.process.readable import await_ready

_RESERVED_WITHIN_S: Final = 10.0
_FIRST_DELAY_S: Final = 0.2
_LONGEST_DELAY_S: Final = 5.0
_CALLS_AT_ONCE: Final = 8


def main(arguments: list[str]) -> int:
    channel = line_to_parent(arguments)
    asked = cm.TO_CLUSTER.decode(channel.wait())
    assert isinstance(asked, cm.Reserve)
    try:
        cluster = Cluster(channel, asked)
    except Unable as unable:
        with contextlib.suppress(ChannelBroken):
            channel.send(cm.FROM_CLUSTER.encode(cm.Lacking(str(unable))))
        return 1  # a serving daemon starts a new cluster process after a while, which may succeed
    with contextlib.suppress(ChannelBroken):
        cluster.run()
    cluster.close()
    return 0


@dataclass(slots=True)
class _Hosted:
    """A place and its present actor. `number` counts its actors, so that late answers of earlier ones are ignored."""

    place: str
    asked: Remote
    bundle: int
    actor: Any = None
    number: int = 0
    address: str = ""
    about: bytes = b""
    link: LinkSpeed | None = None
    has_model: bool = False
    is_sent: bool = False
    there: bool = False
    delay_s: float = _FIRST_DELAY_S


class Cluster:
    """The cluster with its reserved places. Raises Unable."""

    def __init__(self, channel: Channel, asked: cm.Reserve) -> None:
        if asked.address == LOCAL:
            guard_local()
        try:
            import ray
        except ImportError:
            raise Unable(f"Ray is not installed: {pip_install('ray')}") from None
        self._ray = ray
        self._channel = channel
        self._about = about_this_host()
        self._woken = os.eventfd(0, os.EFD_NONBLOCK)
        self._happened: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._timers: list[tuple[float, Callable[[], None]]] = []
        self._threads = ThreadPoolExecutor(4)
        self._sender = ModelSender(ray)
        self._manifest: ModelManifest | None = None
        self._all_there = self._shipped = False
        self._tell(f"joining the Ray cluster ({asked.address})")
        join_cluster(ray, asked, self._give_up)
        ignore_signals()  # after `ray.init`, which installs handlers of its own
        places = enumerate(asked.places.items())
        self._hosted = {place: _Hosted(place, remote, bundle) for bundle, (place, remote) in places}
        try:
            self._group = self._reserve(asked)
            for hosted in self._hosted.values():
                self._begin(hosted)
        except (ValueError, TypeError, ray.exceptions.RayError) as error:  # such as a label that is invalid in Ray
            raise Unable(f"the Ray cluster does not take what places ask for: {in_a_line(error)}") from None

    def _give_up(self, reason: str) -> None:
        """Report the reason and end the process at once, as the thread that waits for Ray cannot be interrupted."""
        self._say(cm.Lacking(reason))
        os._exit(1)

    def _reserve(self, asked: cm.Reserve) -> Any:
        from ray.util.placement_group import placement_group, remove_placement_group

        selectors = [selector_of(place) for place in asked.places.values()]
        labelled = {"bundle_label_selector": selectors} if any(selectors) else {}
        group = placement_group([bundle_of(place) for place in asked.places.values()], strategy="SPREAD", **labelled)
        until_s = time.monotonic() + _RESERVED_WITHIN_S
        self._tell(f"reserving {len(asked.places)} places in the cluster")
        while not group.wait(0.5):
            nodes = living_nodes(self._ray)
            if infeasible(asked.places, nodes) is not None or time.monotonic() > until_s:
                remove_placement_group(group)
                raise Unable(why_lacking(asked.places, nodes))
        return group

    # --- the loop ---------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run until the daemon sends `EndCluster`, or is gone."""
        while self._channel.open:
            while (data := self._channel.take()) is not None:
                message = cm.TO_CLUSTER.decode(data)
                if isinstance(message, cm.EndCluster):
                    return
                self._take(message)
            if not self._channel.open:
                return
            with contextlib.suppress(queue.Empty):
                while True:
                    self._happened.get_nowait()()
            now_s = time.monotonic()
            due = [do for at_s, do in self._timers if at_s <= now_s]
            self._timers = [timer for timer in self._timers if timer[0] > now_s]
            for do in due:
                do()
            wait_s = min((at_s - now_s for at_s, _ in self._timers), default=60.0)
            if self._woken in await_ready([self._channel.fileno(), self._woken], wait_s):
                os.eventfd_read(self._woken)

    def _take(self, message: cm.ToCluster) -> None:
        match message:
            case cm.ShipModel(manifest=manifest):
                self._manifest = msgspec.json.decode(manifest, type=ModelManifest)
                for hosted in self._hosted.values():
                    if hosted.link is not None and not hosted.has_model:
                        self._bring(hosted)
            case cm.ProfileThere(place=place, shape=shape, job=job):
                self._measure(self._hosted[place], shape, job)
            case cm.StartFar():
                self._start_far(message)
            case cm.EndFar(incarnation=incarnation):
                for hosted in self._hosted.values():
                    if hosted.has_model:  # else it has no far end; and calls to an actor without a host would pile up
                        hosted.actor.end.remote(incarnation)
            case _:
                raise TypeError(f"{message}: not expected")

    def _when(self, future: Future[Any], done: Callable[[Any], None], failed: Callable[[str], None]) -> None:
        """Have `done` or `failed` called in the loop when the future ends."""

        def ended(future: Future[Any]) -> None:
            error = future.exception()
            self._happened.put(partial(done, future.result()) if error is None else partial(failed, in_a_line(error)))
            os.eventfd_write(self._woken, 1)

        future.add_done_callback(ended)

    def _call(self, hosted: _Hosted, ref: Any, done: Callable[[Any], None]) -> None:
        """Await a call of the place's present actor; if the call fails, the place is lost."""
        self._while_there(hosted, ref.future(), done, partial(self._lost, hosted))

    def _while_there(
        self, hosted: _Hosted, future: Future[Any], done: Callable[[Any], None], failed: Callable[[str], None]
    ) -> None:
        """As `_when`, unless the place has another actor by then."""
        number = hosted.number

        def if_now(then: Callable[[Any], None], what: Any) -> None:
            if hosted.number == number:
                then(what)

        self._when(future, partial(if_now, done), partial(if_now, failed))

    def _tell(self, message: str) -> None:
        self._say(cm.Told(message))

    def _say(self, message: cm.FromCluster) -> None:
        self._channel.send(cm.FROM_CLUSTER.encode(message))

    # --- a place gets an actor --------------------------------------------------------------------------------

    def _begin(self, hosted: _Hosted) -> None:
        """Ask for an actor; it may take long until there is a host for it."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        asked = hosted.asked
        hosted.number += 1
        hosted.actor = (
            self._ray.remote(FarHost)
            .options(
                num_cpus=asked.cpus,
                resources=dict(asked.resources),
                max_concurrency=_CALLS_AT_ONCE,
                max_restarts=0,
                scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, hosted.bundle),
            )
            .remote()
        )
        self._call(hosted, hosted.actor.about.remote(), partial(self._met, hosted))
        self._call(hosted, hosted.actor.stay.remote(), lambda _: None)

    def _met(self, hosted: _Hosted, answer: tuple[str, bytes]) -> None:
        hosted.address, hosted.about = answer
        unfit = why_unfit(self._about, hosted.about)
        if unfit is not None:
            self._refuse(hosted, unfit)
            return

        def unreachable(reason: str) -> None:
            self._refuse(hosted, f"this host cannot reach it: {reason}")

        # If it fails, once more on a new port, as a stranger may have connected to the first.
        self._measure_link(hosted, lambda _: self._measure_link(hosted, unreachable))

    def _measure_link(self, hosted: _Hosted, failed: Callable[[str], None]) -> None:
        def seen(link: LinkSpeed) -> None:
            hosted.link = link
            self._go_on(hosted)

        def ask(port: int) -> None:
            self._while_there(hosted, self._threads.submit(probe, hosted.address, port), seen, failed)

        self._call(hosted, hosted.actor.echo.remote(), ask)

    def _go_on(self, hosted: _Hosted) -> None:
        """Announce the place as reachable, and again once the model is installed there."""
        if self._manifest is not None and not hosted.has_model:
            self._bring(hosted)
            return
        assert hosted.link is not None
        hosted.delay_s, hosted.there = _FIRST_DELAY_S, True
        self._say(cm.PlaceThere(hosted.place, hosted.address, hosted.about, hosted.link))
        if not self._all_there and all(asked.there for asked in self._hosted.values()):
            self._all_there = True
            self._say(cm.AllThere())

    @property
    def _begins(self) -> bool:
        """Whether the daemon still waits for all places to be there, or for all to have the model."""
        return not self._all_there or (self._manifest is not None and not self._shipped)

    def _lost(self, hosted: _Hosted, reason: str) -> None:
        """Replace a place's actor that is gone or fails.

        The old one is killed first: if it only fails, it holds the resources that its successor needs.
        """
        self._ray.kill(hosted.actor)
        where = f"host {hosted.address}" if hosted.address else "its host"
        if self._begins and hosted.delay_s > _FIRST_DELAY_S:  # twice in a row: a third attempt would fail too
            self._say(cm.Lacking(f"place {hosted.place}: {where}: {reason}"))
        if hosted.there or self._begins:  # else the loss is reported already: the new actor came to a dead node
            self._say(cm.PlaceLost(hosted.place, f"{where}: {reason}"))
        self._again(hosted)

    def _refuse(self, hosted: _Hosted, reason: str) -> None:
        """Give the place up on this host, which is unfit, and try again: the next actor may be on a different host."""
        line = f"place {hosted.place} on host {hosted.address}: {reason}"
        if self._begins:
            self._say(cm.Lacking(line))
        else:
            self._say(cm.PlaceLost(hosted.place, line))
        self._ray.kill(hosted.actor)
        self._again(hosted)

    def _again(self, hosted: _Hosted) -> None:
        hosted.number += 1
        hosted.there = hosted.has_model = hosted.is_sent = False
        hosted.link = hosted.actor = None
        self._timers.append((time.monotonic() + hosted.delay_s, partial(self._begin, hosted)))
        hosted.delay_s = min(2 * hosted.delay_s, _LONGEST_DELAY_S)

    # --- the model --------------------------------------------------------------------------------------------

    def _bring(self, hosted: _Hosted) -> None:
        assert self._manifest is not None
        manifest = msgspec.json.encode(self._manifest)
        self._call(hosted, hosted.actor.lacking.remote(manifest), partial(self._send_pieces, hosted, manifest))

    def _send_pieces(self, hosted: _Hosted, manifest: bytes, lacking: list[int]) -> None:
        """Put each missing piece of the model into the cluster's store, once for all hosts that fetch it."""
        assert self._manifest is not None
        about = msgspec.json.decode(hosted.about, type=HostAbout)
        same = about.engine_key == self._manifest.engine_key
        folders = self._manifest.engines if same else self._manifest.models
        if lacking:
            size_bytes = sum(file.size_bytes for number in lacking for file in folders[number].files)
            self._tell(f"sending {self._manifest.name} to {hosted.address} ({size_bytes / 1e6:.0f} MB, once a host)")
        hosted.is_sent = True

        def bring(pieces: Sequence[SentPiece]) -> None:
            self._call(hosted, hosted.actor.bring.remote(manifest, pieces), partial(self._brought, hosted))

        def failed(reason: str) -> None:  # the other places go on
            self._refuse(hosted, f"the model cannot be sent there: {reason}")

        self._while_there(hosted, self._sender.send(folders, lacking), bring, failed)

    def _brought(self, hosted: _Hosted, fault: str) -> None:
        if fault:
            self._refuse(hosted, fault)
            return
        hosted.has_model, hosted.is_sent = True, False
        if not hosted.there:
            self._go_on(hosted)
        shipped = all(owned.has_model for owned in self._hosted.values())
        if shipped or (self._shipped and not any(owned.is_sent for owned in self._hosted.values())):
            self._sender.forget()
        if shipped and not self._shipped:
            self._shipped = True
            self._say(cm.Shipped())

    def _measure(self, hosted: _Hosted, shape: int, job: bytes) -> None:
        place = hosted.place

        def failed(reason: str) -> None:
            self._say(cm.MeasuredThere(place, b"", reason))

        if hosted.actor is None:
            failed("its host is gone")
            return

        def measured(answer: tuple[bytes, str]) -> None:
            self._say(cm.MeasuredThere(place, *answer))

        self._when(hosted.actor.measure.remote(shape, job).future(), measured, failed)

    # --- far ends ---------------------------------------------------------------------------------------------

    def _start_far(self, asked: cm.StartFar) -> None:
        hosted = self._hosted[asked.place]

        def failed(reason: str) -> None:
            self._say(cm.FarFailed(asked.incarnation, reason))

        if hosted.actor is None or not hosted.has_model:
            failed("its host is gone")
            return
        actor = hosted.actor

        def started(answer: tuple[str, str]) -> None:
            line, reason = answer
            if reason:
                failed(reason)
                return
            up = msgspec.json.decode(line, type=FarUp)
            self._say(cm.FarStarted(asked.incarnation, up.endpoint, up.public_key))
            self._when(actor.wait.remote(asked.incarnation).future(), failed, failed)

        worker = msgspec.json.encode(asked.worker)
        self._when(actor.start.remote(asked.incarnation, worker, asked.near_key).future(), started, failed)

    def close(self) -> None:
        """Leave the cluster; its actors and its reservation end with this process."""
        from ray.util.placement_group import remove_placement_group

        with contextlib.suppress(Exception):  # the cluster may be gone
            remove_placement_group(self._group)
        with contextlib.suppress(Exception):
            self._ray.shutdown()
        self._sender.close()
        self._threads.shutdown(wait=False, cancel_futures=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
