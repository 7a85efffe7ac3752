"""Operators of one place on its devices: one scheme after the other, with costs of computing and of moving tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchmarks.dcg.board import CPU_P_FIRST, CPU_S, OPT, PIM_FIRST, SHOWN, Case, cases, place
from benchmarks.pictures.served import ms
from benchmarks.pictures.sheet import WIDTH, At, Sheet, dot, figure, rect, text
from shisha_rt.placement.check import Cost, cost
from shisha_rt.placement.problem import Assignment

SHOWN_SCHEMES: Final = (CPU_S, PIM_FIRST, CPU_P_FIRST, "ALS", OPT)
_TOLD: Final = {
    CPU_S: "one core for everything",
    PIM_FIRST: "PIM wherever it can, else all cores, else one",
    CPU_P_FIRST: "all cores wherever they can, else PIM, else one",
    "ALS": "ALS, the way of the DCG paper",
    OPT: "the optimum, proven",
}
_LANES: Final = ("one core", "all cores", "PIM")
_BLOCK: Final = "layer0/"
_MOVE_S, _SCHEME_S, _HELD_S = 0.8, 3.0, 3.0
_LEFT, _FIRST, _LAST = 16, 112, 694
_TOP, _LANE, _BARS, _ROW, _BAR_LEFT = 104, 62, 330, 25, 178


def devices() -> Sheet:
    (case,) = cases(["bert"], [SHOWN])
    placed = [place(case.problem, scheme) for scheme in SHOWN_SCHEMES]
    costs = [cost(case.problem, assignment) for assignment in placed]
    end_s = _SCHEME_S * len(placed)
    sheet = Sheet(
        "Operators on devices",
        f"BERT with {SHOWN} tokens on the board of the DCG papers, modelled. The operators of its first block go to "
        f"one core, all cores, or a unit in the memory, in five ways. For the whole network, one core takes "
        f"{ms(costs[0].total_s)}, the optimum {ms(costs[-1].total_s)}, of which "
        f"{ms(costs[-1].transfer_s)} go into moving tensors.",
        height=_BARS + _ROW * len(placed) + 24,
        seconds=end_s + _HELD_S,
        still_s=end_s + 1,
    )
    sheet.text(_LEFT, 30, "Which operator runs on which device", "t")
    sheet.text(WIDTH - _LEFT, 30, f"modelled: BERT, {SHOWN} tokens, the DCG papers' board", "s m e")
    sheet.text(
        _LEFT,
        80,
        "The operators of its first block in order, larger ones taking longer on one core. Lines: tensors that move.",
        "s m",
    )
    _block(sheet, case, placed)
    sheet.text(_LEFT, _BARS - 16, "The whole network", "b")
    sheet.text(_BAR_LEFT, _BARS - 16, "computing", "s b")
    sheet.text(_BAR_LEFT + 80, _BARS - 16, "moving tensors", "s b h")
    for number, (scheme, assignment) in enumerate(zip(SHOWN_SCHEMES, placed, strict=True)):
        _bar(sheet, number, scheme, costs[number], max(each.total_s for each in costs), len(_moved(case, assignment)))
    return sheet


def _block(sheet: Sheet, case: Case, placed: Sequence[Assignment]) -> None:
    nodes = case.problem.nodes
    block = [index for index, node in enumerate(nodes) if node.name.startswith(_BLOCK)]
    step = (_LAST - _FIRST) / (len(block) - 1)
    x_of = {index: round(_FIRST + step * order, 1) for order, index in enumerate(block)}
    for lane, name in enumerate(_LANES):
        y = _TOP + _LANE * (lane + 0.5)
        sheet.text(_LEFT, y + 4, name, "s b")
        sheet.add(f'<path d="M{_FIRST - 12} {figure(y)}H{WIDTH - _LEFT}" stroke="var(--line)"/>')
    wall = _TOP + _LANE * 2
    sheet.add(f'<path d="M{_FIRST - 12} {wall}H{WIDTH - _LEFT}" stroke="var(--muted)" stroke-dasharray="2 4"/>')
    sheet.text(_LEFT, wall - 6, "CPU memory", "s m")
    sheet.text(_LEFT, wall + 14, "PIM memory", "s m")
    for number, assignment in enumerate(placed):
        since_s = _SCHEME_S * number
        until_s = None if number == len(placed) - 1 else since_s + _SCHEME_S
        lines = "".join(
            f"M{figure(x_of[source], 1)} {figure(_y(assignment[source]))}"
            f"L{figure(x_of[target], 1)} {figure(_y(assignment[target]))}"
            for source, target in _moved(case, assignment)
            if source in x_of and target in x_of
        )
        drawn = f'<path d="{lines}" stroke="var(--hot)" stroke-width="1.5" fill="none"/>' if lines else ""
        sheet.shown(
            drawn + text(_LEFT, 56, _TOLD[SHOWN_SCHEMES[number]], "b"), since_s + _MOVE_S * (number > 0), until_s
        )
    most_s = max(nodes[index].cost_s[0] for index in block)
    for index in block:
        radius = 3 + 6 * (nodes[index].cost_s[0] / most_s) ** 0.5
        track: list[At] = []
        for number, assignment in enumerate(placed):
            at = At(_SCHEME_S * number, x_of[index], _y(assignment[index]))
            track += (
                [at] if not track else [track[-1]._replace(time_s=at.time_s), at._replace(time_s=at.time_s + _MOVE_S)]
            )
        sheet.moving(dot(0, 0, radius, "ink", ""), track)


def _y(device: int) -> float:
    return _TOP + _LANE * (device + 0.5)


def _moved(case: Case, assignment: Assignment) -> list[tuple[int, int]]:
    """Pairs of producer and consumer on different memories; each pair costs a transfer, as in the papers."""
    memory_of = case.problem.memory_of
    return [
        (tensor.producer, consumer)
        for tensor in case.problem.tensors
        for consumer in tensor.consumers
        if memory_of[assignment[tensor.producer]] != memory_of[assignment[consumer]]
    ]


def _bar(sheet: Sheet, number: int, scheme: str, paid: Cost, most_s: float, moves: int) -> None:
    y, left = _BARS + _ROW * number, _BAR_LEFT
    scale = (WIDTH - _LEFT - 190 - left) / most_s
    sheet.text(left - 8, y + 14, scheme, "s b e")
    computing = rect(left, y, scale * paid.node_s, 19, "fast")
    moving = rect(left + scale * paid.node_s, y, scale * paid.transfer_s, 19, "hot")
    label = text(left + scale * paid.total_s + 8, y + 14, f"{ms(paid.total_s)}, {moves} moves", "s")
    sheet.shown(computing + moving + label, _SCHEME_S * number + _MOVE_S * (number > 0))
