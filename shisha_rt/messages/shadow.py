"""Messages between a daemon and the process that compares its answers with those of another version."""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec import Struct

from shisha_rt.process.codec import Codec


class ShadowBegins(Struct, frozen=True, array_like=True, tag=True):
    """Compare `frames` answers with those of the daemon at `endpoint`, one at a time."""

    endpoint: str
    frames: int


class ShadowTensor(Struct, frozen=True, array_like=True):
    datatype: str
    shape: tuple[int, ...]
    data: bytes


class ShadowFrame(Struct, frozen=True, array_like=True, tag=True):
    """A frame that was answered: its inputs and outputs, by name."""

    inputs: dict[str, ShadowTensor]
    outputs: dict[str, ShadowTensor]


class NextFrame(Struct, frozen=True, array_like=True, tag=True):
    """The process is ready for a frame."""


class ShadowEnds(Struct, frozen=True, array_like=True, tag=True):
    """The comparison has ended. Of the frames `compared`, `different` have an output that differs by more than
    rounding.

    `failed`: 1 if the other daemon answered a frame with an error, which ends the comparison; `reason` says which
    error. `difference`: the largest of any real output, relative to the output's largest value. `unlike`: the largest
    fraction of values that differ in an output of integers.
    """

    compared: int
    different: int
    failed: int
    difference: float
    unlike: float
    reason: str = ""


ToShadow: TypeAlias = ShadowBegins | ShadowFrame
FromShadow: TypeAlias = NextFrame | ShadowEnds

TO_SHADOW: Final[Codec[ToShadow]] = Codec(ToShadow)
FROM_SHADOW: Final[Codec[FromShadow]] = Codec(FromShadow)
