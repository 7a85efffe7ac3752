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

import fcntl
import hashlib
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from shisha_rt.cache import cache_folder
from shisha_rt.costs.fingerprint import fingerprint, fingerprint_within
from shisha_rt.costs.fit import fit_groups, spans_to_measure
from shisha_rt.costs.layer_costs import RawCosts, RawTimes, mean_costs
from shisha_rt.costs.profiles import Profile, Setting
from shisha_rt.errors import BadInput, Failure
from shisha_rt.machine.host.cores import core_ranks, usable_cores
from shisha_rt.machine.machine import Machine, Place
from shisha_rt.measure.compiled import Compiled
from shisha_rt.measure.profile_store import FILE_NAME, ProfileStore
from shisha_rt.messages.calibration import Calibrated, CalibrationJob, Progress, SpanTime
from shisha_rt.messages.device_profiling import DeviceProfilingJob
from shisha_rt.messages.partition_profiling import PartitionProfilingJob
from shisha_rt.model.spans import Span, groups_of
from shisha_rt.plan.plan import Team
from shisha_rt.process.job import run_job

Tell = Callable[[str], None]
Settings: TypeAlias = Mapping[str, Setting]
"""Of places on other hosts, what their times depend on."""
NOWHERE_ELSE: Final[Settings] = MappingProxyType({})
AnswerT = TypeVar("AnswerT", bound=msgspec.Struct)

