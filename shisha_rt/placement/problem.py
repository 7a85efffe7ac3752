"""The placement problem: nodes to assign to devices, and the cost of moving tensors. Values only.

In DCG-2022 and DCG-2024 a network is a list of operators in topological order, each with a cost on every device that
can run it, and tensors whose transfer cost depends on their size, their datatype and the two devices. Here each device
belongs to a memory: moving a tensor between memories has a cost, within a memory it is free.

Nodes, devices and memories are given by index: nodes in topological order, devices and memories as the problem lists
them. A node's cost is `math.inf` on a device that cannot run it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

from shisha_rt.checked import shown
from shisha_rt.errors import BadInput, Error

TransferCounting = Literal["once", "per_edge"]
"""How often the transfer of a tensor is paid.

`once`: for each memory in which it is read, except its producer's. `per_edge`, as in the papers: for each consumer in
another memory.
"""

TRANSFER_COUNTINGS: tuple[TransferCounting, ...] = get_args(TransferCounting)


@dataclass(frozen=True, slots=True)
class Node:
    """An operator. `cost_s` is (devices,) seconds, inf where a device cannot run it by itself; at least one can."""

    name: str
    op: str
    cost_s: tuple[float, ...]

    @property
    def capable(self) -> tuple[int, ...]:
        """The devices that can run it by itself, ascending."""
        return tuple(device for device, cost_s in enumerate(self.cost_s) if cost_s < math.inf)


@dataclass(frozen=True, slots=True)
class ProblemTensor:
    """A tensor that node `producer` makes and the nodes `consumers` (ascending, all after the producer) read.

    `transfer_s` is (devices, memories) seconds: from the producer's device into a memory; 0 into that device's own.
    """

    name: str
    producer: int
    consumers: tuple[int, ...]
    transfer_s: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that one device runs together for `cost_s` instead of their own costs there (PartitionTuner).

    `nodes` ascend and form a chain: each makes a tensor that only the next one reads. Some may be nodes that the device
    can run only within a group.
    """

    nodes: tuple[int, ...]
    device: int
    cost_s: float


@dataclass(frozen=True)
class Problem:
    """`memory_of` is (devices,): the memory of each device, an index into `memories`.

    `processors` (devices,): numbers, equal for devices that use the same cores, and so cannot run at the same time; if
    empty, each device is a processor of its own.
    """

    devices: tuple[str, ...]
    memories: tuple[str, ...]
    memory_of: tuple[int, ...]
    nodes: tuple[Node, ...]
    tensors: tuple[ProblemTensor, ...]
    groups: tuple[Group, ...] = ()
    transfer_counting: TransferCounting = "once"
    processors: tuple[int, ...] = ()

    @cached_property
    def devices_of(self) -> tuple[tuple[int, ...], ...]:
        """(nodes,): the devices that can run each node, by itself or in a group, ascending."""
        able = [set(node.capable) for node in self.nodes]
        for group in self.groups:
            for node in group.nodes:
                able[node].add(group.device)
        return tuple(tuple(sorted(devices)) for devices in able)

    def device_named(self, name: str, option: str) -> int:
        """The device that an option names. Raises BadInput if there is none of that name."""
        if name not in self.devices:
            expected = f"expected one of {', '.join(self.devices)}"
            raise BadInput(f"{option}: {shown(name)}: no such device, {expected}", Error.WRONG_OPTION)
        return self.devices.index(name)

    def processor_of(self, device: int) -> int:
        """The processor of a device; nodes on different processors can run at the same time."""
        return self.processors[device] if self.processors else device

    @cached_property
    def inputs(self) -> tuple[tuple[int, ...], ...]:
        """(nodes,): the tensors that each node reads."""
        read: list[list[int]] = [[] for _ in self.nodes]
        for index, tensor in enumerate(self.tensors):
            for consumer in tensor.consumers:
                read[consumer].append(index)
        return tuple(map(tuple, read))

    @cached_property
    def outputs(self) -> tuple[tuple[int, ...], ...]:
        """(nodes,): the tensors that each node makes."""
        made: list[list[int]] = [[] for _ in self.nodes]
        for index, tensor in enumerate(self.tensors):
            made[tensor.producer].append(index)
        return tuple(map(tuple, made))

    @cached_property
    def makers(self) -> tuple[frozenset[int], ...]:
        """(nodes,): the nodes whose tensors each node reads."""
        return tuple(frozenset(self.tensors[tensor].producer for tensor in read) for read in self.inputs)

    @cached_property
    def readers(self) -> tuple[frozenset[int], ...]:
        """(nodes,): the nodes that read each node's tensors."""
        return tuple(frozenset(c for tensor in made for c in self.tensors[tensor].consumers) for made in self.outputs)

    def edge_cost_s(self, tensor: ProblemTensor, source: int, target: int) -> float:
        """Seconds to move a tensor from the device `source` that made it to `target`; 0 within a memory."""
        return tensor.transfer_s[source][self.memory_of[target]]


Assignment = Sequence[int]
"""(nodes,): the device of each node."""
