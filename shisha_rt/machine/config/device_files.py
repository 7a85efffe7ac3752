"""Device files: TOML in, a `Device` out, or BadInput with one line that says what to correct; and a place's devices.

A place on paper has all devices that its machine file lists. A place that runs has those that the wanted precision
permits; their engines must be installed, and some device of this or another place must use the host's memory, which
holds the frames.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final, get_args

import msgspec
import onnx

from shisha_rt.checked import Count, Seconds, Watts, WholeNumber, Word, did_you_mean, refuse, repeated_names, shown
from shisha_rt.errors import BadInput, Error
from shisha_rt.extras import is_installed, pip_install
from shisha_rt.machine.config.shipped import shipped_configs
from shisha_rt.machine.config.toml_file import parse_toml, read_text
from shisha_rt.machine.device import (
    ChannelCount,
    Condition,
    Device,
    DirectLink,
    EngineName,
    Family,
    Fusion,
    Multiple,
    Power,
    Precision,
    Resource,
    Term,
    Transfer,
)
from shisha_rt.machine.machine import Machine, Place
from shisha_rt.model.dimensions import DIMENSIONS, PRODUCT_DIMENSIONS, Dimension
from shisha_rt.model.heavy import HEAVY
from shisha_rt.tensors import NUMPY_OF

_ANY: Final = "*"
_WHAT: Final = "device description"

# The device of a place that lists none, if other places of its machine have devices.
_USUAL: Final = "ort_parallel"

_CHANNELED: Final = frozenset({"Conv", "ConvTranspose"})
"""Operators that have input channels and filters."""

_Exponent = Annotated[float, msgspec.Meta(ge=-4, le=4)]


class _Powers(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    batch: _Exponent = 0
    rows: _Exponent = 0
    inner: _Exponent = 0
    columns: _Exponent = 0
    elements_in: _Exponent = 0
    elements_out: _Exponent = 0
    bytes_in: _Exponent = 0
    bytes_out: _Exponent = 0

    @property
    def exponents(self) -> tuple[tuple[Dimension, float], ...]:
        return tuple((name, float(exponent)) for name in DIMENSIONS if (exponent := getattr(self, name)))


class _Term(_Powers, forbid_unknown_fields=True, kw_only=True):
    seconds: Seconds


class _ResourceTerm(_Powers, forbid_unknown_fields=True, kw_only=True):
    amount: Annotated[float, msgspec.Meta(ge=0, le=1e15)]


class _Multiples(msgspec.Struct, forbid_unknown_fields=True):
    in_channels: Count = 1
    filters: Count = 1


class _Family(msgspec.Struct, forbid_unknown_fields=True):
    ops: Annotated[list[str], msgspec.Meta(min_length=1)]
    cost: list[_Term]
    where: dict[str, int] = {}
    multiples: _Multiples | None = None

    @property
    def conditional(self) -> bool:
        return bool(self.where) or self.multiples is not None


class _Fused(msgspec.Struct, forbid_unknown_fields=True):
    ops: Annotated[list[str], msgspec.Meta(min_length=2)]
    cost: list[_Term] = []


class _Transfer(msgspec.Struct, forbid_unknown_fields=True):
    latency_s: Seconds
    bandwidth_bytes_per_s: Annotated[float, msgspec.Meta(ge=1)]


class _Link(_Transfer, forbid_unknown_fields=True):
    memory: Word


class _Resource(msgspec.Struct, forbid_unknown_fields=True):
    name: Word
    limit: Annotated[float, msgspec.Meta(gt=0)]
    use: Annotated[list[_ResourceTerm], msgspec.Meta(min_length=1)]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    engine: EngineName
    precision: Precision
    threads: Count | None = None
    memory: Word | None = None
    call_s: Seconds | None = None
    family: Annotated[list[_Family], msgspec.Meta(min_length=1)] = []
    fused: list[_Fused] = []
    datatypes: Annotated[list[str], msgspec.Meta(min_length=1)] | None = None
    max_rank: WholeNumber | None = None
    transfer_in: _Transfer | None = None
    transfer_out: _Transfer | None = None
    power_w: Watts | None = None
    transfer_power_w: Watts | None = None
    resource: list[_Resource] = []
    link: list[_Link] = []


def devices_of(machine: Machine, place: Place) -> tuple[Device, ...]:
    """The devices of a place: shipped names, or paths that start from the machine file's folder. Raises BadInput."""
    if not place.devices:
        raise BadInput(
            f"{machine.source}: place {place.name} has no devices, expected devices = [...] in it", Error.DEVICE_UNFIT
        )
    devices = [_read(_find(name, machine, place)) for name in place.devices]
    for index, device in enumerate(devices):
        if device.name in (other.name for other in devices[:index]):
            raise BadInput(
                f"{machine.source}: place {place.name}: devices has two called {device.name}, "
                "expected file names of their own",
                Error.DEVICE_UNFIT,
            )
    return tuple(devices)


