"""int8 on an engine of floats: a segment's Convs and Relus as an ONNX model that computes them in integers.

Every tensor t has a scale 2^e(t) (see `model.scales`). A Conv reads x_q = round(x / 2^e(x)), sums products with the
integers of its weights and its bias in 32 bits, and converts each sum to the scale of its result. Each filter has a
scale of its own, the smallest in which its weights fit 127 steps and its bias 2^30: filters may be a hundred times
apart if a normalisation was folded into them, and one scale for all would leave few steps for the small ones. Values
are rounded to the nearest, ties to even, and those beyond 127 become 127. A Relu is a maximum with 0. Operators pass
integers on. The segment's inputs and outputs are floats, which loses nothing: an integer times 2^e(t) is rounded to
itself. Partial sums (see `model.shards`) are at most 32 bits wide and leave the segment as floats, not rounded to 8
bits: only their total has a scale, and one of them may be far beyond it.

Integers are stored in unsigned tensors, with 128 added: ONNX Runtime multiplies these without saturation on every
processor, but signed ones with saturation on some. The model is to be run without the engine's optimiser.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from shisha_rt.model.scales import SCALED_OPS, STEPS, exponent

Ints = npt.NDArray[np.int64]

_IR_VERSION: Final = 8
_OPSET: Final = 17
_ZERO: Final = 128
_MOST_SUM: Final = 2**31 - 1
_MOST_BIAS: Final = 2**30
_FLOAT_BITS: Final = 24  # of a float32's mantissa
_STEP_BITS: Final = 7
_LEAST_SHIFT: Final = -8  # a sum of 1 is beyond 127 already
_MOST_SHIFT: Final = 40  # any sum becomes 0


def in_integers(model: onnx.ModelProto, exponents: Mapping[str, int], partial: Collection[str] = ()) -> onnx.ModelProto:
    """The model in int8, from floats to floats. `model` must embed its weights. `partial`: tensors of partial sums.

    Raises ValueError for operators other than Relu and Conv of constant float32 weights, and for a tensor without a
    scale.
    """
    segment = _Segment(model.graph, exponents, partial)
    for node in model.graph.node:
        segment.add(node)
    segment.hand_out()
    opsets = [helper.make_opsetid("", _OPSET)]
    return onnx.ModelProto(ir_version=_IR_VERSION, opset_import=opsets, graph=segment.graph)


def _integers_of(values: npt.NDArray[Any], exponents: int | Ints) -> Ints:
    """The integers of `values` in the scales 2^exponents."""
    rounded = np.rint(np.ldexp(np.asarray(values, np.float64), np.negative(exponents)))
    return np.clip(rounded, -STEPS, STEPS).astype(np.int64)


def _filter_exponent(weights: npt.NDArray[Any], bias: float, of_image: int) -> int:
    """The smallest exponent at which a filter's weights fit, and its bias fits in the scale of its sums."""
    largest = float(np.abs(weights).max(initial=0))
    if not bias:
        return exponent(largest)
    of_bias = exponent(abs(float(bias)), _MOST_BIAS) - of_image
    return max(exponent(largest), of_bias) if largest else of_bias  # weights of 0 fit at any exponent


def _for_each(of_filters: npt.NDArray[Any], rank: int) -> npt.NDArray[Any]:
    """(filters,), reshaped to broadcast to an array of this rank whose first axis has the filters."""
    return of_filters.reshape(-1, *[1] * (rank - 1))


