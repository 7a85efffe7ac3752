"""The live plan's frames as they are measured, with a band that allows for what time alone does to measurements."""

from __future__ import annotations

from shisha_rt.core.tuning import events as ev
from shisha_rt.core.tuning.choice import Choice
from shisha_rt.core.tuning.repeatability import Repeatability
from shisha_rt.core.tuning.state import Serving
from shisha_rt.core.tuning.window import Window
from shisha_rt.plan.measurement import Measurement


class Measuring:
    """`warm_up`: frames of each stage that are passed over first."""

    def __init__(self, serving: Serving, choice: Choice, warm_up: int) -> None:
        self.repeatability = Repeatability()
        self._serving = serving
        self._choice = choice
        self._warm_up = warm_up
        self._window: Window | None = None

    @property
    def epoch(self) -> int | None:
        """Whose frames are measured; None: nobody's."""
        return None if self._window is None else self._window.epoch

    def begin(self, now_s: float, like: Measurement | None) -> None:
        """With the live plan. `like`: the measurement that it is to be held against, if there is one."""
        self._open(now_s, like, self._warm_up)

    def go_on(self, now_s: float, like: Measurement | None) -> None:
        """The same with a plan that has served for a while."""
        self._open(now_s, like, warm_up=0)

    def _open(self, now_s: float, like: Measurement | None, warm_up: int) -> None:
        live, choice = self._serving.live, self._choice
        assert live is not None
        alike = [choice.are_alike(stage) for stage in live[1].stages]
        scale = choice.machine.time_scale
        self._window = Window(*live, alike, warm_up, now_s, time_scale=scale, like=like)

    def end(self) -> None:
        self._window = None

    def part_taken(self, part: ev.PartTaken, now_s: float) -> Measurement | None:
        """A part of a frame has been computed: it may complete the measurement, which ends with that."""
        window, judged = self._window, None
        if window is not None and part.epoch == window.epoch and not self._serving.changing:
            judged = window.add(part.stage, part.place, part.service_s, now_s)
        elif window is not None:
            window.came(now_s)
        if judged is not None:
            self._window = None
        return judged

    def frame_alone(self, alone: ev.FrameAlone) -> None:
        if self._window is not None and alone.epoch == self._window.epoch:
            self._window.add_alone(alone.latency_s)

    def periods_passed(self, counted: ev.PeriodsCounted) -> None:
        if self._window is not None:
            self._window.periods_passed(counted.periods, counted.throttled)

    def quiet_s(self, now_s: float) -> float:
        """Seconds without a frame to measure; 0 while nothing is being measured."""
        return 0.0 if self._window is None else now_s - self._window.last_s
