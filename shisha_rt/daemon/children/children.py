"""What thinks and keeps for the daemon beside its loop: the tuner's process, the placer's, and the keeper's thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from shisha_rt.costs.costs import Costs
from shisha_rt.costs.costs_file import costs_object
from shisha_rt.daemon.children.child_link import ChildLink
from shisha_rt.daemon.children.keeper import Keeper
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.plan.plan import team_name
from shisha_rt.ready.model_on_machine import ModelOnMachine
from shisha_rt.tuning import events as ev
from shisha_rt.tuning import placer_messages as pm
from shisha_rt.tuning import tuner_messages as tm

_TUNER: Final = "shisha_rt.daemon.children.tuner"
_PLACER: Final = "shisha_rt.daemon.children.placer"


class Children:
    """`solver` places operators on devices, where places have some; `tunes`: there is a tuner, told of `costs`."""

    def __init__(
        self, poller: Poller, ready: ModelOnMachine, keeper: Keeper, solver: str, costs: Costs | None, *, tunes: bool
    ) -> None:
        self.keeper = keeper
        self._tuner: ChildLink[tm.ToTuner, tm.FromTuner] | None = None
        self._placer: ChildLink[pm.ToPlacer, pm.FromPlacer] | None = None
        if tunes:
            known = [] if costs is None else [tm.StoredCosts(msgspec.json.encode(costs_object(costs)))]
            codecs = tm.TO_TUNER, tm.FROM_TUNER
            self._tuner = ChildLink(_TUNER, poller, codecs, ev.TunerSaid, ev.TunerDied, known)
        if ready.operator_costs:
            folders = str(ready.compiled.model_folder), str(ready.compiled.engine_folder)
            teams = {team_name(team): costs for team, costs in ready.team_costs.items()}
            greeting = pm.greeting(*folders, solver, {**ready.operator_costs, **teams})
            line = pm.TO_PLACER, pm.FROM_PLACER
            try:
                self._placer = ChildLink(_PLACER, poller, line, ev.PlacerSaid, ev.PlacerDied, greeting)
            except OSError:
                self.close()
                raise

    def tell_tuner(self, message: tm.ToTuner) -> None:
        if self._tuner is not None:
            self._tuner.send(message)

    def tell_placer(self, message: pm.ToPlacer) -> None:
        if self._placer is not None:
            self._placer.send(message)

    def look(self) -> Iterator[object]:
        """Every so often; what has become of them."""
        for child in (self._tuner, self._placer):
            if child is not None:
                yield from child.look()

    def close(self) -> None:
        for child in (self._tuner, self._placer):
            if child is not None:
                child.close()
