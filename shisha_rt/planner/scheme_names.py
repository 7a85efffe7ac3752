"""What schemes that schedule partitions are called: a command's help names them all, and loads none."""

from __future__ import annotations

from typing import Final, Literal, get_args

SchemeName = Literal["baseline", "typeseq", "opseq", "partitiontuner", "forkjoin"]
SCHEMES: Final[tuple[SchemeName, ...]] = get_args(SchemeName)
"""They schedule partitions of a network over places, for the least latency (see `scheme_plans`)."""


def as_scheme(strategy: str) -> SchemeName | None:
    """The scheme of this name; None for a strategy that is no scheme."""
    return next((scheme for scheme in SCHEMES if scheme == strategy), None)


PARTITIONS: Final = "schedules of partitions"
"""What they look at."""
