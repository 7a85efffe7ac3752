"""The tensors that an assignment makes move, one by one: for people to see, not to count costs by (that is `check`)."""

from __future__ import annotations

from dataclasses import dataclass

from shisha_rt.placement.problem import Assignment, Problem


@dataclass(frozen=True, slots=True)
class Move:
    """A tensor's way into another memory, and the nodes there that read it; all indices of the problem's."""

    tensor: int
    source: int
    memory: int
    consumers: tuple[int, ...]
    cost_s: float


def moves(problem: Problem, assignment: Assignment) -> tuple[Move, ...]:
    """Moves of an assignment in the order of tensors.

    One a memory, or one a consumer where the problem counts `per_edge`.
    """
    moves_made = []
    for index, tensor in enumerate(problem.tensors):
        device = assignment[tensor.producer]
        readers: dict[int, list[int]] = {}
        for consumer in tensor.consumers:
            readers.setdefault(problem.memory_of[assignment[consumer]], []).append(consumer)
        readers.pop(problem.memory_of[device], None)
        for memory, consumers in readers.items():
            cost_s = tensor.transfer_s[device][memory]
            together = [tuple(consumers)] if problem.transfer_counting == "once" else [(c,) for c in consumers]
            moves_made += [Move(index, device, memory, group, cost_s) for group in together]
    return tuple(moves_made)
