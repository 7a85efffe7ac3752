"""What an operator costs on a described device, and a tensor on its way to one: formulas evaluated, nothing measured.

Where a formula's dimension is 0 (an empty tensor) it counts as 1: nothing is free, and no power of it is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from shisha_rt.graph.datatypes import NUMPY_OF
from shisha_rt.graph.dimensions import Dimension, dimensions, tensor_of
from shisha_rt.graph.graph import Graph, Operator, Tensor
from shisha_rt.machine.device import ELEMENT_BYTES, Device, Family, Term, Transfer


def operator_cost_s(graph: Graph, operator: Operator, device: Device) -> float:
    """Seconds; inf where the device cannot run the operator."""
    family = _family_of(graph, operator, device)
    if family is None:
        return math.inf
    sizes = dimensions(graph, operator)
    return math.fsum([device.call_s, *(_term_s(term, sizes) for term in family.terms)])


def transfer_cost_s(tensor: Tensor, source: Device, target: Device) -> float:
    """Seconds from where `source` made a tensor to where `target` reads it; 0 within a memory."""
    if source.memory == target.memory:
        return 0.0
    return _leg_s(source.transfer_out, tensor, source) + _leg_s(target.transfer_in, tensor, target)


def _leg_s(transfer: Transfer | None, tensor: Tensor, device: Device) -> float:
    if transfer is None:
        return 0.0
    return transfer.latency_s + transfer_bytes(tensor, device) / transfer.bandwidth_bytes_per_s


def transfer_bytes(tensor: Tensor, device: Device) -> int:
    """Bytes between the host and a device: floats move in the device's precision, never in more than their own."""
    own = NUMPY_OF[tensor.datatype]
    element_bytes = min(own.itemsize, ELEMENT_BYTES[device.precision]) if own.kind == "f" else own.itemsize
    return element_bytes * math.prod(tensor.shape)


def _family_of(graph: Graph, operator: Operator, device: Device) -> Family | None:
    tensors = [tensor_of(graph, name) for name in (*operator.inputs, *operator.outputs) if name]
    if not all(device.takes(tensor.datatype) for tensor in tensors):
        return None
    if device.max_rank is not None and any(len(tensor.shape) > device.max_rank for tensor in tensors):
        return None
    return next((family for family in device.families if _has(family, operator)), None)


def _has(family: Family, operator: Operator) -> bool:
    if family.ops and (operator.domain or operator.op_type not in family.ops):
        return False
    return all(operator.attributes.get(c.attribute, c.default) == c.value for c in family.conditions)


def _term_s(term: Term, sizes: Mapping[Dimension, int]) -> float:
    value_s = term.seconds
    for dimension, exponent in term.exponents:
        value_s *= math.pow(max(1, sizes[dimension]), exponent)
    return value_s
