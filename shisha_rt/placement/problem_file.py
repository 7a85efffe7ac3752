"""PROBLEM.json: text to `Problem`, or one line (BadInput) that says where the file is wrong. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, NoReturn

import msgspec

from shisha_rt.checked import Seconds, Title, convert, decode_json, shown
from shisha_rt.errors import BadInput, Error
from shisha_rt.placement.problem import Group, Node, Problem, ProblemTensor, TransferCounting

_Name = Annotated[Title, msgspec.Meta(min_length=1)]


class _Node(msgspec.Struct, forbid_unknown_fields=True):
    name: _Name
    cost_s: dict[str, Seconds | None]
    op: Title = ""


class _Tensor(msgspec.Struct, forbid_unknown_fields=True):
    name: _Name
    producer: str
    consumers: list[str]
    transfer_s: dict[str, Seconds] = {}


class _Group(msgspec.Struct, forbid_unknown_fields=True):
    nodes: Annotated[list[str], msgspec.Meta(min_length=1)]
    device: str
    cost_s: Seconds


class _File(msgspec.Struct, forbid_unknown_fields=True):
    devices: Annotated[list[_Name], msgspec.Meta(min_length=1)]
    nodes: Annotated[list[_Node], msgspec.Meta(min_length=1)]
    tensors: list[_Tensor]
    memories: dict[str, _Name] | None = None
    processors: dict[str, _Name] | None = None
    groups: list[_Group] = []
    transfer_counting: TransferCounting = "once"


def parse_problem(text: bytes | str, source: str) -> Problem:
    """Parse a problem from JSON text; messages call it `source`. Raises BadInput."""
    raw = decode_json(text, source, "a placement problem as JSON")
    return _Reader(convert(raw, _File, source), source).problem()


class _Reader:
    """Turns names into indices, and checks what the schema cannot."""

    def __init__(self, file: _File, source: str) -> None:
        self._file = file
        self._source = source
        self._device = self._indices(file.devices, "devices[{}]")
        self._node = self._indices([node.name for node in file.nodes], "nodes[{}].name")
        self._indices([tensor.name for tensor in file.tensors], "tensors[{}].name")
        self._memories, self._memory_of = self._read_memories()
        self._pairs = {f"{source}->{target}" for source in file.devices for target in file.devices}

    def problem(self) -> Problem:
        file = self._file
        alone = Problem(
            devices=tuple(file.devices),
            memories=self._memories,
            memory_of=self._memory_of,
            nodes=tuple(self._read_node(i, node) for i, node in enumerate(file.nodes)),
            tensors=tuple(self._tensor(i, tensor) for i, tensor in enumerate(file.tensors)),
            transfer_counting=file.transfer_counting,
            processors=() if file.processors is None else self._of_devices("processors", file.processors)[1],
        )
        links = chain_links(alone)
        groups = tuple(self._group(i, group, links) for i, group in enumerate(file.groups))
        first: dict[tuple[tuple[int, ...], int], int] = {}
        for i, earlier in enumerate(groups):
            if (other := first.setdefault((earlier.nodes, earlier.device), i)) != i:
                self._fail(f"groups[{i}]: the nodes and the device of groups[{other}], expected one cost for them")
        return replace(alone, groups=groups)

    def _indices(self, names: Sequence[str], where: str) -> dict[str, int]:
        numbers: dict[str, int] = {}
        for index, name in enumerate(names):
            if numbers.setdefault(name, index) != index:
                self._fail(f"{where.format(index)} = {shown(name)}: used twice, expected one of its own")
        return numbers

    def _read_memories(self) -> tuple[tuple[str, ...], tuple[int, ...]]:
        given = self._file.memories
        if given is None:
            return tuple(self._file.devices), tuple(range(len(self._file.devices)))
        return self._of_devices("memories", given)

    def _of_devices(self, key: str, given: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Return the distinct names that `given` assigns to devices, and (devices,) indices into them."""
        for device in given:
            self._index(self._device, device, f"{key}: {shown(device)}", "device")
        for device in self._file.devices:
            if device not in given:
                self._fail(f"{key}: {device} is missing, expected an entry for each device")
        names = tuple(dict.fromkeys(given[device] for device in self._file.devices))
        return names, tuple(names.index(given[device]) for device in self._file.devices)

    def _read_node(self, index: int, node: _Node) -> Node:
        where = f"nodes[{index}].cost_s"
        if all(seconds is None for seconds in node.cost_s.values()):
            devices = ", ".join(self._file.devices)
            self._fail(f"{where} has no cost: no device can run {node.name}, expected a cost on one of {devices}")
        cost_s = [math.inf] * len(self._device)
        for device, seconds in node.cost_s.items():
            at = self._index(self._device, device, f"{where}: {shown(device)}", "device")
            cost_s[at] = math.inf if seconds is None else seconds
        return Node(node.name, node.op, tuple(cost_s))

    def _tensor(self, index: int, tensor: _Tensor) -> ProblemTensor:
        where = f"tensors[{index}]"
        producer = self._index(self._node, tensor.producer, f"{where}.producer = {shown(tensor.producer)}", "node")
        consumers: set[int] = set()
        for i, name in enumerate(tensor.consumers):
            consumer = self._index(self._node, name, f"{where}.consumers[{i}] = {shown(name)}", "node")
            if consumer <= producer:
                self._fail(
                    f"{where}.consumers[{i}] = {shown(name)}: does not come after its producer {tensor.producer}, "
                    "expected nodes in topological order"
                )
            consumers.add(consumer)
        transfer_s = self._transfers(tensor.transfer_s, f"{where}.transfer_s")
        return ProblemTensor(tensor.name, producer, tuple(sorted(consumers)), transfer_s)

    def _transfers(self, given: Mapping[str, float], where: str) -> tuple[tuple[float, ...], ...]:
        """(devices, memories) seconds; pairs that are not given are free."""
        for pair in given:
            if pair not in self._pairs:
                self._fail(f"{where}: {shown(pair)}: expected DEVICE->DEVICE, two of {', '.join(self._file.devices)}")
        names = self._file.devices
        rows = []
        for source, source_name in enumerate(names):
            row = [0.0] * len(self._memories)
            first: dict[int, str] = {}
            for target, target_name in enumerate(names):
                memory = self._memory_of[target]
                if memory == self._memory_of[source]:
                    continue
                seconds = given.get(f"{source_name}->{target_name}", 0.0)
                if first.setdefault(memory, target_name) != target_name and row[memory] != seconds:
                    other = f"{source_name}->{first[memory]}"
                    self._fail(
                        f"{where}: {source_name}->{target_name} costs {seconds:g} and {other} {row[memory]:g}, "
                        f"expected the same, as {target_name} and {first[memory]} share memory {self._memories[memory]}"
                    )
                row[memory] = seconds
            rows.append(tuple(row))
        return tuple(rows)

    def _group(self, index: int, group: _Group, links: set[tuple[int, int]]) -> Group:
        where = f"groups[{index}]"
        nodes = [
            self._index(self._node, name, f"{where}.nodes[{i}] = {shown(name)}", "node")
            for i, name in enumerate(group.nodes)
        ]
        device = self._index(self._device, group.device, f"{where}.device = {shown(group.device)}", "device")
        for before, after in pairwise(nodes):
            if (before, after) not in links:
                names = self._file.nodes[before].name, self._file.nodes[after].name
                self._fail(
                    f"{where}.nodes: {names[0]} and {names[1]} are no chain, expected a tensor from the one that only "
                    "the other reads"
                )
        return Group(tuple(nodes), device, group.cost_s)

    def _index(self, known: Mapping[str, int], name: str, where: str, kind: str) -> int:
        if name not in known:
            names = shown(", ".join(known))[1:-1]
            self._fail(f"{where}: no such {kind}, expected one of {names}")
        return known[name]

    def _fail(self, message: str) -> NoReturn:
        raise BadInput(f"{self._source}: {message}", Error.WRONG_VALUE)


def chain_links(problem: Problem) -> set[tuple[int, int]]:
    """Pairs of neighbours that a group may have: every tensor from the first to the second has no other consumer."""
    shared = {(t.producer, c) for t in problem.tensors if len(t.consumers) > 1 for c in t.consumers}
    return {(t.producer, t.consumers[0]) for t in problem.tensors if len(t.consumers) == 1} - shared
