"""Statements of the paper beside our results: whether they repeat, and if not, the likely reason.

Times are judged by predictions for the board alone: hand-overs are this host's, and are in columns of their own,
assumed and measured. Counts are of plans. Beside each figure is its range over all sets of numbers that satisfy the
cells to which the board was fitted (`held`). A statement that mixes fitted and other cells is split in two. Statements
about networks or schemes that were not planned are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from benchmarks.partitiontuner.board import Cell
from benchmarks.partitiontuner.cases import GIVEN, OURS, SUNK, TITLES
from benchmarks.partitiontuner.numbers import FITTED
from benchmarks.partitiontuner.published import NETWORKS
from benchmarks.partitiontuner.tables import ON_NPU, Results, reduction
from benchmarks.report.statements import OURS as AIM
from benchmarks.report.statements import Kind, Repeats, Statement, each
from shisha_rt.planner.strategies import SchemeName

POINTS: Final = 1.0
"""Percentages that differ by at most this are the same; by at most five times this, nearly the same."""
_SAME: Final = 1e-9
_NEAR_SIZE: Final = 0.05

Key = tuple[str, SchemeName]
"""A network and a scheme."""
Cells = Mapping[Key, Cell]
Times = Mapping[Key, float]
"""Milliseconds."""
Figures = Sequence[float]
_Item = TypeVar("_Item", str, Key)


@dataclass(frozen=True, slots=True)
class Found:
    """All results of one form. `sets`: cells by each other set of numbers. `told_ms` (predicted), `executed_ms`: with
    hand-overs. `over_bound`: of our schedule, by network.
    """

    form: str
    cells: Cells
    sets: Sequence[Cells] = ()
    told_ms: Times = field(default_factory=dict)
    executed_ms: Times = field(default_factory=dict)
    over_bound: Mapping[str, float] = field(default_factory=dict)

    def has(self, network: str, schemes: Iterable[SchemeName]) -> bool:
        return all((network, scheme) in self.cells for scheme in schemes)

    def of(self, networks: Iterable[str], *schemes: SchemeName) -> list[str]:
        return [network for network in networks if self.has(network, schemes)]


def found_of(results: Results, form: str, sets: Sequence[Cells] = ()) -> Found:
    """Collect results that are all of one form (`tables.of_form`)."""
    return Found(
        form,
        {(one.network, one.scheme): one.planned.cell for one in results},
        sets,
        {(one.network, one.scheme): one.predicted_ms for one in results},
        {(one.network, one.scheme): one.executed_ms for one in results if one.executed_ms is not None},
        {one.network: one.planned.over_bound for one in results if one.scheme == OURS},
    )


def size_statements(sizes_mb: Mapping[str, float]) -> Iterator[Statement]:
    """Table 2: whether sizes of files are the paper's. `sizes_mb`: of ours, by network."""
    near = {network: abs(mb / NETWORKS[network].size_mb - 1) <= _NEAR_SIZE for network, mb in sizes_mb.items()}
    if near:
        missed = [NETWORKS[network].title for network, held in near.items() if not held]
        yield Statement(
            "Table 2",
            f"size of the file, MB: {', '.join(NETWORKS[network].title for network in sizes_mb)}",
            ", ".join(str(NETWORKS[network].size_mb) for network in sizes_mb),
            columns(f"{', '.join(f'{mb:.0f}' for mb in sizes_mb.values())} (within 5%: all{_but(missed)})"),
            "measured",
            each(near.values()),
            "perhaps another network than the ONNX zoo's Inception v1, of 28 MB: that would explain its times, too",
        )


def statements(found: Found) -> list[Statement]:
    return [one for part in (_gains, _orders, _reductions, _counts, _pairs, _aims) for one in part(found)]


def _fitted(network: str, scheme: SchemeName) -> bool:
    return network in FITTED.get(scheme, ())


