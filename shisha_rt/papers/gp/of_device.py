"""A described device for geometric programs and integer splits: its formulas for a Conv, rewritten in features.

The share of a convolution with the features H, W, C, k, N and s (of one image, with a bias) in G groups has, as any
operator (`model/dimensions.py`), batch = G, rows = H W, inner = C k^2 and columns = N, where C and N are those of one
group. Its input map counts as (H s) x (W s) positions, which is exact for "same" padding and a stride that divides
them. Sums raised to whole powers are multiplied out; raised to other powers they are no posynomials.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from types import MappingProxyType
from typing import Final

from shisha_rt.errors import BadInput, Error
from shisha_rt.machine.device import ELEMENT_BYTES, Device, Transfer
from shisha_rt.model.dimensions import Dimension
from shisha_rt.papers.gp.posynomial import Monomial, Posynomial
from shisha_rt.papers.gp.problem import Formula, Legs, SplitDevice
from shisha_rt.planner.strategies import SplitObjective

_ROWS: Final = Posynomial((Monomial(1.0, {"H": 1.0, "W": 1.0}),))
_INNER: Final = Posynomial((Monomial(1.0, {"C": 1.0, "k": 2.0}),))
_COLUMNS: Final = Posynomial((Monomial(1.0, {"N": 1.0}),))
_GROUPS: Final = Posynomial((Monomial(1.0, {"G": 1.0}),))
_WEIGHTS: Final = Posynomial((Monomial(1.0, {"C": 1.0, "k": 2.0, "N": 1.0, "G": 1.0}),))
_BIAS: Final = Posynomial((Monomial(1.0, {"N": 1.0, "G": 1.0}),))
INPUT_MAP: Final = Posynomial((Monomial(1.0, {"H": 1.0, "W": 1.0, "C": 1.0, "s": 2.0, "G": 1.0}),))
"""Elements that a share reads and that have to be moved; the device has the weights already."""
OUTPUT_MAP: Final = Posynomial((Monomial(1.0, {"H": 1.0, "W": 1.0, "N": 1.0, "G": 1.0}),))
_READ: Final = INPUT_MAP.plus(_WEIGHTS).plus(_BIAS)
_IMAGE_RANK: Final = 4
_FLOAT_BYTES: Final = ELEMENT_BYTES["fp32"]

_DIMENSIONS: Final[Mapping[Dimension, Posynomial]] = MappingProxyType(
    {
        "batch": _GROUPS,
        "rows": _ROWS,
        "inner": _INNER,
        "columns": _COLUMNS,
        "elements_in": _READ,
        "elements_out": OUTPUT_MAP,
        "bytes_in": _READ.times(_FLOAT_BYTES),
        "bytes_out": OUTPUT_MAP.times(_FLOAT_BYTES),
    }
)


def split_device(device: Device, objective: SplitObjective = "latency", one_for_all: bool = False) -> SplitDevice:
    """A described device with its formulas as posynomials of features.

    Partial sums (shares of C) move as any output does, in the device's precision. Raises BadInput if the device has no
    formulas, none for a Conv of floats or none that is a posynomial; or, for `energy`, states no power.
    """
    if not device.described:
        raise BadInput(
            f"{device.source}: device {device.name} is measured, expected a described one: it has formulas",
            Error.DEVICE_UNFIT,
        )
    if device.power is None and objective == "energy":
        raise BadInput(
            f"{device.source}: power_w is missing: expected it, as energy is power times time", Error.DEVICE_UNFIT
        )
    formulas = _of_convolutions(device)
    _check_takes_images(device)
    power = device.power
    transfer_w = None if power is None else power.transfer_w
    return SplitDevice(
        name=device.name,
        formulas=formulas,
        legs=_legs(device),
        power_w=1.0 if power is None else power.compute_w,
        transfer_power_w=1.0 if transfer_w is None else transfer_w,
        resources={
            resource.name: _sum(device, [(term.amount, term.exponents) for term in resource.terms])
            for resource in device.resources
        },
        limits={resource.name: resource.limit for resource in device.resources},
        one_for_all=one_for_all,
    )


def _of_convolutions(device: Device) -> tuple[Formula, ...]:
    """What the families of a Conv cost, in their order; what no share can get to is left out.

    A Conv has no other whole-number attribute that a family's condition could be about than its number of groups.
    """
    formulas: list[Formula] = []
    for family in device.families:
        if not family.ops or "Conv" in family.ops:
            groups = next((condition.value for condition in family.conditions), None)
            of = {multiple.count: multiple.of for multiple in family.multiples}
            seconds = _sum(device, [(device.call_s, ()), *((term.amount, term.exponents) for term in family.terms)])
            formulas.append(Formula(seconds, groups, of.get("in_channels", 1), of.get("filters", 1)))
            if groups is None and not of:
                break
    if not any(formula.groups in (None, 1) for formula in formulas):
        raise BadInput(
            f"{device.source}: no [[family]] has Conv, expected one: a split layer is a convolution", Error.DEVICE_UNFIT
        )
    return tuple(formulas)


def _check_takes_images(device: Device) -> None:
    if device.max_rank is not None and device.max_rank < _IMAGE_RANK:
        raise BadInput(
            f"{device.source}: max_rank = {device.max_rank}, expected {_IMAGE_RANK} or more: images have it",
            Error.DEVICE_UNFIT,
        )
    if not device.takes("FP32"):
        raise BadInput(
            f"{device.source}: datatypes without FP32, expected it: that is what is split", Error.DEVICE_UNFIT
        )


def _legs(device: Device) -> Legs | None:
    """Transfers of a share's input map in and its output map out; None: the device uses the host's memory."""
    bytes_each = ELEMENT_BYTES[device.precision]
    maps = ((device.transfer_in, INPUT_MAP), (device.transfer_out, OUTPUT_MAP))
    in_s, out_s = (_leg(transfer, elements.times(bytes_each)) for transfer, elements in maps)
    return Legs(in_s, out_s) if in_s.terms or out_s.terms else None


def device_links(devices: Sequence[Device]) -> tuple[tuple[Posynomial | None, ...], ...]:
    """(devices, devices): seconds of a share's input map from the first device's memory directly to the second's; None:
    no direct link. (): there are no links at all. Floats move in the narrower of the two precisions.
    """
    if not any(device.links for device in devices):
        return ()
    return tuple(tuple(_straight(source, target) for target in devices) for source in devices)


def _straight(source: Device, target: Device) -> Posynomial | None:
    link = source.link_with(target)
    bytes_each = min(ELEMENT_BYTES[source.precision], ELEMENT_BYTES[target.precision])
    return None if link is None else _leg(link, INPUT_MAP.times(bytes_each))


def _leg(transfer: Transfer | None, moved_bytes: Posynomial) -> Posynomial:
    if transfer is None:
        return Posynomial(())
    latency = (Monomial(transfer.latency_s, {}),) if transfer.latency_s else ()
    return Posynomial(latency).plus(moved_bytes.times(1 / transfer.bandwidth_bytes_per_s))


def _sum(device: Device, terms: Sequence[tuple[float, Sequence[tuple[Dimension, float]]]]) -> Posynomial:
    """Sum of terms (coefficient, exponents of dimensions) as a posynomial of features; terms of 0 are left out."""
    total = Posynomial(())
    for coefficient, exponents in terms:
        if coefficient:
            factors = [_power(device, dimension, exponent) for dimension, exponent in exponents]
            total = total.plus(reduce(Posynomial.by, factors, Posynomial((Monomial(coefficient, {}),))))
    return total


def _power(device: Device, dimension: Dimension, exponent: float) -> Posynomial:
    sizes = _DIMENSIONS[dimension]
    if len(sizes.terms) == 1:
        (term,) = sizes.terms
        raised = {name: power * exponent for name, power in term.exponents.items()}
        return Posynomial((Monomial(math.pow(term.coefficient, exponent), raised),))
    if exponent < 1 or exponent != int(exponent):
        raise BadInput(
            f"{device.source}: cost of Conv: {dimension} = {exponent:g} makes no posynomial of the features, "
            "expected 1, 2, 3 or 4: it is a sum of inputs and weights",
            Error.DEVICE_UNFIT,
        )
    return reduce(Posynomial.by, [sizes] * int(exponent))
