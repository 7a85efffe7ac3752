"""Shisha's walk, trial by trial: layers leave the slowest stage, until that gains nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from benchmarks.pictures.served import ON_WALKED, Walked, ms, walked
from benchmarks.pictures.sheet import WIDTH, At, Sheet, figure, rect, text
from shisha_rt.plan.plan import Plan
from shisha_rt.planner.loop import Trial

_MOVE_S, _TRIAL_S, _HELD_S = 0.8, 2.6, 5.0
_LEFT, _BARS, _RIGHT = 16, 78, 646
_TOP, _ROW, _BAR = 104, 42, 30
_CHART_TOP, _CHART = 350, 92


def walk() -> Sheet:
    tuning = walked()
    trials = tuning.result.trials
    end_s = _TRIAL_S * len(trials)
    first, best = trials[0].measurement, tuning.result.measurement
    sheet = Sheet(
        "Shisha's walk",
        f"{ON_WALKED}. Four bars show what each place takes for a frame, made up of its layers. In {len(trials)} "
        f"trials layers move off the slowest stage. Throughput rises from {first.throughput_fps:.1f} to "
        f"{best.throughput_fps:.1f} frames per second; the best plan there is has {tuning.case.optimum_fps:.1f}.",
        height=_CHART_TOP + _CHART + 44,
        seconds=end_s + _HELD_S,
        still_s=end_s + _MOVE_S + 0.1,
    )
    sheet.text(_LEFT, 30, "What each stage takes for a frame", "t")
    sheet.text(WIDTH - _LEFT, 30, "simulated: SynthNet on machine C2", "s m e")
    _words(sheet, tuning, end_s)
    _bars(sheet, tuning, end_s)
    _chart(sheet, tuning, end_s)
    return sheet


def _words(sheet: Sheet, tuning: Walked, end_s: float) -> None:
    legend = "Blue layers began on a fast place, green ones on a slow place. Dashed: where the walk began."
    sheet.text(_LEFT, 80, legend, "s m")
    for trial in tuning.result.trials:
        since_s = _TRIAL_S * trial.number
        what = "the seed" if not trial.number else trial.reason
        sheet.shown(text(_LEFT, 58, f"Trial {trial.number}: {what}"), since_s, since_s + _TRIAL_S)
    sheet.shown(text(_LEFT, 58, f"The end: {tuning.result.reason}"), end_s)


def _bars(sheet: Sheet, tuning: Walked, end_s: float) -> None:
    trials = tuning.result.trials
    scale = (_RIGHT - _BARS) / max(trial.measurement.bottleneck_s for trial in trials)
    names = [place.name for place in tuning.case.places]
    plans = [trial.plan for trial in trials] + [tuning.result.solution]
    measured = [trial.measurement for trial in trials] + [tuning.result.measurement]
    for row, (stage, took_s) in enumerate(zip(tuning.seed.stages, trials[0].measurement.service_s, strict=True)):
        y = _TOP + row * _ROW
        sheet.text(_LEFT, y + 20, stage.place, "b")
        outline = 'stroke="var(--muted)" stroke-dasharray="3 3"'
        sheet.rect(_BARS, y, scale * took_s, _BAR, "faint", outline)
    for layer in range(len(tuning.case.weights)):
        _block(sheet, tuning, plans, layer, names, scale)
    best = list(accumulate((t.measurement.bottleneck_s for t in trials), min))
    y = _TOP + len(names) * _ROW - 4
    line = f'<path d="M0 {_TOP - 8}V{y + 6}" stroke="var(--good)" stroke-width="2" stroke-dasharray="6 4"/>'
    label = text(0, y + 22, "best so far", "s c b g")
    track = [At(0.0, _BARS + scale * best[0])]
    for number, (before, after) in enumerate(pairwise(best), start=1):
        if after < before:
            at_s = _TRIAL_S * number + _MOVE_S
            track += [At(at_s, _BARS + scale * before), At(at_s + 0.4, _BARS + scale * after)]
    sheet.moving(line + label, track)
    rows = {stage.place: row for row, stage in enumerate(tuning.seed.stages)}
    for number, (plan, measurement) in enumerate(zip(plans, measured, strict=True)):
        since_s = _TRIAL_S * number + _MOVE_S * (number > 0)
        until_s = None if number == len(trials) else _TRIAL_S * (number + 1)
        shapes = []
        for index, (stage, took_s) in enumerate(zip(plan.stages, measurement.service_s, strict=True)):
            y, right = _TOP + rows[stage.place] * _ROW, _BARS + scale * took_s
            if index == measurement.slowest_stage:
                frame = 'stroke="var(--hot)" stroke-width="3" rx="2"'
                shapes.append(rect(_BARS - 1, y - 1, right - _BARS + 2, _BAR + 2, "", frame))
                shapes.append(text(right + 8, y + 20, ms(took_s), "b h l"))
            else:
                shapes.append(text(right + 8, y + 20, ms(took_s), "l"))
        sheet.shown("".join(shapes), since_s, until_s)


def _block(sheet: Sheet, tuning: Walked, plans: Sequence[Plan], layer: int, names: Sequence[str], scale: float) -> None:
    """A layer, as wide as its time on its present place; its colour is that of its first place."""
    times_s = tuning.case.costs.time_s
    rows = {stage.place: row for row, stage in enumerate(tuning.seed.stages)}
    widest = scale * float(times_s[layer].max())
    blocks: list[At] = []
    labels: list[At] = []
    for number, plan in enumerate(plans):
        stage = next(stage for stage in plan.stages if stage.first <= layer <= stage.last)
        place = names.index(stage.place)
        x = _BARS + scale * float(times_s[stage.first : layer, place].sum())
        width = scale * float(times_s[layer, place])
        share = width / widest
        y = _TOP + rows[stage.place] * _ROW
        for track, at in ((blocks, At(0.0, x, y, share)), (labels, At(0.0, x + width / 2, y))):
            at_s = _TRIAL_S * number
            if number:
                track.append(track[-1]._replace(time_s=at_s))
            track.append(at._replace(time_s=at_s + _MOVE_S * (number > 0)))
    began = next(stage.place for stage in tuning.seed.stages if stage.first <= layer <= stage.last)
    colour = "fast" if began.startswith("fast") else "slow"
    edge = 'stroke="var(--paper)" stroke-width="1.5" vector-effect="non-scaling-stroke"'
    sheet.moving(rect(0, 0, widest, _BAR, colour, edge), _thinned(blocks))
    sheet.moving(text(0, 20, str(layer), "s c o"), _thinned(labels))


def _thinned(track: Sequence[At]) -> list[At]:
    """The track without redundant keyframes."""
    kept = [track[0]]
    for at, after in zip(track[1:], [*track[2:], None], strict=True):
        rests = at[1:] == kept[-1][1:] and (after is None or after[1:] == at[1:])
        if not rests:
            kept.append(at)
    return kept


def _chart(sheet: Sheet, tuning: Walked, end_s: float) -> None:
    trials = tuning.result.trials
    bottom, step = _CHART_TOP + _CHART, (WIDTH - _BARS - 60) / len(trials)

    def x_of(trial: Trial) -> float:
        return _BARS + step * (trial.number + 0.5)

    def y_of(fps: float) -> float:
        return bottom - _CHART * fps / tuning.case.optimum_fps

    sheet.text(_LEFT, _CHART_TOP - 22, "Frames per second, trial by trial", "b")
    sheet.add(f'<path d="M{_BARS} {bottom}H{WIDTH - _LEFT}" stroke="var(--line)" fill="none"/>')
    best_y = figure(y_of(tuning.case.optimum_fps))
    sheet.add(f'<path d="M{_BARS} {best_y}H{WIDTH - _LEFT}" stroke="var(--muted)" stroke-dasharray="2 4" fill="none"/>')
    proven = f"{tuning.case.optimum_fps:.1f}: the best plan there is (exact, proven)"
    sheet.text(WIDTH - _LEFT, _CHART_TOP - 6, proven, "s m e")
    for trial in trials:
        fps, x = trial.measurement.throughput_fps, x_of(trial)
        colour = "good" if trial.is_best else "line"
        bar = rect(x - step * 0.34, y_of(fps), step * 0.68, bottom - y_of(fps), colour, 'rx="3"')
        value = text(x, y_of(fps) + 17, f"{fps:.1f}", "s c b o" if trial.is_best else "s c b")
        sheet.shown(bar + value, _TRIAL_S * trial.number + _MOVE_S * (trial.number > 0))
        sheet.text(x, bottom + 18, str(trial.number), "s c m")
    kept = max((trial for trial in trials if trial.is_best), key=lambda trial: trial.number)
    sheet.shown(text(x_of(kept), bottom + 34, "kept", "s c b"), end_s)
    sheet.text(_LEFT, bottom + 18, "trial", "s m")