def _apart(items: Sequence[_Item], others: Sequence[_Item], kind: Kind) -> Iterator[tuple[Kind, Sequence[_Item]]]:
    """Those of `items` that are predicted, then the `others`, of another kind; a kind without any is left out."""
    if predicted := [item for item in items if item not in others]:
        yield "predicted", predicted
    if others:
        yield kind, others


# --- times ------------------------------------------------------------------------------------------------------------

_Of = Callable[[Times], Figures]


def _timed(
    found: Found,
    where: str,
    what: str,
    paper: str,
    kind: Kind,
    keys: Iterable[Key],
    of: _Of,
    written: Callable[[Figures], str],
    judged: Callable[[Figures], Repeats],
    reason: str,
    span: Callable[[Sequence[Figures], Callable[[Figures], str]], str] | None = None,
) -> Statement:
    """A statement about the times at `keys`, of which `of` makes figures."""
    its = list(keys)
    ours = of({key: found.cells[key].ms for key in its})
    over = [of({key: cells[key].ms for key in its}) for cells in found.sets if cells.keys() >= set(its)]
    with_handovers = [written(of(ms)) if ms.keys() >= set(its) else "" for ms in (found.told_ms, found.executed_ms)]
    return Statement(
        where,
        what,
        paper,
        columns(written(ours), (span or _span)(over, written), *with_handovers),
        kind,
        judged(ours),
        reason,
    )


def columns(ours: str, over_sets: str = "", told: str = "", executed: str = "") -> dict[str, str]:
    """Columns of a statement; times of `ours` are for the board alone."""
    return {
        "ours": ours,
        "over all number sets": over_sets,
        "with hand-overs as told": told,
        "executed, with this host's": executed,
    }


def _span(over: Sequence[Figures], written: Callable[[Figures], str]) -> str:
    """Range of each figure."""
    if not over:
        return ""
    low, high = (written([pick(column) for column in zip(*over, strict=True)]) for pick in (min, max))
    return low if low == high else f"{low} to {high}"


def _together(over: Sequence[Figures], written: Callable[[Figures], str]) -> str:
    """Range over all figures, if these are written as a range themselves."""
    return written([figure for figures in over for figure in figures]) if over else ""


_GAINS: Final[Sequence[tuple[str, SchemeName, float]]] = (
    ("squeezenet", "typeseq", 5.03),
    ("resnet50", "opseq", 7.18),
    ("resnet18", "opseq", 5.36),
    ("squeezenet", "opseq", 2.73),
)
_FITTED_RIVAL: Final = (
    "which operators are better off on the CPU follows from costs of single operators, which the paper does not print, "
    "and which the fitted cells do not fix: see the span"
)


def _gains(found: Found) -> Iterator[Statement]:
    """Section 4.3: how much faster PartitionTuner is than another scheme."""
    for network, rival, paper in _GAINS:
        if not found.has(network, (rival, "partitiontuner")):
            continue

        def of(ms: Times, network: str = network, rival: SchemeName = rival) -> Figures:
            return [reduction(ms[network, "partitiontuner"], ms[network, rival])]

        def judged(figures: Figures, paper: float = paper) -> Repeats:
            off = abs(figures[0] - paper)
            return "yes" if off <= POINTS else "nearly" if off <= 5 * POINTS and figures[0] > 0 else "no"

        yield _timed(
            found,
            "Section 4.3",
            f"{NETWORKS[network].title}: PartitionTuner is quicker than {TITLES[rival]} by",
            f"{paper:.2f}%",
            "predicted",
            [(network, rival), (network, "partitiontuner")],
            of,
            lambda figures: f"{figures[0]:.2f}%",
            judged,
            _FITTED_RIVAL,
        )


