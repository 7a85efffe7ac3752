"""Reports of tuning: records for the event log, and the description in `status`."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from shisha_rt.core import event_log
from shisha_rt.core.tuning.drift import Drift
from shisha_rt.core.tuning.profiler_messages import ModelProfiled, NotProfiled
from shisha_rt.core.tuning.state import State
from shisha_rt.costs.engine_trials import EnginesTried, usable, why_not
from shisha_rt.plan.engine import StageEngine, is_exact
from shisha_rt.plan.plan import Plan
from shisha_rt.planner.strategies import DEFAULT_ALPHA, DEFAULT_BALANCE

if TYPE_CHECKING:
    from shisha_rt.core.tuning.tuning import Tuning


def drift_record(plan: Plan, drift: Drift) -> event_log.Drifted:
    stage = drift.stage
    return event_log.Drifted(
        stage=stage,
        place=", ".join(plan.stages[stage].leads),
        before_s=drift.before.service_s[stage],
        service_s=drift.measurement.service_s[stage],
    )


def drift_in_words(drifted: event_log.Drifted) -> str:
    now_ms, before_ms = drifted.service_s * 1e3, drifted.before_s * 1e3
    return f"stage {drifted.stage} ({drifted.place}) takes {now_ms:.3g} ms, not {before_ms:.3g} ms"


def engines_record(tried: EnginesTried, permitted: Collection[StageEngine]) -> event_log.EnginesFound:
    left_out: dict[str, str] = {trial.engine: why for trial in tried.engines if (why := why_not(trial))}
    for trial in tried.engines:
        if not is_exact(trial.engine) and trial.engine not in permitted:
            left_out.setdefault(trial.engine, 'it changes results: expected precision = "any"')
    return event_log.EnginesFound(tuple(engine for engine in usable(tried) if engine not in left_out), left_out)


def profiled_record(answer: ModelProfiled | NotProfiled) -> event_log.ProfilingEnded | event_log.ProfilingFailed:
    if isinstance(answer, ModelProfiled):
        return event_log.ProfilingEnded(seconds=round(answer.took_s, 3), left_out=answer.left_out)
    return event_log.ProfilingFailed(reason=answer.reason)


def description(tuning: Tuning, now_s: float) -> dict[str, Any]:
    """Describe the tuner, as `tuner_get` and `status` show it."""
    search, options = tuning.search, tuning.options
    best = search.best_runnable
    return {
        "state": tuning.doing(now_s),
        "strategy": "seed" if tuning.state is State.OFF else tuning.strategy,
        "alpha": options.alpha if options is not None else DEFAULT_ALPHA,
        "balance": options.balance if options is not None else DEFAULT_BALANCE,
        "objective": "auto" if tuning.choice.auto else tuning.choice.objective,
        "serves": tuning.choice.objective,
        "utilisation": tuning.switching.utilisation,
        "plans": tuning.switching.plans(),
        "run": search.number if search.found_by is None else search.found_by,
        "run_objective": search.objective,
        "trials": search.trials,
        "trials_total": tuning.searches.trials,
        "moves_total": tuning.searches.moves,
        "trying": search.trying.reason if search.trying and tuning.state is State.TUNING else None,
        "best_throughput_fps": best[1].throughput_fps if best else None,
        "best_latency_s": best[1].latency_s if best else None,
        "best_energy_j": event_log.if_finite(best[1].energy_j) if best else None,
        "best_plan": str(best[0]) if best else None,
        "lower_bound_s": search.lower_bound_s,
        "comparing": _comparing(tuning),
    }


def _comparing(tuning: Tuning) -> dict[str, Any] | None:
    """Progress of a comparison of candidates: how many were tried, and the best so far; None: none runs."""
    contest = tuning.contests.running
    if contest is None:
        return None
    return {
        "objective": contest.objective,
        "tried": contest.tried,
        "candidates": len(contest.known),
        "ahead": contest.name,
        "ratio": contest.value[contest.serving],
        "trying": None if contest.challenger is None else contest.challenger.name,
    }
