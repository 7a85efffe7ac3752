"""The tensors that an assignment moves, one by one, for display and schedules; `check` computes their total cost."""

from __future__ import annotations

from dataclasses import dataclass

from shisha_rt.placement.problem import Assignment, Problem


@dataclass(frozen=True, slots=True)
class Move:
    """A tensor's move from device `source` into another memory, and the nodes that read it there; all by index."""

    tensor: int
    source: int
    memory: int
    consumers: tuple[int, ...]
    cost_s: float


def moves(problem: Problem, assignment: Assignment) -> tuple[Move, ...]:
    """Moves of an assignment in the order of tensors.

    One for each memory, or for each consumer if the problem counts `per_edge`.
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