_HARDLY: Final = "in the paper by 0.02 to 0.3% of the time on ZFNet and AlexNet"
_NEARLY: Final = "in the paper by 0.2% on ResNeXt-50: a matter of few operators, whose costs are not printed"
_SUM: Final = (
    "in the paper by 0.2% on the ResNets and 0.8% on ResNeXt-50; with these numbers TypeSeq's places have the least "
    "sum of costs, so that PartitionTuner chooses the same"
)
_OTHER_COSTS: Final = (
    "it decides by costs with all transfers in them, which within a partition fall away; so the least sum of those "
    "need not be the least time"
)
_ORDERS: Final[Sequence[tuple[str, Sequence[str], Sequence[SchemeName], Callable[[Figures], bool], str]]] = (
    (
        "OpSeq is slower than TypeSeq",
        ("zfnet512", "alexnet", "inception_v1", "resnet50", "resnet18"),
        ("opseq", "typeseq"),
        lambda ms: ms[0] > ms[1],
        _HARDLY,
    ),
    (
        "OpSeq is quicker than TypeSeq",
        ("resnext50", "squeezenet"),
        ("opseq", "typeseq"),
        lambda ms: ms[0] < ms[1],
        _NEARLY,
    ),
    (
        "PartitionTuner is quicker than TypeSeq",
        ("resnet50", "resnext50", "resnet18", "squeezenet"),
        ("partitiontuner", "typeseq"),
        lambda ms: ms[0] < ms[1] - _SAME,
        _SUM,
    ),
    (
        "PartitionTuner is no slower than TypeSeq and OpSeq",
        tuple(NETWORKS),
        ("partitiontuner", "typeseq", "opseq"),
        lambda ms: ms[0] <= min(ms[1:]) + _SAME,
        _OTHER_COSTS,
    ),
)
"""Which scheme is faster than which, network by network."""


def _orders(found: Found) -> Iterator[Statement]:
    for what, networks, schemes, holds, reason in _ORDERS:
        its = found.of(networks, *schemes)
        fitted = [network for network in its if all(_fitted(network, scheme) for scheme in schemes)]
        for kind, own in _apart(its, fitted, "fitted"):
            yield _held(found, "Section 4.3", what, kind, own, schemes, holds, reason)


def _held(
    found: Found,
    where: str,
    what: str,
    kind: Kind,
    networks: Sequence[str],
    schemes: Sequence[SchemeName],
    holds: Callable[[Figures], bool],
    reason: str,
) -> Statement:
    """A statement that something holds for the times of each of some networks: figures are 1 or 0."""
    titles = [NETWORKS[network].title for network in networks]

    def of(ms: Times) -> Figures:
        return [float(holds([ms[network, scheme] for scheme in schemes])) for network in networks]

    return _timed(
        found,
        where,
        f"{what}: {', '.join(titles)}",
        f"{len(networks)} of {len(networks)}",
        kind,
        [(network, scheme) for network in networks for scheme in schemes],
        of,
        partial(_how_many, titles),
        lambda figures: each(map(bool, figures)),
        reason,
    )


def _how_many(titles: Sequence[str], held: Figures) -> str:
    """For how many networks something holds, and for which it does not."""
    missed = [title for title, holds in zip(titles, held, strict=True) if not holds]
    return f"{sum(map(int, held))} of {len(held)}{_but(missed)}"


def _but(missed: Sequence[str]) -> str:
    return f" (not {', '.join(missed)})" if missed else ""


def _reductions(found: Found) -> Iterator[Statement]:
    """Figure 6. The CPU alone was fitted for all networks, so the other scheme decides whether a figure is fitted."""
    others = [network for network in NETWORKS if network != "alexnet"]
    for what, paper, networks, least, most in (
        ("over 30% quicker than the CPU alone, all but AlexNet", "> 30%", others, 30, 100),
        ("AlexNet: quicker than the CPU alone by less", "5.7%", ["alexnet"], 0, 30),
        ("the ResNets: quicker than the CPU alone by about", "80%", ["resnet50", "resnet18"], 75, 85),
    ):
        schemes: Sequence[SchemeName] = ("typeseq", "opseq", "partitiontuner")
        keys = [
            (network, scheme) for network in networks for scheme in schemes if found.has(network, ("baseline", scheme))
        ]
        for kind, own in _apart(keys, [key for key in keys if _fitted(*key)], "fitted"):
            yield _timed(
                found,
                "Figure 6",
                what + (", TypeSeq and OpSeq of ResNet-50 and SqueezeNet" if kind == "fitted" else ""),
                paper,
                kind,
                [*own, *((network, "baseline") for network, _ in own)],
                lambda ms, own=own: [reduction(ms[key], ms[key[0], "baseline"]) for key in own],  # type: ignore[misc]
                lambda figures: f"{min(figures):.1f} to {max(figures):.1f}%",
                lambda figures, least=least, most=most: each(least < one < most for one in figures),  # type: ignore[misc]
                "times of single operators are not printed; only whole networks were fitted",
                _together,
            )


