"""The paper's Tables 2 to 4 and Figure 6: its numbers, ours as predicted by the model, and ours as executed.

All milliseconds are those of the board; hand-overs, which are this host's, are in columns of their own. `paper's cell`
states to which times the board's description was fitted; for counts, `statements` states the source of a rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from benchmarks.partitiontuner.board import NETWORKS, SCHEMES
from benchmarks.partitiontuner.cases import OURS, SUNK, TITLES, Planned
from benchmarks.report.results import Row, Spread

ON_NPU: Final = tuple(scheme for scheme in SCHEMES if scheme != "baseline")
"""Schemes in the order of Tables 3 and 4."""


Results = Sequence[Planned]


def of_form(results: Results, form: str) -> Results:
    """One result for each network and scheme: in that form, or as given if that is the same."""
    has_sunk = {result.case.network for result in results if result.case.form == SUNK}
    return [result for result in results if result.case.form == form or result.case.network not in has_sunk]


def table_2(results: Results) -> list[Row]:
    """Table 2 in the paper's form: each cell has its time, ours predicted and ours executed; an asterisk: fitted to it.

    Ours are without hand-overs.
    """
    return [
        {
            "network": own[0].case.published.title,
            "form": own[0].case.form,
            **{
                title: next((_cell(result) for result in own if result.scheme == scheme), "")
                for scheme, title in TITLES.items()
            },
        }
        for own in _by_case(results)
    ]


def _cell(result: Planned) -> str:
    shown = [f"{ms:.1f}" for ms in (result.paper_ms, result.cell.ms, result.stages_ms) if ms is not None]
    return " / ".join(shown) + "*" * result.fitted


def times(results: Results, spans: Mapping[tuple[str, str, str], str] | None = None) -> list[Row]:
    """Times in one row each, with marks on fitted ones, and hand-overs in columns of their own.

    `spans`: ranges over all sets of numbers, by network, form and scheme.
    """
    return [
        _times(result, (spans or {}).get((result.case.network, result.case.form, result.scheme), ""))
        for result in results
    ]


def _times(result: Planned, span: str) -> Row:
    measured, foretold = result.measured, result.scheme_plan.foretold
    return {
        "network": result.case.published.title,
        "form": result.case.form,
        "scheme": TITLES[result.scheme],
        "paper ms": result.paper_ms,
        "paper's cell": "" if result.paper_ms is None else "fitted" if result.fitted else "predicted",
        "predicted ms": result.cell.ms,
        "over all number sets": span,
        "off the paper %": None if result.paper_ms is None else 100 * (result.cell.ms / result.paper_ms - 1),
        "executed ms": result.stages_ms,
        "hand-overs told ms": 1e3 * foretold.handover_s,
        "hand-overs ms": None if measured is None else 1e3 * measured.handover_s,
        "executed with hand-overs ms": None if measured is None else Spread.of(1e3 * s for s in measured.daemon_s),
        "client ms": None if measured is None else Spread.of(1e3 * s for s in measured.client_s),
        "stages off predicted %": None if measured is None else 100 * (measured.stages_s / result.stages_s - 1),
        "executed off predicted %": None if measured is None else 100 * (measured.latency_s / foretold.latency_s - 1),
        "lower bound ms": 1e3 * result.scheme_plan.lower_bound_s,
        "planning s": result.planning_s,
        "frames": 0 if measured is None else len(measured.daemon_s),
    }


def table_3(results: Results) -> list[Row]:
    """Counts, one network and form in a row, the paper's in brackets."""
    return [_counts(own) for own in _by_case(results)]


