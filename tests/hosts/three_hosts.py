"""Three hosts that can die, of a cluster whose head has no place."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.rigs.raylets import Raylet, Raylets
from benchmarks.rigs.slow_link import SlowLink


@dataclass
class ThreeHosts:
    """By number, from 1: the first beside the head, two behind links of 1 Gbit/s and 1 ms. Each has a CPU to give, and
    alone the resource `host1`, `host2` or `host3`.
    """

    link: SlowLink
    cluster: Raylets
    nodes: dict[int, Raylet] = field(default_factory=dict)

    def add(self, number: int) -> Raylet:
        """A raylet on that host: the first, or another after that was killed."""
        host = self.link.hosts[number - 2] if number > 1 else None
        self.nodes[number] = self.cluster.add(host, resources={f"host{number}": 1})
        return self.nodes[number]
