"""The head of the page that compares the paper's tables and statements with ours: `results/partitiontuner.md`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

HEAD: Final = """# The PartitionTuner paper, repeated

**The board is emulated.** Its CPU and its NPU are descriptions, `npu-board` with `a53` and `evta`. The daemon and its
workers are real: they compute every value, the NPU's in integers of 8 bits, and take as long as the descriptions say.
All milliseconds are those of the board; its `time_scale` here is {scale}, and is taken out.

`{repeat}` wrote this page ({date}, commit {commit}; load at the start: {load}).{old}

- **paper**: printed there (Table 2 says microseconds; taken for milliseconds). **predicted**: by costs, before anything
  runs, for the board alone. **executed**: by the daemon, median of all rounds; schemes took turns.
- **Hand-overs are this host's, not the board's**: what a frame takes from one stage's end by way of the daemon to the
  next one's start. They stand in columns of their own, as told beforehand ({told})
  and as they really were, and nothing is judged by them.
- **kind** says how a row came about. *fitted*: the CPU's description was fitted to the CPU alone of all networks, the
  NPU's to TypeSeq and OpSeq of ResNet-50 and SqueezeNet (cells with an asterisk). *by construction*: that no
  convolution in groups is on the NPU, that an empty shortcut is no branch, and that Relus are sunk under a Concat was
  read off Table 3. *measured*: what was computed, whatever it took. All else is *predicted*. Tallies count *predicted*
  and *measured* alone.
- **over all number sets**: the fitted cells do not fix the numbers. A call of the NPU may take 2 us or 2 ms; other
  numbers make up for it. Each prediction is given for {sets} sets, found by random walks, that hold the CPU alone
  within {cpu_within} and the other fitted cells within {npu_within} ([their spans](partitiontuner_fit_numbers.csv)).
- **GoogLeNet and ZFNet come out badly with the numbers in the files**, which were fitted to the CPU alone above all.
  The paper's cells do not rule a better set out:
  {reach}
- **Relu sunk**: the paper's compiler moves Relus under a Concat where all that it joins has one, as its counts imply.
  That changes GoogLeNet and SqueezeNet; both forms were run.
- **Figure 7** is of trained networks. Here weights are random: the cosine to the answers in floating point stands for
  accuracy. A trained reader of text, which is not the paper's, is laid beside it.
- **ours** is `--strategy forkjoin`: the least time of a frame instead of the least sum of costs.
"""
_FIGURES: Final = (
    ("times", "Table 2 as bars"),
    ("reductions", "Figure 6: quicker than the CPU alone"),
    ("accuracy", "Figure 7: int8 against floating point, random weights"),
    ("schedules", "random schedules, measured against predicted"),
)


def reach_in_words(rows: Sequence[Mapping[str, object]]) -> str:
    """How close one set of numbers comes to all cells that do not depend on OpSeq's placement, in words."""
    off = {str(row["cells"]): float(str(row["furthest %"])) for row in rows}
    if not off:
        return "see `python -m benchmarks partitiontuner_fit`."
    return (
        f"one set of numbers holds all 14 cells of the CPU alone and TypeSeq within {off['all 14']:.0f}%, and without "
        f"GoogLeNet's two within {off['all but GoogLeNet']:.1f}% ([all of them](partitiontuner_fit_reach.csv))."
    )


def old_in_words(headers: Mapping[str, Mapping[str, str]]) -> str:
    """Parts that were not run again, in words, by the headers of their files."""
    by_run: dict[tuple[str, str], list[str]] = {}
    for name, about in headers.items():
        by_run.setdefault((about.get("date", "unknown"), about.get("commit", "unknown")), []).append(name)
    runs = (f"{', '.join(names)} ({date}, commit {commit})" for (date, commit), names in by_run.items())
    return f"\nNot run again, but taken from their files: {'; '.join(runs)}." if by_run else ""


def figures_section(drawn: Sequence[str]) -> str:
    """The section of figures; `drawn`: names of the figures that were drawn."""
    return "\n\n".join(
        f"![{what} (emulated)](partitiontuner_{name}.png)\n\n{what} (emulated)."
        for name, what in _FIGURES
        if name in drawn
    )
