"""The cluster that `serve` joins at its start: all places are there, the model is on every host and is measured."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

import msgspec

from shisha_rt.costs.links import HostLink
from shisha_rt.costs.profiles import Setting
from shisha_rt.errors import BadInput, Error, Failure
from shisha_rt.hosts import messages as cm
from shisha_rt.hosts.hosts import HostAbout
from shisha_rt.hosts.model_files import ModelManifest, manifest_of
from shisha_rt.machine.machine import Machine, Place
from shisha_rt.measure.compile import engine_key
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.measure.place_class import PlaceClass
from shisha_rt.measure.profile import job_of, profile_of, signed_spans
from shisha_rt.measure.profile_store import ProfileStore
from shisha_rt.messages.calibration import Calibrated, CalibrationJob
from shisha_rt.process.channel import ChannelBroken
from shisha_rt.process.child import end_in_words, start_with_channel
from shisha_rt.process.pulse import Pulse, await_message
from shisha_rt.process.readable import is_readable


class Joined:
    """A joined cluster. `places`: the last `PlaceThere` of each place, even if it has been `lost` since. `greeting`:
    messages that a new cluster process would have to get first. `line`: belongs to whoever takes the cluster over.

    Raises BadInput if the cluster cannot be joined, or lacks what places request.
    """

    def __init__(self, address: str, machine: Machine, tell: Callable[[str], None]) -> None:
        self.line = start_with_channel(cm.PROCESS)
        self._pulse = Pulse(self.line[0].pid)
        self.places: dict[str, cm.PlaceThere] = {}
        self.lost: set[str] = set()
        self._all_there = False
        asked = {place.name: place.remote for place in machine.places if place.remote is not None}
        self.greeting: list[cm.ToCluster] = [cm.Reserve(address, asked)]
        self._source = machine.source
        self._progress = tell
        try:
            self._send(self.greeting[0])
            self._until(cm.AllThere)
            self._all_there = True
        except BaseException:
            self.close()
            raise

    def about(self, place: str) -> HostAbout:
        return msgspec.json.decode(self.places[place].about, type=HostAbout)

    def ship(self, manifest: ModelManifest) -> None:
        """Bring the model to every host. Raises BadInput if a host cannot have it."""
        self.greeting.append(cm.ShipModel(msgspec.json.encode(manifest)))
        self._send(self.greeting[-1])
        self._until(cm.Shipped)

    def measure(self, place: str, shape: int, job: CalibrationJob) -> Calibrated:
        """Measure layers on the host of a place. Raises Failure."""
        self._progress(f"measuring layers on {self.places[place].host} (once; kept for the next start)")
        self._send(cm.ProfileThere(place, shape, msgspec.json.encode(job)))
        answer = self._until(cm.MeasuredThere)
        assert isinstance(answer, cm.MeasuredThere)
        if answer.reason:
            raise Failure(
                f"{place}: layers could not be measured on {self.places[place].host}: {answer.reason}",
                Error.COSTS_MISSING,
            )
        return msgspec.json.decode(answer.profiles, type=Calibrated)

    def links(self) -> dict[str, HostLink]:
        """Place -> its host and the link in both directions, as first measured."""
        return {place: HostLink(joined_place.host, *joined_place.link) for place, joined_place in self.places.items()}

    def _send(self, message: cm.ToCluster) -> None:
        try:
            self.line[1].send(cm.TO_CLUSTER.encode(message))
        except ChannelBroken:
            raise self._ended() from None

    def _until(self, kind: type[cm.FromCluster]) -> cm.FromCluster:
        while True:
            message = self._next()
            match message:
                case cm.Told(message=line):
                    self._progress(line)
                case cm.Lacking(reason=reason):
                    raise BadInput(f"{self._source}: {reason}", Error.CLUSTER_UNFIT)
                case cm.PlaceThere(place=place):
                    self.places[place] = message
                    self.lost.discard(place)
                case cm.PlaceLost(place=place, reason=reason):
                    self.lost.add(place)
                    self._progress(f"place {place} is lost: {reason}")
            if isinstance(message, kind):
                return message

    def _next(self) -> cm.FromCluster:
        try:
            data = await_message(self.line[1], self._pulse)
            assert data is not None  # without a limit
            return cm.FROM_CLUSTER.decode(data)
        except (ChannelBroken, msgspec.MsgspecError):
            raise self._ended() from None

    def _ended(self) -> Failure:
        child = self.line[0]
        child.kill()
        how = end_in_words(child.wait())  # `close` releases its resources
        return Failure(f"the cluster process has ended ({how}): the Ray cluster may be gone", Error.CLUSTER_LOST)

    def close(self) -> None:
        child, channel = self.line
        if channel.open and self._all_there:  # before that, the child waits for Ray and would not read the message
            with contextlib.suppress(ChannelBroken):
                channel.send(cm.TO_CLUSTER.encode(cm.EndCluster()))
                is_readable(child.pidfd, cm.LEAVES_WITHIN_S)
        child.end()
        channel.close()


def ready_there(ready: ModelOnMachine, joined: Joined) -> ModelOnMachine:
    """Bring the model to every host that has a place. Raises BadInput if a host cannot have it."""
    joined.ship(manifest_of(ready.compiled, engine_key()))
    settings = {place.name: _setting(ready, joined, place) for place in ready.machine.remote}
    return replace(ready, remote=settings, far=joined.links())


def measure_there(ready: ModelOnMachine, joined: Joined) -> None:
    """Measure layers whose costs on other hosts are not known. Raises Failure if that fails there."""
    with ProfileStore() as store:
        for place in {setting: name for name, setting in reversed([*ready.remote.items()])}.values():
            _measure(ready, joined, place, store)


def _setting(ready: ModelOnMachine, joined: Joined, place: Place) -> Setting:
    """What times on the place depend on; without busy neighbours, as far as is known here."""
    name, _, version = ready.compiled.index.engine.partition(" ")
    return Setting(name, version, place.threads, "", joined.about(place.name).processor, 0)


def _measure(ready: ModelOnMachine, joined: Joined, place: str, store: ProfileStore) -> None:
    setting = ready.remote[place]
    for number, shape in enumerate(ready.compiled.each):
        signed = signed_spans(shape)
        profiles = store.find(setting, signed.values())
        unknown = {fingerprint: span for span, fingerprint in reversed(signed.items()) if fingerprint not in profiles}
        if unknown:
            cores = tuple(range(setting.threads))
            times = joined.measure(place, number, job_of(shape, PlaceClass(setting, cores), [*unknown.values()])).times
            store.add(setting, dict(zip(unknown, map(profile_of, times), strict=True)))
