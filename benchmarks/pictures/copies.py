"""Eight equal places: a chain of stages, and copies of the whole network."""

from __future__ import annotations

from statistics import fmean
from typing import Final

from benchmarks.pictures.served import EQUAL, Rows, equal, ms, served
from benchmarks.pictures.sheet import WIDTH, Sheet
from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.plan.plan import Plan
from shisha_rt.planner.exact import exact_plan
from shisha_rt.planner.goal import Goal

IN_FLIGHT: Final = 16
FOLLOWED: Final = 9
_SHOWN_S: Final = 1.0
_DRAWN_S, _HELD_S = 12.0, 4.0
_LEFT, _TOP, _PANEL, _ROW, _BAR = 16, 56, 214, 19, 16


def copies() -> Sheet:
    chain, copied = (_exact(replicate) for replicate in (False, True))
    rates = [CostsEvaluator(equal().costs).measurement_of(plan).throughput_fps for plan in (chain, copied)]
    sheet = Sheet(
        "Copies and a chain",
        f"SynthNet on machine {EQUAL} of the Shisha paper, eight equal places, simulated from roofline costs. The best "
        f"chain of stages makes {rates[0]:.1f} frames per second, as its stages cannot all be equal and places wait; "
        f"eight copies of the whole network make {rates[1]:.1f}.",
        height=_TOP + 2 * _PANEL + 26,
        seconds=_DRAWN_S + _HELD_S,
        still_s=_DRAWN_S + 1,
    )
    sheet.text(_LEFT, 30, "A chain and copies, on equal cores", "t")
    sheet.text(WIDTH - _LEFT, 30, f"simulated: SynthNet on machine {EQUAL}", "s m e")
    panels = [_panel(sheet, _TOP, "The best chain", chain), _panel(sheet, _TOP + _PANEL, "Copies", copied)]
    panels[0].uncovered(sheet, panels[0].top - 2, panels[0].bottom, _DRAWN_S)
    panels[1].uncovered(sheet, panels[1].top - 2, panels[1].bottom, _DRAWN_S)
    panels[1].axis(sheet, panels[1].bottom + 16)
    return sheet


def _exact(replicate: bool) -> Plan:
    plan = exact_plan(equal().costs, Goal(replicate=replicate)).plan
    assert plan is not None  # every place runs every layer, and no memory is limited
    return plan


def _panel(sheet: Sheet, top: float, title: str, plan: Plan) -> Rows:
    names = [place.name for place in equal().places]
    rows = Rows(names, top + 48, _ROW, _BAR, 66, 698, _SHOWN_S)
    measured = CostsEvaluator(equal().costs).measurement_of(plan)
    way = served(equal().costs, [(0.0, plan)], in_flight=IN_FLIGHT, seconds=2 * _SHOWN_S)
    pools = "one stage on each place" if len(plan.stages) > 1 else "the whole network on each place"
    sheet.text(_LEFT, top + 18, f"{title}: {pools}", "b")
    sheet.text(WIDTH - _LEFT, top + 18, f"{measured.throughput_fps:.1f} frames/s in the long run", "b e")
    answered = sum(at_s <= _SHOWN_S for at_s in way.answered_s)
    of = next(part for part in way.parts if part.frame == FOLLOWED)
    took_s = way.answered_s[FOLLOWED - 1] - of.start_s
    caption = f"frame {FOLLOWED} runs for {ms(took_s)}; {answered} answered in the first second"
    sheet.text(_LEFT, top + 38, _waits(plan, measured.service_s), "s m")
    sheet.text(WIDTH - _LEFT, top + 38, caption, "s m e")
    rows.draw(sheet, way.parts, lambda part: "hot" if part.frame == FOLLOWED else "fast", "s")
    return rows


def _waits(plan: Plan, service_s: tuple[float, ...]) -> str:
    if len(plan.stages) == 1:
        return f"no place waits; a frame takes {ms(service_s[0])}"
    working = f"{fmean(service_s) / max(service_s):.0%}"
    return f"stages take {ms(min(service_s))} to {ms(max(service_s))}: places are {working} busy"
