"""Random heavy layers with light operators behind them, and random networks of a few."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from shisha_rt.model.split import Axis

_UNARY: Final = ("Relu", "LeakyRelu", "Sigmoid", "Tanh", "Elu", "Abs", "HardSigmoid")
_OPSETS: Final = (9, 11, 13, 17)


class Drawn:
    """A model in the making: its nodes, weights, inputs, and the shape of what was made last."""

    def __init__(self, seed: int, *, aligned: bool = False) -> None:
        self.rng = random.Random(seed)
        self.values = np.random.default_rng(seed)
        self.opset = self.rng.choice(_OPSETS)
        self.aligned = aligned
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: dict[str, tuple[int, ...]] = {}
        self.outputs: dict[str, tuple[int, ...]] = {}
        self.shape: tuple[int, ...] = ()
        self.name = ""

    def given(self, shape: tuple[int, ...]) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = shape
        return name

    def constant(self, shape: tuple[int, ...], scale: float = 1.0) -> str:
        return self.array(np.asarray(self.values.standard_normal(shape) * scale, np.float32))

    def array(self, value: Any) -> str:
        name = f"w{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def add(self, op_type: str, inputs: Sequence[str], shape: tuple[int, ...], **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], name, **attributes))
        self.name, self.shape = name, shape
        return name

    def model(self) -> onnx.ModelProto:
        self.outputs[self.name] = self.shape
        graph = helper.make_graph(
            self.nodes,
            "drawn",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in self.inputs.items()],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in self.outputs.items()],
            self.constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)

    def start(self, axis: Axis, kind: str) -> None:
        """What the first layer reads."""
        rng = self.rng
        batch = rng.choice((1, 1, 1, 2))
        if kind == "Gemm":
            self.shape = (rng.randint(1 if axis != "rows" else 4, 9), rng.randint(4, 40))
        elif kind == "MatMul":
            leading = rng.choice(((), (batch,), (batch, 3)))
            self.shape = (*leading, rng.randint(1 if axis != "rows" else 4, 9), rng.randint(4, 40))
        else:
            spatial = rng.choice((1, 2, 2, 2, 2, 3))
            channels = 16 * rng.randint(1, 4) if self.aligned else rng.randint(4, 40)
            self.shape = (batch, channels, *(rng.randint(6, {1: 40, 2: 18, 3: 8}[spatial]) for _ in range(spatial)))
        self.name = self.given(self.shape)

    def heavy(self, axis: Axis, kind: str) -> None:
        {"Gemm": self.gemm, "MatMul": self.matmul}.get(kind, self.conv)(axis)

    def gemm(self, axis: Axis) -> None:
        rng = self.rng
        rows, inner = self.shape
        columns, transposed = rng.randint(4, 40), rng.random() < 0.5
        inputs = [self.name, self.constant((columns, inner) if transposed else (inner, columns), inner**-0.5)]
        bias = rng.choice(((columns,), (1, columns), (rows, columns), (1,), None))
        if bias is not None:
            inputs.append(self.constant(bias))
        elif self.opset < 11:
            inputs.append(self.constant((columns,)))
        alpha, beta = rng.choice(((1.0, 1.0), (0.5, 1.5)))
        if self.name in self.inputs and rng.random() < 0.3:
            self.inputs[self.name] = (inner, rows)
            self.add("Gemm", inputs, (rows, columns), transA=1, transB=int(transposed), alpha=alpha, beta=beta)
        else:
            self.add("Gemm", inputs, (rows, columns), transB=int(transposed), alpha=alpha, beta=beta)

    def matmul(self, axis: Axis) -> None:
        rng = self.rng
        *leading, inner = self.shape
        columns = rng.randint(4, 40)
        lead = rng.choice(((), tuple(self.shape[:-2])))
        self.add("MatMul", [self.name, self.constant((*lead, inner, columns), inner**-0.5)], (*leading, columns))
        if rng.random() < 0.6:
            self.add("Add", [self.name, self.constant((columns,))], self.shape)

    def conv(self, axis: Axis) -> None:
        rng = self.rng
        batch, channels, *sizes = self.shape
        filters = 16 * rng.randint(2, 5) if self.aligned else rng.randint(4, 40)
        groups = 1
        if axis == "groups" or (axis == "rows" and rng.random() < 0.3):
            groups = (
                channels if rng.random() < 0.5 else rng.choice([g for g in range(1, channels + 1) if channels % g == 0])
            )
            if groups == 1:
                groups = channels
            filters = groups * (1 if self.aligned and groups == channels else rng.randint(1, max(1, 48 // groups)))
        kernel = [rng.randint(1, 4) for _ in sizes]
        strides = [rng.randint(1, 3) for _ in sizes]
        dilations = [rng.choice((1, 1, 2)) for _ in sizes]
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        attributes: dict[str, Any] = {"group": groups, "strides": strides, "dilations": dilations}
        how = rng.choice(("NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"))
        if how.startswith("SAME"):
            attributes |= {"auto_pad": how}
            dilations[:] = [1] * len(sizes)  # whose SAME padding ONNX Runtime does not do
            reach = kernel
            made = [-(-size // s) for size, s in zip(sizes, strides, strict=True)]
        elif how == "VALID":
            attributes |= {"auto_pad": how}
            made = [(size - r) // s + 1 for size, r, s in zip(sizes, reach, strides, strict=True)]
        else:
            before = [rng.randint(0, r - 1) for r in reach]
            after = [rng.randint(0, r - 1) for r in reach]
            attributes |= {"pads": [*before, *after]}
            made = [
                (size + a + b - r) // s + 1
                for size, a, b, r, s in zip(sizes, before, after, reach, strides, strict=True)
            ]
        if min(made) < 1 or (axis == "rows" and made[0] < 4):
            attributes = {"group": groups}
            kernel, made = [1] * len(sizes), sizes
        scale = (channels // groups * float(np.prod(kernel))) ** -0.5
        inputs = [self.name, self.constant((filters, channels // groups, *kernel), scale)]
        if rng.random() < 0.7:
            inputs.append(self.constant((filters,)))
        self.add("Conv", inputs, (batch, filters, *made), **attributes)

    def depthwise(self) -> None:
        _, channels, *sizes = self.shape
        inputs = [self.name, self.constant((channels, 1, *(3 for _ in sizes)), 0.4), self.constant((channels,))]
        self.add("Conv", inputs, self.shape, group=channels, pads=[1] * 2 * len(sizes))

    def between(self) -> None:
        """What goes element by element, or nothing."""
        kind = self.rng.choice(("unary", "unary", "unary", "Add", ""))
        if kind == "Add":
            self.add(kind, [self.name, self.constant(())], self.shape)
        elif kind:
            self.unary()

    def unary(self) -> None:
        kind = self.rng.choice((*_UNARY, "Clip"))
        bounds = np.float32(-0.5), np.float32(0.75)
        if kind != "Clip":
            self.add(kind, [self.name], self.shape)
        elif self.opset < 11:
            self.add(kind, [self.name], self.shape, min=float(bounds[0]), max=float(bounds[1]))
        else:
            self.add(kind, [self.name, *(self.array(np.array(bound)) for bound in bounds)], self.shape)

    def transposed_conv(self, axis: Axis) -> None:
        rng = self.rng
        batch, channels, *sizes = self.shape
        groups = rng.choice([g for g in range(2, channels + 1) if channels % g == 0]) if axis == "groups" else 1
        of_group = rng.randint(1 if groups > 1 else 4, 12)
        kernel, strides = [rng.randint(1, 3) for _ in sizes], [rng.randint(1, 2) for _ in sizes]
        made = [(size - 1) * s + k for size, k, s in zip(sizes, kernel, strides, strict=True)]
        inputs = [self.name, self.constant((channels, of_group, *kernel), 0.2), self.constant((groups * of_group,))]
        self.add("ConvTranspose", inputs, (batch, groups * of_group, *made), strides=strides, group=groups)

    def light(self) -> None:
        """Something behind it: mostly what goes channel by channel, sometimes what needs them all."""
        rng, rank = self.rng, len(self.shape)
        image = rank > 2 and self.nodes[0].op_type in ("Conv", "ConvTranspose")
        kinds = ["unary", "unary", "tensor", "scalar", "whole"]
        kinds += ["channel", "norm", "slope", "pool", "pool", "global", "flatten", "instance"] * image
        kinds += ["lrn"] * (image and rank == 4)
        kinds += ["column"] * (not image)
        kind = rng.choice(kinds)
        channels = self.shape[1] if rank > 1 else 1
        ones = (1,) * (rank - 2)
        if rng.random() < 0.15:
            self.outputs[self.name] = self.shape
        if kind == "unary":
            self.unary()
        elif kind == "tensor":
            read = rng.choice([name for name, shape in self.inputs.items() if shape == self.shape] or [""])
            other = read or self.given(self.shape)
            self.add(rng.choice(("Add", "Sum", "Mul", "Sub")), rng.sample([self.name, other], 2), self.shape)
        elif kind == "scalar":
            self.add("Mul", [self.name, self.constant(())], self.shape)
        elif kind == "column":
            self.add("Add", [self.name, self.constant((self.shape[-1],))], self.shape)
        elif kind == "channel":
            self.add(rng.choice(("Add", "Mul")), [self.constant((channels, *ones)), self.name], self.shape)
        elif kind == "norm":
            weights = [self.constant((channels,)) for _ in range(3)]
            weights.append(self.array(self.values.uniform(0.5, 2, channels).astype(np.float32)))
            self.add("BatchNormalization", [self.name, *weights], self.shape)
        elif kind == "instance":
            self.add("InstanceNormalization", [self.name, *(self.constant((channels,)) for _ in "ab")], self.shape)
        elif kind == "slope":
            self.add("PRelu", [self.name, self.constant((channels, *ones))], self.shape)
        elif kind == "pool":
            self._pool()
        elif kind == "global":
            kind = rng.choice(("GlobalAveragePool", "GlobalMaxPool"))
            self.add(kind, [self.name], (*self.shape[:2], *ones))
        elif kind == "flatten":
            flat = (self.shape[0], int(np.prod(self.shape[1:])))
            if rng.random() < 0.5:
                self.add("Flatten", [self.name], flat)
            else:
                self.add("Reshape", [self.name, self.array(np.array([flat[0], -1], np.int64))], flat)
        elif kind == "lrn":
            self.add("LRN", [self.name], self.shape, size=3)
        else:
            self.add("Softmax", [self.name], self.shape, axis=rank - 1 if rng.random() < 0.5 else min(1, rank - 1))

    def _pool(self) -> None:
        rng = self.rng
        sizes = self.shape[2:]
        kernel, strides = [min(rng.randint(1, 3), size) for size in sizes], [rng.randint(1, 3) for _ in sizes]
        kind = rng.choice(("MaxPool", "AveragePool"))
        if rng.random() < 0.3:
            how = rng.choice(("SAME_UPPER", "SAME_LOWER"))
            strides = [min(s, k) for s, k in zip(strides, kernel, strict=True)]  # else ONNX Runtime refuses it
            made = [-(-size // s) for size, s in zip(sizes, strides, strict=True)]
            attributes: dict[str, Any] = {"auto_pad": how}
        else:
            pads = [rng.randint(0, k - 1) for k in kernel] * 2
            room = [size + 2 * pad - k for size, pad, k in zip(sizes, pads, kernel, strict=False)]
            made = [space // s + 1 for space, s in zip(room, strides, strict=True)]
            attributes = {"pads": pads}
            if self.opset > 9 and rng.random() < 0.3:
                attributes["ceil_mode"] = 1
                made = [-(-space // s) + 1 for space, s in zip(room, strides, strict=True)]
                # A window that would begin in the padding behind is left out.
                made = [
                    m - ((m - 1) * s >= size + pad) for m, s, size, pad in zip(made, strides, sizes, pads, strict=False)
                ]
            if kind == "AveragePool" and rng.random() < 0.4:
                attributes["count_include_pad"] = 1
        self.add(kind, [self.name], (*self.shape[:2], *made), kernel_shape=kernel, strides=strides, **attributes)


def random_layer(seed: int, axis: Axis, *, aligned: bool = False) -> onnx.ModelProto:
    """One heavy operator that can be split along `axis` and up to three light ones.

    `aligned`: channels in multiples of 16, of which an engine makes blocks.
    """
    drawn = Drawn(seed, aligned=aligned)
    rng = drawn.rng
    products = {"columns": ("Gemm", "MatMul"), "channels": (), "groups": ()}.get(axis, ("Gemm", "MatMul"))
    kind = rng.choice(products) if axis == "columns" else rng.choice(("Conv", "Conv", "Conv", *products))
    if aligned:
        kind = "Conv"
    drawn.start(axis, kind)
    if kind == "Conv" and rng.random() < 0.2:
        drawn.add("Relu", [drawn.name], drawn.shape)
    if kind == "Conv" and axis != "rows" and not aligned and rng.random() < 0.1:
        drawn.transposed_conv(axis)
    else:
        drawn.heavy(axis, kind)
    for _ in range(rng.randint(0, 3)):
        drawn.light()
    return drawn.model()


def random_pair(seed: int, axis: Axis) -> onnx.ModelProto:
    """Two heavy operators that can be split on the same shares (or several, by rows), with what is light between."""
    drawn = Drawn(seed, aligned=seed % 2 == 1)
    rng = drawn.rng
    kind = rng.choice(("Gemm", "MatMul")) if axis == "columns" else "Conv"
    drawn.start(axis, kind)
    drawn.heavy(axis, kind)
    drawn.between()
    if kind == "Conv" and rng.random() < 0.4:
        drawn.depthwise()
        drawn.between()
    if axis != "rows" and kind == "Conv" and rng.random() < 0.3:
        flat = (drawn.shape[0], int(np.prod(drawn.shape[1:])))
        drawn.add("Flatten", [drawn.name], flat)
        drawn.gemm(axis)
    else:
        drawn.heavy("channels" if axis == "groups" else axis, kind)
    for _ in range(rng.randint(0, 2)):
        drawn.light()
    return drawn.model()


def random_network(seed: int) -> onnx.ModelProto:
    """Three to seven layers, with skip connections."""
    drawn = Drawn(seed, aligned=seed % 2 == 1)
    rng = drawn.rng
    drawn.start("channels", "Conv")
    skips: list[tuple[str, tuple[int, ...]]] = [(drawn.name, drawn.shape)]
    for _ in range(rng.randint(2, 5)):
        drawn.heavy(rng.choice(("channels", "groups")), "Conv")
        drawn.between()
        alike = [name for name, shape in skips if shape == drawn.shape]
        if alike:
            drawn.add("Add", [drawn.name, rng.choice(alike)], drawn.shape)
        elif rng.random() < 0.5:
            before = drawn.name, drawn.shape
            filters, kernel = drawn.shape[1], (1,) * (len(drawn.shape) - 2)
            drawn.add("Conv", [drawn.name, drawn.constant((filters, filters, *kernel), filters**-0.5)], drawn.shape)
            drawn.add("Relu", [drawn.name], drawn.shape)
            drawn.add("Add", [drawn.name, before[0]], drawn.shape)
        if rng.random() < 0.3:
            joined = drawn.name, drawn.shape
            drawn.add("Sigmoid", [drawn.name], drawn.shape)
            drawn.add("Concat", [drawn.name, joined[0]], (joined[1][0], 2 * joined[1][1], *joined[1][2:]), axis=1)
        skips.append((drawn.name, drawn.shape))
    flat = (drawn.shape[0], int(np.prod(drawn.shape[1:])))
    drawn.add("Flatten", [drawn.name], flat)
    drawn.gemm("columns")
    drawn.add("Relu", [drawn.name], drawn.shape)
    drawn.gemm("columns")
    drawn.add("Softmax", [drawn.name], drawn.shape, axis=1)
    return drawn.model()
