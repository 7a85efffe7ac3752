"""What a daemon and the process that compares its answers with another version's say to each other."""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec import Struct

from shisha_rt.process.codec import Codec


class ShadowBegins(Struct, frozen=True, array_like=True, tag=True):
    """Hold `frames` answers against those of the daemon at `endpoint`, one at a time."""

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
    """The process can take a frame."""


class ShadowEnds(Struct, frozen=True, array_like=True, tag=True):
    """How it ended. Of the frames `compared`, `different` have an output that differs by more than rounding.

    `failed`: 1 if the other daemon answered one with an error, which ends it, and `reason` says which. `difference`:
    the largest of any real output, as part of its largest value. `unlike`: the largest share of other values in an
    output of integers.
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
