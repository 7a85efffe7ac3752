"""The page that lays the paper's tables and statements beside ours: `results/partitiontuner.md`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.report.results import RESULTS, Row, written

Sections = Mapping[str, Sequence[Row]]
"""Title to table; those without rows are left out."""

_HEAD: Final = """# The PartitionTuner paper, repeated

**The board is emulated.** Its CPU and its NPU are descriptions, `npu-board` with `a53` and `evta`. The daemon and its
workers are real: they compute every value, the NPU's in integers of 8 bits, and take as long as the descriptions say.
All milliseconds are those of the board; its `time_scale` here is {scale}, and is taken out.

`{repeat}` wrote this page ({date}, commit {commit}; load at the start: {load}).

- **paper**: printed there (Table 2 says microseconds; taken for milliseconds). **predicted**: by costs, before anything
  runs, with the hand-overs told. **executed**: a frame that meets no other, from receipt to answer in the daemon,
  median of all rounds; schemes took turns.
- **What was fitted is no prediction.** The CPU's description was fitted to the CPU alone of all networks, the NPU's to
  TypeSeq and OpSeq of ResNet-50 and SqueezeNet: cells with an asterisk. All other times, all counts, and all of what is
  ours are predictions.
- **GoogLeNet does not come out**: at the price of an LRN element that ZFNet and AlexNet alone on the CPU want, its two
  LRNs take longer than all of it does under TypeSeq in the paper.
- **hand-overs**: what a frame takes beyond its stages, from one's end by way of the daemon to the next one's start.
  They are this host's, not the board's. Predictions count {told};
  what they really were stands apart.
- **Relu sunk**: the paper's compiler moves Relus under a Concat where all that it joins has one, as its counts imply.
  That changes GoogLeNet and SqueezeNet; both forms were run.
- **ours** is `--strategy forkjoin`: the least time of a frame instead of the least sum of costs.
"""
_FIGURES: Final = (
    ("times", "Table 2 as bars"),
    ("reductions", "Figure 6: quicker than the CPU alone"),
    ("accuracy", "Figure 7: int8 against floating point"),
    ("schedules", "random schedules, measured against predicted"),
)


def page(sections: Sections, figures: Sequence[str], about: Mapping[str, str]) -> str:
    """`figures`: the names of those that were drawn."""
    drawn = "\n\n".join(
        f"![{what} (emulated)](partitiontuner_{name}.png)\n\n{what} (emulated)."
        for name, what in _FIGURES
        if name in figures
    )
    parts = [f"## {title}\n\n{_table(rows)}\n" for title, rows in sections.items() if rows]
    return "\n".join([_HEAD.format(**about), *parts, *([f"## Figures\n\n{drawn}\n"] if drawn else [])])


def save_page(sections: Sections, figures: Sequence[str], about: Mapping[str, str]) -> Path:
    path = RESULTS / "partitiontuner.md"
    path.write_text(page(sections, figures, about), encoding="utf-8")
    return path


def _table(rows: Sequence[Row]) -> str:
    lines = [list(rows[0]), ["---"] * len(rows[0]), *([written(cell) for cell in row.values()] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