def running_devices(machine: Machine, place: Place, precision: str) -> tuple[Device, ...]:
    """The devices that run a place's operators; those that change results are left out if `precision` is "exact".

    () on a machine without devices; on any other machine, a place that lists none has ONNX Runtime as its device.
    Raises BadInput if no device is left, an engine is not installed, or no place has a device of the host's memory.
    """
    if not any(other.devices for other in machine.places):
        return ()
    if not place.devices:
        return (_read(shipped_configs("devices")[_USUAL]),)
    devices = devices_of(machine, place)
    permitted = _permitted(devices, precision)
    refuse(_why_not_run(devices, permitted), f"{machine.source}: place {place.name}", Error.DEVICE_UNFIT)
    if not any(_is_beside_host(machine, near, precision) for near in (place, *machine.places)):
        names = ", ".join(device.name for device in permitted)
        raise BadInput(
            f"{machine.source}: place {place.name}: no device of the host's memory among {names}, nor at another "
            "place: expected one without [transfer_in]",
            Error.DEVICE_UNFIT,
        )
    return permitted


def _permitted(devices: tuple[Device, ...], precision: str) -> tuple[Device, ...]:
    return tuple(device for device in devices if device.exact) if precision == "exact" else devices


def _is_beside_host(machine: Machine, place: Place, precision: str) -> bool:
    """Whether some device that the place runs uses the host's memory; a place without devices does."""
    devices = _permitted(devices_of(machine, place), precision) if place.devices else ()
    return not place.devices or any(device.transfer_in is None for device in devices)


def parse_device(content: str, *, name: str, source: str) -> Device:
    """The device that TOML text describes; `source` names the text in messages. Raises BadInput."""
    file = parse_toml(content, _File, source, _WHAT)
    refuse(_faults(file), source, Error.DEVICE_UNFIT)
    return Device(
        name=name,
        source=source,
        engine=file.engine,
        # A tensor that goes from one engine to another must be in the plain layout, which costs time: so each measured
        # device has a memory of its own.
        memory=file.memory or name,
        precision=file.precision,
        call_s=file.call_s or 0.0,
        families=tuple(map(_family, file.family)),
        fusions=tuple(Fusion(tuple(fused.ops), tuple(map(_term, fused.cost))) for fused in file.fused),
        datatypes=frozenset(file.datatypes or ()),
        max_rank=file.max_rank,
        transfer_in=_transfer(file.transfer_in) if file.transfer_in else None,
        transfer_out=_transfer(file.transfer_out) if file.transfer_out else None,
        threads=file.threads,
        power=None if file.power_w is None else Power(file.power_w, file.transfer_power_w),
        resources=tuple(map(_resource, file.resource)),
        links=tuple(DirectLink(link.memory, _transfer(link)) for link in file.link),
    )


