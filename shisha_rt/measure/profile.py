"""Measured layer costs for a machine's places: from the profile store; what is missing there is measured first.

Places of one *class* share their profiles: same engine, number of threads, kind of core and number of busy neighbour
cores. A team is measured as one place with all its cores. Each class is measured once, by a separate process (the
control plane never runs a model), on the cores of one of its places, while the cores of all other places are kept busy
as they are when serving. On a host only one calibration runs at a time, whichever daemon asked for it, as calibrations
would disturb each other; a process that waited then finds the entries in the store.

A daemon that serves already measures *beside* its frames. The CPU time of one thread hardly changes: on cores that
another process kept full, at niceness 10, SqueezeNet's layers came out 1% slower (61.3 ms instead of 60.7, the sum of
all runs of layers), and the calibration took 20 s instead of 9. Times of several threads are wall-clock times: 355 ms
instead of 55. So teams are measured only while hardly anything keeps their threads waiting; else nothing is stored for
them, and the next start tries again.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.cache import cache_folder
from shisha_rt.costs.fingerprint import fingerprint, fingerprint_within
from shisha_rt.costs.fit import fit_groups, spans_to_measure
from shisha_rt.costs.layer_costs import RawCosts, RawTimes, mean_costs
from shisha_rt.costs.profiles import Profile, Setting
from shisha_rt.errors import Error, Failure
from shisha_rt.machine.host.cores import usable_cores
from shisha_rt.machine.machine import Machine
from shisha_rt.measure.compiled import Compiled
from shisha_rt.measure.place_class import PlaceClass, class_of
from shisha_rt.measure.profile_store import FILE_NAME, ProfileStore
from shisha_rt.measure.sitting import known_or_measured, measure
from shisha_rt.messages.calibration import Calibrated, CalibrationJob, SpanTime
from shisha_rt.model.batches import why_not_together
from shisha_rt.model.spans import Span, groups_of
from shisha_rt.plan.plan import Team

Tell = Callable[[str], None]
Settings: TypeAlias = Mapping[str, Setting]
"""For each place on another host, by name: what its times depend on."""
NOWHERE_ELSE: Final[Settings] = MappingProxyType({})
MEASURED_BATCHES: Final = (4, 8)
"""Batches for which groups of layers are measured, beside one frame."""
_NOTHING_SHARED: Final[Mapping[int, Mapping[Setting, dict[Span, Profile]]]] = MappingProxyType({})


def profile_model(
    compiled: Compiled,
    machine: Machine,
    on_progress: Tell | None = None,
    *,
    teams: bool = False,
    beside: int = 0,
    renew: bool = False,
    remote: Settings = NOWHERE_ELSE,
    batches: Sequence[int] = (),
) -> RawCosts:
    """The raw costs of a model on a machine's places and teams; takes seconds if anything has to be measured.

    For a model that is served in several shapes: the mean over them. `beside`: the pid of a daemon that serves frames
    meanwhile; teams may then be left out. `renew`: measure again what was measured while other processes had the cores.
    `remote`: for places on hosts that have joined, whose times were measured there (see `ready_there`); any other place
    on another host or on paper is measured on cores of this host. `batches`: batches to measure too, on places of this
    host. Raises BadInput if this host has fewer cores than a place has threads, and Failure if a calibration fails.
    """
    tell = on_progress or (lambda _: None)

    def beside_daemon(place_class: PlaceClass) -> PlaceClass:
        return replace(place_class, undisturbed=bool(beside and place_class.lead), family=beside or os.getpid())

    def costs_of(compiled: Compiled, store: ProfileStore) -> RawCosts:
        wanted = _Wanted(compiled, machine, teams=teams, remote=remote)
        profiles_of = {
            place_class.setting: _profiles(compiled, store, beside_daemon(place_class), wanted.spans, tell, renew=renew)
            for place_class in wanted.first_of_each()
        }
        shared = {
            frames: {
                place_class.setting: _profiles(
                    compiled, store, beside_daemon(place_class), signed, tell, renew=renew, frames=frames
                )
                for place_class in wanted.first_of_single()
            }
            for frames in batches
            if (signed := wanted.spans_of_many(frames))
        }
        return wanted.costs(profiles_of, shared)

    with ProfileStore(cache_folder() / FILE_NAME) as store:
        return mean_costs(
            compiled.model.graph, compiled.layers, [costs_of(compiled_shape, store) for compiled_shape in compiled.each]
        )


def known_costs(
    compiled: Compiled, machine: Machine, *, teams: bool = False, remote: Settings = NOWHERE_ELSE
) -> RawCosts | None:
    """What `profile_model` returns if the store has everything; None if something is missing. Raises as it does."""
    shapes = []
    with ProfileStore(cache_folder() / FILE_NAME) as store:
        for compiled_shape in compiled.each:
            wanted = _Wanted(compiled_shape, machine, teams=teams, remote=remote)
            profiles_of = {
                place_class.setting: _known(store, place_class, wanted.spans) for place_class in wanted.first_of_each()
            }
            if not all(profiles_of.values()):
                return None
            shapes.append(wanted.costs(profiles_of))
    return mean_costs(compiled.model.graph, compiled.layers, shapes)


class _Wanted:
    """The profiles that a model's costs on a machine need: every run of layers in `spans`, in each class of places."""

    def __init__(self, compiled: Compiled, machine: Machine, *, teams: bool, remote: Settings) -> None:
        self.spans = signed_spans(compiled)
        self._compiled = compiled
        self._groups = groups_of(len(compiled.layers), compiled.legal_cuts)
        self._places = {
            place.name: PlaceClass(remote[place.name]) if place.name in remote else class_of(place, machine, compiled)
            for place in machine.places
        }
        measurable = teams_to_measure(machine) if teams else ()
        self._teams = {team: class_of(machine.together(team), machine, compiled) for team in measurable}

    def first_of_each(self) -> Iterable[PlaceClass]:
        """One place or team of each class; classes of places come first."""
        place_classes: dict[Setting, PlaceClass] = {}
        for place in (*self._places.values(), *self._teams.values()):
            place_classes.setdefault(place.setting, place)
        return place_classes.values()

    def first_of_single(self) -> Iterable[PlaceClass]:
        """One place of each class on this host, without teams."""
        return {place.setting: place for place in self._places.values() if place.cores}.values()

    def spans_of_many(self, frames: int) -> dict[Span, str]:
        """The groups of layers that can compute several frames in one run, with fingerprints for runs of `frames`."""
        index = self._compiled.index
        return {
            group: fingerprint_within(self.spans[group], f"{frames} frames")
            for group in self._groups
            if index.mixing and not why_not_together((group,), index.mixing, index.tied)
        }

    def costs(
        self,
        profiles_of: Mapping[Setting, dict[Span, Profile]],
        shared: Mapping[int, Mapping[Setting, dict[Span, Profile]]] = _NOTHING_SHARED,
    ) -> RawCosts:
        """Costs from the profiles of each class; teams without profiles are left out. `shared`: profiles by batch."""

        def ratio(place: PlaceClass, frames: int) -> Floats:
            """(groups,): time of a frame in a batch / time of a frame alone, both of the group run by itself."""
            alone, together = profiles_of[place.setting], shared[frames].get(place.setting, {})
            return np.array(
                [
                    together[group].cpu_s / frames / alone[group].cpu_s if group in together else math.nan
                    for group in self._groups
                ]
            )

        times = {
            setting: _fitted(self._groups, setting, profiles) for setting, profiles in profiles_of.items() if profiles
        }
        return RawCosts(
            graph=self._compiled.model.graph,
            layers=self._compiled.layers,
            groups=self._groups,
            times={place: times[place_class.setting] for place, place_class in self._places.items()},
            teams={
                team: times[place_class.setting]
                for team, place_class in self._teams.items()
                if place_class.setting in times
            },
            others_ratio=max(
                profile.others_ratio for profiles in profiles_of.values() for profile in profiles.values()
            ),
            shared_ratio={
                frames: {name: ratio(place, frames) for name, place in self._places.items()} for frames in shared
            },
        )


