"""What a daemon is started with: a daemon file, or a bare model and options."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

import msgspec

from shisha_rt.checked import convert, shown
from shisha_rt.errors import BadInput

ENDPOINT: Final = "tcp://127.0.0.1:5555"
METRICS: Final = "127.0.0.1:9464"
SEARCHES: Final = ("guided", "shisha")
"""How a live pipeline is tuned: by exact plans for costs that each trial corrects, or by Shisha's walk."""

STRATEGIES: Final = (*SEARCHES, "seed")
"""`seed`: it is not tuned at all."""

PRECISIONS: Final = ("exact", "any")
"""Whether devices that change results may run: by default they may not."""

SOLVERS: Final = ("exact", "als")
"""How operators are placed on devices: at the least cost, or by the recurrence of the DCG papers."""


@dataclass(frozen=True)
class Settings:
    """`model` is a path or `zoo:NAME`, `machine` a path or a shipped name, `metrics` HOST:PORT on loopback."""

    model: str
    machine: str = "this-machine"
    endpoint: str = ENDPOINT
    metrics: str = METRICS
    dims: dict[str, int] = field(default_factory=dict)
    strategy: str = "guided"
    precision: str = "exact"
    solver: str = "exact"

    @property
    def metrics_port(self) -> int:
        host, _, port = self.metrics.rpartition(":")
        if host not in ("", "127.0.0.1", "localhost") or not port.isdigit() or int(port) > 65535:
            raise BadInput(f"metrics {self.metrics!r}: expected 127.0.0.1:PORT (the page is for this machine only)")
        return int(port)


class _File(msgspec.Struct, forbid_unknown_fields=True):
    model: str
    machine: str = "this-machine"
    endpoint: str = ENDPOINT
    metrics: str = METRICS
    dims: dict[str, Annotated[int, msgspec.Meta(ge=1)]] = {}
    strategy: str = "guided"
    precision: str = "exact"
    solver: str = "exact"


def read_settings(path: Path) -> Settings:
    """A daemon file. Relative paths in it start from its own folder."""
    try:
        raw = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadInput(f"{path}: {reason}; expected a daemon file in TOML") from None
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path}: {error}; expected TOML") from None
    file = convert(raw, _File, str(path))
    return Settings(
        model=file.model if file.model.startswith("zoo:") else str(path.parent / file.model),
        machine=_beside(path, file.machine),
        endpoint=file.endpoint,
        metrics=file.metrics,
        dims=file.dims,
        strategy=file.strategy,
        precision=file.precision,
        solver=file.solver,
    )


def check_built(settings: Settings, source: str) -> None:
    """Raises BadInput for a value that a key cannot have, or that the design has and this version has not."""
    if settings.strategy not in STRATEGIES:
        known = ", ".join(STRATEGIES)
        raise BadInput(f"{source}: strategy = {shown(settings.strategy)}: not built yet, expected one of {known}")
    if settings.precision not in PRECISIONS:
        raise BadInput(f"{source}: precision = {shown(settings.precision)}: expected {' or '.join(PRECISIONS)}")
    if settings.solver not in SOLVERS:
        raise BadInput(f"{source}: solver = {shown(settings.solver)}: expected {' or '.join(SOLVERS)}")


def _beside(path: Path, machine: str) -> str:
    """A shipped name stays a name; anything that looks like a file is one beside the daemon file."""
    return str(path.parent / machine) if machine.endswith(".toml") else machine