def _counts(own: Results) -> Row:
    case, published = own[0].case, own[0].case.published
    by_scheme = {result.scheme: result for result in own}

    def of_schemes(kind: str, counts: str) -> Row:
        ours = {scheme: getattr(planned.cell, counts) for scheme, planned in by_scheme.items()}
        papers = dict(zip(ON_NPU, getattr(published, counts), strict=True))
        return {
            f"{kind} on NPU, {TITLES[scheme]}": _beside(ours.get(scheme), papers.get(scheme))
            for scheme in (*ON_NPU, OURS)
        }

    tuned, best = by_scheme.get("partitiontuner"), by_scheme.get(OURS)
    return {
        "network": published.title,
        "form": case.form,
        "parallel branches": _beside(own[0].scheme_plan.parallel_branches, published.parallel_branches),
        "Conv": _beside(own[0].convs, published.convs),
        **of_schemes("Conv", "convs_on_npu"),
        **of_schemes("Relu", "relus_on_npu"),
        "in parallel, PartitionTuner": _beside(
            None if tuned is None else tuned.scheme_plan.overlapping, published.overlapping
        ),
        "in parallel, ours": "" if best is None else str(best.scheme_plan.overlapping),
    }


def table_4(results: Results) -> Iterator[Row]:
    """Numbers of partitions, the paper's in brackets."""
    for own in _by_case(results):
        case = own[0].case
        papers = dict(zip(ON_NPU, case.published.partitions, strict=True)) | {"baseline": 1}
        row: dict[str, object] = {"network": case.published.title, "form": case.form}
        for scheme, title in TITLES.items():
            partitions = next((result.cell.partitions for result in own if result.scheme == scheme), None)
            row[title] = _beside(partitions, papers.get(scheme))
        yield row


def _beside(ours: int | None, paper: int | None) -> str:
    return f"{'' if ours is None else ours}{'' if paper is None else f' ({paper})'}"


def figure_6(results: Results) -> Iterator[Row]:
    """Reduction of time by a scheme, in percent of that of the CPU alone."""
    for own in _by_case(results):
        baseline = next((result for result in own if result.scheme == "baseline"), None)
        if baseline is None:
            continue
        for result in own:
            if result is baseline:
                continue
            paper_ms, before_ms = result.paper_ms, baseline.paper_ms
            yield {
                "network": result.case.published.title,
                "form": result.case.form,
                "scheme": TITLES[result.scheme],
                "paper %": None if paper_ms is None or before_ms is None else reduction(paper_ms, before_ms),
                "predicted %": reduction(result.cell.ms, baseline.cell.ms),
                "executed %": _reduction(result.stages_ms, baseline.stages_ms),
            }


def past_the_paper(results: Results) -> Iterator[Row]:
    """Ours compared with PartitionTuner and with the lower bound of all plans."""
    for own in _by_case(results):
        by_scheme = {result.scheme: result for result in own}
        if not by_scheme.keys() >= {OURS, "partitiontuner"}:
            continue
        ours, tuned = by_scheme[OURS], by_scheme["partitiontuner"]
        yield {
            "network": ours.case.published.title,
            "form": ours.case.form,
            "PartitionTuner ms, predicted": tuned.cell.ms,
            "ours ms, predicted": ours.cell.ms,
            "quicker %, predicted": reduction(ours.cell.ms, tuned.cell.ms),
            "quicker %, executed": _reduction(ours.stages_ms, tuned.stages_ms),
            "quicker %, executed, with hand-overs": _reduction(ours.executed_ms, tuned.executed_ms),
            "over the bound of any plan": ours.cell.ms / (1e3 * ours.scheme_plan.lower_bound_s),
            "over that of fork-join schedules": ours.over_bound,
            "partitions": ours.cell.partitions,
            "in parallel": ours.scheme_plan.overlapping,
        }


def reduction(after: float, before: float) -> float:
    """The paper's improvement rate in percent, Equation 1."""
    return 100 * (before - after) / before


def _reduction(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else reduction(after, before)


def _by_case(results: Results) -> list[Results]:
    """Results in the order of the paper's networks."""
    order = list(NETWORKS)
    groups: dict[tuple[int, bool], list[Planned]] = {}
    for result in results:
        groups.setdefault((order.index(result.case.network), result.case.form == SUNK), []).append(result)
    return [groups[key] for key in sorted(groups)]
