"""A device as its description has it: what it can run, what that costs, and what moving a tensor to it costs.

A device with families is *described*: a model of a device that need not be there, and is emulated where it runs. Its
costs are posynomials in the operator's dimensions: sums of terms, each a number of seconds times powers of dimensions.
A device without them is an engine of this host, and its costs are measured. What goes from one device's memory to
another's passes through the host's, out of the first, into the second, unless a direct link of theirs is quicker.
Values only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from shisha_rt.model.dimensions import Dimension

EngineName = Literal["onnxruntime", "openvino"]
Precision = Literal["fp32", "bf16", "int8"]

ELEMENT_BYTES: Final[Mapping[Precision, int]] = {"fp32": 4, "bf16": 2, "int8": 1}

_NOT_COMPUTED: Final[Mapping[EngineName, frozenset[str]]] = {"openvino": frozenset({"FP64"})}
"""Datatypes in which an engine does not compute: OpenVINO takes float32 instead, and in some networks fails."""


@dataclass(frozen=True, slots=True)
class Term:
    """`seconds` times the product of dimensions raised to their exponents."""

    seconds: float
    exponents: tuple[tuple[Dimension, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Condition:
    """An attribute that must have a value; `default` is ONNX's where the operator does not state it."""

    attribute: str
    value: int
    default: int | None


ChannelCount = Literal["in_channels", "filters"]
"""Of a convolution, over all of its groups."""


@dataclass(frozen=True, slots=True)
class Multiple:
    """A number of channels that must be a multiple of `of`."""

    count: ChannelCount
    of: int


@dataclass(frozen=True, slots=True)
class Family:
    """Operators whose cost is one formula. `ops` empty: all that no earlier family of the device has."""

    ops: frozenset[str]
    conditions: tuple[Condition, ...]
    terms: tuple[Term, ...]
    multiples: tuple[Multiple, ...] = ()


@dataclass(frozen=True, slots=True)
class Fusion:
    """Operators in a row, by their types, that the device runs as one: what is between them is never stored.

    It costs what the first of them costs by itself, and `terms` of that one's dimensions. The device need not be able
    to run the others by themselves. Each reads the one before it, which nothing else does, and constants at most.
    """

    ops: tuple[str, ...]
    terms: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True)
class Transfer:
    """Seconds: latency + bytes / bandwidth, conversion included; the bytes are those after conversion."""

    latency_s: float
    bandwidth_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class DirectLink:
    """The way between a device's memory and another, `memory`, past the host's; the same in both directions."""

    memory: str
    transfer: Transfer


@dataclass(frozen=True, slots=True)
class Power:
    """Watts while it computes, and while a tensor moves to or from it (None: nothing has to be moved)."""

    compute_w: float
    transfer_w: float | None = None


@dataclass(frozen=True, slots=True)
class ResourceTerm:
    """`amount` times the product of dimensions raised to their exponents."""

    amount: float
    exponents: tuple[tuple[Dimension, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Resource:
    """Something that the device has `limit` of; a product takes the sum of the terms, as long as it is there."""

    name: str
    limit: float
    terms: tuple[ResourceTerm, ...]


@dataclass(frozen=True, slots=True)
class Device:
    """Described, an operator costs `call_s` and the terms of the first family that has it; no other can run on it, but
    within one of `fusions`.

    `engine` and `precision` say how the numbers are made, on `threads` threads (None: all that its place has).
    `datatypes` (empty: all) and `max_rank` (None: any) bound what an operator may read and write. Transfers are None
    where nothing has to be moved, or its price is not known yet. `power` is None where none is stated. A product
    that would take more of one of `resources` than there is cannot run on it.
    """

    name: str
    source: str
    engine: EngineName
    memory: str
    precision: Precision
    call_s: float = 0.0
    families: tuple[Family, ...] = ()
    fusions: tuple[Fusion, ...] = ()
    datatypes: frozenset[str] = frozenset()
    max_rank: int | None = None
    transfer_in: Transfer | None = None
    transfer_out: Transfer | None = None
    threads: int | None = None
    power: Power | None = None
    resources: tuple[Resource, ...] = ()
    links: tuple[DirectLink, ...] = ()

    @property
    def described(self) -> bool:
        return bool(self.families)

    @property
    def exact(self) -> bool:
        """Whether it computes in the precision that the model states, up to rounding.

        In a model of integers that is a step of theirs wherever they are rounded anew, so that its answers may be a few
        apart from another engine's.
        """
        return self.precision == "fp32"

    def takes(self, datatype: str) -> bool:
        """Whether an operator of it may read and write tensors of this datatype."""
        return datatype not in _NOT_COMPUTED.get(self.engine, ()) and (not self.datatypes or datatype in self.datatypes)

    def link_with(self, other: Device) -> Transfer | None:
        """The direct link between two devices' memories, as this one states it, or else the other; None: none."""
        stated = [link for link in self.links if link.memory == other.memory]
        stated += [link for link in other.links if link.memory == self.memory]
        return stated[0].transfer if stated else None

    def threads_on(self, place_threads: int) -> int:
        """How many threads it uses on a place of so many."""
        return place_threads if self.threads is None else min(self.threads, place_threads)