# --- counts -----------------------------------------------------------------------------------------------------------

_BOTH: Final = "which operators gain by being in which place follows from costs that the paper does not print"
_ORDER: Final = "the order in which the paper's compiler runs operators is not known"
_RELUS: Final = (
    "TypeSeq's Relus after an Add count in the paper, which ours cannot tell from others; ZFNet's 6 fit neither its 4 "
    "Convs nor its 5 partitions"
)


@dataclass(frozen=True, slots=True)
class _Counted:
    """A column of Tables 3 and 4: `counts`, of a cell of ours and of the paper. `made_from`: networks from whose cells
    we inferred a rule, and in which form.
    """

    where: str
    what: str
    scheme: SchemeName
    counts: str
    reason: str = _BOTH
    made_from: Sequence[str] = ()
    forms: Sequence[str] = (SUNK, GIVEN)

    def paper(self, network: str) -> int:
        counts = getattr(NETWORKS[network], self.counts)
        return int(counts[ON_NPU.index(self.scheme)] if isinstance(counts, tuple) else counts)

    def ours(self, cell: Cell) -> int:
        return int(getattr(cell, self.counts))


_ALL: Final = tuple(NETWORKS)
_BRANCHES: Final = "parallel branches (that an empty shortcut is none was read off it)"
_GROUPED: Final = "Conv on the NPU, TypeSeq (that none in groups is there was read off it)"
_CHOICE: Final = _BOTH + "; and it does not say how it chooses between branches that could"
_SUNK_BY: Final = ("inception_v1", "squeezenet")
"""Networks whose counts imply that Relus are sunk."""
_COUNTED: Final = (
    _Counted("Table 3", _BRANCHES, "partitiontuner", "parallel_branches", made_from=_ALL),
    _Counted("Table 3", _GROUPED, "typeseq", "convs_on_npu", made_from=_ALL),
    _Counted("Table 3", "Conv on the NPU, OpSeq", "opseq", "convs_on_npu"),
    _Counted("Table 3", "Conv on the NPU, PartitionTuner", "partitiontuner", "convs_on_npu"),
    _Counted("Table 3", "Relu on the NPU, TypeSeq", "typeseq", "relus_on_npu", _RELUS, _SUNK_BY, (SUNK,)),
    _Counted("Table 3", "Relu on the NPU, OpSeq", "opseq", "relus_on_npu"),
    _Counted("Table 3", "Relu on the NPU, PartitionTuner", "partitiontuner", "relus_on_npu"),
    _Counted("Table 3", "partitions run in parallel, PartitionTuner", "partitiontuner", "overlapping", _CHOICE),
    _Counted("Table 4", "partitions, TypeSeq", "typeseq", "partitions", _ORDER),
    _Counted("Table 4", "partitions, OpSeq", "opseq", "partitions", f"{_ORDER}; {_BOTH}"),
    _Counted("Table 4", "partitions, PartitionTuner", "partitiontuner", "partitions", f"{_ORDER}; {_BOTH}"),
)


def _counts(found: Found) -> Iterator[Statement]:
    """Tables 3 and 4. A row repeats to the extent that its networks do."""
    for its in _COUNTED:
        known = found.of(NETWORKS, its.scheme)
        made = [network for network in known if network in its.made_from and found.form in its.forms]
        for kind, networks in _apart(known, made, "by construction"):
            yield _count(found, its, kind, networks)


