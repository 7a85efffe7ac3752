"""Measured layer costs for a machine's places: from the profile store, and what is missing measured first.

Places of one *class* share their profiles: the same engine, number of threads and kind of core, and as many busy cores
beside. A team of several places is like a place that has all their cores. A class is measured once, by a process of its
own (the control plane never runs a model) on the cores of one of its places, while the cores of all the others are kept
busy as they will be. Calibrations take turns, even those of different daemons, as they would disturb each other;
whoever waited finds the entries there.

A daemon that serves already measures *beside* its frames. One thread's CPU time hardly suffers: SqueezeNet's layers at
niceness 10, on cores that another process kept full, came out 1% above what they take by themselves (61.3 and 60.7 ms,
the sum of all runs of layers), and in 20 s instead of 9. What several threads take is told by the clock, and that was
355 ms and not 55. So teams are measured only while hardly anything keeps their threads waiting: else nothing is known
of them, nothing is kept, and the next start tries again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeAlias

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
from shisha_rt.model.spans import Span, groups_of
from shisha_rt.plan.plan import Team

Tell = Callable[[str], None]
Settings: TypeAlias = Mapping[str, Setting]
"""Of places on other hosts, what their times depend on."""
NOWHERE_ELSE: Final[Settings] = MappingProxyType({})


def profile_model(
    compiled: Compiled,
    machine: Machine,
    on_progress: Tell | None = None,
    *,
    teams: bool = False,
    beside: int = 0,
    renew: bool = False,
    remote: Settings = NOWHERE_ELSE,
) -> RawCosts:
    """The raw costs of a model on a machine's places, and teams; takes seconds where something has to be measured.

    Of a model that is served in several shapes, the mean over them.
    A place of another host, or on paper, is measured on cores of this one. `beside`: the daemon (its pid) that
    serves frames there meanwhile, so that teams may be left out. `renew`: what was measured while others had the cores
    is measured again. `remote`: of places on other hosts that are there; what they take has been measured on
    those (see `ready_there`). Raises BadInput where this host has too few for its threads, and Failure where a
    calibration fails.
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
        return wanted.costs(profiles_of)

    with ProfileStore(cache_folder() / FILE_NAME) as store:
        return mean_costs(
            compiled.model.graph, compiled.layers, [costs_of(compiled_shape, store) for compiled_shape in compiled.each]
        )


def known_costs(
    compiled: Compiled, machine: Machine, *, teams: bool = False, remote: Settings = NOWHERE_ELSE
) -> RawCosts | None:
    """What `profile_model` would find without measuring anything; None if something is missing. Raises as it does."""
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
    """What has to be known of a model on a machine: every run of layers in `spans`, in each class of places."""

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
        """One of each class; those of places come first."""
        place_classes: dict[Setting, PlaceClass] = {}
        for place in (*self._places.values(), *self._teams.values()):
            place_classes.setdefault(place.setting, place)
        return place_classes.values()

    def costs(self, profiles_of: Mapping[Setting, dict[Span, Profile]]) -> RawCosts:
        """From what was found in each class; a team of which nothing was is left out."""
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
        )


def teams_to_measure(machine: Machine) -> tuple[Team, ...]:
    """Those of the machine's teams that this host has the cores for: of the others nothing can be known."""
    most_threads = len(usable_cores())
    return tuple(team for team in machine.teams if machine.together(team).threads <= most_threads)


def signed_spans(compiled: Compiled) -> dict[Span, str]:
    """What is measured of a model, by the fingerprints under which it is kept."""
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
    compiled: Compiled, store: ProfileStore, place_class: PlaceClass, spans: dict[Span, str], tell: Tell, *, renew: bool
) -> dict[Span, Profile]:
    """A profile for each span; measures those that the store does not know, and with `renew` disturbed ones.

    None of them where that was to be undisturbed, and was not, unless older ones are known.
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
        job = job_of(compiled, place_class, list(unknown.values()))
        subject = f"the layers of {compiled.model.name}"
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
    # A clock's tick may be coarser than the smallest layer, and nothing takes no time.
    least_s = 1e-9
    times_s = max(time.cpu_s, least_s), max(time.wall_s, least_s)
    return Profile(*times_s, time.spread_s, time.runs, time.moved_bytes, others_ratio)


def job_of(compiled: Compiled, place_class: PlaceClass, spans: Sequence[Span]) -> CalibrationJob:
    """What is asked of a calibration."""
    return place_class.job(
        CalibrationJob,
        engine_folder=str(compiled.engine_folder),
        spans=tuple(spans),
        undisturbed=place_class.undisturbed,
        family=place_class.family,
    )
