"""What the host process knows of one model that it serves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from shisha_rt.repository.asking import Fields
from shisha_rt.repository.entries import ModelEntry
from shisha_rt.repository.model_daemon import ModelDaemon


@dataclass(frozen=True, slots=True)
class SeenLoad:
    """A daemon's load as reported at `at_s`: seconds of computing and number of frames refused, since it began."""

    at_s: float
    busy_s: float
    refused: int


@dataclass(slots=True, eq=False)
class ServedModel:
    """`daemon`: requests go to it; `coming`: a different version's daemon, which takes over once it serves.

    `leaving`: replaced daemons, and since when nothing has been in flight there (inf: something is, or that is unknown;
    -inf: the daemon is being ended). `previous`: the version before. `shadow`: how many frames `coming` computes beside
    `daemon` before it takes over; `shadowed`: the result. `then`: called at the end of loading with what went wrong, or
    None if the model serves.
    """

    entry: ModelEntry
    daemon: ModelDaemon | None = None
    coming: ModelDaemon | None = None
    leaving: dict[ModelDaemon, float] = field(default_factory=dict)
    previous: ModelEntry | None = None
    shadow: int = 0
    shadowed: Fields = field(default_factory=dict)
    then: list[Callable[[str | None], None]] = field(default_factory=list)
    reason: str = "it is being started"
    failures: int = 0
    again_at_s: float = math.inf
    ready_s: float = math.inf
    is_unloaded: bool = False
    said: Fields = field(default_factory=dict)
    statistics: Sequence[Any] = ()
    seen: SeenLoad | None = None

    @property
    def serves(self) -> bool:
        return self.daemon is not None and self.daemon.ready

    @property
    def daemons(self) -> list[ModelDaemon]:
        return [daemon for daemon in (self.daemon, self.coming, *self.leaving) if daemon is not None]

    def tell(self, trouble: str | None) -> None:
        """Answer those that wait for the end of loading. `trouble`: what went wrong; None if the model serves."""
        waiting, self.then = self.then, []
        for then in waiting:
            then(trouble)
