"""Statements of the paper (`claims.md`) beside our results: whether they repeat, and if not, the likely reason.

Times are judged by predictions for the board alone: hand-overs are this host's, and are in columns of their own,
assumed and measured. Counts are of plans. Beside each figure is its range over all sets of numbers that satisfy the
cells to which the board was fitted (`held`). A statement that mixes fitted and other cells is split in two. Statements
about networks or schemes that were not planned are left out.

Trained weights of the networks of Figure 7 are not available: with random ones, cosines to floating point stand for
accuracy. One trained network, a reader of text, is not the paper's, but its accuracy is known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar

from benchmarks.partitiontuner.board import NETWORKS, Cell
from benchmarks.partitiontuner.cases import GIVEN, OURS, SUNK, TITLES
from benchmarks.partitiontuner.numbers import FITTED
from benchmarks.partitiontuner.tables import ON_NPU, Results, reduction
from benchmarks.report.page import Claims, Kind, Repeats, Statement, each, holds
from benchmarks.report.results import Row, number
from shisha_rt.planner.strategies import SchemeName

POINTS: Final = 1.0
"""Percentages that differ by at most this are the same; by at most five times this, nearly the same."""
CLAIMS: Final = Claims.beside(
    __file__, "ours", "over all number sets", "with hand-overs as told", "executed, with this host's"
)
"""Times of the first column are for the board alone."""
_SAME: Final = 1e-9
_NEAR_SIZE: Final = 0.05

Key = tuple[str, SchemeName]
"""A network and a scheme."""
Cells = Mapping[Key, Cell]
Figures = Sequence[float]
Written = Callable[[Figures], str]
_Item = TypeVar("_Item", str, Key)


@dataclass(frozen=True, slots=True)
class Found:
    """All results of one form. `sets`: cells by each other set of numbers. `predicted`, `executed`: with hand-overs in
    their times, predicted and measured. `over_bound`: of our schedule, by network.
    """

    form: str
    cells: Cells
    sets: Sequence[Cells] = ()
    predicted: Cells = field(default_factory=dict)
    executed: Cells = field(default_factory=dict)
    over_bound: Mapping[str, float] = field(default_factory=dict)

    def of(self, networks: Iterable[str], *schemes: SchemeName) -> list[str]:
        """The networks with cells of all these schemes."""
        return [network for network in networks if all((network, scheme) in self.cells for scheme in schemes)]


def found_of(results: Results, form: str, sets: Sequence[Cells] = ()) -> Found:
    cells = {(result.case.network, result.scheme): result.cell for result in results}
    predicted_ms = {(result.case.network, result.scheme): result.predicted_ms for result in results}
    executed_ms = {
        (result.case.network, result.scheme): result.executed_ms for result in results if result.executed_ms is not None
    }
    return Found(
        form,
        cells,
        sets,
        {key: replace(cells[key], ms=ms) for key, ms in predicted_ms.items()},
        {key: replace(cells[key], ms=ms) for key, ms in executed_ms.items()},
        {result.case.network: result.over_bound for result in results if result.scheme == OURS},
    )


def size_statements(sizes_mb: Mapping[str, float]) -> Iterator[Statement]:
    """Table 2: whether sizes of files are the paper's. `sizes_mb`: of ours, by network."""
    near = {network: abs(mb / NETWORKS[network].size_mb - 1) <= _NEAR_SIZE for network, mb in sizes_mb.items()}
    if near:
        missed = [network for network, held in near.items() if not held]
        yield CLAIMS.stated(
            "sizes",
            f"{', '.join(f'{mb:.0f}' for mb in sizes_mb.values())} (within 5%: all{_but(missed)})",
            each(near.values()),
            titles=_titles(sizes_mb),
            paper=", ".join(str(NETWORKS[network].size_mb) for network in sizes_mb),
        )


def statements(findings: Found) -> list[Statement]:
    return [
        *_gains(findings),
        *_held(findings, _ORDERS),
        *_reductions(findings),
        *_counts(findings),
        *_held(findings, _PLANS),
        *_optimum(findings),
    ]


# --- one statement ----------------------------------------------------------------------------------------------------


def _span(over: Sequence[Figures], written: Written) -> str:
    """Range of each figure."""
    if not over:
        return ""
    low, high = (written([pick(column) for column in zip(*over, strict=True)]) for pick in (min, max))
    return low if low == high else f"{low} to {high}"


def _spans(over: Sequence[Figures], _: Written) -> str:
    """Ranges, one by one."""
    each_over = ([[figure] for figure in column] for column in zip(*over, strict=True))
    return ", ".join(_span(column, lambda figures: f"{figures[0]:g}") for column in each_over)