class _Segment:
    """The model under construction. The integers of a tensor `t` are called `t:int8`."""

    def __init__(self, source: onnx.GraphProto, exponents: Mapping[str, int], partial: Collection[str]) -> None:
        self.graph = onnx.GraphProto(name=source.name, input=source.input, output=source.output)
        self._exponents = exponents
        self._partial = partial
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
        """Convert the segment's outputs to floats, and add the constants."""
        for value in self.graph.output:
            if value.name in self._partial:
                continue
            scale = self._power(self._exponent(value.name))
            self._node("DequantizeLinear", [f"{value.name}:int8", scale, self._zero()], value.name)
        weights = (numpy_helper.from_array(array, name) for name, array in self._constants.items())
        self.graph.initializer.extend(weights)

    def _conv(self, node: onnx.NodeProto) -> None:
        image, result = node.input[0], node.output[0]
        weights = self._weight(node, node.input[1])
        has_bias = len(node.input) > 2 and bool(node.input[2])
        bias = self._weight(node, node.input[2]) if has_bias else np.zeros(len(weights))
        of_image = self._exponent(image)
        of_filters = np.array(
            [_filter_exponent(*of_filter, of_image) for of_filter in zip(weights, bias, strict=True)], np.int64
        )
        kernel = _integers_of(weights, _for_each(of_filters, weights.ndim))
        largest = STEPS * np.abs(kernel).reshape(len(kernel), -1).sum(axis=1)
        if largest.max(initial=0) > _MOST_SUM - _MOST_BIAS:
            raise ValueError(f"operator {node.name!r} sums more products than 32 bits hold, in int8")
        self._constants[f"{result}:weights"] = (kernel + _ZERO).astype(np.uint8)
        inputs = [self._integers(image), f"{result}:weights", self._zero(), self._zero()]
        sums = f"{result}:products"
        self._node("ConvInteger", inputs, sums, node.attribute)
        if has_bias:
            in_sums = np.rint(np.ldexp(bias.astype(np.float64), -of_image - of_filters)).astype(np.int64)
            largest += np.abs(in_sums)
            self._constants[f"{result}:bias"] = _for_each(in_sums, weights.ndim - 1).astype(np.int32)
            self._node("Add", [sums, f"{result}:bias"], f"{result}:sums")
            sums = f"{result}:sums"
        if result in self._partial:
            steps = np.ldexp(1.0, of_image + of_filters).astype(np.float32)
            self._constants[f"{result}:steps"] = _for_each(steps, weights.ndim - 1)
            self._cast(sums, TensorProto.FLOAT, f"{result}:float")
            self._node("Mul", [f"{result}:float", f"{result}:steps"], result)
            return
        self._shift(sums, largest, self._exponent(result) - of_image - of_filters, weights.ndim, result)

    def _shift(self, sums: str, largest: Ints, shifts: Ints, rank: int, result: str) -> None:
        """Compute the integers of `result`: round(sum / 2^shift). `largest`, `shifts`: (filters,); bounds of sums.

        A float32 cannot hold all integers beyond 2^24, so doubles are used unless such sums are clipped to 127 anyway.
        """
        shifts = np.clip(shifts, _LEAST_SHIFT, _MOST_SHIFT)
        factors = _for_each(2.0**-shifts, rank - 1)
        if np.any((largest > 2**_FLOAT_BITS) & (shifts > _FLOAT_BITS - _STEP_BITS)):
            self._constants[f"{result}:factors"] = factors
            self._cast(sums, TensorProto.DOUBLE, f"{result}:double")
            self._node("Mul", [f"{result}:double", f"{result}:factors"], f"{result}:shifted_double")
            self._node("Round", [f"{result}:shifted_double"], f"{result}:rounded")
            self._cast(f"{result}:rounded", TensorProto.FLOAT, f"{result}:shifted")
        else:
            self._constants[f"{result}:factors"] = factors.astype(np.float32)
            self._cast(sums, TensorProto.FLOAT, f"{result}:float")
            self._node("Mul", [f"{result}:float", f"{result}:factors"], f"{result}:shifted")
        self._round(f"{result}:shifted", 0, result)

    def _integers(self, name: str) -> str:
        """The name of a tensor's integers, which are made first if it is a float tensor that enters the segment."""
        if name not in self._in_integers:
            self._round(name, self._exponent(name), name)
            self._in_integers.add(name)
        return f"{name}:int8"

    def _round(self, source: str, exponent: int, result: str) -> None:
        """Round to integers of at least -127; QuantizeLinear alone goes down to -128."""
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