def _count(found: Found, its: _Counted, kind: Kind, networks: Sequence[str]) -> Statement:
    paper = [its.paper(network) for network in networks]
    ours = [its.ours(found.cells[network, its.scheme]) for network in networks]
    over = [
        [its.ours(cells[network, its.scheme]) for network in networks]
        for cells in found.sets
        if all((network, its.scheme) in cells for network in networks)
    ]
    held = [one == other for one, other in zip(ours, paper, strict=True)]
    spans = (_span([[one] for one in column], lambda figures: f"{figures[0]:g}") for column in zip(*over, strict=True))
    return Statement(
        its.where,
        f"{its.what}: {', '.join(NETWORKS[network].title for network in networks)}",
        ", ".join(map(str, paper)),
        columns(f"{', '.join(map(str, ours))} ({sum(held)} of {len(held)})", ", ".join(spans)),
        kind,
        each(held),
        its.reason,
    )


_PAIRED: Final[Sequence[tuple[str, str, Sequence[str], SchemeName, SchemeName, Callable[[Cell, Cell], bool], str]]] = (
    (
        "Section 4.3",
        "PartitionTuner makes TypeSeq's schedule",
        ("zfnet512", "alexnet", "inception_v1"),
        "partitiontuner",
        "typeseq",
        lambda ours, other: ours.plan == other.plan,
        "with these numbers some branches of GoogLeNet are quicker on the CPU; its times do not come out either",
    ),
    (
        "Table 4",
        "OpSeq has more partitions than TypeSeq",
        ("zfnet512", "inception_v1", "resnet50", "resnet18"),
        "opseq",
        "typeseq",
        lambda ours, other: ours.partitions > other.partitions,
        _BOTH,
    ),
)


def _pairs(found: Found) -> Iterator[Statement]:
    """How the plans of two schemes compare, network by network."""
    for where, what, networks, scheme, other, holds, reason in _PAIRED:
        its = found.of(networks, scheme, other)
        if not its:
            continue
        titles = [NETWORKS[network].title for network in its]

        def of(cells: Cells, its: Sequence[str] = its) -> Figures:
            return [float(holds(cells[network, scheme], cells[network, other])) for network in its]  # noqa: B023

        written = partial(_how_many, titles)
        ours = of(found.cells)
        over = [of(cells) for cells in found.sets if all(cells.keys() >= {(n, scheme), (n, other)} for n in its)]
        yield Statement(
            where,
            f"{what}: {', '.join(titles)}",
            f"{len(its)} of {len(its)}",
            columns(written(ours), _span(over, written)),
            "predicted",
            each(map(bool, ours)),
            reason,
        )


# --- ours -------------------------------------------------------------------------------------------------------------

_AS_GOOD: Final = "PartitionTuner's own schedule is the best that was found, too"


def _aims(found: Found) -> Iterator[Statement]:
    """Beyond the paper: aims of our own schedule."""
    schemes: Sequence[SchemeName] = (OURS, "partitiontuner")
    ahead = ("resnet18", "squeezenet")
    for what, networks, holds in (
        ("never behind PartitionTuner", tuple(NETWORKS), lambda ms: ms[0] <= ms[1] + _SAME),
        ("ahead of it", ahead, lambda ms: ms[0] < ms[1] - _SAME),
    ):
        its = found.of(networks, *schemes)
        if its:
            yield _held(found, AIM, what, "predicted", its, schemes, holds, _AS_GOOD)
    others = [network for network in found.of(NETWORKS, OURS) if network not in ahead]
    over = [found.over_bound[network] for network in others if network in found.over_bound]
    if over:
        held = _how_many([NETWORKS[network].title for network in others], [ratio <= 1 + _SAME for ratio in over])
        yield Statement(
            AIM,
            "elsewhere a proven optimum of fork-join schedules",
            f"{len(others)} of {len(others)}",
            columns(f"{held}; over the bound by at most {max(over):.3f}"),
            "predicted",
            each(one <= 1 + _SAME for one in over),
            "where tensors of several branches move, the bound leaves that out: nobody knows which of the two is off",
        )