def _together(over: Sequence[Figures], written: Written) -> str:
    """Range over all figures, if these are written as a range themselves."""
    return written([figure for figures in over for figure in figures]) if over else ""


def _stated(
    findings: Found,
    key: str,
    keys: Collection[Key],
    of: Callable[[Cells], Figures],
    written: Written,
    judged: Callable[[Figures], Repeats],
    *,
    kind: Kind = "predicted",
    span: Callable[[Sequence[Figures], Written], str] = _span,
    timed: bool = True,
    **fields: object,
) -> Statement:
    """A statement about figures that `of` makes of the cells at `keys`. `timed`: hand-overs count in them.

    `span`: writes the figures over all sets of numbers.
    """
    ours, wanted = of(findings.cells), set(keys)
    over = [of(cells) for cells in findings.sets if cells.keys() >= wanted]
    others = (findings.predicted, findings.executed) if timed else ()
    with_handovers = [written(of(cells)) if cells.keys() >= wanted else "" for cells in others]
    texts = written(ours), span(over, written), *with_handovers
    return CLAIMS.stated(key, texts, judged(ours), kind, **fields)


def _held(findings: Found, table: Sequence[_Holding]) -> Iterator[Statement]:
    """Statements that something holds for the schemes' cells of each network: figures are 1 or 0. Those on times are
    apart for networks whose cells were fitted.
    """
    for key, networks, schemes, test, timed in table:
        known = findings.of(networks, *schemes)
        fitted = [
            network for network in known if timed and all(network in FITTED.get(scheme, ()) for scheme in schemes)
        ]
        for kind, own in _apart(known, fitted, "fitted"):
            yield _stated(
                findings,
                key,
                [(network, scheme) for network in own for scheme in schemes],
                partial(_holding, own, schemes, test),
                partial(_how_many, own),
                lambda figures: each(map(bool, figures)),
                kind=kind,
                timed=timed,
                titles=_titles(own),
                count=len(own),
            )


def _holding(networks: Sequence[str], schemes: Sequence[SchemeName], test: _Test, cells: Cells) -> Figures:
    return [float(test(*(cells[network, scheme] for scheme in schemes))) for network in networks]


def _apart(items: Sequence[_Item], others: Sequence[_Item], kind: Kind) -> Iterator[tuple[Kind, Sequence[_Item]]]:
    """Those of `items` that are predicted, then the `others`, of another kind; a kind without any is left out."""
    if predicted := [item for item in items if item not in others]:
        yield "predicted", predicted
    if others:
        yield kind, others


def _how_many(networks: Sequence[str], held: Figures) -> str:
    """For how many networks something holds, and for which it does not."""
    missed = [network for network, holds in zip(networks, held, strict=True) if not holds]
    return f"{sum(map(int, held))} of {len(held)}{_but(missed)}"


def _but(missed: Sequence[str]) -> str:
    return f" (not {_titles(missed)})" if missed else ""


def _titles(networks: Iterable[str]) -> str:
    return ", ".join(NETWORKS[network].title for network in networks)


# --- times ------------------------------------------------------------------------------------------------------------

_GAINS: Final[Sequence[tuple[str, SchemeName, float]]] = (
    ("squeezenet", "typeseq", 5.03),
    ("resnet50", "opseq", 7.18),
    ("resnet18", "opseq", 5.36),
    ("squeezenet", "opseq", 2.73),
)


def _gains(findings: Found) -> Iterator[Statement]:
    """Section 4.3: how much faster PartitionTuner is than another scheme."""
    for network, rival, paper in _GAINS:
        if findings.of([network], rival, "partitiontuner"):
            pair: Sequence[Key] = [(network, rival), (network, "partitiontuner")]
            yield _stated(
                findings,
                "gain",
                pair,
                partial(_reduced, [pair]),
                lambda figures: f"{figures[0]:.2f}%",
                partial(_is_near, paper),
                kind="fitted" if all(_is_fitted(findings, key) for key in pair) else "predicted",
                network=NETWORKS[network].title,
                rival=TITLES[rival],
                paper=paper,
            )


def _is_fitted(findings: Found, key: Key) -> bool:
    """Whether a cell was fitted, or is of the same schedule as one that was: by their times."""
    network, _ = key
    of_fitted = (findings.cells.get((network, scheme)) for scheme, networks in FITTED.items() if network in networks)
    return any(cell is not None and abs(cell.ms - findings.cells[key].ms) <= _SAME for cell in of_fitted)


def _reduced(pairs: Sequence[Sequence[Key]], cells: Cells) -> Figures:
    """Reductions of times in percent, from the first key of each pair to the second."""
    return [reduction(cells[after].ms, cells[before].ms) for before, after in pairs]


