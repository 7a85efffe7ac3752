"""A device as its description has it: what it can run, what that costs, and what moving a tensor to it costs.

A description is a model of a device, not a measurement of one. Costs are posynomials in the operator's dimensions:
sums of terms, each a number of seconds times powers of dimensions. What goes from one device's memory to another's
passes through the host's: out of the first, into the second. Values only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from shisha_rt.graph.dimensions import Dimension

Precision = Literal["fp32", "bf16"]

ELEMENT_BYTES: Final[Mapping[Precision, int]] = {"fp32": 4, "bf16": 2}


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


@dataclass(frozen=True, slots=True)
class Family:
    """Operators whose cost is one formula. `ops` empty: all that no earlier family of the device has."""

    ops: frozenset[str]
    conditions: tuple[Condition, ...]
    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Transfer:
    """Seconds: latency + bytes / bandwidth, conversion included; the bytes are those after conversion."""

    latency_s: float
    bandwidth_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Device:
    """An operator costs `call_s` and the terms of the first family that has it; the device cannot run any other.

    `engine` and `precision` say how the numbers would be made. `datatypes` (empty: all) and `max_rank` (None: any)
    bound what an operator may read and write. Transfers are None for a device of the host's own memory.
    """

    name: str
    source: str
    engine: str
    memory: str
    precision: Precision
    call_s: float
    families: tuple[Family, ...]
    datatypes: frozenset[str] = frozenset()
    max_rank: int | None = None
    transfer_in: Transfer | None = None
    transfer_out: Transfer | None = None
