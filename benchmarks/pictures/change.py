"""A change of plan: two epochs at the same time, and the pipeline does not drain."""

from __future__ import annotations

from typing import Final

from benchmarks.pictures.frames import IN_FLIGHT
from benchmarks.pictures.served import ON_WALKED, Rows, ms, served, walked
from benchmarks.pictures.sheet import WIDTH, Sheet, dot

PROPOSED_S: Final = 0.35
BUILD_S: Final = 0.020
"""Assumed, as nothing is built in a simulation; times on real hosts are in `results/live_change.csv`."""
_SHOWN_S: Final = 1.2
_DRAWN_S, _HELD_S = 12.0, 4.0
_LEFT, _LIVES, _TOP, _DOT = 16, 84, 158, 9


def change() -> Sheet:
    tuning = walked()
    way = served(
        tuning.case.costs,
        [(0.0, tuning.seed), (PROPOSED_S, tuning.result.solution)],
        in_flight=IN_FLIGHT,
        seconds=2 * _SHOWN_S,
        build_s=BUILD_S,
    )
    old, new = way.epochs
    rows = Rows([stage.place for stage in tuning.seed.stages], _TOP, 34, 26, 78, 690, _SHOWN_S)
    last = max(part.frame for part in way.parts if part.epoch == 1)
    sheet = Sheet(
        "A change of plan",
        f"{ON_WALKED}. Four places work on frames of two epochs. The new plan is live {ms(new.live_s - PROPOSED_S)} "
        f"after it is proposed; from then on new frames take it, while frames up to {last} finish in the old one, "
        f"which is retired with the last of them. Answers go on in the order of the frames.",
        height=round(rows.bottom) + 134,
        seconds=_DRAWN_S + _HELD_S,
        still_s=_DRAWN_S + 1,
    )
    sheet.text(_LEFT, 30, "Two epochs beside each other", "t")
    sheet.text(WIDTH - _LEFT, 30, "simulated: SynthNet on machine C2", "s m e")
    sheet.text(
        _LEFT,
        54,
        "Each bar is a frame at a place. New frames take the new plan; nothing waits for the old one to drain.",
        "s m",
    )
    for index, (name, epoch, colour, ends) in enumerate(
        (("epoch 1", old, "old", old.retired_s), ("epoch 2", new, "new", _SHOWN_S))
    ):
        y = _LIVES + 30 * index
        sheet.text(rows.left - 8, y + 15, name, "s b e")
        x, right = rows.x_of(epoch.live_s), rows.x_of(ends)
        sheet.rect(x, y, right - x, 20, colour, 'rx="3"')
        if index:
            begun = rows.x_of(PROPOSED_S)
            sheet.rect(
                begun,
                y + 0.75,
                x - begun,
                18.5,
                "",
                f'stroke="var(--{colour})" stroke-width="1.5" stroke-dasharray="3 2"',
            )
            sheet.text(begun - 6, y + 15, "built beside", "s m e")
            sheet.text(x + 8, y + 15, f"live: frames {last + 1} and later", "s o")
        else:
            sheet.text(x + 8, y + 15, f"live: frames 1–{last}", "s o")
            sheet.text(right - 6, y + 15, "finishes what it has", "s o e")
            sheet.text(right + 6, y + 15, f"retired with frame {last}", "s")
    rows.draw(sheet, way.parts, lambda part: "old" if part.epoch == 1 else "new", "s")
    answers = rows.bottom + 20
    sheet.text(rows.left - 8, answers + 4, "answers", "s b e")
    of = {part.frame: part.epoch for part in way.parts}
    free_at = [0.0] * 3  # of three rows of dots, so that answers close to each other can be read
    for frame, at_s in enumerate(way.answered_s, start=1):
        if at_s < _SHOWN_S:
            x = rows.x_of(at_s)
            line = next(line for line, right in enumerate(free_at) if right <= x)
            free_at[line] = x + 2 * _DOT
            colour = "old" if of[frame] == 1 else "new"
            sheet.add(dot(x, answers + (2 * _DOT + 1) * line, _DOT, colour, str(frame)))
    rows.uncovered(sheet, _LIVES - 4, answers + 50, _DRAWN_S)
    rows.axis(sheet, answers + 68)
    rate = [tuning.result.trials[0].measurement.throughput_fps, tuning.result.measurement.throughput_fps]
    words = f"{rate[0]:.1f} frames/s before, {rate[1]:.1f} after"
    sheet.text(_LEFT, answers + 96, words, "b")
    return sheet
