"""A model made ready on the hosts of a cluster: sent to hosts that lack it, and measured there if not yet known."""

from __future__ import annotations

from dataclasses import replace

from shisha_rt.costs.profiles import Setting
from shisha_rt.hosts.joined import Joined
from shisha_rt.hosts.model_files import manifest_of
from shisha_rt.machine.machine import Place
from shisha_rt.measure.compile import engine_key
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.measure.place_class import PlaceClass
from shisha_rt.measure.profile import job_of, profile_of, signed_spans
from shisha_rt.measure.profile_store import ProfileStore


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
