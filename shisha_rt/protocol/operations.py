"""The operations that a client can ask for, and their arguments.

The table `OPERATIONS` has all of them except `infer`, whose header has a type of its own. Each argument may be at the
top level of the header or inside its `parameters`. Types, signs and lengths are checked here; the daemon checks whether
arguments make sense for its machine and model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

from msgspec import Meta, Struct

from shisha_rt.checked import one_of
from shisha_rt.machine.machine import MIN_SPEED
from shisha_rt.plan.form import MOST_STAGES, WrittenStage
from shisha_rt.plan.rate import ANY_OBJECTIVES
from shisha_rt.protocol.limits import MAX_ALPHA, MAX_EVENTS, MAX_INTEGER, MAX_NAME_LENGTH, MAX_SHADOW_FRAMES

_PRINTED: Final = r"^[^\x00-\x1f\x7f]*\Z"
_IN_A_PATH: Final = r"^(?!\.{1,2}\Z)[^/\x00-\x1f\x7f]*\Z"
PATTERNS: Final = {
    _PRINTED: "without control characters",
    _IN_A_PATH: "without control characters or a slash, and neither '.' nor '..'",
}
"""What the patterns of names say, in words."""
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH, pattern=_PRINTED)]
"""Without control characters, which terminals would obey where the name is shown."""
PathName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH, pattern=_IN_A_PATH)]
"""A model's name or version, which is a part of its paths over HTTP."""
Count: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]

INFER: Final = "infer"


class NoArguments(Struct, frozen=True):
    pass


class Cancel(Struct, frozen=True):
    """`target` is the id of the request to cancel, on the same connection."""

    target: Annotated[str, Meta(max_length=MAX_NAME_LENGTH)]


class OfModel(Struct, frozen=True):
    """`model_name` may be left out, as a daemon has one model."""

    model_name: str | None = None


class RepositoryIndex(Struct, frozen=True):
    """`ready`: list only models that are ready."""

    ready: bool = False


class ModelLoad(Struct, frozen=True):
    """Serve a model, or another version of one that is served. `model`: its path or `zoo:NAME`; None: the known one.

    `shadow`: how many frames another version computes in parallel to the present one, before it takes over.
    """

    model_name: PathName
    model: Annotated[str, Meta(min_length=1)] | None = None
    version: PathName | None = None
    shadow: Annotated[int, Meta(ge=0, le=MAX_SHADOW_FRAMES)] = 0


class Shadow(Struct, frozen=True):
    """Have the daemon at `endpoint`, of another version, compute `frames` of this one's frames, too, and compare."""

    endpoint: str
    frames: Annotated[int, Meta(ge=1, le=MAX_SHADOW_FRAMES)]


class ModelUnload(Struct, frozen=True):
    model_name: Name


class Events(Struct, frozen=True):
    """Events numbered `since` and later, at most `limit` of them."""

    since: Count = 0
    limit: Annotated[int, Meta(ge=1, le=MAX_EVENTS)] = 1000


class PlanSet(Struct, frozen=True):
    stages: Annotated[tuple[WrittenStage, ...], Meta(min_length=1, max_length=MOST_STAGES)]


class PlaceSet(Struct, frozen=True):
    """Change one place: set its speed or that of one of its devices, or take the place up or down."""

    place: Name
    speed: Annotated[float, Meta(ge=MIN_SPEED)] | None = None
    device: Name | None = None
    up: bool = False
    down: bool = False

    def __post_init__(self) -> None:
        if (self.speed is not None) + self.up + self.down != 1:
            raise ValueError("place_set takes exactly one of: speed (at least 0.001), up (true), down (true)")
        if self.device is not None and self.speed is None:
            raise ValueError("place_set takes device with speed only: a place goes up or down with all its devices")


class Crowded(Struct, frozen=True):
    """The places on which other models compute frames, too, as the host process reports them."""

    places: tuple[Name, ...]


class TunerSet(Struct, frozen=True):
    """Steer the tuner. `alpha` is the number of trials without gain after which it stops (Shisha, Algorithm 2).

    `objective`: what plans are chosen for; `auto`: as the load asks.
    """

    pause: bool = False
    resume: bool = False
    restart: bool = False
    alpha: Annotated[int, Meta(ge=1, le=MAX_ALPHA)] | None = None
    strategy: Name | None = None
    objective: Name | None = None

    def __post_init__(self) -> None:
        actions = self.pause + self.resume + self.restart
        if actions > 1 or (actions == 0 and (self.alpha, self.strategy, self.objective) == (None, None, None)):
            raise ValueError(
                "tuner_set takes at most one of pause, resume, restart (true), and else alpha, strategy or objective"
            )
        if self.objective is not None:
            one_of("objective", self.objective, ANY_OBJECTIVES)


Arguments: TypeAlias = Struct
"""Those of an operation, of the type that `OPERATIONS` has for it."""

OPERATIONS: Final[Mapping[str, type[Arguments]]] = {
    "cancel": Cancel,
    "server_live": NoArguments,
    "server_ready": NoArguments,
    "server_metadata": NoArguments,
    "model_ready": OfModel,
    "model_metadata": OfModel,
    "model_statistics": OfModel,
    "repository_index": RepositoryIndex,
    "model_load": ModelLoad,
    "model_unload": ModelUnload,
    "model_undo": ModelUnload,
    "send_away": NoArguments,
    "shadow": Shadow,
    "status": NoArguments,
    "events": Events,
    "plan_get": NoArguments,
    "plan_set": PlanSet,
    "place_set": PlaceSet,
    "crowded": Crowded,
    "tuner_get": NoArguments,
    "tuner_set": TunerSet,
}
LOADING_OPS: Final = frozenset({"model_load", "model_unload", "model_undo"})
"""Operations that name models which may not be served yet."""
CONTROL_OPS: Final = frozenset(
    {
        *("plan_get", "plan_set", "place_set", "tuner_get", "tuner_set"),
        *("send_away", "shadow", "crowded"),
        *LOADING_OPS,
    }
)
"""Operations for operators only, if the daemon has access control."""