def _is_near(paper: float, figures: Figures) -> Repeats:
    off = abs(figures[0] - paper)
    return "yes" if off <= POINTS else "nearly" if off <= 5 * POINTS and figures[0] > 0 else "no"


_Test = Callable[..., bool]
_Holding = tuple[str, Sequence[str], Sequence[SchemeName], _Test, bool]
"""A key, networks, schemes, what is to hold for the schemes' cells of a network, and whether that is about times."""
_ORDERS: Final[Sequence[_Holding]] = (
    (
        "OpSeq slower",
        ("zfnet512", "alexnet", "inception_v1", "resnet50", "resnet18"),
        ("opseq", "typeseq"),
        lambda opseq, typeseq: opseq.ms > typeseq.ms,
        True,
    ),
    ("OpSeq quicker", ("resnext50", "squeezenet"), ("opseq", "typeseq"), lambda cell, other: cell.ms < other.ms, True),
    (
        "PartitionTuner quicker",
        ("resnet50", "resnext50", "resnet18", "squeezenet"),
        ("partitiontuner", "typeseq"),
        lambda tuned, typeseq: tuned.ms < typeseq.ms - _SAME,
        True,
    ),
    (
        "PartitionTuner no slower",
        tuple(NETWORKS),
        ("partitiontuner", "typeseq", "opseq"),
        lambda tuned, *others: tuned.ms <= min(cell.ms for cell in others) + _SAME,
        True,
    ),
)
"""Which scheme is faster than which, network by network."""


def _reductions(findings: Found) -> Iterator[Statement]:
    """Figure 6. The CPU alone was fitted for all networks, so the other scheme decides whether a figure is fitted."""
    for key, networks, least, most in (
        ("reduction, most", [network for network in NETWORKS if network != "alexnet"], 30, 100),
        ("reduction, AlexNet", ["alexnet"], 0, 30),
        ("reduction, ResNets", ["resnet50", "resnet18"], 75, 85),
    ):
        keys = [
            (network, scheme) for network in networks for scheme in ON_NPU if findings.of([network], "baseline", scheme)
        ]
        fitted = [key for key in keys if _is_fitted(findings, key)]
        for kind, own in _apart(keys, fitted, "fitted"):
            pairs: list[tuple[Key, Key]] = [((network, "baseline"), (network, scheme)) for network, scheme in own]
            yield _stated(
                findings,
                key,
                [member for pair in pairs for member in pair],
                partial(_reduced, pairs),
                lambda figures: f"{min(figures):.1f} to {max(figures):.1f}%",
                partial(_are_between, least, most),
                kind=kind,
                span=_together,
                which=", schedules of ResNet-50 and SqueezeNet that were fitted" if kind == "fitted" else "",
            )


def _are_between(least: float, most: float, figures: Figures) -> Repeats:
    return each(least < figure < most for figure in figures)


# --- counts -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Counted:
    """A column of Tables 3 and 4: `counts`, of a cell of ours and of the paper. `made_from`: networks from whose cells
    we inferred a rule, and in which form.
    """

    counts: str
    scheme: SchemeName
    made_from: Sequence[str] = ()
    forms: Sequence[str] = (SUNK, GIVEN)

    def paper(self, network: str) -> int:
        counts = getattr(NETWORKS[network], self.counts)
        return int(counts[ON_NPU.index(self.scheme)] if isinstance(counts, tuple) else counts)

    def ours(self, networks: Sequence[str], cells: Cells) -> list[int]:
        return [int(getattr(cells[network, self.scheme], self.counts)) for network in networks]


_COUNTED: Final = (
    _Counted("parallel_branches", "partitiontuner", made_from=tuple(NETWORKS)),
    _Counted("convs_on_npu", "typeseq", made_from=tuple(NETWORKS)),
    _Counted("convs_on_npu", "opseq"),
    _Counted("convs_on_npu", "partitiontuner"),
    # Their counts imply that Relus are sunk.
    _Counted("relus_on_npu", "typeseq", made_from=("inception_v1", "squeezenet"), forms=(SUNK,)),
    _Counted("relus_on_npu", "opseq"),
    _Counted("relus_on_npu", "partitiontuner"),
    _Counted("overlapping", "partitiontuner"),
    _Counted("partitions", "typeseq"),
    _Counted("partitions", "opseq"),
    _Counted("partitions", "partitiontuner"),
)


