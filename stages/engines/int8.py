"""int8 on an engine of floats: a segment's Convs and Relus as an ONNX model that computes them in integers.

Every tensor t has a scale 2^e(t) (see `graph.scales`). A Conv reads x_q = round(x / 2^e(x)), sums products with the
integers of its weights, which have a scale of their own, and its bias in 32 bits, and makes of the sum what it is in
the scale of its result. Roundings are to the nearest, ties to even, and what is beyond 127 is 127. A Relu is a maximum
with 0. Between operators integers are handed on; at both ends of the segment there are floats, which is all the same:
what is an integer times 2^e(t) is rounded to itself.

Integers lie in unsigned tensors, 128 more than they are: ONNX Runtime multiplies those without saturation on every
processor, and signed ones on some with it. Nothing of the model is left to the engine's optimiser.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from shisha_rt.graph.scales import SCALED_OPS, STEPS, exponent

_IR_VERSION: Final = 8
_OPSET: Final = 17
_ZERO: Final = 128
_MOST_SUM: Final = 2**31 - 1
_FLOAT_BITS: Final = 24  # of a float32's mantissa
_STEP_BITS: Final = 7
_LEAST_SHIFT: Final = -8  # 1 is beyond 127 already
_MOST_SHIFT: Final = 40  # whatever the sum, it is 0


def in_integers(model: onnx.ModelProto, exponents: Mapping[str, int]) -> onnx.ModelProto:
    """The same in int8, from floats to floats. The model holds its weights itself.

    Raises ValueError for what is no Conv of constant float32 weights and no Relu, and for a tensor without a scale.
    """
    segment = _Segment(model.graph, exponents)
    for node in model.graph.node:
        segment.add(node)
    segment.hand_out()
    opsets = [helper.make_opsetid("", _OPSET)]
    return onnx.ModelProto(ir_version=_IR_VERSION, opset_import=opsets, graph=segment.graph)


def integers_of(values: npt.NDArray[Any], exponent: int) -> npt.NDArray[np.int64]:
    """What stands for `values` in the scale 2^exponent."""
    found = np.rint(np.ldexp(np.asarray(values, np.float64), -exponent))
    return np.clip(found, -STEPS, STEPS).astype(np.int64)


class _Segment:
    """The model in the making. The integers of a tensor `t` are called `t:int8`."""

    def __init__(self, source: onnx.GraphProto, exponents: Mapping[str, int]) -> None:
        self.graph = onnx.GraphProto(name=source.name, input=source.input, output=source.output)
        self._exponents = exponents
        self._weights = {constant.name: constant for constant in source.initializer}
        self._constants: dict[str, npt.NDArray[Any]] = {}
        self._in_integers: set[str] = set()

    def add(self, node: onnx.NodeProto) -> None:
        if node.domain or node.op_type not in SCALED_OPS:
            raise ValueError(
                f"operator {node.name!r} is {node.op_type}: expected one of {', '.join(sorted(SCALED_OPS))} in int8"
            )
        if node.op_type == "Conv":
            self._conv(node)
        else:
            self._at_least(_ZERO, self._integers(node.input[0]), f"{node.output[0]}:int8")
        self._in_integers.add(node.output[0])

    def hand_out(self) -> None:
        """Floats of what the segment makes, and the constants, which stand last."""
        for value in self.graph.output:
            scale = self._power(self._exponent(value.name))
            self._node("DequantizeLinear", [f"{value.name}:int8", scale, self._zero()], value.name)
        weights = (numpy_helper.from_array(array, name) for name, array in self._constants.items())
        self.graph.initializer.extend(weights)

    def _conv(self, node: onnx.NodeProto) -> None:
        image, result = node.input[0], node.output[0]
        weights = self._weight(node, node.input[1])
        of_weights = exponent(float(np.abs(weights).max(initial=0)))
        of_sums = self._exponent(image) + of_weights
        kernel = integers_of(weights, of_weights)
        largest = STEPS * np.abs(kernel).reshape(len(kernel), -1).sum(axis=1)
        if largest.max(initial=0) > _MOST_SUM:
            raise ValueError(f"operator {node.name!r} sums more products than 32 bits hold, in int8")
        self._constants[f"{result}:weights"] = (kernel + _ZERO).astype(np.uint8)
        inputs = [self._integers(image), f"{result}:weights", self._zero(), self._zero()]
        sums = f"{result}:products"
        self._node("ConvInteger", inputs, sums, node.attribute)
        if len(node.input) > 2 and node.input[2]:
            room = _MOST_SUM - largest  # with it, too, a sum cannot wrap round
            in_sums = np.rint(np.ldexp(self._weight(node, node.input[2]).astype(np.float64), -of_sums))
            bias = np.clip(in_sums, -room, room).astype(np.int64)
            self._constants[f"{result}:bias"] = bias.astype(np.int32).reshape(-1, *[1] * (kernel.ndim - 2))
            self._node("Add", [sums, f"{result}:bias"], f"{result}:sums")
            sums, largest = f"{result}:sums", largest + np.abs(bias)
        self._shift(sums, int(largest.max(initial=0)), self._exponent(result) - of_sums, result)

    def _shift(self, sums: str, largest: int, shift: int, result: str) -> None:
        """Integers of `result`: round(sum / 2^shift). No sum is beyond `largest`.

        A float32 has not all integers beyond 2^24; those that are beyond 127 all the same once shifted may be rounded.
        """
        shift = min(max(shift, _LEAST_SHIFT), _MOST_SHIFT)
        if largest > 2**_FLOAT_BITS and shift > _FLOAT_BITS - _STEP_BITS:
            factor = self._constant(f"2^{-shift}:double", np.array(2.0**-shift, np.float64))
            self._cast(sums, TensorProto.DOUBLE, f"{result}:double")
            self._node("Mul", [f"{result}:double", factor], f"{result}:shifted")
            self._node("Round", [f"{result}:shifted"], f"{result}:rounded")
            sums, shift = f"{result}:rounded", 0
        self._cast(sums, TensorProto.FLOAT, f"{result}:float")
        self._round(f"{result}:float", shift, result)

    def _integers(self, name: str) -> str:
        """Of a tensor of floats that comes into the segment, made once; of one made in it they are there."""
        if name not in self._in_integers:
            self._round(name, self._exponent(name), name)
            self._in_integers.add(name)
        return f"{name}:int8"

    def _round(self, source: str, exponent: int, result: str) -> None:
        """The engine's own goes down to -128."""
        self._node("QuantizeLinear", [source, self._power(exponent), self._zero()], f"{result}:from_-128")
        self._at_least(_ZERO - STEPS, f"{result}:from_-128", f"{result}:int8")

    def _at_least(self, least: int, source: str, result: str) -> None:
        self._node("Clip", [source, self._constant(f"{least}:uint8", np.array(least, np.uint8))], result)

    def _cast(self, source: str, datatype: int, result: str) -> None:
        self._node("Cast", [source], result, [helper.make_attribute("to", datatype)])

    def _node(
        self, op_type: str, inputs: Sequence[str], output: str, attributes: Iterable[onnx.AttributeProto] = ()
    ) -> None:
        self.graph.node.add(op_type=op_type, input=inputs, output=[output], attribute=attributes)

    def _zero(self) -> str:
        return self._constant(f"{_ZERO}:uint8", np.array(_ZERO, np.uint8))

    def _power(self, exponent: int) -> str:
        return self._constant(f"2^{exponent}:float", np.array(2.0**exponent, np.float32))

    def _constant(self, name: str, array: npt.NDArray[Any]) -> str:
        self._constants[name] = array
        return name

    def _weight(self, node: onnx.NodeProto, name: str) -> npt.NDArray[Any]:
        constant = self._weights.get(name)
        if constant is None or constant.data_type != TensorProto.FLOAT:
            raise ValueError(f"operator {node.name!r} reads {name!r}: expected constant weights of float32 in int8")
        values = numpy_helper.to_array(constant)
        if not np.isfinite(values).all():
            raise ValueError(f"operator {node.name!r} reads {name!r}: expected finite weights in int8")
        return values

    def _exponent(self, name: str) -> int:
        if name not in self._exponents:
            raise ValueError(f"tensor {name!r} has no scale: expected finite values of float32 on calibration frames")
        return self._exponents[name]
