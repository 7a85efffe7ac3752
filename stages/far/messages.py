"""Every message between a relay, on the daemon's host, and its far end, on the place's host.

A message lists the tensors that travel beside it, in the same order (`stages/far/carrier.py`).
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from shisha_rt.messages.worker import Done, Failed, Prepare, Prepared, PrepareFailed, Ready, Retire, Run
from shisha_rt.process.codec import Codec


class TensorBeside(msgspec.Struct, frozen=True, array_like=True):
    """A tensor that travels beside the message. `shape`: given only if it depends on the data."""

    name: str
    shape: tuple[int, ...] = ()


# --- relay -> far end -----------------------------------------------------------------------------------------


class PrepareFar(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Build a stage. `reads` and `makes`: by layout, tensors that enter and leave it in the relay's form."""

    order: Prepare
    reads: tuple[tuple[str, ...], ...]
    makes: tuple[tuple[str, ...], ...]


class RunFar(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Compute a part. `tensors`: its inputs."""

    run: Run
    tensors: tuple[TensorBeside, ...]


class RepaceFar(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Emulate the place at `speed` from now on. `at_once`: frames are due as soon as they are computed."""

    at_once: bool
    speed: float


class Ping(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A message to be answered at once, with `bytes_back` bytes beside the answer; it may carry bytes itself."""

    number: int
    bytes_back: int = 0


ToFar: TypeAlias = PrepareFar | RunFar | RepaceFar | Retire | Ping

# --- far end -> relay -----------------------------------------------------------------------------------------


class DoneFar(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A part is done. `tensors`: its outputs.

    `here_s`: from the part's arrival until this message was sent; the rest of the relay's wait was on the link.
    """

    done: Done
    tensors: tuple[TensorBeside, ...]
    here_s: float


class Beat(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Whether the worker shows signs of life (`alive`), and whether it is waiting for its emulated place (`paced`)."""

    alive: bool
    paced: bool


class Pong(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The answer to the `Ping` of this number."""

    number: int


class Ended(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The far end's last message: its worker is dead. `running`: the frame that it was computing, if any."""

    reason: str
    running: int | None
    crashed: bool


FromFar: TypeAlias = Ready | Prepared | PrepareFailed | DoneFar | Failed | Beat | Pong | Ended

TO_FAR: Final[Codec[ToFar]] = Codec(ToFar)
FROM_FAR: Final[Codec[FromFar]] = Codec(FromFar)
