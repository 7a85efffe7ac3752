"""What passes between the layers of a compiled model, and costs that know the hosts of places and their links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from shisha_rt.costs.costs import Costs
from shisha_rt.costs.links import AS_INPUT, CostTensor, HostLink, OneWay
from shisha_rt.graph.layers import layer_of_operator
from shisha_rt.ready.compile import Compiled


def with_links(costs: Costs, compiled: Compiled, far: Mapping[str, HostLink], time_scale: float = 1.0) -> Costs:
    """The costs with the tensors of the model and the links of `far`, which has those of places on other hosts.

    Times of `costs` are those of measurements, from which the machine's stretching has been taken out.
    """
    if not far:
        return costs
    links = {
        link.host: replace(link, there=_in(link.there, time_scale), back=_in(link.back, time_scale))
        for link in far.values()
    }
    return replace(
        costs,
        tensors=tensors_of(compiled),
        links=tuple(links[host] for host in sorted(links)),
        places=tuple(
            replace(place, host=far[place.name].host) if place.name in far else place for place in costs.places
        ),
    )


def tensors_of(compiled: Compiled) -> tuple[CostTensor, ...]:
    """What crosses cuts in the engine's form, and the network's ends; of several shapes, of the one that moves most."""
    return max(map(_tensors_of, compiled.each), key=lambda its: sum(tensor.size_bytes for tensor in its))


def _tensors_of(shape: Compiled) -> tuple[CostTensor, ...]:
    index, graph, last = shape.index, shape.model.graph, len(shape.layers)
    layer_of = layer_of_operator(shape.layers)
    outputs = {spec.name for spec in index.outputs}
    crossing = {entry.tensor.name: entry for entry in index.crossing}
    inputs = (
        CostTensor(spec.name, spec.size_bytes, AS_INPUT, tuple(sorted({layer_of[its] for its in readers})))
        for spec in index.inputs
        if (readers := graph.consumers.get(spec.name))
    )
    between = (
        CostTensor(name, its.tensor.size_bytes, its.made, its.readers + ((last,) if name in outputs else ()))
        for name, its in crossing.items()
    )
    ends = (
        CostTensor(spec.name, spec.size_bytes, layer_of[graph.producer[spec.name]], (last,))
        for spec in index.outputs
        if spec.name not in crossing and spec.name in graph.producer
    )
    return (*inputs, *between, *ends)


def _in(way: OneWay, time_scale: float) -> OneWay:
    return OneWay(way.latency_s / time_scale, way.bytes_per_s * time_scale)
