"""Messages between a daemon and the process that prepares its model: the order, steps and the result. Values only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, Final, TypeAlias, get_origin

import msgspec
import numpy as np

from shisha_rt.core.tuning.state import Profiles
from shisha_rt.core.tuning.tuner_messages import ToTuner
from shisha_rt.costs.costs import Costs
from shisha_rt.costs.engine_trials import EnginesTried
from shisha_rt.costs.layer_costs import LayerCosts, PacedCosts, RawCosts
from shisha_rt.daemon.settings import Settings, objective_of
from shisha_rt.errors import BadInput, Failure
from shisha_rt.machine.machine import Machine
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.plan.engine import AnyEngine
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import AnyObjective, Objective
from shisha_rt.planner.goal import PART_OF_TARGET
from shisha_rt.planner.strategies import SchemeName, as_scheme
from shisha_rt.process.codec import Codec


@dataclass(frozen=True, slots=True)
class Planning:
    """How plans are made: as `settings` say.

    `fresh`: the best plan of earlier runs is neither used nor replaced. `engine`: what may compute whole stages.
    `plan`: the first plan, which stays live as if a client had set it.
    """

    settings: Settings
    fresh: bool = False
    engine: AnyEngine = "onnxruntime"
    plan: Plan | None = None

    @property
    def objective(self) -> AnyObjective:
        """What plans are chosen for; `auto`: as the load asks."""
        return objective_of(self.settings)

    @property
    def first_objective(self) -> Objective:
        """Objective of the first plan, unless best plans of earlier runs are known."""
        return "throughput" if self.objective == "auto" else self.objective

    @property
    def target_s(self) -> float:
        """Time within which frames are to be answered."""
        return math.inf if self.settings.target_ms is None else self.settings.target_ms / 1e3

    @property
    def latency_s(self) -> float:
        """Limit of a single frame's predicted latency in a plan for energy."""
        return PART_OF_TARGET * self.target_s

    @property
    def scheme(self) -> SchemeName | None:
        return as_scheme(self.settings.strategy)


@dataclass(frozen=True)
class Preparation:
    """Order to prepare a model: `settings` that have been checked, on `machine`. `fresh`: as in `Planning`.

    `log`: level and format of the log, which goes to the daemon's standard error.
    """

    settings: Settings
    machine: Machine
    fresh: bool
    log: tuple[int, str]


@dataclass(frozen=True)
class PreparedModel:
    """A model on a machine, with the results of its preparation (see `prepare`).

    `profiles`: whether layer costs are known. `costs`: layer costs as trials would measure them, if known and still
    needed for planning. `by_costs`: the best plans by `costs`, or the schedule of a scheme. `raw`: measured costs of
    layers that `timing = "modelled"` paces by. `others_ratio`: the largest share of the cores that other programs took
    while costs were measured. `told_first`: messages to the tuner before its first search. `engines`: results of the
    engines' trials, if several engines may serve the network and the results are known already.
    """

    ready: ModelOnMachine
    planning: Planning
    profiles: Profiles = Profiles.UNWANTED
    costs: Costs | None = None
    by_costs: Mapping[Objective, Plan] = field(default_factory=dict)
    raw: RawCosts | None = None
    others_ratio: float = 0.0
    told_first: tuple[ToTuner, ...] = ()
    engines: EnginesTried | None = None

    @property
    def pacing(self) -> PacedCosts | None:
        """The costs that `timing = "modelled"` paces stages without placements by (see `plan.Stage.paced_s`)."""
        return None if self.raw is None else LayerCosts(self.raw, self.ready.machine)

    @property
    def for_serving(self) -> PreparedModel:
        """A copy without what only planning needs: the weights that the model's reader holds, and `costs`."""
        return replace(self, ready=replace(self.ready, compiled=self.ready.compiled.without_weights), costs=None)


class PreparationStep(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What the preparation does now, in words."""

    text: str


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The preparation raised BadInput, or else Failure. `kind`: as in `errors`."""

    is_bad_input: bool
    text: str
    kind: str

    @property
    def error(self) -> BadInput | Failure:
        return BadInput(self.text, self.kind) if self.is_bad_input else Failure(self.text, self.kind)


class NoAccess(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The preparation raised OSError. `path`: what the error is about, if that is a path."""

    number: int | None
    text: str
    path: str | None

    @property
    def error(self) -> OSError:
        return OSError(self.text) if self.number is None else OSError(self.number, self.text, self.path)


class ModelPrepared(msgspec.Struct, frozen=True, array_like=True, tag=True):
    model: PreparedModel


class PlansAhead(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The last message: the best plans by costs for objectives that may be wanted later."""

    plans: dict[Objective, Plan]


FromPreparer: TypeAlias = PreparationStep | Refused | NoAccess | ModelPrepared | PlansAhead


def _encoded(value: object) -> object:
    """A path as text, an array of numbers as datatype, shape and bytes."""
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    raise NotImplementedError(f"{type(value).__name__} is no part of a message")


def _decoded(wanted: Any, value: Any) -> object:
    if wanted is Path:
        return Path(value)
    if get_origin(wanted) is np.ndarray:
        dtype, shape, data = value
        return np.frombuffer(data, dtype).reshape(shape)
    raise NotImplementedError(f"{wanted} is no part of a message")


PATHS_AND_ARRAYS: Final = (_encoded, _decoded)
TO_PREPARER: Final[Codec[Preparation]] = Codec(Preparation, PATHS_AND_ARRAYS)
FROM_PREPARER: Final[Codec[FromPreparer]] = Codec(FromPreparer, PATHS_AND_ARRAYS)
