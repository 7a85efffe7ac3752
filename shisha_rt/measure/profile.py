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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.costs.fingerprint import fingerprint, fingerprint_within
from shisha_rt.costs.fit import fit_groups, spans_to_measure
from shisha_rt.costs.layer_costs import RawCosts, RawTimes, mean_costs
from shisha_rt.costs.profiles import Profile, Setting
from shisha_rt.errors import Error, Failure
from shisha_rt.machine.host.cores import usable_cores
from shisha_rt.machine.machine import Machine
from shisha_rt.measure.compiled import Compiled
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.measure.place_class import PlaceClass, class_of
from shisha_rt.measure.profile_store import ProfileStore
from shisha_rt.measure.sitting import ALONE, Sitting, known_or_measured, measure
from shisha_rt.messages.calibration import Calibrated, CalibrationJob, SpanTime
from shisha_rt.model.batches import why_not_together
from shisha_rt.model.spans import Span, groups_of
from shisha_rt.plan.plan import Team

MEASURED_BATCHES: Final = (4, 8)
"""Batches for which groups of layers are measured, beside one frame."""
_Profiles = Mapping[Setting, dict[Span, Profile]]
"""The profiles of each class of places, by its setting."""


def profile_model(ready: ModelOnMachine, sitting: Sitting = ALONE, batches: Sequence[int] = ()) -> RawCosts:
    """The raw costs of a model on a machine's places and teams; takes seconds if anything has to be measured.

    For a model that is served in several shapes: the mean over them. Times of places on hosts that have joined
    (`ready.remote`) were measured there (see `ready_there`); any other place on another host or on paper is measured on
    cores of this host. `batches`: batches to measure too, on places of this host. Raises BadInput if this host has
    fewer cores than a place has threads, and Failure if a calibration fails.
    """
    with ProfileStore() as store:
        shapes = [_ModelProfiles(ready, shape).measured(store, sitting, batches) for shape in ready.compiled.each]
    return mean_costs(ready.compiled.model.graph, ready.compiled.layers, shapes)


def known_costs(ready: ModelOnMachine) -> RawCosts | None:
    """What `profile_model` returns if the store has everything; None if something is missing. Raises as it does."""
    with ProfileStore() as store:
        shapes = [
            costs for shape in ready.compiled.each if (costs := _ModelProfiles(ready, shape).known(store)) is not None
        ]
    if len(shapes) < len(ready.compiled.each):
        return None
    return mean_costs(ready.compiled.model.graph, ready.compiled.layers, shapes)


