"""What took a frame's time, in words: for `status --why` and the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shisha_rt.show.picture import milliseconds

_NEGLIGIBLE: Final = 0.001
"""Share of a frame's latency. Shorter steps are left out, except `lost` and `left`."""
_NOTHING_YET: Final = "no frame has been looked at in the last minute"


def why_lines(status: Mapping[str, Any]) -> list[str]:
    """A headline on the slowest frame that was looked at lately, and a line for each step that mattered, in order."""
    slow = status.get("slow_frame")
    if slow is None:
        return [_NOTHING_YET]
    whole_s = slow["latency_s"]
    steps = [
        (step, _words_of(step, before, status["frames"]["slots"]))
        for before, step in zip([None, *slow["steps"]], slow["steps"], strict=False)
        if step["seconds"] >= _NEGLIGIBLE * whole_s or step["what"] in ("lost", "left")
    ]
    width = max((len(milliseconds(step["seconds"])) for step, _ in steps), default=0)
    return [_headline(slow), *(f"{milliseconds(step['seconds']):>{width}}  {words}" for step, words in steps)]


def _headline(slow: Mapping[str, Any]) -> str:
    looked_at, whole_s = slow["looked_at"], slow["latency_s"]
    which = f"the slowest of {looked_at} frames" if looked_at > 1 else "the one frame"
    ended = "" if slow["code"] == "OK" else f" and ended in {slow['code']}"
    head = f"{which} looked at lately took {milliseconds(whole_s)}{ended}, {slow['ago_s']:.0f} s ago"
    most = max(slow["steps"], key=lambda step: step["seconds"])
    share = most["seconds"] / whole_s if whole_s else 0.0
    trace = f" (trace {slow['trace_id']})" if slow["trace_id"] else ""
    return f"{head}: {share:.0%} of it {_WORDS.get(most['what'], [most['what']])[0]}{trace}"


def _words_of(step: Mapping[str, Any], before: Mapping[str, Any] | None, slots: int) -> str:
    """A step in words. `before`: the step before it; `slots`: how many frames may be in flight."""
    what = step["what"]
    where = f"stage {step['stage']} on {step['place']}" if "stage" in step else ""
    changed = before is not None and "epoch" in step and before.get("epoch", step["epoch"]) != step["epoch"]
    again = "again " * (what == "wait" and before is not None and before["what"] == "lost")
    beside = f", together with {step['frames'] - 1} more" if what == "run" and step["frames"] > 1 else ""
    under = f", now under another plan (epoch {step['epoch']})" if changed and what in ("wait", "run") else ""
    if what not in _WORDS:  # of a daemon of a later version
        return f"{what} {where}"
    words = _WORDS[what][1].format(where=where, place=step.get("place"), slots=slots)
    return f"{again}{words}{beside}{under}"


_WORDS: Final = {
    "queue": ("waiting to be admitted", "waiting to be admitted: {slots} frames may be under way at once"),
    "copy_in": ("copying its inputs", "its inputs were copied in"),
    "wait": ("waiting for a stage", "waiting for {where}, which had other frames to compute"),
    "run": ("computing", "computed by {where}"),
    "lost": (
        "lost with a worker that ended",
        "lost with the worker on {place}, which ended while it had the frame",
    ),
    "left": ("with a worker when its answer was decided", "with {where} when the answer was decided"),
    "copy_out": ("copying its outputs", "its outputs were copied out"),
    "order": ("waiting for earlier frames of its stream", "waiting for earlier frames of its stream"),
}
"""For each kind of step: what the headline says if the step took longest, and the step's own line."""
