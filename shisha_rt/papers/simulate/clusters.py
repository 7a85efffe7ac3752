"""Simulated clusters: up to thousands of hosts of several kinds behind links of several classes.

A cluster is drawn from a seed. Times of a place follow from the roofline (`roofline.py`), as for the paper's machines,
times of a link from its class. Figures are those of common hardware; those without a source are ours:

- Rates of links: Ethernet (IEEE 802.3by: 25 Gbit/s, 802.3bj: 100 Gbit/s). A home's link is what the FCC has called
  broadband since March 2024: 100 Mbit/s down, 20 up. One-way latencies are ours: one or two switches and two network
  stacks in a rack (50 us), cities of a region (1 ms), coast to coast (30 ms: light takes 20 in 4,000 km of fibre), a
  home's last mile (20 ms).
- Memories: twelve channels of DDR5-4800 in a large server, two of DDR4-3200 in a small one (JEDEC JESD79-5, JESD79-4:
  8 bytes a transfer), four of 16 bits of LPDDR4X-4267 in a board (JESD209-4), of LPDDR5-6400 in a phone (JESD209-5).
- Ours: cores, speeds, the memory that a phone leaves to an application, and the shares of kinds of hosts, of links and
  of generations.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from shisha_rt.costs.costs import CostPlace, Costs
from shisha_rt.costs.link_speed import LinkSpeed, OneWay
from shisha_rt.costs.links import AS_INPUT, CostTensor, HostLink
from shisha_rt.machine.machine import Machine, Memory, Place
from shisha_rt.model.graph import Graph
from shisha_rt.model.layers import Layer
from shisha_rt.papers.simulate.roofline import roofline_costs

_GBIT: Final = 1e9 / 8
"""Bytes per second."""


RACK_100: Final = LinkSpeed(OneWay(50e-6, 100 * _GBIT), OneWay(50e-6, 100 * _GBIT))
RACK_25: Final = LinkSpeed(OneWay(50e-6, 25 * _GBIT), OneWay(50e-6, 25 * _GBIT))
REGION: Final = LinkSpeed(OneWay(1e-3, 10 * _GBIT), OneWay(1e-3, 10 * _GBIT))
CONTINENT: Final = LinkSpeed(OneWay(30e-3, 1 * _GBIT), OneWay(30e-3, 1 * _GBIT))
HOME: Final = LinkSpeed(OneWay(20e-3, 0.1 * _GBIT), OneWay(20e-3, 0.02 * _GBIT))


@dataclass(frozen=True, slots=True)
class HostKind:
    """`places` places of `cores` cores each, which have `memory_bytes` each and share `bandwidth_bytes_per_s`.

    `speed`: of a core, relative to the roofline's. `links`: classes of links of such hosts, with probabilities;
    `share`: probability that a host is of this kind.
    """

    name: str
    places: int
    cores: int
    speed: float
    bandwidth_bytes_per_s: float
    memory_bytes: int
    links: tuple[tuple[LinkSpeed, float], ...]
    share: float


HOST_KINDS: Final = (
    HostKind("big", 16, 4, 2.0, 12 * 38.4e9, 16 << 30, ((RACK_100, 0.4), (RACK_25, 0.4), (REGION, 0.2)), 0.5),
    HostKind("small", 8, 2, 1.6, 2 * 25.6e9, 2 << 30, ((RACK_25, 0.3), (REGION, 0.4), (CONTINENT, 0.3)), 0.25),
    HostKind("board", 1, 4, 0.8, 17.1e9, 512 << 20, ((REGION, 0.3), (HOME, 0.7)), 0.125),
    HostKind("phone", 1, 4, 1.0, 51.2e9, 64 << 20, ((HOME, 1.0),), 0.125),
)
GENERATIONS: Final = (1.0, 0.8, 0.6)
"""Speeds of hosts relative to the newest of their kind; all are equally likely."""


@dataclass(frozen=True, slots=True)
class Host:
    name: str
    kind: HostKind
    generation: float
    link: LinkSpeed

    @property
    def places(self) -> tuple[str, ...]:
        return tuple(f"{self.name}.{number}" for number in range(self.kind.places))


def cluster(hosts: int, seed: int = 0) -> tuple[Host, ...]:
    """Draw a cluster of `hosts` hosts. With the same seed, a smaller cluster is the beginning of a larger one."""
    rng = random.Random(seed)
    layers_of = []
    for number in range(hosts):
        (kind,) = rng.choices(HOST_KINDS, [kind.share for kind in HOST_KINDS])
        (link,) = rng.choices([link for link, _ in kind.links], [share for _, share in kind.links])
        layers_of.append(Host(f"{kind.name}{number}", kind, rng.choice(GENERATIONS), link))
    return tuple(layers_of)


def machine_of(hosts: Sequence[Host]) -> Machine:
    """The machine of all hosts' places, with a memory for each host; ranks are by a place's operations per second."""
    rates = {host: host.kind.cores * host.kind.speed * host.generation for host in hosts}
    ranks = {rate: rank for rank, rate in enumerate(sorted(set(rates.values()), reverse=True), start=1)}
    places = tuple(
        Place(
            name=name,
            cores=(),
            core_count=host.kind.cores,
            threads=host.kind.cores,
            speed=host.kind.speed * host.generation,
            rank=ranks[rates[host]],
            memory=host.name,
            memory_bytes=host.kind.memory_bytes,
        )
        for host in hosts
        for name in host.places
    )
    memories = tuple(Memory(host.name, host.kind.bandwidth_bytes_per_s) for host in hosts)
    return Machine(f"{len(hosts)} hosts (simulated)", "drawn", memories, places)


def cluster_costs(graph: Graph, layers: Sequence[Layer], hosts: Sequence[Host]) -> Costs:
    """Simulated costs of all places of all hosts, with their links. Entering a stage costs only its transfers on links.

    The roofline is computed once for each kind and generation of hosts.
    """
    first = {(host.kind, host.generation): host for host in hosts}
    alike = list(first)
    whole = roofline_costs(graph, layers, machine_of(list(first.values())), entry_latency_s=0.0)
    column = {key: whole.place_index(first[key].places[0]) for key in alike}
    machine = machine_of(hosts)
    of_place = [host for host in hosts for _ in host.places]
    time_s = np.ascontiguousarray(whole.time_s[:, [column[host.kind, host.generation] for host in of_place]])
    transfer_s = np.zeros(len(layers) - 1)
    for array in (time_s, transfer_s):
        array.flags.writeable = False
    return replace(
        whole,
        places=tuple(
            CostPlace(place.name, place.rank, place.memory_bytes, host.name)
            for place, host in zip(machine.places, of_place, strict=True)
        ),
        time_s=time_s,
        transfer_s=transfer_s,
        tensors=tensors_of(graph, layers),
        links=tuple(HostLink(host.name, *host.link) for host in hosts),
    )


def tensors_of(graph: Graph, layers: Sequence[Layer]) -> tuple[CostTensor, ...]:
    """The tensors that one layer computes and another reads, and the network's inputs and outputs."""
    layer_of = [layer.index for layer in layers for _ in range(layer.first_operator, layer.last_operator + 1)]
    made = {tensor.name: AS_INPUT for tensor in graph.inputs}
    readers: dict[str, set[int]] = {tensor.name: set() for tensor in graph.inputs}
    for layer, operator in zip(layer_of, graph.operators, strict=True):
        for name in operator.inputs:
            if name in made and made[name] != layer:
                readers[name].add(layer)
        for name in operator.outputs:
            if name:
                made[name], readers[name] = layer, set()
    for tensor in graph.outputs:
        readers[tensor.name].add(len(layers))
    return tuple(
        CostTensor(name, graph.tensors[name].size_bytes, made[name], tuple(sorted(reader)))
        for name, reader in readers.items()
        if reader
    )
