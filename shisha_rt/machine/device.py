"""A device as its file describes it: what it can run, what that costs, and what moving a tensor to it costs.

A device with families is *described*: a model of a device that need not exist, and is emulated when it runs. Its costs
are posynomials in the operator's dimensions: sums of terms, each a number of seconds times powers of dimensions. A
device without families is an engine of this host, and its costs are measured. A tensor moves from one device's memory
to another's by way of the host's memory, unless a direct link between the two is faster. Values only.
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
"""Datatypes in which an engine does not compute: OpenVINO uses float32 for FP64, and fails on some networks."""


@dataclass(frozen=True, slots=True)
class Term:
    """`amount` (seconds, or units of a resource) times the product of dimensions raised to their exponents."""

    amount: float
    exponents: tuple[tuple[Dimension, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Condition:
    """An attribute that must have this value; `default`: ONNX's, for operators that do not state the attribute."""

    attribute: str
    value: int
    default: int | None


ChannelCount = Literal["in_channels", "filters"]
"""Which channels of a convolution, counted over all of its groups."""


@dataclass(frozen=True, slots=True)
class Multiple:
    """A number of channels that must be a multiple of `of`."""

    count: ChannelCount
    of: int


@dataclass(frozen=True, slots=True)
class Family:
    """Operators whose cost is one formula. `ops` empty: all operators that no earlier family of the device has."""

    ops: frozenset[str]
    conditions: tuple[Condition, ...]
    terms: tuple[Term, ...]
    multiples: tuple[Multiple, ...] = ()


@dataclass(frozen=True, slots=True)
class Fusion:
    """A chain of operators, by type, that the device runs as one: tensors between them are never stored.

    It costs as much as the first operator by itself, plus `terms` in that operator's dimensions. The device need not be
    able to run the later operators by themselves. Each of them reads the output of the one before, which nothing else
    reads, and apart from that only constants.
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
    """A link from a device's memory to another `memory`, bypassing the host's; as fast in both directions."""

    memory: str
    transfer: Transfer


@dataclass(frozen=True, slots=True)
class Power:
    """Watts while the device computes, and while a tensor moves to or from it (None: nothing has to be moved)."""

    compute_w: float
    transfer_w: float | None = None


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of which the device has `limit`; a product placed there occupies the sum of the terms."""

    name: str
    limit: float
    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Device:
    """If described, an operator costs `call_s` plus the terms of the first family that has it; operators of no family
    run only within one of `fusions`.

    `engine` and `precision` say how the numbers are computed, on `threads` threads (None: all of its place's).
    `datatypes` (empty: all) and `max_rank` (None: any) bound what an operator may read and write. Transfers are None if
    nothing has to be moved, or the cost is not known yet. `power` is None if none is stated. A product that would
    occupy more than the limit of one of `resources` cannot run on the device.
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

        In a model of integers each rounding may differ by one step, so answers may be a few steps apart from those of a
        different engine.
        """
        return self.precision == "fp32"

    def takes(self, datatype: str) -> bool:
        """Whether operators on the device may read and write tensors of this datatype."""
        return datatype not in _NOT_COMPUTED.get(self.engine, ()) and (not self.datatypes or datatype in self.datatypes)

    def link_with(self, other: Device) -> Transfer | None:
        """The direct link between two devices' memories, as this device states it, else as `other` does; or None."""
        stated = [link for link in self.links if link.memory == other.memory]
        stated += [link for link in other.links if link.memory == self.memory]
        return stated[0].transfer if stated else None

    def threads_on(self, place_threads: int) -> int:
        return place_threads if self.threads is None else min(self.threads, place_threads)
