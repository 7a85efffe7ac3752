"""Every message between a relay and its far end. Tensors go beside them, in the order in which they are named."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from shisha_rt.messages.worker import Done, Failed, Prepare, Prepared, PrepareFailed, Ready, Retire, Run
from shisha_rt.process.codec import Codec


class Sent(msgspec.Struct, frozen=True, array_like=True):
    """A tensor beside the message; `shape`: of one whose shape depends on the data."""

    name: str
    shape: tuple[int, ...] = ()


# --- relay -> far end -----------------------------------------------------------------------------------------


class PrepareFar(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """`reads` and `makes`, by layout: what crosses the stage's ends, as the relay knows the model."""

    order: Prepare
    reads: tuple[tuple[str, ...], ...]
    makes: tuple[tuple[str, ...], ...]


class RunFar(msgspec.Struct, frozen=True, array_like=True, tag=True):
    run: Run
    tensors: tuple[Sent, ...]


class RepaceFar(msgspec.Struct, frozen=True, array_like=True, tag=True):
    at_once: bool
    speed: float


class Ping(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A message to be answered at once, with bytes beside it, and with `bytes_back` bytes beside the answer."""

    number: int
    bytes_back: int = 0


ToFar: TypeAlias = PrepareFar | RunFar | RepaceFar | Retire | Ping

# --- far end -> relay -----------------------------------------------------------------------------------------


class DoneFar(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """`here_s`: from when the part had come until this was sent; the rest of its time it was under way."""

    done: Done
    tensors: tuple[Sent, ...]
    here_s: float


class Beat(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The worker shows signs of life (`alive`), or waits as its place is emulated (`paced`)."""

    alive: bool
    paced: bool


class Pong(msgspec.Struct, frozen=True, array_like=True, tag=True):
    number: int


class Ended(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The far end's last message: its worker is dead. `running`: the frame that it was computing."""

    reason: str
    running: int | None
    crashed: bool


FromFar: TypeAlias = Ready | Prepared | PrepareFailed | DoneFar | Failed | Beat | Pong | Ended

TO_FAR: Final[Codec[ToFar]] = Codec(ToFar)
FROM_FAR: Final[Codec[FromFar]] = Codec(FromFar)
