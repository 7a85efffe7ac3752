"""Frames passing through a pipeline of unequal stages, and through one of nearly equal stages."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from benchmarks.pictures.served import ON_WALKED, Part, layers_of, ms, served, walked
from benchmarks.pictures.sheet import WIDTH, At, Sheet, dot, rect, text
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan

IN_FLIGHT: Final = 6
SHOWN_S: Final = 1.0
_SLOWER: Final = 12
_HELD_S: Final = 2.5
_HOP_S: Final = 0.010  # time of a hand-over in the picture; in the simulation it takes none
_LEFT, _STATION, _QUEUE, _BOX, _DOT = 16, 147, 50, 97, 9
_PILE, _PILED = 622, 4
_LANE: Final = 202


def frames() -> Sheet:
    tuning = walked()
    best = tuning.result.measurement
    sheet = Sheet(
        "Frames in a pipeline, before and after tuning",
        f"{ON_WALKED}. Two pipelines of four stages serve a client that keeps {IN_FLIGHT} frames on the way. "
        f"In the first one frames queue before the slowest stage, and one comes out every "
        f"{ms(tuning.result.trials[0].measurement.bottleneck_s)}; in the second, which the walk has found, "
        f"one comes out every {ms(best.bottleneck_s)}.",
        height=2 * _LANE + 82,
        seconds=_SLOWER * SHOWN_S + _HELD_S,
        still_s=_SLOWER * SHOWN_S,
    )
    sheet.text(_LEFT, 30, "One second of frames, twelve times slower", "t")
    sheet.text(WIDTH - _LEFT, 30, "simulated: SynthNet on machine C2", "s m e")
    _lane(sheet, 36, "As the seed cuts it", tuning.seed, tuning.result.trials[0].measurement, "old")
    _lane(sheet, 36 + _LANE, "As the walk leaves it", tuning.result.solution, best, "new")
    _clock(sheet, 2 * _LANE + 54)
    return sheet


def _lane(sheet: Sheet, top: float, title: str, plan: Plan, measured: Measurement, colour: str) -> None:
    sheet.text(_LEFT, top + 26, title, "b")
    rate = f"{measured.throughput_fps:.1f} frames/s: one every {ms(measured.bottleneck_s)}, as its slowest stage takes"
    sheet.text(WIDTH - _LEFT, top + 26, rate, "e")
    middle = top + 132
    for index, (stage, took_s) in enumerate(zip(plan.stages, measured.service_s, strict=True)):
        is_slowest = index == measured.slowest_stage
        left = _LEFT + index * _STATION + _QUEUE
        line = 'stroke="var(--hot)" stroke-width="2"' if is_slowest else 'stroke="var(--line)"'
        sheet.rect(left, middle - 22, _BOX, 44, "faint", f'rx="6" {line}')
        sheet.text(left + _BOX / 2, middle + 40, f"{stage.place}: {ms(took_s)}", "s c b")
        sheet.text(left + _BOX / 2, middle + 56, layers_of(stage), "s c m")
        if is_slowest:
            sheet.text(left + _BOX / 2, middle - 30, "slowest", "s c b h")
    sheet.add(f'<path d="M{_PILE} {middle + 22}H{WIDTH - _LEFT}" stroke="var(--line)" fill="none"/>')
    way = served(walked().case.costs, [(0.0, plan)], in_flight=IN_FLIGHT, seconds=3 * SHOWN_S)
    done_s = [at_s for at_s in way.answered_s if at_s <= SHOWN_S]
    for count, (since_s, until_s) in enumerate(zip([0.0, *done_s], [*done_s, None], strict=True)):
        words = text((_PILE + WIDTH - _LEFT) / 2, middle + 40, f"{count} answered", "s c b")
        sheet.shown(words, _SLOWER * since_s, None if until_s is None else _SLOWER * until_s)
    for frame, track in _tracks(way.parts, middle).items():
        sheet.moving(dot(0, 0, _DOT, colour, str(frame)), track)


def _tracks(parts: Sequence[Part], middle: float) -> dict[int, list[At]]:
    """Tracks of all frames that arrive during the picture."""
    of: dict[int, list[Part]] = {}
    for part in parts:
        of.setdefault(part.frame, []).append(part)
    starts_s = {stage: sorted(p.start_s for p in parts if p.stage == stage) for stage in {p.stage for p in parts}}
    drawn: dict[int, list[At]] = {}
    for frame, way in of.items():
        if way[0].ready_s < SHOWN_S:
            track = _track(frame, way, starts_s, middle)
            drawn[frame] = [at._replace(time_s=_SLOWER * at.time_s) for at in _until(track, SHOWN_S)]
    return drawn


def _track(frame: int, way: Sequence[Part], starts_s: dict[int, list[float]], middle: float) -> list[At]:
    """A frame's track, in the simulated machine's seconds. In a chain with one worker a stage, queues are FIFO."""
    track = [
        At(way[0].ready_s - _HOP_S / 10, *_queued(0, _ahead(way[0], starts_s, way[0].ready_s), middle), opacity=0.0)
    ]
    now_s = way[0].ready_s
    for part in way:
        left = _LEFT + part.stage * _STATION + _QUEUE + _DOT + 3
        if part.start_s > part.ready_s:
            track.append(At(now_s, *_queued(part.stage, _ahead(part, starts_s, part.ready_s), middle)))
            for at_s in starts_s[part.stage]:
                if now_s < at_s < part.start_s:
                    here = track[-1]
                    track.append(here._replace(time_s=at_s))
                    at = _queued(part.stage, _ahead(part, starts_s, at_s), middle)
                    track.append(At(min(at_s + _HOP_S, part.start_s), *at))
            if track[-1].time_s < part.start_s:
                track.append(track[-1]._replace(time_s=part.start_s))
            now_s = part.start_s + _HOP_S
        track.append(At(max(now_s, part.start_s), left, middle))
        track.append(At(part.end_s, left + _BOX - 2 * _DOT - 6, middle))
        now_s = part.end_s + _HOP_S
    column, row = (frame - 1) % _PILED, (frame - 1) // _PILED
    return [*track, At(now_s, _PILE + 10 + 20.5 * column, middle + 12 - 20 * row)]


def _ahead(part: Part, starts_s: dict[int, list[float]], at_s: float) -> int:
    """How many frames are before this one in its queue, from `at_s` on."""
    order = starts_s[part.stage]
    return bisect_right(order, part.start_s) - 1 - bisect_right(order, at_s)


def _queued(stage: int, ahead: int, middle: float) -> tuple[float, float]:
    return _LEFT + stage * _STATION + _QUEUE - _DOT - 8, middle - 20 * max(ahead, 0)


def _until(track: Sequence[At], end_s: float) -> list[At]:
    """The track until `end_s`, with the position at that time."""
    kept = [at for at in track if at.time_s <= end_s]
    if len(kept) == len(track):
        return kept
    last, after = kept[-1], track[len(kept)]
    share = (end_s - last.time_s) / (after.time_s - last.time_s)
    return [*kept, At(*(a + share * (b - a) for a, b in zip(last, after, strict=True)))]


def _clock(sheet: Sheet, y: float) -> None:
    width = WIDTH - 2 * _LEFT
    sheet.rect(_LEFT, y, width, 4, "line", 'rx="2"')
    bar = rect(0, 0, width, 4, "ink", 'rx="2"')
    sheet.moving(bar, [At(0.0, _LEFT, y, 0.0), At(_SLOWER * SHOWN_S, _LEFT, y)])
    sheet.text(_LEFT, y + 20, "0 s", "s m")
    sheet.text(WIDTH - _LEFT, y + 20, f"{SHOWN_S:g} s of the machine's time", "s m e")