def _counts(findings: Found) -> Iterator[Statement]:
    """Tables 3 and 4. A row repeats to the extent that its networks do."""
    for column in _COUNTED:
        known = findings.of(NETWORKS, column.scheme)
        made = [network for network in known if network in column.made_from and findings.form in column.forms]
        for kind, networks in _apart(known, made, "by construction"):
            paper = [column.paper(network) for network in networks]
            yield _stated(
                findings,
                f"{column.counts}, {column.scheme}",
                [(network, column.scheme) for network in networks],
                partial(column.ours, networks),
                partial(_beside_counts, paper),
                partial(_are_equal, paper),
                kind=kind,
                span=_spans,
                timed=False,
                titles=_titles(networks),
                paper=", ".join(map(str, paper)),
            )


def _beside_counts(paper: Figures, ours: Figures) -> str:
    held = sum(figure == other for figure, other in zip(ours, paper, strict=True))
    return f"{', '.join(map(str, ours))} ({held} of {len(ours)})"


def _are_equal(paper: Figures, ours: Figures) -> Repeats:
    return each(figure == other for figure, other in zip(ours, paper, strict=True))


_AHEAD: Final = ("resnet18", "squeezenet")
_PLANS: Final[Sequence[_Holding]] = (
    (
        "TypeSeq's schedule",
        ("zfnet512", "alexnet", "inception_v1"),
        ("partitiontuner", "typeseq"),
        lambda tuned, typeseq: tuned.plan == typeseq.plan,
        False,
    ),
    (
        "more partitions",
        ("zfnet512", "inception_v1", "resnet50", "resnet18"),
        ("opseq", "typeseq"),
        lambda opseq, typeseq: opseq.partitions > typeseq.partitions,
        False,
    ),
    # Beyond the paper: aims of our own schedule.
    ("never behind", tuple(NETWORKS), (OURS, "partitiontuner"), lambda own, tuned: own.ms <= tuned.ms + _SAME, True),
    ("ahead", _AHEAD, (OURS, "partitiontuner"), lambda own, tuned: own.ms < tuned.ms - _SAME, True),
)
"""How the plans of two schemes compare, network by network."""


def _optimum(findings: Found) -> Iterator[Statement]:
    """An aim of ours: elsewhere our schedule is a proven optimum."""
    others = [network for network in findings.of(NETWORKS, OURS) if network not in _AHEAD]
    over = [findings.over_bound[network] for network in others if network in findings.over_bound]
    if over:
        held = [ratio <= 1 + _SAME for ratio in over]
        ours = f"{_how_many(others, held)}; over the bound by at most {max(over):.3f}"
        yield CLAIMS.stated("optimum", ours, each(held), count=len(others))


# --- accuracy ---------------------------------------------------------------------------------------------------------


def accuracy_statements(rows: Sequence[Row]) -> Iterator[Statement]:
    """Statements from Figure 7's rows, all of one form. Schemes with equally many Convs on the NPU are not compared."""
    by_network = {name: [row for row in rows if row["network"] == name] for name in {row["network"] for row in rows}}
    if pairs := [held for own in by_network.values() for held in _pairs(own, "cosine")]:
        yield CLAIMS.stated("exact, pairs", f"{sum(pairs)} of {len(pairs)}", each(pairs))
    squeezenet = by_network.get(NETWORKS["squeezenet"].title, [])
    typeseq = [row for row in squeezenet if row["scheme"] == TITLES["typeseq"]]
    others = [number(row, "cosine") for row in squeezenet if row not in typeseq]
    if typeseq and others:
        own = number(typeseq[0], "cosine")
        ours = f"cosine {own:.4f}, others {min(others):.4f} to {max(others):.4f}"
        yield CLAIMS.stated("exact, TypeSeq", ours, holds(own < min(others)))


def reader_statements(rows: Sequence[Row]) -> Iterator[Statement]:
    right = {str(row["scheme"]): int(str(row["lines right"])) for row in rows}
    alone = right.get(TITLES["baseline"])
    if alone is None:
        return
    others = {scheme: count for scheme, count in right.items() if scheme != TITLES["baseline"]}
    listed = ", ".join(f"{scheme} {count}" for scheme, count in others.items())
    ours = f"{alone} of {rows[0]['lines']} lines right, others {listed}"
    yield CLAIMS.stated("reader, lower", ours, each(count < alone for count in others.values()))
    if pairs := list(_pairs(rows, "lines right")):
        yield CLAIMS.stated("reader, pairs", f"{sum(pairs)} of {len(pairs)}", each(pairs))


def _pairs(rows: Sequence[Row], column: str) -> Iterator[bool]:
    for more in rows:
        for fewer in rows:
            if number(more, "Convs on NPU") > number(fewer, "Convs on NPU"):
                yield number(more, column) <= number(fewer, column)