def teams_to_measure(machine: Machine) -> tuple[Team, ...]:
    """The machine's teams for which this host has enough cores; larger ones cannot be measured."""
    most_threads = len(usable_cores())
    return tuple(team for team in machine.teams if machine.together(team).threads <= most_threads)


def signed_spans(compiled: Compiled) -> dict[Span, str]:
    """The runs of layers to measure of a model, with the fingerprints under which they are stored."""
    groups = groups_of(len(compiled.layers), compiled.legal_cuts)
    graph, layers, node_layers = compiled.model.graph, compiled.layers, compiled.index.node_layers
    return {
        (first, last): fingerprint_within(
            fingerprint(graph, layers, first, last, sum(first <= layer <= last for layer in node_layers)),
            compiled.index.form,
        )
        for first, last in spans_to_measure(groups)
    }


def _fitted(groups: Sequence[Span], setting: Setting, profiles: dict[Span, Profile]) -> RawTimes:
    cpu_s = fit_groups(groups, {span: profile.cpu_s for span, profile in profiles.items()})
    wall_s = fit_groups(groups, {span: profile.wall_s for span, profile in profiles.items()})
    alone_s = sum(profiles[group].cpu_s for group in groups)
    return RawTimes(setting.threads, cpu_s, wall_s, float(cpu_s.sum()) / alone_s)


