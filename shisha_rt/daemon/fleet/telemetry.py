"""How long parts took: for status, gauges and the watch (windows of the last frames, by epoch, stage and place), for
histograms (all frames), and for each answer (the sum over the frame's parts).
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Final

from shisha_rt.daemon.counting import Counting
from shisha_rt.daemon.front.requests import Ticket
from shisha_rt.daemon.metrics import PlainSeries
from shisha_rt.messages.worker import Done, Prepared
from shisha_rt.plan.energy import NO_POWER, frame_joules
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import Rate, rate_of

_WINDOW_FRAMES: Final = 128
_SEGMENT_FRAMES: Final = 32
_LEAST_POOLED: Final = 16
_SETTLED_FRAMES: Final = _WINDOW_FRAMES // 8  # fewer new frames hardly move the median of a full window
_MIX_FRAMES: Final = 256  # the average frame is over so many; older ones count less and less
_BUILT: Final = ("frame_bytes", "private_bytes", "build_s", "difference")


@dataclass(slots=True)
class StageWindow:
    """The last frames of one stage of one epoch on one team; a frame of a batch counts with its share of the run.

    `built`, `warm_s`: what the worker reported of the stage, and seconds of the warm-up. `all_s`: histogram of all
    frames. `most`: frames in a full batch; `run_frames`: frames of each of the last runs, if `most` is above one.
    `segments`: (frames, segments) seconds, empty unless the stage's operators are placed on devices.
    """

    service_s: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW_FRAMES))
    cpu_s: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW_FRAMES))
    waited_s: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW_FRAMES))
    segments: deque[tuple[float, ...]] = field(default_factory=lambda: deque(maxlen=_SEGMENT_FRAMES))
    frames: int = 0
    built: dict[str, float | int | None] = field(default_factory=lambda: dict.fromkeys(_BUILT))
    warm_s: float = 0.0
    most: int = 1
    run_frames: deque[int] = field(default_factory=lambda: deque(maxlen=_WINDOW_FRAMES))
    all_s: PlainSeries | None = None
    _medians: dict[str, tuple[int, float | None]] = field(default_factory=dict)  # each with `frames` at that time

    def add(self, service_s: float, cpu_s: float, waited_s: float, segments_s: tuple[float, ...] = ()) -> None:
        """Add a run: seconds in the engine, of CPU, of waiting before it, and of each segment."""
        self.frames += 1
        self.service_s.append(service_s)
        self.cpu_s.append(cpu_s)
        self.waited_s.append(waited_s)
        if segments_s:
            self.segments.append(segments_s)

    def note_built(self, prepared: Prepared) -> None:
        self.warm_s = prepared.warm_s
        self.built = {name: getattr(prepared, name) for name in _BUILT}

    @property
    def segments_s(self) -> Sequence[float]:
        """Median seconds of each segment; empty while none were measured."""
        return [statistics.median(times) for times in zip(*self.segments, strict=True)]

    def restart(self) -> None:
        """Drop all times, as the place's speed has changed."""
        for values in (self.service_s, self.cpu_s, self.waited_s, self.segments):
            values.clear()
        self._medians.clear()

    @property
    def median_service_s(self) -> float | None:
        return self._median("service_s")

    @property
    def median_waited_s(self) -> float | None:
        return self._median("waited_s")

    def _median(self, what: str) -> float | None:
        """Median, computed anew only after several frames: with many teams, sorting would take most of the time."""
        values: deque[float] = getattr(self, what)
        frames, known = self._medians.get(what, (-1, None))
        settled = len(values) == values.maxlen
        if known is None or self.frames - frames >= (_SETTLED_FRAMES if settled else 1):
            known = statistics.median(values) if values else None
            self._medians[what] = self.frames, known
        return known

    def summary(self) -> dict[str, float | int | None]:
        """Medians over the window in seconds, for `status`."""
        return {
            "service_s": self.median_service_s,
            "cpu_s": self._median("cpu_s"),
            "waited_s": self.median_waited_s,
            "frames": self.frames,
            **self.built,
        }


class ShapeMix:
    """Makes times of frames of several shapes comparable, by converting them to those of an average frame.

    A small frame takes a fraction of a large one's time, so a median over both describes neither, and a comparison of
    plans would depend on which frames came. So each time is multiplied by the average frame's time over that of a frame
    of its shape: by the `ratios` (shapes,), 1 before the first such frame. Both are sums over all parts of a frame, so
    their ratio hardly depends on the plan. `count`: of the shapes.
    """

    def __init__(self, count: int) -> None:
        self._frames = [0] * count
        self._frame_s = [0.0] * count
        self._shares = [0.0] * count
        self.ratios = [1.0] * count

    def came(self, shape: int, compute_s: float) -> None:
        """A frame of `shape` was answered, whose parts took `compute_s` together."""
        if compute_s <= 0:
            return
        step = 1 / min(_MIX_FRAMES, 1 + sum(self._frames))
        self._shares = [share + step * ((i == shape) - share) for i, share in enumerate(self._shares)]
        self._frames[shape] += 1
        self._frame_s[shape] += (compute_s - self._frame_s[shape]) / min(_MIX_FRAMES, self._frames[shape])
        average_s = sum(share * frame_s for share, frame_s in zip(self._shares, self._frame_s, strict=True))
        self.ratios = [average_s / frame_s if frame_s else 1.0 for frame_s in self._frame_s]


