"""Costs by the formulas of described devices: of an operator, of several fused, and of a tensor's transfer.

A dimension of 0 (an empty tensor) counts as 1: a negative power of 0 would be infinite, and a positive one free.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from shisha_rt.machine.device import ELEMENT_BYTES, Device, Family, Fusion, Multiple, Term, Transfer
from shisha_rt.model.dimensions import Dimension, channel_counts, dimensions
from shisha_rt.model.graph import Graph, Operator, Tensor
from shisha_rt.model.heavy import HEAVY
from shisha_rt.model.spans import Span
from shisha_rt.tensors import NUMPY_OF


def operator_cost_s(graph: Graph, operator: Operator, device: Device, more: Sequence[Term] = ()) -> float:
    """Seconds of an operator; inf if the device cannot run it, or has too little of a resource for it.

    `more`: terms of a fusion that begins with the operator.
    """
    family = _family_of(graph, operator, device)
    if family is None:
        return math.inf
    sizes = dimensions(graph, operator)
    if operator.op_type in HEAVY and any(math.fsum(_amounts(r.terms, sizes)) > r.limit for r in device.resources):
        return math.inf
    return math.fsum([device.call_s, *_amounts((*family.terms, *more), sizes)])


def fused_costs(graph: Graph, device: Device) -> Iterator[tuple[Span, float]]:
    """Yield the operators (first and last) that a device can run together, by each of its fusions, and the seconds.

    Such operators are adjacent in the graph's order, as those of a segment are.
    """
    for fusion in device.fusions:
        for first in range(len(graph.operators) - len(fusion.ops) + 1):
            last = first + len(fusion.ops) - 1
            operators = graph.operators[first : last + 1]
            if _is_fused(graph, first, operators, fusion) and all(
                _takes(graph, operator, device) for operator in operators
            ):
                cost_s = operator_cost_s(graph, operators[0], device, fusion.terms)
                if cost_s < math.inf:
                    yield (first, last), cost_s


def _is_fused(graph: Graph, first: int, operators: Sequence[Operator], fusion: Fusion) -> bool:
    if any(operator.domain or operator.op_type != op for operator, op in zip(operators, fusion.ops, strict=True)):
        return False
    ends = {tensor.name for tensor in graph.outputs}
    for reader, (before, after) in enumerate(pairwise(operators), start=first + 1):
        made = set(filter(None, before.outputs))
        if made != {name for name in after.inputs if name in graph.tensors}:
            return False
        if any(graph.consumers[name] != (reader,) or name in ends for name in made):
            return False
    return True


def transfer_cost_s(tensor: Tensor, source: Device, target: Device) -> float:
    """Seconds from where `source` made a tensor to where `target` reads it; 0 within a memory."""
    return math.fsum(transfer_legs_s(tensor, source, target))


def transfer_legs_s(tensor: Tensor, source: Device, target: Device) -> tuple[float, float]:
    """Seconds out of the source's memory, and into the target's; (0, seconds of a direct link) if that is quicker.

    A direct link moves floats in the narrower of the two precisions (ours).
    """
    if source.memory == target.memory:
        return 0.0, 0.0
    legs_s = _leg_s(source.transfer_out, tensor, source), _leg_s(target.transfer_in, tensor, target)
    link = source.link_with(target)
    if link is None:
        return legs_s
    moved_bytes = min(transfer_bytes(tensor, source), transfer_bytes(tensor, target))
    direct_s = link.latency_s + moved_bytes / link.bandwidth_bytes_per_s
    return (0.0, direct_s) if direct_s < math.fsum(legs_s) else legs_s


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
    if not _takes(graph, operator, device):
        return None
    return next((family for family in device.families if _has(family, graph, operator)), None)


def _takes(graph: Graph, operator: Operator, device: Device) -> bool:
    tensors = [graph.tensor(name) for name in (*operator.inputs, *operator.outputs) if name]
    if device.max_rank is not None and any(len(tensor.shape) > device.max_rank for tensor in tensors):
        return False
    return all(device.takes(tensor.datatype) for tensor in tensors)


def _has(family: Family, graph: Graph, operator: Operator) -> bool:
    if family.ops and (operator.domain or operator.op_type not in family.ops):
        return False
    if any(operator.attributes.get(c.attribute, c.default) != c.value for c in family.conditions):
        return False
    return not family.multiples or _is_multiple(family.multiples, graph, operator)


def _is_multiple(multiples: Sequence[Multiple], graph: Graph, operator: Operator) -> bool:
    in_channels, filters = channel_counts(graph, operator)
    counts = {"in_channels": in_channels, "filters": filters}
    return all(counts[multiple.count] % multiple.of == 0 for multiple in multiples)


def _amounts(terms: Iterable[Term], sizes: Mapping[Dimension, int]) -> Iterator[float]:
    for term in terms:
        powers = (math.pow(max(1, sizes[dimension]), exponent) for dimension, exponent in term.exponents)
        yield term.amount * math.prod(powers)
