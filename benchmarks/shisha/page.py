"""The page that compares the paper's statements with ours: `results/shisha.md`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.report.page import save_page
from benchmarks.report.results import Row

_FIGURES: Final = (
    ("4", "convergence", "throughput over virtual time, SynthNet on eight places"),
    ("5", "optimality", "solutions against Exhaustive Search, four places"),
    ("6", "seeds", "Shisha's seed against random ones"),
    ("7", "heuristics", "H1 to H6 on C1 to C6, throughput"),
    ("8", "heuristics_time", "H1 and H3 on C1 to C6, convergence"),
    ("9", "alpha", "alpha, with slow places 3, 6 and 12 times slower"),
)
_HEAD: Final = """# Shisha's evaluation, repeated (simulated)

**Everything on this page is simulated.** No network was run: costs come from a roofline of the paper's machines, and
time is virtual. The paper simulated too (gem5), with bandwidths that it does not print; so shares and ratios can be
compared, seconds and frames per second cannot.

`{repeat}` wrote this page ({date}, commit {commit}).

What the paper leaves open, and how it is read here: four places are C2 and eight are C5 of Table 2; a slow core takes
3 times as long; bandwidths are 4 to 1; a trial is 32 frames. YOLOv3 is its backbone, with the 52 layers that the paper
counts. Exhaustive Search is run where it has at most 150,000 plans (`--quick`: 10,000); elsewhere the optimum is that
of `exact`, which is proven. Pipe-Search is given the paper's 395 trials; the 1200 s of its database are wall time,
and in no sum of virtual seconds here. Of randomised searches the best of 200 runs is kept, as in the paper (`--quick`:
of 20); the CSV files have the median too.
A plan that the paper's Shisha would measure again counts in its trials and shares, but takes no time.
"""


def save(
    statements: Sequence[Row], table_1: Sequence[Row], table_2: Sequence[Row], facts: Mapping[str, str], folder: Path
) -> Path:
    figures = "\n\n".join(
        f"![Figure {number}: {what} (simulated)](shisha_{name}.png)\n\nFigure {number}: {what} (simulated)."
        for number, name, what in _FIGURES
    )
    sections: Mapping[str, Sequence[Row] | str] = {
        "Statements": statements,
        "Table 1: heuristics": table_1,
        "Table 2: machines": table_2,
        "Figures": figures,
    }
    return save_page("shisha", _HEAD.format(**facts), sections, folder)
