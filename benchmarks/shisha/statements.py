"""Statements of the paper beside our results, with the likely reason where they differ.

A figure repeats if it is within 15% of the paper's (a difference: within 5 points), or on the stated side of it; nearly
the optimum means within 3% of it. Fractions are counted as in the paper: with fixed places, and with plans that Shisha
would measure again.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Final

from benchmarks.report.page import Claims, Statement, each, holds
from benchmarks.report.results import Row, number, only
from benchmarks.shisha.cases import RESNET, SYNTHNET, YOLO
from benchmarks.shisha.searches import SHISHA
from shisha_rt.planner.strategies import DEFAULT_ALPHA

NEAR: Final = 0.15
AS_GOOD: Final = 0.97
_AS_GOOD: Final = "until as good, times as long"
_POINTS: Final = 0.05
_SAME: Final = 1e-3
_stated: Final = Claims.beside(__file__, "ours, simulated").stated
_RIVALS: Final = ("SA", "SA_s", "HC", "HC_s", "RW", "PS")


def statements(
    convergence: Sequence[Row],
    optimality: Sequence[Row],
    seeds: Sequence[Row],
    heuristics: Sequence[Row],
    alphas: Sequence[Row],
) -> list[Statement]:
    """From the rows of Figure 4, Figure 5, Figure 6, Figures 7 and 8, and Figure 9."""
    return [
        *convergence_statements(convergence),
        *_optimality(optimality),
        _trials(heuristics),
        *_seeds(seeds),
        *heuristic_statements(heuristics),
        *alpha_statements(alphas),
    ]


def convergence_statements(rows: Sequence[Row]) -> list[Statement]:
    own = only(rows, search=SHISHA)
    explored, reached = number(own, "explored %"), number(own, "over optimum")
    rivals = [row for row in rows if row["search"] in _RIVALS]
    stay, stay_median = (
        {search: number(only(rows, search=search), column) for search in ("SA", "SA_s", "HC", "HC_s")}
        for column in ("over optimum", "median over optimum")
    )
    kept_times, median_times = (
        fmean(number(row, column) for row in rivals) for column in ("times as long", "median times as long")
    )
    # Wall seconds of a database over virtual ones of Shisha: not comparable, but this is what the paper's figure shows.
    mixed = sum(number(row, "wall s before") for row in rivals) / len(rivals) / number(own, "virtual s to best")
    as_good = [number(row, _AS_GOOD) for row in rivals if row[_AS_GOOD] is not None]
    begun_anew = f"{fmean(as_good):.0f} times" if as_good else "never"
    within = number(own, "best with the seed's places")
    both_near = _is_near(kept_times, 35) and _is_near(median_times, 35)
    trials = f"({own['trials as in the paper']} of 19,448; {own['trials']} without repetitions)"
    return [
        _stated("best", f"{reached:.2f} of the optimum", holds(reached >= AS_GOOD), within=within),
        _stated(
            "rivals stay",
            f"best run: {_listed(stay, '.2f')}; median run: {_listed(stay_median, '.2f')}",
            each([share < (1 - _SAME) * reached for share in stay.values()]),
        ),
        _stated("explored, eight", f"{explored:.2f}% {trials}", holds(_is_near(explored, 0.12))),
        _stated(
            "longer",
            f"kept runs: {kept_times:.1f} times, median runs: {median_times:.1f} times; begun anew until as good as "
            f"Shisha: {begun_anew}, by {len(as_good)} of {len(rivals)} searches; "
            f"the wall time of Pipe-Search's database, were it virtual, would add {mixed:.1f}",
            "yes" if both_near else "partly" if kept_times > 2 else "no",
        ),
    ]


def _optimality(rows: Sequence[Row]) -> list[Statement]:
    own = {network: only(rows, network=network, search=SHISHA) for network in (SYNTHNET, RESNET, YOLO)}
    reached = {network: number(row, "over optimum") for network, row in own.items()}
    within = {network: number(row, "best with the seed's places") for network, row in own.items()}
    explored = {network: number(row, "explored %") for network, row in own.items()}
    trials = {network: int(str(row["trials as in the paper"])) for network, row in own.items()}
    large = (RESNET, YOLO)
    return [
        _stated(
            "as exhaustive",
            _listed(reached, ".2f"),
            each([share >= AS_GOOD for share in reached.values()]),
            within=_listed(within, ".2f"),
        ),
        _stated(
            "explored, large",
            _listed({network: explored[network] for network in large}, ".2f", "%"),
            # The paper prints 0.1%: one digit, so anything that rounds to it.
            each([0.05 <= explored[network] < 0.15 for network in large]),
        ),
        _stated("explored, small", f"{explored[SYNTHNET]:.1f}%", holds(_is_near(explored[SYNTHNET], 2.5))),
        _stated(
            "trials",
            ", ".join(map(str, trials.values())),
            each([_is_near(ours, paper) for ours, paper in zip(trials.values(), (17, 18, 18), strict=True)]),
        ),
    ]


def _trials(rows: Sequence[Row]) -> Statement:
    counts = [number(row, "trials to best") + DEFAULT_ALPHA for row in rows if row["heuristic"] == "H3"]
    average = fmean(counts)
    ours = f"{average:.0f} ({min(counts):.0f} to {max(counts):.0f}; H3, three networks, C1 to C6)"
    return _stated("trials, average", ours, holds(25 <= average <= 35), alpha=DEFAULT_ALPHA)


def _seeds(rows: Sequence[Row]) -> list[Statement]:
    resnet, yolo = ([row for row in rows if row["network"] == network] for network in (RESNET, YOLO))
    equal = [number(row, "from random, median") / number(row, "solution over optimum") for row in resnet]
    longer = [number(row, "from random s, median") / number(row, "virtual s to best") - 1 for row in resnet]
    better = [number(row, "solution over optimum") / number(row, "from random, median") - 1 for row in yolo]
    beyond_worst = [number(row, "solution over optimum") / number(row, "worst") - 1 for row in yolo]
    later = [number(row, "from random later %") for row in yolo]
    gains = [f"{100 * m:.0f}% (worst seed: {100 * w:.0f}%)" for m, w in zip(better, beyond_worst, strict=True)]
    return [
        _stated(
            "seeds, as good",
            _on_machines(resnet, [f"{share:.2f} of Shisha's" for share in equal]),
            each([abs(share - 1) <= 0.05 for share in equal]),
        ),
        _stated(
            "seeds, longer",
            _on_machines(resnet, [f"{100 * share:.0f}%" for share in longer]),
            "yes" if all(abs(share - 0.35) <= _POINTS for share in longer) else "partly" if min(longer) > 0 else "no",
        ),
        _stated(
            "seeds, more",
            _on_machines(yolo, gains),
            "yes" if all(abs(share - 0.16) <= _POINTS for share in better) else "partly" if min(better) > 0 else "no",
        ),
        _stated(
            "seeds, sooner",
            _on_machines(yolo, [f"{share:.0f}% of seeds" for share in later]),
            "yes" if min(later) == 100 else "partly" if min(later) > 50 else "no",
        ),
    ]


def heuristic_statements(rows: Sequence[Row]) -> list[Statement]:
    groups = {
        key: {str(row["heuristic"]): row for row in rows if (row["network"], row["machine"]) == key}
        for key in dict.fromkeys((row["network"], row["machine"]) for row in rows)
    }
    fps = [{name: number(row, "fps") for name, row in group.items()} for group in groups.values()]
    best = [max(of["H1"], of["H3"]) >= (1 - _SAME) * max(of.values()) for of in fps]
    lightest = [of[a] >= (1 - _SAME) * of[b] for of in fps for a, b in (("H1", "H2"), ("H3", "H4"), ("H5", "H6"))]
    times_s = [[number(group[name], "virtual s to best") for name in ("H1", "H3")] for group in groups.values()]
    sooner, tied = sum(h3 < h1 for h1, h3 in times_s), sum(h3 == h1 for h1, h3 in times_s)
    share = (sooner + tied) / len(times_s)
    return [
        _stated("heuristics", f"{_share(best)} (within 0.1%)", holds(fmean(best) >= 0.8 * (1 - NEAR))),
        _stated(
            "nlFEP",
            f"at least nFEP, same assignment: {_share(lightest)}",
            "yes" if all(lightest) else "partly" if fmean(lightest) > 0.5 else "no",
        ),
        _stated(
            "H3 sooner",
            f"{_percent(share)}: sooner in {sooner}, the same in {tied} of {len(times_s)}",
            holds(_is_near(share, 0.9) or share > 0.9),
        ),
    ]


def alpha_statements(rows: Sequence[Row]) -> list[Statement]:
    slowdowns = list(dict.fromkeys(row["times slower"] for row in rows))
    keys = list(dict.fromkeys((row["network"], row["machine"]) for row in rows))
    needed = [
        [
            min(
                int(str(row["alpha"]))
                for row in rows
                if (row["network"], row["machine"], row["times slower"]) == (*key, slowdown)
                and number(row, "over alpha = 100") >= 0.99
            )
            for slowdown in slowdowns
        ]
        for key in keys
    ]
    at_1 = [
        [
            number(row, "over alpha = 100")
            for row in rows
            if (row["network"], row["machine"]) == key and row["alpha"] == 1
        ]
        for key in keys
    ]
    grows = [least == sorted(least) and least[-1] > least[0] for least in needed]
    least_alphas = "; ".join(
        f"{network}, {machine}: {', '.join(map(str, least))}"
        for (network, machine), least in zip(keys, needed, strict=True)
    )
    shares_at_1 = "; ".join(
        f"{machine}: {', '.join(f'{share:.2f}' for share in shares)}"
        for (_, machine), shares in zip(keys, at_1, strict=True)
    )
    alike = [max(shares) - min(shares) <= _POINTS for shares in at_1]
    return [
        _stated("alpha rises", least_alphas, each(grows)),
        _stated("alpha low", f"alpha = 1: {shares_at_1}", each(alike)),
    ]


def _listed(figures: dict[str, float], digits: str, unit: str = "") -> str:
    return ", ".join(f"{network} {figure:{digits}}{unit}" for network, figure in figures.items())


def _on_machines(rows: Sequence[Row], texts: Sequence[str]) -> str:
    return ", ".join(f"{row['machine']} {text}" for row, text in zip(rows, texts, strict=True))


def _share(which: Sequence[bool]) -> str:
    return f"{_percent(fmean(which))}, {sum(which)} of {len(which)}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def _is_near(ours: float, paper: float) -> bool:
    return abs(ours / paper - 1) <= NEAR