def _read(path: Path) -> Device:
    return parse_device(read_text(path, _WHAT), name=path.stem, source=str(path))


def _find(name: str, machine: Machine, place: Place) -> Path:
    shipped = shipped_configs("devices")
    if name in shipped:
        return shipped[name]
    path = Path(name)
    if path.suffix == ".toml" or len(path.parts) > 1:
        return Path(machine.source).parent / path
    raise BadInput(
        f"{machine.source}: place {place.name}: device {shown(name)}: no such shipped name, "
        f"expected a TOML file or one of {', '.join(shipped)}{did_you_mean(name, {known: known for known in shipped})}",
        Error.UNKNOWN_DEVICE_NAME,
    )


def _why_not_run(devices: Sequence[Device], permitted: Sequence[Device]) -> Iterator[str]:
    if not permitted:
        names = ", ".join(device.name for device in devices)
        yield (
            f'precision = "exact" forbids devices that change results, and it has no other than {names}: '
            'expected another, or precision = "any"'
        )
    for device in permitted:
        if not is_installed(device.engine):
            yield (
                f"device {device.name}: its engine {device.engine} is not installed, "
                f"expected it: {pip_install(device.engine)}"
            )


def _family(family: _Family) -> Family:
    is_any = family.ops == [_ANY]
    conditions = (
        Condition(attribute, value, _integer_attributes(family.ops[0])[attribute])
        for attribute, value in family.where.items()
    )
    multiples = family.multiples or _Multiples()
    return Family(
        frozenset() if is_any else frozenset(family.ops),
        tuple(conditions),
        tuple(map(_term, family.cost)),
        tuple(Multiple(count, of) for count in get_args(ChannelCount) if (of := getattr(multiples, count)) > 1),
    )


def _term(term: _Term) -> Term:
    return Term(term.seconds, term.exponents)


def _resource(resource: _Resource) -> Resource:
    terms = (Term(term.amount, term.exponents) for term in resource.use)
    return Resource(resource.name, resource.limit, tuple(terms))


def _transfer(transfer: _Transfer) -> Transfer:
    return Transfer(transfer.latency_s, transfer.bandwidth_bytes_per_s)


def _integer_attributes(op: str) -> dict[str, int | None]:
    """The whole-number attributes of an operator, with their defaults in the newest opset that has it."""
    return {
        name: attribute.default_value.i if attribute.default_value.name else None
        for name, attribute in onnx.defs.get_schema(op).attributes.items()
        if attribute.type == onnx.defs.OpSchema.AttrType.INT
    }


def _faults(file: _File) -> Iterator[str]:
    """Yield the faults that types and bounds cannot express, most local first."""
    yield from _kind_faults(file)
    for datatype in file.datatypes or ():
        if datatype not in NUMPY_OF:
            yield f"datatypes: {shown(datatype)}: no such datatype, expected among {', '.join(NUMPY_OF)}"
    if (file.transfer_in is None) != (file.transfer_out is None):
        missing = "transfer_in" if file.transfer_in is None else "transfer_out"
        yield f"{missing} is missing: expected both, or neither for a device of the host's memory"
    yield from _power_faults(file)
    yield from _link_faults(file)
    for i, family in enumerate(file.family):
        yield from (f"family[{i}]{fault}" for fault in _family_faults(family, file.family[:i], file.family[i + 1 :]))
    for i, fused in enumerate(file.fused):
        yield from (f"fused[{i}]{fault}" for fault in _fused_faults(fused, file.family, file.fused[:i]))
    yield from repeated_names("resource", [resource.name for resource in file.resource])


def _power_faults(file: _File) -> Iterator[str]:
    """`transfer_power_w` must stand beside `power_w` if there is [transfer_in], and nowhere else."""
    if file.transfer_power_w is None:
        if file.power_w is not None and file.transfer_in is not None:
            yield "transfer_power_w is missing: expected it beside power_w for a device with [transfer_in]"
    elif file.power_w is None or file.transfer_in is None:
        yield "transfer_power_w: expected it only beside power_w and [transfer_in]"


