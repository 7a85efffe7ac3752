"""The network as the control plane sees it: operators and tensors with static shapes, and no weight values.

A `Graph` is what is left of an ONNX file after cleaning (constants folded, BatchNormalization folded into Conv, dead
nodes removed). Planning, costs and cuts are based on it; only an engine ever sees the weights' values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from shisha_rt.model.shards.blocked import NCHWC
from shisha_rt.tensors import Tensor as Tensor


@dataclass(frozen=True, slots=True)
class Operator:
    """One node. `inputs` keeps the positions of the ONNX node; an absent optional input is ''.

    `attributes` holds the integers and integer lists that affect a cost (`group`, `kernel_shape`, `transA`, ...).
    `texts` holds strings (`auto_pad`, `activation`); their effect on costs shows in the shapes.
    """

    name: str
    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, int | tuple[int, ...]]
    texts: Mapping[str, str] = field(default_factory=dict)

    def integer(self, name: str, default: int) -> int:
        """An attribute that ONNX defines as one integer."""
        value = self.attributes.get(name, default)
        assert isinstance(value, int)
        return value


@dataclass(frozen=True)
class Graph:
    """Operators in topological order, over named tensors.

    `tensors` holds every tensor that exists only at run time (inputs and operator outputs);
    `constants` holds the weights and other initialisers: name, shape and datatype, never a value.
    """

    name: str
    operators: tuple[Operator, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    tensors: Mapping[str, Tensor]
    constants: Mapping[str, Tensor]

    def tensor(self, name: str) -> Tensor:
        return self.tensors.get(name) or self.constants[name]

    def part(self, operators: Sequence[Operator], inputs: Sequence[str], outputs: Sequence[str]) -> Graph:
        """Some operators over this graph's tensors, as a graph of their own."""
        read = dict.fromkeys(name for operator in operators for name in operator.inputs)
        made = (name for operator in operators for name in operator.outputs if name)
        return Graph(
            name=self.name,
            operators=tuple(operators),
            inputs=tuple(self.tensors[name] for name in inputs),
            outputs=tuple(self.tensors[name] for name in outputs),
            tensors={name: self.tensors[name] for name in (*inputs, *made)},
            constants={name: self.constants[name] for name in read if name in self.constants},
        )

    @cached_property
    def producer(self) -> Mapping[str, int]:
        """Tensor name -> index of the operator that makes it (graph inputs are absent)."""
        return {name: i for i, op in enumerate(self.operators) for name in op.outputs if name}

    @cached_property
    def consumers(self) -> Mapping[str, tuple[int, ...]]:
        """Tensor name -> indices of the operators that read it, ascending, each once."""
        readers: dict[str, list[int]] = {}
        for i, op in enumerate(self.operators):
            for name in dict.fromkeys(op.inputs):
                if name:
                    readers.setdefault(name, []).append(i)
        return {name: tuple(indices) for name, indices in readers.items()}

    @cached_property
    def needed_until(self) -> Mapping[str, int]:
        """Tensor name -> index of the last operator that reads it; for the graph's outputs, the number of operators."""
        handed_out = {tensor.name: len(self.operators) for tensor in self.outputs}
        return {name: readers[-1] for name, readers in self.consumers.items()} | handed_out

    def is_needed_beyond(self, name: str, here: set[int]) -> bool:
        """Whether an operator outside `here` reads the tensor, or it is an output of the graph."""
        return self.needed_until.get(name) == len(self.operators) or not here.issuperset(self.consumers.get(name, ()))

    @cached_property
    def blocked(self) -> frozenset[str]:
        """Names of the tensors in one of ONNX Runtime's blocked formats (see `shards.blocked`).

        Operators outside the blocked domain hand on the format that they read.
        """
        blocked_names: set[str] = set()
        for operator in self.operators:
            if operator.domain == NCHWC:
                makes_blocked = operator.op_type != "ReorderOutput"
            else:
                makes_blocked = not blocked_names.isdisjoint(operator.inputs)
            if makes_blocked:
                blocked_names.update(filter(None, operator.outputs))
        return frozenset(blocked_names)


@dataclass(frozen=True)
class ModelGraph:
    """A cleaned model as far as planning needs it, without the values of its weights. `name` is the file's stem.

    `key` identifies all that derived files depend on: the file, its external data, the sizes given, the cleaner.
    """

    name: str
    graph: Graph
    key: str
