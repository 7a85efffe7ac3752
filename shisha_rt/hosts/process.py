"""`python -m shisha_rt.hosts.process CHANNEL PARENT`: the cluster process, which joins a Ray cluster for the daemon.

It joins the cluster, reserves all places together (a placement group, with a bundle for each place), keeps an actor in
each bundle, and starts far ends through the actors. If an actor or its host dies, it asks for a new actor in the same
bundle, which Ray places on a host with free resources, now or when one joins. All other scheduling is left to Ray.

All of it runs in one event loop: a task for each place brings it up on its actor, and begins anew when that is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from shisha_rt.costs.link_speed import LinkSpeed
from shisha_rt.extras import pip_install
from shisha_rt.hosts import messages as cm
from shisha_rt.hosts.actor import FarHost
from shisha_rt.hosts.bundles import bundle_of, infeasible, selector_of, why_lacking
from shisha_rt.hosts.hosts import HostAbout, about_this_host, why_unfit
from shisha_rt.hosts.model_files import ModelManifest, ModelSender
from shisha_rt.hosts.probe import probe
from shisha_rt.hosts.ray_cluster import LOCAL, Unable, guard_local, in_a_line, join_cluster, living_nodes
from shisha_rt.machine.machine import Remote
from shisha_rt.messages.worker import FarUp
from shisha_rt.process.channel import Channel, ChannelBroken
from shisha_rt.process.parent import ignore_signals, line_to_parent

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
    asyncio.run(cluster.run())
    cluster.close()
    return 0


class _Over(Exception):
    """The daemon has no more to ask for."""


class _Lost(Exception):
    """A call of an actor has failed: it or its host is gone. The message is one line."""


class _Unfit(Exception):
    """A host that may not have the place, or cannot; the message is one line."""


@dataclass(slots=True)
class _Hosted:
    """A place and its present actor. `there`: the daemon has been told that the place can be used."""

    place: str
    asked: Remote
    bundle: int
    actor: Any = None
    address: str = ""
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
        self._threads = ThreadPoolExecutor(4)
        self._sender = ModelSender(ray)
        self._manifest: ModelManifest | None = None
        self._manifest_came = asyncio.Event()
        self._all_there = self._shipped = False
        self._tell(f"joining the Ray cluster ({asked.address})")
        join_cluster(ray, asked, self._give_up)
        ignore_signals()  # after `ray.init`, which installs handlers of its own
        places = enumerate(asked.places.items())
        self._hosted = {place: _Hosted(place, remote, bundle) for bundle, (place, remote) in places}
        try:
            self._group = self._reserve(asked)
            for hosted in self._hosted.values():
                hosted.actor = self._new_actor(hosted)
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

    async def run(self) -> None:
        """Run until the daemon sends `EndCluster`, or is gone."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                for hosted in self._hosted.values():
                    self._tasks.create_task(self._keep(hosted))
                await self._listen()
                raise _Over  # it cancels the tasks
        except* (_Over, ChannelBroken):
            pass

    async def _listen(self) -> None:
        readable = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._channel.fileno(), readable.set)
        while self._channel.open:
            while (data := self._channel.take()) is not None:
                message = cm.TO_CLUSTER.decode(data)
                if isinstance(message, cm.EndCluster):
                    return
                self._take(message)
            readable.clear()
            await readable.wait()

    def _take(self, message: cm.ToCluster) -> None:
        match message:
            case cm.ShipModel(manifest=manifest):
                self._manifest = msgspec.json.decode(manifest, type=ModelManifest)
                self._manifest_came.set()
            case cm.ProfileThere():
                self._tasks.create_task(self._measure(message))
            case cm.StartFar():
                self._tasks.create_task(self._start_far(message))
            case cm.EndFar(incarnation=incarnation):
                for hosted in self._hosted.values():
                    if hosted.has_model:  # else it has no far end; and calls to an actor without a host would pile up
                        hosted.actor.end.remote(incarnation)
            case _:
                raise TypeError(f"{message}: not expected")

    def _tell(self, message: str) -> None:
        self._say(cm.Told(message))

    def _say(self, message: cm.FromCluster) -> None:
        self._channel.send(cm.FROM_CLUSTER.encode(message))

    # --- a place gets an actor --------------------------------------------------------------------------------

    def _new_actor(self, hosted: _Hosted) -> Any:
        """Ask for an actor; it may take long until there is a host for it."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        asked = hosted.asked
        return (
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

    async def _keep(self, hosted: _Hosted) -> None:
        """Have the place on its actor; replace one that is gone, or on an unfit host: the next may be on another.

        The old one is killed first: if it only fails, it holds the resources that its successor needs.
        """
        while True:
            try:
                await self._stay_up(hosted)
            except _Unfit as unfit:
                line = f"place {hosted.place} on host {hosted.address}: {unfit}"
                self._say(cm.Lacking(line) if self._begins else cm.PlaceLost(hosted.place, line))
            except _Lost as lost:
                where = f"host {hosted.address}: {lost}" if hosted.address else f"its host: {lost}"
                if self._begins and hosted.delay_s > _FIRST_DELAY_S:  # twice in a row: a third attempt would fail too
                    self._say(cm.Lacking(f"place {hosted.place}: {where}"))
                if hosted.there or self._begins:  # else it is reported already: the new actor came to a dead node
                    self._say(cm.PlaceLost(hosted.place, where))
            self._ray.kill(hosted.actor)
            hosted.actor = None
            hosted.there = hosted.has_model = hosted.is_sent = False
            delay_s, hosted.delay_s = hosted.delay_s, min(2 * hosted.delay_s, _LONGEST_DELAY_S)
            await asyncio.sleep(delay_s)
            hosted.actor = self._new_actor(hosted)

    async def _stay_up(self, hosted: _Hosted) -> None:
        """Bring the place up, and stay until its actor is gone. Raises _Lost and _Unfit."""
        coming_up = asyncio.ensure_future(self._come_up(hosted))
        try:
            await asyncio.gather(_answer(hosted.actor.stay.remote()), coming_up)
        finally:
            coming_up.cancel()

    async def _come_up(self, hosted: _Hosted) -> None:
        """Announce the place once it is reachable and, if the model is known, has the model. Raises _Lost, _Unfit."""
        hosted.address, about = await _answer(hosted.actor.about.remote())
        unfit = why_unfit(self._about, about)
        if unfit is not None:
            raise _Unfit(unfit)
        there = cm.PlaceThere(hosted.place, hosted.address, about, await self._link_to(hosted))
        if self._manifest is None:
            self._is_there(hosted, there)
            await self._manifest_came.wait()
        await self._bring(hosted, msgspec.json.decode(about, type=HostAbout).engine_key)
        if not hosted.there:
            self._is_there(hosted, there)
        self._note_shipped()

    async def _link_to(self, hosted: _Hosted) -> LinkSpeed:
        with contextlib.suppress(OSError):
            return await self._probed(hosted)
        try:  # on a new port, as a stranger may have connected to the first
            return await self._probed(hosted)
        except OSError as error:
            raise _Unfit(f"this host cannot reach it: {in_a_line(error)}") from None

    async def _probed(self, hosted: _Hosted) -> LinkSpeed:
        port = await _answer(hosted.actor.echo.remote())
        return await asyncio.get_running_loop().run_in_executor(self._threads, probe, hosted.address, port)

    def _is_there(self, hosted: _Hosted, there: cm.PlaceThere) -> None:
        hosted.delay_s, hosted.there = _FIRST_DELAY_S, True
        self._say(there)
        if not self._all_there and all(asked.there for asked in self._hosted.values()):
            self._all_there = True
            self._say(cm.AllThere())

    @property
    def _begins(self) -> bool:
        """Whether the daemon still waits for all places to be there, or for all to have the model."""
        return not self._all_there or (self._manifest is not None and not self._shipped)

    # --- the model --------------------------------------------------------------------------------------------

    async def _bring(self, hosted: _Hosted, engine_key: str) -> None:
        """Bring the model to the place's host: each missing piece is put into the cluster's store, once for all hosts.

        `engine_key`: the host's. Raises _Lost, and _Unfit for this host alone: the other places go on.
        """
        assert self._manifest is not None
        manifest = msgspec.json.encode(self._manifest)
        lacking = await _answer(hosted.actor.lacking.remote(manifest))
        folders = self._manifest.folders_for(engine_key)
        if lacking:
            size_bytes = sum(file.size_bytes for number in lacking for file in folders[number].files)
            self._tell(f"sending {self._manifest.name} to {hosted.address} ({size_bytes / 1e6:.0f} MB, once a host)")
        hosted.is_sent = True
        try:
            pieces = await asyncio.wrap_future(self._sender.send(folders, lacking))
        except Exception as error:  # of the disk, or any of Ray's
            raise _Unfit(f"the model cannot be sent there: {in_a_line(error)}") from None
        fault = await _answer(hosted.actor.bring.remote(manifest, pieces))
        if fault:
            raise _Unfit(fault)
        hosted.has_model, hosted.is_sent = True, False

    def _note_shipped(self) -> None:
        shipped = all(hosted.has_model for hosted in self._hosted.values())
        if shipped or (self._shipped and not any(hosted.is_sent for hosted in self._hosted.values())):
            self._sender.forget()
        if shipped and not self._shipped:
            self._shipped = True
            self._say(cm.Shipped())

    async def _measure(self, asked: cm.ProfileThere) -> None:
        actor, measured = self._hosted[asked.place].actor, (b"", "its host is gone")
        if actor is not None:
            try:
                measured = await _answer(actor.measure.remote(asked.shape, asked.job))
            except _Lost as lost:
                measured = b"", str(lost)
        self._say(cm.MeasuredThere(asked.place, *measured))

    # --- far ends ---------------------------------------------------------------------------------------------

    async def _start_far(self, asked: cm.StartFar) -> None:
        """Start a far end, and report its end, or why it did not start."""
        hosted, reason = self._hosted[asked.place], "its host is gone"
        actor = hosted.actor
        if actor is not None and hosted.has_model:
            worker = msgspec.json.encode(asked.worker)
            try:
                line, reason = await _answer(actor.start.remote(asked.incarnation, worker, asked.near_key))
                if not reason:
                    up = msgspec.json.decode(line, type=FarUp)
                    self._say(cm.FarStarted(asked.incarnation, up.endpoint, up.public_key))
                    reason = await _answer(actor.wait.remote(asked.incarnation))
            except _Lost as lost:
                reason = str(lost)
        self._say(cm.FarFailed(asked.incarnation, reason))

    def close(self) -> None:
        """Leave the cluster; its actors and its reservation end with this process."""
        from ray.util.placement_group import remove_placement_group

        with contextlib.suppress(Exception):  # the cluster may be gone
            remove_placement_group(self._group)
        with contextlib.suppress(Exception):
            self._ray.shutdown()
        self._sender.close()
        self._threads.shutdown(wait=False, cancel_futures=True)


async def _answer(called: Any) -> Any:
    """Await an actor's answer; Ray would fail to set one that was cancelled. Raises _Lost."""
    try:
        return await asyncio.shield(asyncio.wrap_future(called.future()))
    except Exception as error:
        raise _Lost(in_a_line(error)) from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
