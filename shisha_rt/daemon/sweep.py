"""Frees memory in slots that no plan needs any more, piece by piece.

A plan over many places may leave gigabytes behind, and freeing these takes tens of milliseconds: too long for the
daemon's loop at a stretch (R10). A new plan may need a piece again before it is freed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from shisha_rt.model.index import ModelIndex
from shisha_rt.plan.plan import Plan
from shisha_rt.process.arena import Arena

PIECE_BYTES: Final = 2 << 20
_LEAST_BYTES: Final = PIECE_BYTES // 8  # a call counts as at least so many bytes, as its overhead is fixed


class Sweep:
    """Call `some` repeatedly: each call frees about `PIECE_BYTES`, and at least one tensor of one slot.

    `indexes`: one for each layout. A tensor is identified by its layout's number and its name.
    """

    def __init__(self, arena: Arena, indexes: Sequence[ModelIndex]) -> None:
        self._arena = arena
        self._indexes = indexes
        self._slots: dict[tuple[int, str], int] = {}  # by tensor: it is still to be freed in slots below this number

    def passing(self, plan: Plan) -> set[tuple[int, str]]:
        """The tensors that a plan's stages pass to each other."""
        return {(layout, name) for layout, index in enumerate(self._indexes) for name in passing_tensors(index, plan)}

    def want(self, tensors: Iterable[tuple[int, str]]) -> None:
        """Queue tensors that no plan needs any more, in all slots."""
        self._slots |= dict.fromkeys(tensors, self._arena.slot_count)

    def keep(self, plan: Plan) -> None:
        """Take the plan's tensors off the queue, as they are about to be needed."""
        for tensor in self.passing(plan):
            self._slots.pop(tensor, None)

    def some(self) -> bool:
        """Free a piece. Returns whether more is queued."""
        left_bytes = PIECE_BYTES
        while self._slots and left_bytes > 0:
            (layout, name), slots = next(iter(self._slots.items()))
            region = self._arena.layouts[layout].regions[name]
            self._arena.punch(slots - 1, region)
            left_bytes -= max(region.size_bytes, _LEAST_BYTES)
            if slots > 1:
                self._slots[layout, name] = slots - 1
            else:
                del self._slots[layout, name]
        return bool(self._slots)


def passing_tensors(index: ModelIndex, plan: Plan) -> set[str]:
    """Names of the tensors, inputs and outputs apart, that pass between stages of a plan."""
    of = plan.stages_of(index.layer_count)
    names = {
        entry.tensor.name for entry in index.crossing if any(of[entry.made] != of[layer] for layer in entry.readers)
    }
    known = {((splittable.first, splittable.last), splittable.axis): splittable for splittable in index.splits}
    for carriers in plan.splits:
        split = plan.stages[carriers[0]].split
        assert split is not None  # `carriers` are stages with a split
        splittable = known[split.span, split.axis]
        names.update(room for name in splittable.makes for room in splittable.rooms(name, len(split.shares)))
    return names - {spec.name for spec in (*index.inputs, *index.outputs)}
