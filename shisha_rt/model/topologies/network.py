"""Build an ONNX graph operator by operator: each call adds one and returns the name of its output.

Weights are ConstantOfShape operators, zeros that need no space in the file: a topology is small and yet a whole model.
It gets its weights where models are run. Operators are named by their position in the network: `layer3/Gemm`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from shisha_rt.model.default_dims import set_default_dims

OPSET: Final = 12
_IR_VERSION: Final = 7  # came with opset 12


class Network:
    """A graph under construction."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._scopes: list[str] = []
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._counts: Counter[str] = Counter()

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Prefix the names of what is added inside with `name/`."""
        self._scopes.append(name)
        yield
        self._scopes.pop()

    def input(self, name: str, shape: Sequence[int | str], element: int = TensorProto.FLOAT) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, element, shape))
        return name

    def add(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        (output,) = self.add_multiple(op_type, 1, *inputs, **attributes)
        return output

    def add_multiple(self, op_type: str, output_count: int, *inputs: str, **attributes: Any) -> list[str]:
        name = self._fresh(op_type)
        outputs = [name] if output_count == 1 else [f"{name}:{index}" for index in range(output_count)]
        self._nodes.append(helper.make_node(op_type, inputs, outputs, name, **attributes))
        return outputs

    def weight(self, *shape: int) -> str:
        """Add a weight, zeros for now."""
        name = self._fresh("weight")
        self._nodes.append(helper.make_node("ConstantOfShape", [self.constant(shape)], [name], name))
        return name

    def constant(self, value: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> str:
        """Add a value that is part of the formula, not learned."""
        name = self._fresh("constant")
        self._constants[name] = numpy_helper.from_array(np.asarray(value, dtype), name)
        return name

    def scalar(self, value: float) -> str:
        return self.constant(value, np.float32)

    def model(
        self, outputs: Mapping[str, Sequence[int | str]], default_dims: Mapping[str, int] = MappingProxyType({})
    ) -> onnx.ModelProto:
        """The model, with its outputs (FP32 tensors made here) and their shapes in this order."""
        results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()]
        graph = helper.make_graph(self._nodes, self._name, self._inputs, results, list(self._constants.values()))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=_IR_VERSION)
        set_default_dims(model, default_dims)
        return model

    def _fresh(self, name: str) -> str:
        path = "/".join((*self._scopes, name))
        self._counts[path] += 1
        return path if self._counts[path] == 1 else f"{path}_{self._counts[path]}"
