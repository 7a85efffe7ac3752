"""Load and limits of the single router, the daemon, for a plan; calculated, not run.

All frames pass one daemon: one loop deals all parts (R3), and all tensors that a place on another host reads or
computes pass the daemon's network card, as they are in slots on its host. So more places help until a limit is reached:
of the loop, the card, the memory of slots, the relays (a process for each remote place) or file descriptors.

A frame of p parts takes 2 + 2p messages of the loop: the request, `Run` and `Done` of each part, the answer. The card
carries the request and the answer and, for each part on another host, its inputs there and the outputs that others read
back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from shisha_rt.costs.links import AS_INPUT, CostTensor, Crossings
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import TeamSeconds

_RUN_AND_DONE: Final = 2


@dataclass(frozen=True, slots=True)
class Router:
    """Resources of a daemon. Its loop is one core, busy for `frame_s` with each frame and `part_s` more with each part.

    Sources of the defaults. Loop: benchmarks/results/race_cpu.csv (621 us for a frame of one part, SqueezeNet over
    ipc), of which benchmarks/results/loop_8.csv has 157 us for a part; on a host half as fast as a core of 4 GHz. Card:
    100 Gbit/s in each direction. Memory and descriptors: of a large server (ours; systemd's hard limit of descriptors).
    `relay_bytes`: memory of a relay's process, with its share of shared pages. `place_files`: descriptors for a place:
    its socket, its process, and its share of others.
    """

    frame_s: float = 464e-6
    part_s: float = 157e-6
    card_bytes_per_s: float = 100e9 / 8
    memory_bytes: float = 512 * 2**30
    relay_bytes: float = 24 * 2**20
    most_files: int = 524_288
    place_files: int = 4
    most_frames: int = 512
    """Most accepted and unanswered frames of all clients: `core.lifecycle.policy`."""


@dataclass(frozen=True, slots=True)
class RouterLoad:
    """Load of the router for a frame: messages of the loop, parts, and bytes that the card receives and sends.

    `slot_bytes`: size of a frame's slot: tensors that pass between stages, inputs and outputs.
    """

    messages: int
    parts: int
    in_bytes: float
    out_bytes: float
    slot_bytes: int

    def ends(self, router: Router) -> Mapping[str, float]:
        """Frames per second at which the loop and the card reach their limits."""
        loop_s = router.frame_s + self.parts * router.part_s
        busiest_bytes = max(self.in_bytes, self.out_bytes)
        return MappingProxyType(
            {"loop": 1 / loop_s, "card": router.card_bytes_per_s / busiest_bytes if busiest_bytes else math.inf}
        )

    def most_places(self, router: Router) -> Mapping[str, int]:
        """Numbers of remote places at which memory (two slots each, two more, relays) and file descriptors run out."""
        room = router.memory_bytes - 2 * self.slot_bytes
        return MappingProxyType(
            {
                "memory": int(room // (2 * self.slot_bytes + router.relay_bytes)),
                "files": router.most_files // router.place_files,
            }
        )


def router_load(plan: Plan, team_s: TeamSeconds, tensors: Sequence[CostTensor], remote: frozenset[str]) -> RouterLoad:
    """Router load of a plan.

    `team_s` (stages, teams): seconds that each team is busy with a frame; frames are dealt in proportion to rates.

    `remote`: the places on other hosts. Clients are on other hosts, too.
    """
    crossings = Crossings(tensors)
    layer_count = max(stage.last for stage in plan.stages) + 1
    inputs = sum(tensor.size_bytes for tensor in tensors if tensor.made == AS_INPUT)
    outputs = sum(tensor.size_bytes for tensor in tensors if layer_count in tensor.readers)
    in_bytes, out_bytes = float(inputs), float(outputs)
    crossing = {tensor.name: tensor.size_bytes for tensor in tensors if tensor.made == AS_INPUT}
    for stage, times_s in zip(plan.stages, team_s, strict=True):
        layers, traffic = set(stage.layers), crossings.of(stage.work)
        makes = (tensor for tensor in tensors if tensor.made in layers and not layers.issuperset(tensor.readers))
        crossing |= {tensor.name: tensor.size_bytes for tensor in makes}
        rates = [1 / time_s for time_s in times_s]
        far = sum(rate for rate, lead in zip(rates, stage.leads, strict=True) if lead in remote) / sum(rates)
        in_bytes += far * traffic.back_bytes
        out_bytes += far * traffic.there_bytes
    parts = len(plan.stages)
    return RouterLoad(2 + _RUN_AND_DONE * parts, parts, in_bytes, out_bytes, sum(crossing.values()))


def most_frames_per_s(in_flight: int, latency_s: float) -> float:
    """Little's law: the most frames per second with `in_flight` frames in flight, each for `latency_s`."""
    return in_flight / latency_s