class Telemetry:
    """Windows by epoch, stage and the place of a team's lead; an epoch's are dropped when it ends.

    `scale`: factor by which all times of the machine are stretched. `power_w`: power of places that compute; empty if
    unknown. With several `shapes`, times are scaled to the average frame by the `mix`; with one there is none.
    """

    def __init__(
        self, counting: Counting, *, scale: float = 1.0, shapes: int = 1, power_w: Mapping[str, float] = NO_POWER
    ) -> None:
        self._counting = counting
        self._power_w = power_w
        self._scale = scale
        self.mix = ShapeMix(shapes) if shapes > 1 else None
        self._windows: dict[tuple[int, int, str], StageWindow] = {}

    def took(self, done: Done, place: str, tickets: Sequence[Ticket]) -> tuple[float, tuple[float, ...]]:
        """Note a run of these frames. Returns one frame's seconds, scaled to the average frame, and its segments'."""
        part, frames = done.part, len(tickets)
        window = self._windows.get((part.epoch, part.stage, place)) or self.window(part.epoch, part.stage, place)
        service_s = done.service_s / self._scale / frames
        if window.all_s is None:
            window.all_s = self._counting.service(part.stage, place)
        if done.dropped_s:
            self._counting.count("shisha_pacing_dropped_seconds", place, by=done.dropped_s)
        cpu_s, waited_s = done.cpu_s / frames, done.waited_s / self._scale
        segments_s = done.segments_s if frames == 1 else tuple(seconds / frames for seconds in done.segments_s)
        ratio = 1.0 if self.mix is None else self.mix.ratios[tickets[0].request.layout]
        for ticket in tickets:
            window.all_s.observe(service_s)
            window.add(service_s * ratio, cpu_s * ratio, waited_s, segments_s)
            ticket.compute_s += done.service_s  # the whole run's: each of its frames waits for all of them
        if window.most > 1:
            self._counting.run(part.stage, place, frames)
            window.run_frames.append(frames)
        return service_s * ratio, segments_s

    def alone_s(self, ticket: Ticket, seconds: float) -> float:
        """Scale the `seconds` of a frame by itself to the average frame."""
        ratio = 1.0 if self.mix is None else self.mix.ratios[ticket.request.layout]
        return seconds / self._scale * ratio

    def window(self, epoch: int, stage: int, place: str) -> StageWindow:
        window = self._windows.get((epoch, stage, place))
        if window is None:
            window = self._windows[epoch, stage, place] = StageWindow()
        return window

    def on_place(self, place: str) -> Iterator[StageWindow]:
        return (window for (_, _, owner), window in self._windows.items() if owner == place)

    def windows(self, epoch: int, plan: Plan) -> list[list[StageWindow]]:
        """(stages, teams): the windows of a plan."""
        return [[self.window(epoch, index, lead) for lead in stage.leads] for index, stage in enumerate(plan.stages)]

    def rate(self, epoch: int, plan: Plan) -> Rate | None:
        """Rate of the plan by median times; None while some stage has run nothing. Teams without times are left out."""
        known = [[window.median_service_s for window in windows] for windows in self.windows(epoch, plan)]
        if any(all(seconds is None for seconds in teams) for teams in known):
            return None
        team_s = [[math.inf if seconds is None else seconds for seconds in teams] for teams in known]
        rate = rate_of(plan, team_s)
        if not self._power_w or any(None in teams for teams in known):  # energy of a team without times is unknown
            return rate
        return replace(rate, energy_j=frame_joules(plan, team_s, self._power_w))

    def expected_s(self, epoch: int, plan: Plan) -> dict[str, float]:
        """Map each lead to the longest expected run there, of a full batch.

        A frame counts with its median time or, before the first part, with the warm-up's. With several shapes it counts
        with the larger of both, as a frame of the largest shape may come after small ones only.
        """
        seconds_of: dict[str, float] = {}
        for stage, windows in zip(plan.stages, self.windows(epoch, plan), strict=True):
            for lead, window in zip(stage.leads, windows, strict=True):
                least_s = 0.0 if self.mix is None else window.warm_s
                frame_s = max(least_s, window.median_service_s or window.warm_s)
                seconds_of[lead] = max(seconds_of.get(lead, 0.0), window.most * frame_s)
        return seconds_of

    def forget(self, epoch: int) -> None:
        for key in [key for key in self._windows if key[0] == epoch]:
            del self._windows[key]


def pooled(windows: Sequence[StageWindow]) -> dict[str, float | int | None]:
    """A stage's summary over all of its teams: medians of their last frames, and the maxima of what workers reported.

    The more teams, the fewer frames of each are used: together they are as many as those of one team.
    """
    if len(windows) == 1:
        return windows[0].summary()
    kept = max(_LEAST_POOLED, _WINDOW_FRAMES // len(windows))

    def last(values: Iterable[deque[float]]) -> deque[float]:
        return deque(chain.from_iterable(islice(reversed(value), kept) for value in values))

    whole = StageWindow(
        service_s=last(window.service_s for window in windows),
        cpu_s=last(window.cpu_s for window in windows),
        waited_s=last(window.waited_s for window in windows),
        frames=sum(window.frames for window in windows),
    )
    for name in _BUILT:
        whole.built[name] = max(
            (value for window in windows if (value := window.built[name]) is not None), default=None
        )
    return whole.summary()
