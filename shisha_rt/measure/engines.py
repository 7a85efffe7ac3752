"""Trials of each installed engine on a whole network on this host: made once, and stored for the next start.

The network is run on one thread, as its copies would run it (with the other cores kept busy by the same network), and
on all threads of the largest team. On a host only one trial or calibration runs at a time. A trial made while other
processes used the cores counts until there is a less disturbed one.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, replace
from typing import Final

import msgspec

from shisha_rt.cache import cache_folder
from shisha_rt.costs.engine_trials import EnginesTried, together
from shisha_rt.costs.profiles import DISTURBED
from shisha_rt.errors import Failure
from shisha_rt.machine.machine import Machine
from shisha_rt.measure.compiled import Compiled
from shisha_rt.measure.database import Table, explained, open_database, read_records, say_unusable
from shisha_rt.measure.installed import installed_engines
from shisha_rt.measure.place_class import PlaceClass, class_of
from shisha_rt.measure.profile import teams_to_measure
from shisha_rt.measure.sitting import Sitting, known_or_measured, measure
from shisha_rt.messages.try_engines import EnginesJob
from shisha_rt.model.batches import why_not_together
from shisha_rt.process.job import how_ended

FILE_NAME: Final = "engines.sqlite"
_TABLE: Final = Table(
    "tried", "(key TEXT PRIMARY KEY, record BLOB NOT NULL, others_ratio REAL NOT NULL)", 4, rows="engines tried"
)
_ADD: Final = f"""
    INSERT INTO tried VALUES (?, ?, ?)
    ON CONFLICT DO UPDATE SET record = excluded.record, others_ratio = excluded.others_ratio
    WHERE tried.others_ratio > {DISTURBED} AND excluded.others_ratio < tried.others_ratio
"""
_BUDGET_S: Final = 2.5
_BATCH: Final = 4


def known_engines(compiled: Compiled, machine: Machine, precision: str = "exact") -> EnginesTried | None:
    """What `engines_tried` returns if the store has everything; None if something is missing. Raises as it does."""
    keys = _classes(compiled, machine, precision).keys()
    kept = _stored(compiled, machine, precision)
    return together([kept[key] for key in keys]) if kept.keys() >= keys else None


def engines_tried(
    compiled: Compiled,
    machine: Machine,
    sitting: Sitting,
    budget_s: float = _BUDGET_S,
    precision: str = "exact",
) -> EnginesTried:
    """Try each installed engine on one thread and on all; takes seconds unless the results are stored.

    `compiled`: as ONNX Runtime's stages have the model. Beside a daemon, times on several threads may be missing.
    `budget_s`: for each number of threads. `precision`: "any" for engines that change results as well; "exact" takes
    what was stored of those, too. Raises BadInput if this host has fewer cores than a place has threads, and
    Failure if ONNX Runtime does not run the network.
    """
    classes = _classes(compiled, machine, precision)
    here: dict[str, EnginesTried] = {}

    def known() -> dict[str, EnginesTried]:
        return here | _stored(compiled, machine, precision)

    def missing(kept: Mapping[str, EnginesTried]) -> list[str]:
        return [key for key in classes if key not in kept or (sitting.renew and kept[key].others_ratio > DISTURBED)]

    def measured(keys: Sequence[str]) -> None:
        for key in keys:
            here[key] = _measured(compiled, classes[key], sitting, budget_s, precision)
            if _is_lasting(here[key]):
                _save(key, here[key])

    kept = known_or_measured(known, missing, measured, sitting)
    return together([kept[key] for key in classes])


def _classes(compiled: Compiled, machine: Machine, precision: str) -> dict[str, PlaceClass]:
    """What to try engines on, by key in the store: one thread, a place's threads, and those of the largest team."""
    alike = [machine.together(team) for team in teams_to_measure(machine)]
    widest = max(alike, key=lambda place: place.threads, default=machine.usual[0])
    place = machine.place(widest.name)
    single = replace(place, threads=1, cores=place.cores[:1], core_count=1)
    versions = " ".join(f"{engine}-{version}" for engine, version in installed_engines(precision).items())
    by_threads = {each.threads: class_of(each, machine, compiled) for each in (single, place, widest)}
    return {
        " ".join(map(str, (compiled.key, versions, *astuple(place_class.setting)))): place_class
        for place_class in by_threads.values()
    }


def _stored(compiled: Compiled, machine: Machine, precision: str) -> dict[str, EnginesTried]:
    """The stored results of the classes with this precision; where they are missing, those of more engines."""
    keys, wider = (list(_classes(compiled, machine, which)) for which in (precision, "any"))
    kept = _load({*keys, *wider})
    ours = dict(zip(keys, wider, strict=True))
    return {key: kept[key] if key in kept else kept[ours[key]] for key in keys if key in kept or ours[key] in kept}


def _measured(
    compiled: Compiled, place_class: PlaceClass, sitting: Sitting, budget_s: float, precision: str
) -> EnginesTried:
    job = place_class.job(
        EnginesJob,
        budget_s=budget_s,
        folders=tuple((str(shape.model_folder), str(shape.engine_folder)) for shape in compiled.each),
        engines=installed_engines(precision),
        batch=_BATCH if place_class.setting.threads == 1 and _is_batchable(compiled) else 1,
        undisturbed=bool(sitting.beside and place_class.setting.threads > 1),
        family=sitting.family,
    )
    subject = f"each engine on the whole of {compiled.model.name}"
    return measure(subject, "stages.jobs.try_engines", job, EnginesTried, sitting.tell)


def _is_batchable(compiled: Compiled) -> bool:
    """Whether the whole network can compute several frames in one run."""
    work = ((0, len(compiled.layers) - 1),)
    return not any(why_not_together(work, shape.index.mixing, shape.index.tied) for shape in compiled.each)


def _is_lasting(tried: EnginesTried) -> bool:
    """Whether to store the result: not if the trial was given up, or if memory was short."""
    out_of_memory = how_ended(-signal.SIGKILL)
    return bool(tried.engines[0].times) and all(trial.reason != out_of_memory for trial in tried.engines)


def _load(keys: Collection[str]) -> dict[str, EnginesTried]:
    """The stored results of these keys."""
    where = f"key IN ({', '.join('?' * len(keys))})"
    return read_records(cache_folder() / FILE_NAME, _TABLE, where, [*keys], EnginesTried)


def _save(key: str, tried: EnginesTried) -> None:
    path = cache_folder() / FILE_NAME
    try:
        with contextlib.closing(open_database(path, _TABLE)) as database, explained(path):
            database.execute(_ADD, (key, msgspec.msgpack.encode(tried), tried.others_ratio))
    except Failure as failure:
        say_unusable(str(failure), "what engines take is not kept")
