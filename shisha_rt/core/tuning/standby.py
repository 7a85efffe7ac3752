"""The plan that stays loaded beside the live one, as the load may ask for it: a change then takes no building.

The one that the load leaves stays, and once both are known the other one is loaded ahead, as long as memory is free.
"""

from __future__ import annotations

from typing import Final

from shisha_rt.core import event_log
from shisha_rt.core.lifecycle.events import Lead, LetGo, Superseded
from shisha_rt.core.lifecycle.instructions import Ending, Settled
from shisha_rt.core.tuning.choice import Choice
from shisha_rt.core.tuning.instructions import PlanningOutbox
from shisha_rt.core.tuning.objective_switching import ObjectiveSwitching
from shisha_rt.core.tuning.state import Serving
from shisha_rt.plan.plan import Plan

_FREE_TO_KEEP: Final = 0.5
_FREE_TO_LET_GO: Final = 0.25
"""A plan is kept loaded if so much of the memory is free, and let go below the other."""


class Standby:
    """`switching`: says which plans the load can ask for."""

    def __init__(self, serving: Serving, choice: Choice, switching: ObjectiveSwitching, outbox: PlanningOutbox) -> None:
        self._serving, self._choice, self._outbox = serving, choice, outbox
        self._switching = switching
        self._has_room = self._is_short = False
        self._ahead: Plan | None = None

    def memory_seen(self, free_ratio: float) -> None:
        # Operators are placed on devices for the live plan alone.
        self._has_room = free_ratio >= _FREE_TO_KEEP and not self._choice.rules.devices
        self._is_short = free_ratio < _FREE_TO_LET_GO

    def review(self) -> None:
        """Unload the plan kept beside if memory is short or the load cannot ask for it; not during comparisons."""
        beside = self._serving.beside
        if beside is not None and (self._is_short or not self._switching.is_best(beside[1])):
            self._outbox.decide(LetGo())

    def superseded(self, live: Plan) -> Superseded:
        """What is to become of the live plan when another one goes live."""
        return Superseded.KEPT if self._has_room and self._switching.is_best(live) else Superseded.RETIRES

    def to_load_ahead(self) -> Plan | None:
        """The plan to be loaded ahead: once, also if that fails. None: there is none, or no room."""
        live = self._serving.live
        if live is None or self._serving.beside is not None or not self._has_room:
            return None
        other = self._switching.other(live[1])
        if other == self._ahead:
            return None
        self._ahead = other
        return other

    def loaded_ahead(self, end: Settled) -> bool:
        """Have the plan that served before lead again, and keep the live one loaded; False if it is to serve."""
        if end.epoch is None or end.ending is not Ending.LIVE:
            return True
        if self._serving.beside is None:
            return False
        self._lead(f"epoch {end.epoch} is loaded, for when the load asks for it")
        return True

    def lead_to(self, plan: Plan) -> bool:
        """Have the kept plan serve, if it is this one."""
        beside = self._serving.beside
        if beside is None or beside[1] != plan:
            return False
        self._lead("it is loaded, and the load asks for it")
        return True

    def _lead(self, reason: str) -> None:
        beside = self._serving.beside
        assert beside is not None
        self._outbox.decide(Lead(beside[0]))
        self._outbox.write(event_log.PlanLive(epoch=beside[0], plan=str(beside[1]), reason=reason))