def _profiles(
    compiled: Compiled,
    store: ProfileStore,
    place_class: PlaceClass,
    spans: dict[Span, str],
    tell: Tell,
    *,
    renew: bool,
    frames: int = 1,
) -> dict[Span, Profile]:
    """A profile for each span; measures those that the store lacks, and with `renew` those that were disturbed.

    Returns {} if profiles are still missing, as a measurement that had to be undisturbed was given up.
    """

    def known() -> dict[str, Profile]:
        return store.find(place_class.setting, spans.values())

    def missing(profiles: Mapping[str, Profile]) -> dict[str, Span]:
        return {
            signed: span
            for span, signed in reversed(spans.items())
            if signed not in profiles or (renew and profiles[signed].is_disturbed)
        }

    def calibrated(unknown: Mapping[str, Span]) -> None:
        if not place_class.cores:
            raise Failure(
                f"{compiled.model.name} has not been measured on the hosts that have {place_class.setting.processor}",
                Error.COSTS_MISSING,
            )
        job = job_of(compiled, place_class, list(unknown.values()), frames)
        subject = f"the layers of {compiled.model.name}"
        subject += f" with {frames} frames in a run" if frames > 1 else ""
        measured = measure(subject, "stages.jobs.calibrate", job, Calibrated, tell)
        profiles = [profile_of(time, measured.others_ratio) for time in measured.times]
        if profiles:
            store.add(place_class.setting, dict(zip(unknown, profiles, strict=True)))

    profiles_known = known_or_measured(known, missing, calibrated)
    if not profiles_known.keys() >= set(spans.values()):
        return {}
    return {span: profiles_known[signed] for span, signed in spans.items()}


def _known(store: ProfileStore, place_class: PlaceClass, spans: dict[Span, str]) -> dict[Span, Profile]:
    """A profile for each span; none if the store lacks one."""
    profiles = store.find(place_class.setting, spans.values())
    return {span: profiles[signed] for span, signed in spans.items()} if profiles.keys() >= set(spans.values()) else {}


def profile_of(time: SpanTime, others_ratio: float = 0.0) -> Profile:
    # A tick of the clock may be longer than the smallest layer, but no time may be 0.
    least_s = 1e-9
    times_s = max(time.cpu_s, least_s), max(time.wall_s, least_s)
    return Profile(*times_s, time.spread_s, time.runs, time.moved_bytes, others_ratio)


def job_of(compiled: Compiled, place_class: PlaceClass, spans: Sequence[Span], frames: int = 1) -> CalibrationJob:
    """The job of a calibration process."""
    return place_class.job(
        CalibrationJob,
        engine_folder=str(compiled.engine_folder),
        spans=tuple(spans),
        undisturbed=place_class.undisturbed,
        family=place_class.family,
        frames=frames,
    )