class _ModelProfiles:
    """The profiles that one shape of a model (`compiled`) needs: of each run of layers, in each class of places."""

    def __init__(self, ready: ModelOnMachine, compiled: Compiled) -> None:
        machine, remote = ready.machine, ready.remote
        self._spans = signed_spans(compiled)
        self._compiled = compiled
        self._groups = groups_of(len(compiled.layers), compiled.legal_cuts)
        self._places = {
            place.name: PlaceClass(remote[place.name]) if place.name in remote else class_of(place, machine, compiled)
            for place in machine.places
        }
        measurable = teams_to_measure(machine) if ready.teams else ()
        self._teams = {team: class_of(machine.together(team), machine, compiled) for team in measurable}

    def measured(self, store: ProfileStore, sitting: Sitting, batches: Sequence[int]) -> RawCosts:
        """Costs from the store; what it lacks is measured first."""
        profiles_of = {
            place_class.setting: self._profiles(store, place_class, self._spans, sitting)
            for place_class in self._places_by_class()
        }
        single = {place.setting: place for place in self._places.values() if place.cores}  # without teams
        shared = {
            frames: {
                setting: self._profiles(store, place_class, signed, sitting, frames)
                for setting, place_class in single.items()
            }
            for frames in batches
            if (signed := self._spans_in_batches(frames))
        }
        return self._costs(profiles_of, shared)

    def known(self, store: ProfileStore) -> RawCosts | None:
        """Costs from the store; None if it lacks a profile."""
        profiles_of = {
            place_class.setting: _of_spans(store.find(place_class.setting, self._spans.values()), self._spans)
            for place_class in self._places_by_class()
        }
        return self._costs(profiles_of, {}) if all(profiles_of.values()) else None

    def _profiles(
        self, store: ProfileStore, place_class: PlaceClass, spans: dict[Span, str], sitting: Sitting, frames: int = 1
    ) -> dict[Span, Profile]:
        """A profile for each span. What the store lacks is measured; so is what was disturbed, if `sitting.renew`.

        Returns {} if a measurement that had to be undisturbed was given up. Raises Failure if a calibration fails.
        """
        name = self._compiled.model.name

        def known() -> dict[str, Profile]:
            return store.find(place_class.setting, spans.values())

        def missing(profiles: Mapping[str, Profile]) -> dict[str, Span]:
            return {
                signed: span
                for span, signed in reversed(spans.items())
                if signed not in profiles or (sitting.renew and profiles[signed].is_disturbed)
            }

        def calibrated(unknown: Mapping[str, Span]) -> None:
            if not place_class.cores:
                where = f"the hosts that have {place_class.setting.processor}"
                raise Failure(f"{name} has not been measured on {where}", Error.COSTS_MISSING)
            undisturbed = bool(sitting.beside and place_class.lead)
            here = replace(place_class, undisturbed=undisturbed, family=sitting.family)
            job = job_of(self._compiled, here, list(unknown.values()), frames)
            subject = f"the layers of {name}" + (f" with {frames} frames in a run" if frames > 1 else "")
            measured = measure(subject, "stages.jobs.calibrate", job, Calibrated, sitting.tell)
            profiles = [profile_of(time, measured.others_ratio) for time in measured.times]
            if profiles:
                store.add(place_class.setting, dict(zip(unknown, profiles, strict=True)))

        return _of_spans(known_or_measured(known, missing, calibrated, sitting), spans)

    def _places_by_class(self) -> Iterable[PlaceClass]:
        """One place or team for each class; classes of places come first."""
        place_classes: dict[Setting, PlaceClass] = {}
        for place in (*self._places.values(), *self._teams.values()):
            place_classes.setdefault(place.setting, place)
        return place_classes.values()

    def _spans_in_batches(self, frames: int) -> dict[Span, str]:
        """The groups of layers that can compute several frames in one run, with fingerprints for runs of `frames`."""
        index = self._compiled.index
        return {
            group: fingerprint_within(self._spans[group], f"{frames} frames")
            for group in self._groups
            if index.mixing and not why_not_together((group,), index.mixing, index.tied)
        }

    def _costs(self, profiles_of: _Profiles, shared: Mapping[int, _Profiles]) -> RawCosts:
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
    """Times of groups of layers that explain the measured runs of groups best (`costs/fit.py`)."""
    cpu_s = fit_groups(groups, {span: profile.cpu_s for span, profile in profiles.items()})
    wall_s = fit_groups(groups, {span: profile.wall_s for span, profile in profiles.items()})
    alone_s = sum(profiles[group].cpu_s for group in groups)
    return RawTimes(setting.threads, cpu_s, wall_s, float(cpu_s.sum()) / alone_s)


def _of_spans(profiles: Mapping[str, Profile], spans: Mapping[Span, str]) -> dict[Span, Profile]:
    """The profile of each span; none if one is missing."""
    return {span: profiles[signed] for span, signed in spans.items()} if profiles.keys() >= {*spans.values()} else {}


def profile_of(time: SpanTime, others_ratio: float = 0.0) -> Profile:
    """The profile to store for a measured time. `others_ratio`: the share of the cores that others used meanwhile."""
    # A tick of the clock may be longer than the smallest layer, but no time may be 0.
    least_s = 1e-9
    times_s = max(time.cpu_s, least_s), max(time.wall_s, least_s)
    return Profile(*times_s, time.spread_s, time.runs, time.moved_bytes, others_ratio)


def job_of(compiled: Compiled, place_class: PlaceClass, spans: Sequence[Span], frames: int = 1) -> CalibrationJob:
    return place_class.job(
        CalibrationJob,
        engine_folder=str(compiled.engine_folder),
        spans=tuple(spans),
        undisturbed=place_class.undisturbed,
        family=place_class.family,
        frames=frames,
    )