def _link_faults(file: _File) -> Iterator[str]:
    """A direct link must go from the device's own separate memory to a different one, at most once to each."""
    for i, link in enumerate(file.link):
        if file.transfer_in is None:
            yield f"link[{i}]: expected [transfer_in] and [transfer_out] beside it: only a memory apart has such a way"
        if link.memory == file.memory:
            yield f"link[{i}].memory = {shown(link.memory)}: is the device's own, expected another's"
        if any(link.memory == other.memory for other in file.link[:i]):
            yield f"link[{i}].memory = {shown(link.memory)}: is linked already, expected it once"


def _kind_faults(file: _File) -> Iterator[str]:
    if file.family:
        for key in ("memory", "call_s"):
            if getattr(file, key) is None:
                yield f"{key} is missing: a device with [[family]] is described, expected such a key"
    else:
        described = (
            "memory",
            "call_s",
            "datatypes",
            "max_rank",
            "transfer_in",
            "transfer_out",
            "fused",
            "resource",
            "link",
        )
        for key in described:
            if getattr(file, key) not in (None, []):
                yield f"{key}: a device without [[family]] is measured, expected no such key"


def _family_faults(family: _Family, earlier: Sequence[_Family], later: Sequence[_Family]) -> Iterator[str]:
    if _ANY in family.ops:
        if len(family.ops) > 1 or family.conditional or later:
            yield f'.ops = {shown(family.ops)}: "{_ANY}" is all other operators, expected it alone in the last family'
    else:
        yield from _operator_faults(family, earlier)
    yield from _cost_faults(family.cost, family.ops)


def _fused_faults(fused: _Fused, families: Sequence[_Family], earlier: Sequence[_Fused]) -> Iterator[str]:
    for op in fused.ops:
        if not onnx.defs.has(op):
            yield f".ops: {shown(op)}: no operator of ONNX, expected names such as Conv"
    first = fused.ops[0]
    if not any({first, _ANY} & set(family.ops) for family in families):
        yield f".ops: {first}: no family has it, expected one: what the first operator costs by itself counts"
    if any(fused.ops == other.ops for other in earlier):
        yield f".ops = {shown(fused.ops)}: are fused already, expected them once"
    yield from _cost_faults(fused.cost, [first])


def _cost_faults(cost: Sequence[_Term], ops: Sequence[str]) -> Iterator[str]:
    """`ops`: the operators whose dimensions the terms use."""
    if HEAVY.issuperset(ops):
        return
    for i, term in enumerate(cost):
        for dimension in PRODUCT_DIMENSIONS:
            if getattr(term, dimension):
                heavy = ", ".join(sorted(op for op in HEAVY if onnx.defs.has(op)))
                yield f".cost[{i}].{dimension}: only products have it, expected ops among {heavy}"


def _operator_faults(family: _Family, earlier: Sequence[_Family]) -> Iterator[str]:
    for op in family.ops:
        if not onnx.defs.has(op):
            yield f'.ops: {shown(op)}: no operator of ONNX, expected names such as MatMul, or ["{_ANY}"] for all others'
            return
        if any(op in other.ops and not other.conditional for other in earlier) or family.ops.count(op) > 1:
            yield f".ops: {op}: is covered already, expected it once, or after families with a `where` or `multiples`"
        if family.multiples and op not in _CHANNELED:
            yield f".multiples: {op} has no such channels, expected ops among {', '.join(sorted(_CHANNELED))}"
        attributes = _integer_attributes(op)
        for attribute in family.where:
            if attribute not in attributes:
                known = f"one of {', '.join(sorted(attributes))}" if attributes else "none: it has no whole-number ones"
                yield f".where.{attribute}: no such attribute of {op}, expected {known}"