_BUDGET_S: Final = 8.0
_MIN_ROUNDS: Final = 5
_MAX_ROUNDS: Final = 60
_CPUS: Final = Path("/sys/devices/system/cpu")
_CPUINFO: Final = Path("/proc/cpuinfo")
_IDENTITY: Final = (
    *("vendor_id", "cpu family", "model", "model name", "stepping", "flags"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features"),
)


@dataclass(frozen=True, slots=True)
class PlaceClass:
    """Places that share profiles, and the cores of this host to measure them on; `lead`: of a team's, its lead's.

    `undisturbed`: it is measured only while no other process has its cores. `family`: the process whose family is ours.
    """

    setting: Setting
    cores: tuple[int, ...] = ()
    neighbours: tuple[int, ...] = ()
    lead: tuple[int, ...] = ()
    undisturbed: bool = False
    family: int = 0


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


# The store, and measuring for it


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

    profiles_known = known()
    if missing(profiles_known):
        if not place_class.cores:
            raise Failure(
                f"{compiled.model.name} has not been measured on the hosts that have {place_class.setting.processor}"
            )
        with turn():
            profiles_known = known()
            unknown = missing(profiles_known)
            if unknown:
                measured = _calibrate(compiled, place_class, list(unknown.values()), tell)
                if not measured.times and not profiles_known.keys() >= set(spans.values()):
                    return {}
                profiles = [profile_of(time, measured.others_ratio) for time in measured.times]
                store.add(place_class.setting, dict(zip(unknown, profiles, strict=bool(profiles))))
                profiles_known = known()
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


@contextmanager
def turn() -> Iterator[None]:
    """One calibration at a time on this host; the kernel releases the lock of a process that dies."""
    folder = cache_folder()
    try:
        lock = os.open(folder / ".calibration.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:  # it may not be written, but all who read it can lock it
        lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _calibrate(compiled: Compiled, place_class: PlaceClass, spans: Sequence[Span], tell: Tell) -> Calibrated:
    return measure(
        f"the layers of {compiled.model.name}",
        "stages.jobs.calibrate",
        job_of(compiled, place_class, spans),
        Calibrated,
        tell,
    )


def job_of(compiled: Compiled, place_class: PlaceClass, spans: Sequence[Span]) -> CalibrationJob:
    """What is asked of a calibration."""
    return CalibrationJob(
        engine_folder=str(compiled.engine_folder),
        cores=place_class.cores,
        threads=place_class.setting.threads,
        spans=tuple(spans),
        budget_s=_BUDGET_S,
        min_rounds=_MIN_ROUNDS,
        max_rounds=_MAX_ROUNDS,
        neighbours=place_class.neighbours,
        lead=place_class.lead,
        undisturbed=place_class.undisturbed,
        family=place_class.family,
    )


def measure(
    subject: str,
    module: str,
    job: CalibrationJob | DeviceProfilingJob | PartitionProfilingJob,
    answer: type[AnswerT],
    tell: Tell,
) -> AnswerT:
    """What `python -m MODULE JOB` answers. Raises Failure, with the child's last words, if it does not."""
    where = f"core{'s' if len(job.cores) > 1 else ''} {', '.join(map(str, job.cores))}"
    what = f"measuring {subject} on {where} (once; kept for the next start)"
    tell(what)
    failed = f"{subject} could not be measured"
    listener = _Listener(answer, lambda ratio: tell(f"{what}: {ratio:.0%}"))
    run_job(module, msgspec.json.encode(job).decode(), failed=failed, hear=listener.hear)
    if listener.answered is None:
        raise Failure(f"{failed}: it answered nothing")
    return listener.answered


class _Listener(Generic[AnswerT]):
    """Hears what a child answers in the end; progress is passed on in steps of a quarter."""

    def __init__(self, answer: type[AnswerT], tell_ratio: Callable[[float], None]) -> None:
        self.answered: AnswerT | None = None
        self._decoder: msgspec.json.Decoder[Progress | AnswerT] = msgspec.json.Decoder(Progress | answer)
        self._tell_ratio = tell_ratio
        self._told = 0

    def hear(self, line: bytes) -> None:
        message = self._decoder.decode(line)
        if not isinstance(message, Progress):
            self.answered = message
        elif int(message.done_ratio * 4) > self._told:
            self._told = int(message.done_ratio * 4)
            self._tell_ratio(self._told / 4)


# What a class is


def class_of(place: Place, machine: Machine, compiled: Compiled) -> PlaceClass:
    """For the engine that `compiled` is for; `place` is the machine's, or a team of its (see `Machine.together`).

    Raises BadInput where this host has too few cores for its threads.
    """
    ranks = core_ranks(_all_cores())
    usable = usable_cores()
    cores = tuple(core for core in place.cores if core in usable)
    if len(cores) < max(1, place.threads):
        cores = tuple(sorted(usable, key=lambda core: (ranks.get(core, 1), core)))[: place.threads]
    if len(cores) < place.threads:
        raise BadInput(
            f"{machine.source}: place {place.name}: threads = {place.threads}: cannot be measured here, "
            f"expected at most the {len(usable)} usable cores of this host"
        )
    kinds = sorted({ranks.get(core, 1) for core in cores}) if len(set(ranks.values())) > 1 else []
    neighbours = tuple(sorted({core for other in machine.usual for core in other.cores} & set(usable) - set(cores)))
    name, _, version = compiled.index.engine.partition(" ")
    kind = "+".join(f"class {kind}" for kind in kinds)
    setting = Setting(name, version, place.threads, kind, processor(), len(neighbours))
    lead_count = machine.place(place.name).core_count
    return PlaceClass(setting, cores, neighbours, cores[:lead_count] if lead_count < place.core_count else ())


def _all_cores() -> list[int]:
    """All of the host's: a core's class must not depend on which of the others this process may use."""
    return sorted(int(path.name.removeprefix("cpu")) for path in _CPUS.glob("cpu[0-9]*")) or list(usable_cores())


def processor() -> str:
    """The processor's name, and a digest of all that tells its kind, instruction sets included."""
    lines = _CPUINFO.read_text().splitlines() if _CPUINFO.exists() else []
    fields = {tuple(part.strip() for part in line.split(":", 1)) for line in lines if ":" in line}
    identity = sorted(field for field in fields if field[0] in _IDENTITY)
    name = next((value for key, value in identity if key == "model name"), platform.processor() or platform.machine())
    return f"{name} {hashlib.sha256(repr(identity).encode()).hexdigest()[:12]}"
