"""Small networks, each odd in its own way, as exporters and people write them. `SERVED` and `REFUSED` name them all.

Each has two or three heavy operators, so that there is something to cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.helper import make_node

Array = npt.NDArray[Any]
Dims = Sequence[int | str | None] | None
Build = Callable[[], onnx.ModelProto]

RATE: Final = 16_000
IMAGE: Final = (1, 3, 8, 8)
FEATURES: Final = (1, 4, 8, 8)
FLOAT, HALF, DOUBLE = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE
INT64, BOOL, UINT8, INT8 = TensorProto.INT64, TensorProto.BOOL, TensorProto.UINT8, TensorProto.INT8


@dataclass
class Sketch:
    """A network that is being written down: nodes in order, and weights by name."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, Array] = field(default_factory=dict)

    def add(self, op_type: str, reads: Sequence[str], *makes: str, **attributes: Any) -> str:
        """The first of `makes`."""
        self.nodes.append(make_node(op_type, reads, makes, **attributes))
        return makes[0]

    def weight(self, name: str, *shape: int) -> str:
        generator = np.random.default_rng(len(self.weights))
        scale = np.sqrt(np.prod(shape[1:]))
        self.weights[name] = (generator.standard_normal(shape) / scale).astype(np.float32)
        return name

    def number(self, name: str, value: Any, dtype: Any = np.int64) -> str:
        self.weights[name] = np.array(value, dtype)
        return name

    def conv(self, x: str, y: str, channels: tuple[int, int] = (4, 4)) -> str:
        """3 x 3, of the same size."""
        return self.add("Conv", [x, self.weight(f"{y}_w", channels[1], channels[0], 3, 3)], y, pads=[1, 1, 1, 1])

    def stem(self, x: str = "x") -> str:
        """From an image to features, in two operators."""
        return self.add("Relu", [self.conv(x, "stem", (3, 4))], "features")

    def product(self, x: str, y: str, rows: int, columns: int) -> str:
        return self.add("MatMul", [x, self.weight(f"{y}_w", rows, columns)], y)

    def model(
        self,
        inputs: Mapping[str, tuple[int, Dims]],
        outputs: Mapping[str, tuple[int, Dims]],
        opset: int = 17,
        domains: Sequence[str] = (),
        functions: Sequence[onnx.FunctionProto] = (),
    ) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "odd",
            [helper.make_tensor_value_info(name, *spec) for name, spec in inputs.items()],
            [helper.make_tensor_value_info(name, *spec) for name, spec in outputs.items()],
            [numpy_helper.from_array(value, name) for name, value in self.weights.items()],
        )
        imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
        ir_version = max(8, helper.find_min_ir_version_for(imports[:1], True))
        return helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=ir_version)


def image_to(outputs: Mapping[str, tuple[int, Dims]], sketch: Sketch, **more: Any) -> onnx.ModelProto:
    return sketch.model({"x": (FLOAT, IMAGE)}, outputs, **more)


def inner(nodes: Sequence[onnx.NodeProto], makes: Mapping[str, tuple[int, Dims]], **more: Any) -> onnx.GraphProto:
    """A graph inside an operator; `more`: `reads`, inputs of its own, and `weights`."""
    reads: Mapping[str, tuple[int, Dims]] = more.get("reads", {})
    return helper.make_graph(
        nodes,
        "inner",
        [helper.make_tensor_value_info(name, *spec) for name, spec in reads.items()],
        [helper.make_tensor_value_info(name, *spec) for name, spec in makes.items()],
        [numpy_helper.from_array(value, name) for name, value in more.get("weights", {}).items()],
    )


# What depends on the data


def nonzero_in_the_middle() -> onnx.ModelProto:
    net = Sketch()
    net.stem()
    net.add("NonZero", ["features"], "where")
    net.add("Transpose", ["where"], "places")
    net.add("GatherND", ["features", "places"], "values")
    net.add("ReduceMean", ["values"], "mean", keepdims=0)
    net.conv("features", "second")
    net.add("Mul", ["second", "mean"], "scaled")
    net.conv("scaled", "third")
    net.add("Add", ["third", "mean"], "y")
    return image_to({"y": (FLOAT, FEATURES)}, net)


def nonzero_at_the_end() -> onnx.ModelProto:
    net = Sketch()
    net.stem()
    net.conv("features", "plain")
    net.add("Relu", ["plain"], "positive")
    net.add("NonZero", ["positive"], "where")
    return image_to({"where": (INT64, [4, "n"]), "plain": (FLOAT, FEATURES)}, net)


def _boxes_and_scores(net: Sketch) -> None:
    net.stem()
    net.conv("features", "scores_and_boxes")
    net.add("Reshape", ["scores_and_boxes", net.number("as_boxes", [1, 64, 4])], "boxes")
    net.add("Reshape", ["scores_and_boxes", net.number("as_scores", [1, 4, 64])], "raw")
    net.add("Sigmoid", ["raw"], "scores")


def suppressed_boxes() -> onnx.ModelProto:
    """As detectors end: what is left of overlapping boxes, and their corners."""
    net = Sketch()
    _boxes_and_scores(net)
    limits = [net.number("most", [5]), net.number("overlap", [0.5], np.float32), net.number("least", [0.6], np.float32)]
    net.add("NonMaxSuppression", ["boxes", "scores", *limits], "selected")
    net.add("Gather", ["selected", net.number("last", 2)], "index", axis=1)
    net.add("Squeeze", ["boxes", net.number("first_axis", [0])], "corners")
    net.add("Gather", ["corners", "index"], "kept")
    return image_to({"selected": (INT64, ["n", 3]), "kept": (FLOAT, ["n", 4])}, net)


def thresholds_as_inputs() -> onnx.ModelProto:
    """A detector that is told by its caller what to leave out, and into how many rows to sort what is left.

    Its engine takes no overlap but one from 0 to 1, and cannot divide by 0.
    """
    net = Sketch()
    _boxes_and_scores(net)
    net.add("NonMaxSuppression", ["boxes", "scores", net.number("most", [5]), "overlap", "least"], "selected")
    net.add("Mod", ["selected", "rows"], "row")
    limits: dict[str, tuple[int, Dims]] = {"overlap": (FLOAT, [1]), "least": (FLOAT, [1]), "rows": (INT64, [1])}
    return net.model({"x": (FLOAT, IMAGE), **limits}, {"row": (INT64, ["n", 3]), "boxes": (FLOAT, [1, 64, 4])})


def topk_of_a_computed_number() -> onnx.ModelProto:
    net = Sketch()
    net.stem()
    net.add("Reshape", ["features", net.number("flat", [1, 256])], "row")
    net.product("row", "logits", 256, 10)
    net.add("Greater", ["logits", net.number("zero", 0, np.float32)], "is_positive")
    net.add("Cast", ["is_positive"], "counted", to=INT64)
    net.add("ReduceSum", ["counted"], "count", keepdims=0)
    net.add("Reshape", ["count", net.number("as_list", [1])], "k")
    net.add("TopK", ["logits", "k"], "best", "index")
    net.product("logits", "y", 10, 3)
    return image_to({"best": (FLOAT, [1, "k"]), "index": (INT64, None), "y": (FLOAT, [1, 3])}, net)


# Control flow


def if_of_a_constant() -> onnx.ModelProto:
    """The condition is known once the batch is."""
    net = Sketch()
    net.stem()
    net.add("Shape", ["x"], "shape")
    net.add("Gather", ["shape", net.number("nought", 0)], "batch")
    net.add("Equal", ["batch", net.number("one", 1)], "single")
    net.weight("inside_w", 4, 4, 3, 3)
    then = inner([make_node("Conv", ["features", "inside_w"], ["t"], pads=[1, 1, 1, 1])], {"t": (FLOAT, None)})
    other = inner([make_node("Neg", ["features"], ["t"])], {"t": (FLOAT, None)})
    net.add("If", ["single"], "chosen", then_branch=then, else_branch=other)
    net.conv("chosen", "y")
    return net.model({"x": (FLOAT, ["N", 3, 8, 8])}, {"y": (FLOAT, None)})


def if_in_if() -> onnx.ModelProto:
    """Both conditions are computed; tensors and weights of all levels are read inside."""
    net = Sketch()
    net.stem()
    net.add("ReduceSum", ["features"], "sum", keepdims=0)
    net.add("ReduceSum", ["x"], "x_sum", keepdims=0)
    net.number("zero", 0, np.float32)
    net.number("middling", 30, np.float32)
    net.add("Greater", ["sum", "middling"], "is_large")
    net.add("Greater", ["x_sum", "zero"], "is_positive")
    net.weight("inside_w", 4, 4, 3, 3)
    like = {"t": (FLOAT, FEATURES)}
    deepest = inner(
        [make_node("Add", ["own", "features"], ["u"]), make_node("Mul", ["u", "two"], ["t"])],
        like,
        weights={"two": np.float32(2)},
    )
    deep = inner([make_node("Sub", ["own", "sum"], ["t"])], like)
    then = inner(
        [
            make_node("Conv", ["features", "inside_w"], ["own"], pads=[1, 1, 1, 1]),
            make_node("If", ["is_positive"], ["t"], then_branch=deepest, else_branch=deep),
        ],
        like,
    )
    other = inner([make_node("Neg", ["features"], ["t"])], like)
    net.add("If", ["is_large"], "chosen", then_branch=then, else_branch=other)
    net.conv("chosen", "y")
    return image_to({"y": (FLOAT, FEATURES)}, net)


def weights_in_branches() -> onnx.ModelProto:
    """Each branch has large ones of its own, one of them of no size that is a multiple of anything."""
    net = Sketch()
    net.product("x", "a", 33, 33)
    net.add("ReduceSum", ["a"], "sum", keepdims=0)
    net.add("Greater", ["sum", net.number("zero", 0, np.float32)], "is_positive")
    generator = np.random.default_rng(0)

    def branch(hidden: int) -> onnx.GraphProto:
        shapes = {"there": (33, hidden), "back": (hidden, 33)}
        return inner(
            [make_node("MatMul", ["a", "there"], ["u"]), make_node("MatMul", ["u", "back"], ["t"])],
            {"t": (FLOAT, [2, 33])},
            weights={name: generator.standard_normal(shape, np.float32) / 33 for name, shape in shapes.items()},
        )

    net.add("If", ["is_positive"], "chosen", then_branch=branch(35), else_branch=branch(64))
    net.product("chosen", "y", 33, 33)
    return net.model({"x": (FLOAT, [2, 33])}, {"y": (FLOAT, [2, 33])})


def branches_of_two_shapes() -> onnx.ModelProto:
    """What the If makes is of one shape or of another, and then it is summed."""
    net = Sketch()
    net.stem()
    net.add("ReduceSum", ["x"], "sum", keepdims=0)
    net.add("Greater", ["sum", net.number("zero", 0, np.float32)], "is_positive")
    then = inner([make_node("Identity", ["features"], ["t"])], {"t": (FLOAT, None)})
    other = inner([make_node("GlobalMaxPool", ["features"], ["t"])], {"t": (FLOAT, None)})
    net.add("If", ["is_positive"], "either", then_branch=then, else_branch=other)
    net.add("ReduceMean", ["either"], "mean", keepdims=0)
    net.conv("features", "second")
    net.add("Add", ["second", "mean"], "y")
    return image_to({"y": (FLOAT, FEATURES), "either": (FLOAT, None)}, net)


def _loop(net: Sketch, trips: str) -> None:
    """Turns `second`, adds `features`, and gives each sum's mean, one for each trip."""
    body = inner(
        [
            make_node("Conv", ["sum", "body_w"], ["turned"], pads=[1, 1, 1, 1]),
            make_node("Add", ["turned", "features"], ["next"]),
            make_node("ReduceMean", ["next"], ["mean"], keepdims=0),
            make_node("Identity", ["go_on"], ["goes_on"]),
        ],
        {"goes_on": (BOOL, []), "next": (FLOAT, FEATURES), "mean": (FLOAT, [])},
        reads={"trip": (INT64, []), "go_on": (BOOL, []), "sum": (FLOAT, FEATURES)},
    )
    net.weight("body_w", 4, 4, 3, 3)
    net.nodes.append(make_node("Loop", [trips, "", "second"], ["looped", "means"], body=body))


def loop_of_a_constant() -> onnx.ModelProto:
    net = Sketch()
    net.stem()
    net.conv("features", "second")
    _loop(net, net.number("three", 3))
    net.conv("looped", "y")
    return image_to({"y": (FLOAT, FEATURES), "means": (FLOAT, [3])}, net)


def loop_of_a_computed_number() -> onnx.ModelProto:
    net = Sketch()
    net.stem()
    net.add("ReduceMean", ["x"], "x_mean", keepdims=0)
    net.add("Mul", ["x_mean", net.number("times", 20, np.float32)], "stretched")
    net.add("Abs", ["stretched"], "absolute")
    net.add("Cast", ["absolute"], "trips", to=INT64)
    net.conv("features", "second")
    _loop(net, "trips")
    net.conv("looped", "y")
    return image_to({"y": (FLOAT, FEATURES), "means": (FLOAT, ["n"])}, net)


def loop_that_may_not_run() -> onnx.ModelProto:
    """As its caller says. What it stacks has then no rows, of as many columns as its body states."""
    net = Sketch()
    net.stem()
    body = inner(
        [make_node("Reshape", ["trip", "list"], ["first"]), make_node("Add", ["first", "list"], ["most"]),
         make_node("Add", ["most", "list"], ["end"]), make_node("Slice", ["sum", "first", "end"], ["row"]),
         make_node("Add", ["sum", "halves"], ["next"]), make_node("Identity", ["goes_on"], ["on"])],
        {"on": (BOOL, []), "next": (FLOAT, [4]), "row": (FLOAT, [2])},
        reads={"trip": (INT64, []), "goes_on": (BOOL, []), "sum": (FLOAT, [4])},
    )  # fmt: skip
    net.number("list", [1])
    net.number("halves", [0.5] * 4, np.float32)
    net.add("Loop", ["trips", "", net.number("none", [0] * 4, np.float32)], "last", "rows", body=body)
    net.conv("features", "y")
    outputs: dict[str, tuple[int, Dims]] = {"y": (FLOAT, FEATURES), "last": (FLOAT, None), "rows": (FLOAT, None)}
    return net.model({"x": (FLOAT, IMAGE), "trips": (INT64, [])}, outputs)


def scan() -> onnx.ModelProto:
    """Over rows, with a state; it reads a weight of outside."""
    net = Sketch()
    net.product("x", "rows", 6, 4)
    body = inner(
        [make_node("MatMul", ["state", "turn"], ["turned"]), make_node("Add", ["turned", "row"], ["next"]),
         make_node("Tanh", ["next"], ["shown"])],
        {"next": (FLOAT, [4]), "shown": (FLOAT, [4])},
        reads={"state": (FLOAT, [4]), "row": (FLOAT, [4])},
    )  # fmt: skip
    net.weight("turn", 4, 4)
    net.add("Scan", ["start", "rows"], "end", "all", body=body, num_scan_inputs=1)
    net.product("all", "y", 4, 3)
    return net.model({"x": (FLOAT, [5, 6]), "start": (FLOAT, [4])}, {"y": (FLOAT, [5, 3]), "end": (FLOAT, [4])})


def spectrograms() -> onnx.ModelProto:
    """Of sound, one of them in a branch. STFT's `onesided` is left out, so that it is 1: 9 of 16 frequencies."""
    net = Sketch()
    window = np.hanning(16).astype(np.float32)
    net.weights["window"] = window
    net.add("STFT", ["x", net.number("step", 8), "window"], "parts")
    net.add("ReduceSumSquare", ["parts"], "power", axes=[-1], keepdims=0)
    net.product("power", "mel", 9, 5)
    then = inner(
        [make_node("STFT", ["x", "t_step", "t_window"], ["t_parts"]),
         make_node("ReduceSumSquare", ["t_parts"], ["t_power"], axes=[-1], keepdims=0),
         make_node("MatMul", ["t_power", "mel_w"], ["t"])],
        {"t": (FLOAT, None)},
        weights={"t_step": np.array(8), "t_window": window},
    )  # fmt: skip
    net.add("ReduceSum", ["x"], "sum", keepdims=0)
    net.add("Greater", ["sum", net.number("zero", 0, np.float32)], "is_positive")
    other = inner([make_node("Neg", ["mel"], ["t"])], {"t": (FLOAT, None)})
    net.add("If", ["is_positive"], "either", then_branch=then, else_branch=other)
    net.product("either", "y", 5, 3)
    return net.model({"x": (FLOAT, [1, 64])}, {"y": (FLOAT, [1, 7, 3])})


# Recurrence


def two_rates() -> onnx.ModelProto:
    """Voice networks do so: a branch for each rate of samples, which takes so many of them and no others."""
    net = Sketch()
    net.add("Equal", ["rate", net.number("wanted", RATE)], "is_wanted")
    net.product("x", "a", 64, 64)

    def branch(size: int) -> onnx.GraphProto:
        weights = {"shape": np.array([1, size])}
        return inner([make_node("Reshape", ["a", "shape"], ["t"])], {"t": (FLOAT, None)}, weights=weights)

    net.add("If", ["is_wanted"], "chosen", then_branch=branch(64), else_branch=branch(32))
    net.product("chosen", "b", 64, 32)
    net.product("b", "y", 32, 4)
    return net.model({"x": (FLOAT, [1, 64]), "rate": (INT64, [])}, {"y": (FLOAT, None)})


def branch_of_another_size(samples: int | str) -> onnx.ModelProto:
    """One branch takes 32 samples and no others. The engine finds out when it folds a shape, if it knows theirs."""
    net = Sketch()
    net.add("Equal", ["rate", net.number("wanted", RATE)], "is_wanted")
    net.add("Relu", ["x"], "a")
    nodes = [
        make_node("Mul", ["row", "ones"], ["shape"]),
        make_node("Reshape", ["a", "shape"], ["samples"]),
        make_node("MatMul", ["samples", "other"], ["t"]),
    ]
    weights = {"row": np.array([1, -1]), "ones": np.array([1, 1]), "other": np.ones((32, 64), np.float32)}
    other = inner(nodes, {"t": (FLOAT, [1, 64])}, weights=weights)
    wanted = inner([make_node("Neg", ["a"], ["t"])], {"t": (FLOAT, [1, 64])})
    net.add("If", ["is_wanted"], "chosen", then_branch=wanted, else_branch=other)
    net.product("chosen", "b", 64, 32)
    net.product("b", "y", 32, 4)
    return net.model({"x": (FLOAT, [1, samples]), "rate": (INT64, [])}, {"y": (FLOAT, None)})


def lstm_with_state() -> onnx.ModelProto:
    """State and lengths go in, state comes out."""
    net = Sketch()
    net.product("x", "embedded", 6, 4)
    weights = [net.weight("W", 1, 32, 4), net.weight("R", 1, 32, 8), net.weight("B", 1, 64)]
    net.add("LSTM", ["embedded", *weights, "lengths", "h", "c"], "all", "h_out", "c_out", hidden_size=8)
    net.add("Squeeze", ["all", net.number("axis", [1])], "squeezed")
    net.product("squeezed", "y", 8, 3)
    state: tuple[int, Dims] = (FLOAT, [1, "batch", 8])
    return net.model(
        {"x": (FLOAT, [5, "batch", 6]), "lengths": (TensorProto.INT32, ["batch"]), "h": state, "c": state},
        {"y": (FLOAT, None), "h_out": (FLOAT, None), "c_out": (FLOAT, None)},
    )


def recurrent_from_zeros() -> onnx.ModelProto:
    """As exporters write it: initial states are zeros, for one frame."""
    net = Sketch()
    net.product("x", "embedded", 6, 4)
    net.add("Transpose", ["embedded"], "by_step", perm=[1, 0, 2])
    zeros = net.number("zeros", np.zeros((1, 1, 8)), np.float32)
    weights = [net.weight("W", 1, 32, 4), net.weight("R", 1, 32, 8)]
    net.add("LSTM", ["by_step", *weights, "", "", zeros, zeros], "all", hidden_size=8)
    net.add("Squeeze", ["all", net.number("axis", [1])], "squeezed")
    weights = [net.weight("W2", 1, 24, 8), net.weight("R2", 1, 24, 8)]
    net.add("GRU", ["squeezed", *weights, "", "", zeros], "", "last", hidden_size=8)
    net.add("Squeeze", ["last", net.number("first", [0])], "features")
    net.product("features", "y", 8, 3)
    return net.model({"x": (FLOAT, ["batch", 5, 6])}, {"y": (FLOAT, ["batch", 3])})


def attention() -> onnx.ModelProto:
    """As in opset 23: one operator of ONNX, with a mask for all frames."""
    net = Sketch()
    for name in "qkv":
        net.product("x", name, 8, 8)
    mask = net.number("mask", np.triu(np.full((5, 5), -10.0)), np.float32)
    net.add("Attention", ["q", "k", "v", mask], "attended", q_num_heads=2, kv_num_heads=2)
    net.product("attended", "y", 8, 3)
    return net.model({"x": (FLOAT, ["batch", 5, 8])}, {"y": (FLOAT, ["batch", 5, 3])}, opset=23)


def class_token() -> onnx.ModelProto:
    """A vision transformer, exported for one frame, to which its token is expanded; products of heads are Einsums."""
    net = Sketch()
    net.add("Conv", ["x", net.weight("patch_w", 8, 3, 4, 4)], "patches", strides=[4, 4])
    net.add("Reshape", ["patches", net.number("flat", [1, 8, -1])], "rows")
    net.add("Transpose", ["rows"], "sequence", perm=[0, 2, 1])
    net.add("Shape", ["x"], "sizes")
    net.add("Gather", ["sizes", net.number("first", [0])], "batch", axis=0)
    net.add("Concat", ["batch", net.number("of_token", [1, 8])], "shape", axis=0)
    net.add("Expand", [net.weight("token", 1, 1, 8), "shape"], "tokens")
    net.add("Concat", ["tokens", "sequence"], "all", axis=1)
    net.add("Add", ["all", net.weight("positions", 1, 5, 8)], "placed")
    for name in "qkv":
        net.product("placed", name, 8, 8)
        net.add("Reshape", [name, net.number(f"{name}_heads", [1, 5, 2, 4])], f"{name}_of_head")
    net.add("Einsum", ["q_of_head", "k_of_head"], "logits", equation="bihd,bjhd->bhij")
    net.add("Softmax", ["logits"], "weights", axis=-1)
    net.add("Einsum", ["weights", "v_of_head"], "attended", equation="bhij,bjhd->bihd")
    net.add("Einsum", ["attended", net.weight("out_w", 2, 4, 8)], "mixed", equation="...hd,hdf->...f")
    net.add("Gather", ["mixed", net.number("nought", 0)], "of_token_alone", axis=1)
    net.product("of_token_alone", "y", 8, 3)
    return image_to({"y": (FLOAT, [1, 3])}, net)


def resized_to_sizes() -> onnx.ModelProto:
    """As `interpolate` of PyTorch is exported that is told a size: those of all axes, frames among them."""
    net = Sketch()
    net.stem()
    given = ["features", "", "", net.number("sizes", [1, 4, 16, 20])]
    net.add("Resize", given, "larger", mode="linear", coordinate_transformation_mode="align_corners")
    net.conv("larger", "second")
    net.add("Resize", ["second", "", "", net.number("back", [1, 4, 8, 8])], "smaller", mode="nearest")
    net.conv("smaller", "y")
    return image_to({"y": (FLOAT, FEATURES)}, net)


def normalised_before_onnx_had_it() -> onnx.ModelProto:
    """As ONNX Runtime's optimiser of transformers writes them: in ONNX's domain, in an opset that lacks them."""
    net = Sketch()
    scale, shift = net.weight("scale", 8), net.weight("shift", 8)
    net.product("x", "first", 8, 8)
    net.add("LayerNormalization", ["first", scale, shift], "centred", axis=-1, epsilon=1e-12)
    net.product("centred", "second", 8, 8)
    net.add("SimplifiedLayerNormalization", ["second", scale], "scaled", axis=-1)
    net.product("scaled", "y", 8, 3)
    return net.model({"x": (FLOAT, ["batch", 5, 8])}, {"y": (FLOAT, ["batch", 5, 3])}, opset=11)


def normalised_in_groups() -> onnx.ModelProto:
    """By an operator that ONNX has deprecated from its first opset on, in favour of opset 21's; the engine has both."""
    net = Sketch()
    net.stem()
    given = [net.number("scale", [0.5, 1.5], np.float32), net.number("shift", [0.1, -0.2], np.float32)]
    net.add("GroupNormalization", ["features", *given], "normal", num_groups=2)
    net.conv("normal", "y")
    return image_to({"y": (FLOAT, None)}, net, opset=18)


def gru_both_ways() -> onnx.ModelProto:
    net = Sketch()
    net.product("x", "embedded", 6, 4)
    net.add(
        "GRU", ["embedded", net.weight("W", 2, 24, 4), net.weight("R", 2, 24, 8), "", "", "h"], "", "h_out",
        hidden_size=8, direction="bidirectional", linear_before_reset=1,
    )  # fmt: skip
    net.product("h_out", "y", 8, 3)
    return net.model(
        {"x": (FLOAT, [5, 1, 6]), "h": (FLOAT, [2, 1, 8])}, {"y": (FLOAT, [2, 1, 3]), "h_out": (FLOAT, [2, 1, 8])}
    )


def trees_and_scalers() -> onnx.ModelProto:
    """Operators of `ai.onnx.ml`, as converters of scikit-learn and XGBoost write them, with a product between them."""
    net = Sketch()
    learned = "ai.onnx.ml"
    net.add("Scaler", ["x"], "scaled", domain=learned, offset=[0.1, 0.2, 0.3, 0.4], scale=[1.0, 2.0, 0.5, 1.5])
    net.product("scaled", "turned", 4, 4)
    branches, leaf = "BRANCH_LEQ", "LEAF"
    net.add(
        "TreeEnsembleRegressor", ["turned"], "grown", domain=learned, n_targets=3,
        nodes_treeids=[0, 0, 0, 1, 1, 1], nodes_nodeids=[0, 1, 2] * 2, nodes_featureids=[0, 0, 0, 3, 0, 0],
        nodes_values=[0.0, 0.0, 0.0, 0.5, 0.0, 0.0], nodes_modes=[branches, leaf, leaf] * 2,
        nodes_truenodeids=[1, 0, 0] * 2, nodes_falsenodeids=[2, 0, 0] * 2,
        target_treeids=[0, 0, 1, 1], target_nodeids=[1, 2, 1, 2], target_ids=[0, 1, 2, 0],
        target_weights=[0.3, -0.7, 1.1, 0.9],
    )  # fmt: skip
    net.product("grown", "last", 3, 3)
    net.add(
        "LinearClassifier", ["last"], "label", "y", domain=learned, multi_class=0, post_transform="SOFTMAX",
        coefficients=[0.5, -0.25, 1.0, -1.0, 0.75, 0.5, 0.1, 0.2, 0.3], intercepts=[0.1, 0.2, 0.3],
        classlabels_ints=[3, 5, 9],
    )  # fmt: skip
    return net.model({"x": (FLOAT, ["batch", 4])}, {"label": (INT64, ["batch"]), "y": (FLOAT, None)}, domains=[learned])


# Sequences and optionals


def sequence_inside() -> onnx.ModelProto:
    """It is read behind another layer, between which no stage hands it on."""
    net = Sketch()
    net.stem()
    net.add("SplitToSequence", ["features"], "parts", axis=1)
    net.conv("features", "second")
    net.add("SequenceAt", ["parts", net.number("last", -1)], "part")
    net.conv(net.add("Add", ["second", "part"], "both"), "third")
    net.conv("third", "y")
    return image_to({"y": (FLOAT, FEATURES)}, net)


def sequence_that_grows() -> onnx.ModelProto:
    """In a Loop, as scripts of PyTorch append to a list."""
    net = Sketch()
    net.stem()
    net.conv("features", "second")
    body = inner(
        [make_node("SequenceInsert", ["so_far", "second"], ["with"]), make_node("Identity", ["goes_on"], ["on"])],
        {"on": (BOOL, [])},
        reads={"trip": (INT64, []), "goes_on": (BOOL, [])},
    )
    body.input.append(helper.make_tensor_sequence_value_info("so_far", FLOAT, None))
    body.output.append(helper.make_tensor_sequence_value_info("with", FLOAT, None))
    net.add("SequenceEmpty", [], "none", dtype=FLOAT)
    net.add("Loop", [net.number("three", 3), "", "none"], "all", body=body)
    net.add("ConcatFromSequence", ["all"], "stacked", axis=0, new_axis=1)
    net.add("ReduceSum", ["stacked", net.number("first", [0])], "y", keepdims=0)
    return image_to({"y": (FLOAT, None)}, net)


def optional_inside() -> onnx.ModelProto:
    net = Sketch()
    net.stem()
    net.add("Optional", ["features"], "maybe")
    net.conv("features", "second")
    net.add("OptionalGetElement", ["maybe"], "surely")
    net.conv(net.add("Add", ["second", "surely"], "both"), "y")
    return image_to({"y": (FLOAT, FEATURES)}, net)


# Datatypes and ends


def inputs_of_all_types() -> onnx.ModelProto:
    net = Sketch()
    net.add("Gather", [net.weight("table", 2, 4), "ids"], "embedded")
    net.add("Cast", ["picture"], "pixels", to=FLOAT)
    net.product("pixels", "a", 4, 4)
    net.add("Where", ["mask", "embedded", "a"], "b")
    net.add("Cast", ["half"], "from_half", to=FLOAT)
    net.add("Cast", ["double"], "from_double", to=FLOAT)
    net.product("b", "c", 4, 4)
    net.add("Sum", ["c", "from_half", "from_double"], "d")
    net.add("Cast", ["d"], "y16", to=HALF)
    net.add("Cast", ["d"], "y64", to=DOUBLE)
    net.add("ArgMax", ["d"], "best", axis=1)
    net.add("Greater", ["d", net.number("zero", 0, np.float32)], "positive")
    net.product("d", "y", 4, 3)
    row = (1, 4)
    return net.model(
        {
            "ids": (INT64, [1]),
            "picture": (UINT8, row),
            "mask": (BOOL, row),
            "half": (HALF, row),
            "double": (DOUBLE, row),
        },
        {
            "y": (FLOAT, [1, 3]),
            "y16": (HALF, row),
            "y64": (DOUBLE, row),
            "best": (INT64, [1, 1]),
            "positive": (BOOL, row),
        },
    )


def halves_and_doubles() -> onnx.ModelProto:
    """All of it in FP16, but one product in FP64."""
    net = Sketch()
    net.product("x", "a", 4, 4)
    net.weights["a_w"] = net.weights["a_w"].astype(np.float16)
    net.add("Cast", ["a"], "wide", to=DOUBLE)
    net.product("wide", "b", 4, 4)
    net.weights["b_w"] = net.weights["b_w"].astype(np.float64)
    net.add("Cast", ["b"], "narrow", to=HALF)
    net.add("Relu", ["narrow"], "c")
    net.product("c", "y", 4, 3)
    net.weights["y_w"] = net.weights["y_w"].astype(np.float16)
    return net.model({"x": (HALF, [2, 4])}, {"y": (HALF, [2, 3])})


def in_bits(values: Array, datatype: int) -> Array:
    """The nearest values of one of ONNX's types that numpy itself lacks."""
    whole = datatype in (TensorProto.INT4, TensorProto.UINT4)
    return (np.rint(values) if whole else values).astype(helper.tensor_dtype_to_np_dtype(datatype))


def narrow_weights() -> onnx.ModelProto:
    """Some of four bits, an odd number of them, by channels and by blocks; and some of eight and sixteen."""
    net = Sketch()
    generator = np.random.default_rng(0)
    x, channels = "x", 3
    for layer in range(2):
        shape = (5, channels, 3, 3)
        net.weights[f"w{layer}"] = in_bits(generator.uniform(-8, 7, shape), TensorProto.INT4)
        scale = net.number(f"w{layer}_scale", generator.uniform(0.02, 0.08, 5), np.float32)
        net.weights[f"w{layer}_zero"] = in_bits(generator.uniform(-1, 1, 5), TensorProto.INT4)
        kernel = net.add("DequantizeLinear", [f"w{layer}", scale, f"w{layer}_zero"], f"kernel{layer}", axis=0)
        net.add("Conv", [x, kernel], f"made{layer}", pads=[1, 1, 1, 1])
        x, channels = net.add("Relu", [f"made{layer}"], f"active{layer}"), 5
    net.add("Reshape", [x, net.number("rows", [0, 5, 64])], "image")
    net.weights["blocks"] = in_bits(generator.uniform(0, 15, (7, 64)), TensorProto.UINT4)
    net.weights["blocks_zero"] = in_bits(generator.uniform(6, 9, (7, 4)), TensorProto.UINT4)
    scale = net.number("blocks_scale", generator.uniform(0.02, 0.08, (7, 4)), np.float32)
    net.add("DequantizeLinear", ["blocks", scale, "blocks_zero"], "wide", axis=1, block_size=16)
    net.add("MatMul", ["image", net.add("Transpose", ["wide"], "turned")], "product")
    net.weights["eighths"] = in_bits(generator.standard_normal((7, 6)), TensorProto.FLOAT8E4M3FN)
    net.add("DequantizeLinear", ["eighths", net.number("half", 0.5, np.float32)], "last")
    net.add("MatMul", ["product", "last"], "second")
    net.weights["brain"] = in_bits(generator.standard_normal(6), TensorProto.BFLOAT16)
    net.add("Add", ["second", net.add("Cast", ["brain"], "shift", to=FLOAT)], "y")
    return net.model({"x": (FLOAT, ["batch", 3, 8, 8])}, {"y": (FLOAT, None)}, opset=21)


def products_of_four_bits() -> onnx.ModelProto:
    """As ONNX Runtime's quantiser writes them, which the engine makes its own operators of."""
    net = Sketch()
    generator = np.random.default_rng(0)
    x = "x"
    for layer, (rows, columns) in enumerate(((64, 48), (48, 33), (33, 4))):
        blocks = -(-rows // 16)
        net.weights[f"w{layer}"] = in_bits(generator.uniform(0, 15, (rows, columns)), TensorProto.UINT4)
        net.weights[f"w{layer}_zero"] = in_bits(generator.uniform(6, 9, (blocks, columns)), TensorProto.UINT4)
        scale = net.number(f"w{layer}_scale", generator.uniform(0.01, 0.03, (blocks, columns)), np.float32)
        given = [f"w{layer}", scale, f"w{layer}_zero"]
        weight = net.add("DequantizeLinear", given, f"matrix{layer}", axis=0, block_size=16)
        x = net.add("MatMul", [x, weight], "y" if layer == 2 else f"made{layer}")
    return net.model({"x": (FLOAT, ["batch", 5, 64])}, {"y": (FLOAT, None)}, opset=21)


def sparse_weights() -> onnx.ModelProto:
    """One listed by its places, another by those in a row of all, in a Constant."""
    net = Sketch()
    net.stem()
    net.add("Reshape", [net.conv("features", "second"), net.number("rows", [64, 4])], "flat")
    net.add("MatMul", ["flat", "pairs"], "first")
    values = numpy_helper.from_array(np.array([1.0, -2.0, 3.0], np.float32), "in_a_row")
    places = numpy_helper.from_array(np.array([1, 4, 11]))
    constant = make_node("Constant", [], ["listed"])
    constant.attribute.append(helper.make_attribute("sparse_value", helper.make_sparse_tensor(values, places, [4, 3])))
    net.nodes.append(constant)
    net.add("MatMul", ["first", "listed"], "y")
    model = image_to({"y": (FLOAT, [64, 3])}, net)
    values = numpy_helper.from_array(np.array([1.0, 2.0], np.float32), "pairs")
    places = numpy_helper.from_array(np.array([[0, 1], [3, 2]]))
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [4, 4]))
    return model


# What the engine names anew


def channels_last() -> onnx.ModelProto:
    """As converted from TensorFlow: activations between transpositions, which the engine moves away."""
    net = Sketch()
    x, channels = "x", 3
    for layer in range(4):
        net.add("Transpose", [x], f"first{layer}", perm=[0, 3, 1, 2])
        net.conv(f"first{layer}", f"made{layer}", (channels, 16))
        net.add("Transpose", [f"made{layer}"], f"last{layer}", perm=[0, 2, 3, 1])
        x, channels = net.add("Relu", [f"last{layer}"], f"active{layer}" if layer < 3 else "y"), 16
    return net.model({"x": (FLOAT, (1, 8, 8, 3))}, {"y": (FLOAT, (1, 8, 8, 16))})


def halves_alone() -> onnx.ModelProto:
    """FP16 throughout, which the engine computes in FP32."""
    net = Sketch()
    x, channels = "x", 3
    for layer in range(4):
        net.conv(x, f"made{layer}", (channels, 16))
        x, channels = net.add("Relu", [f"made{layer}"], f"active{layer}" if layer < 3 else "y"), 16
    net.weights = {name: value.astype(np.float16) for name, value in net.weights.items()}
    return net.model({"x": (HALF, IMAGE)}, {"y": (HALF, (1, 16, 8, 8))})


def signed_integers() -> onnx.ModelProto:
    """Quantised to INT8, weights and activations alike; zero points are all 0, and the engine keeps one of them."""
    net = Sketch()
    x, channels = "x", 3
    for layer in range(4):
        made = f"made{layer}"
        scale = net.number(f"{made}_scale", 0.05, np.float32)
        zero = net.number(f"{made}_zero", 0, np.int8)
        net.add("QuantizeLinear", [x, scale, zero], f"{made}_q")
        net.add("DequantizeLinear", [f"{made}_q", scale, zero], f"{made}_x")
        net.conv(f"{made}_x", made, (channels, 8))
        net.weights[f"{made}_w"] = np.rint(net.weights[f"{made}_w"] * 100).clip(-127, 127).astype(np.int8)
        scale = net.number(f"{made}_w_scale", 0.01, np.float32)
        net.add("DequantizeLinear", [f"{made}_w", scale, net.number(f"{made}_w_zero", 0, np.int8)], f"{made}_w_x")
        bias = net.number(f"{made}_b", np.arange(8) * 10, np.int32)
        scale = net.number(f"{made}_b_scale", 0.0005, np.float32)
        net.add("DequantizeLinear", [bias, scale, net.number(f"{made}_b_zero", 0, np.int32)], f"{made}_b_x")
        conv = next(node for node in net.nodes if node.op_type == "Conv" and node.output[0] == made)
        net.nodes.remove(conv)
        conv.input[1:] = [f"{made}_w_x", f"{made}_b_x"]
        net.nodes.append(conv)
        x, channels = net.add("Relu", [made], f"active{layer}"), 8
    zero = net.number("y_zero", 0, np.int8)
    net.add("QuantizeLinear", [x, net.number("y_scale", 0.05, np.float32), zero], "y_q")
    net.add("DequantizeLinear", ["y_q", "y_scale", zero], "y")
    return net.model({"x": (FLOAT, IMAGE)}, {"y": (FLOAT, (1, 8, 8, 8))})


def nothing_inside() -> onnx.ModelProto:
    """Tensors of size 0: sliced away, joined again, and a weight without values (as in Resize)."""
    net = Sketch()
    net.stem()
    bounds = [net.number("begin", [0]), net.number("end", [0]), net.number("axes", [1])]
    net.add("Slice", ["features", *bounds], "nothing")
    net.add("Relu", ["nothing"], "still_nothing")
    net.conv("features", "second")
    net.add("Concat", ["second", "still_nothing"], "joined", axis=1)
    net.number("no_roi", [], np.float32)
    net.add("Resize", ["joined", "no_roi", net.number("scales", [1, 1, 2, 2], np.float32)], "large")
    net.conv("large", "y")
    return image_to({"y": (FLOAT, [1, 4, 16, 16])}, net)


def nothing_out() -> onnx.ModelProto:
    """An output that has no elements, ever."""
    net = Sketch()
    net.stem()
    net.conv("features", "y")
    bounds = [net.number("begin", [2]), net.number("end", [2]), net.number("axes", [1])]
    net.add("Slice", ["y", *bounds], "none")
    return image_to({"y": (FLOAT, FEATURES), "none": (FLOAT, [1, 0, 8, 8])}, net)


def scalar_input() -> onnx.ModelProto:
    net = Sketch()
    net.stem()
    net.add("Mul", ["features", "gain"], "scaled")
    net.conv("scaled", "y")
    net.add("ReduceSum", ["y"], "sum", keepdims=0)
    return net.model({"x": (FLOAT, IMAGE), "gain": (FLOAT, [])}, {"y": (FLOAT, FEATURES), "sum": (FLOAT, [])})


def quantized() -> onnx.ModelProto:
    """QDQ, with weights in int8 for each channel."""
    net = Sketch()
    net.number("scale", 0.05, np.float32)
    net.number("point", 3, np.int8)

    def through_int8(x: str) -> str:
        net.add("QuantizeLinear", [x, "scale", "point"], f"{x}_q")
        return net.add("DequantizeLinear", [f"{x}_q", "scale", "point"], f"{x}_dq")

    def conv(x: str, y: str, channels: tuple[int, int]) -> str:
        generator = np.random.default_rng(len(net.weights))
        net.weights[f"{y}_w"] = generator.integers(-127, 128, (channels[1], channels[0], 3, 3)).astype(np.int8)
        net.number(f"{y}_scale", np.full(channels[1], 0.01), np.float32)
        net.number(f"{y}_point", np.zeros(channels[1]), np.int8)
        net.add("DequantizeLinear", [f"{y}_w", f"{y}_scale", f"{y}_point"], f"{y}_wdq", axis=0)
        net.add("Conv", [through_int8(x), f"{y}_wdq"], f"{y}_raw", pads=[1, 1, 1, 1])
        return net.add("Relu", [f"{y}_raw"], y)

    conv("x", "a", (3, 4))
    conv("a", "b", (4, 4))
    conv("b", "c", (4, 4))
    net.add("Add", [through_int8("c"), "a_dq"], "y")
    net.nodes.sort(key=lambda node: node.output[0] == "y")
    return image_to({"y": (FLOAT, FEATURES)}, net)


# Names and declarations


def strange_names() -> onnx.ModelProto:
    """Slashes, colons, spaces, umlauts; a node called as a tensor is, and a tensor as the engine calls its own."""
    net = Sketch()
    net.conv("in/put:0", "Größe 1/conv:0", (3, 4))
    net.add("Relu", ["Größe 1/conv:0"], "a, b=c", name="in/put:0")
    net.add("Sigmoid", ["a, b=c"], "x_nchwc")
    net.conv("x_nchwc", "out put:0")
    net.add("Relu", ["out put:0"], "../y")
    return net.model({"in/put:0": (FLOAT, IMAGE)}, {"out put:0": (FLOAT, FEATURES), "../y": (FLOAT, FEATURES)})


def own_functions() -> onnx.ModelProto:
    """Operators that the file defines, one of another."""
    net = Sketch()
    net.stem()
    net.add("Fourfold", ["features"], "fourfold", domain="mine")
    net.conv("fourfold", "y")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    twice = helper.make_function("mine", "Twice", ["i"], ["o"], [make_node("Add", ["i", "i"], ["o"])], opsets)
    nodes = [make_node("Twice", ["i"], ["t"], domain="mine"), make_node("Twice", ["t"], ["o"], domain="mine")]
    fourfold = helper.make_function("mine", "Fourfold", ["i"], ["o"], nodes, opsets)
    return image_to({"y": (FLOAT, FEATURES)}, net, domains=["mine"], functions=[twice, fourfold])


def own_functions_of_another_opset() -> onnx.ModelProto:
    """Of older and of newer ones, in which their operators differ in no more than types."""
    net = Sketch()
    net.stem()
    net.add("Leaky", ["features"], "leaky", domain="mine", alpha=0.3)
    net.add("Twice", [net.conv("leaky", "second")], "y", domain="mine")
    slope = onnx.AttributeProto(name="alpha", ref_attr_name="alpha", type=onnx.AttributeProto.FLOAT)
    leaky = make_node("LeakyRelu", ["i"], ["o"])
    leaky.attribute.append(slope)
    older = [helper.make_opsetid("", 13)]
    newer = [helper.make_opsetid("", 18)]
    functions = [
        helper.make_function("mine", "Leaky", ["i"], ["o"], [leaky], older, ["alpha"]),
        helper.make_function("mine", "Twice", ["i"], ["o"], [make_node("Add", ["i", "i"], ["o"])], newer),
    ]
    return image_to({"y": (FLOAT, FEATURES)}, net, domains=["mine"], functions=functions)


def own_functions_with_defaults() -> onnx.ModelProto:
    """Their calls leave an attribute out: in the network, in a branch of it, and in another function."""
    net = Sketch()
    net.stem()
    net.add("Leaky", ["features"], "leaky", domain="mine")
    net.add("Leakier", [net.conv("leaky", "second")], "leakier", domain="mine")
    net.add("ReduceSum", ["x"], "sum", keepdims=0)
    net.add("Greater", ["sum", net.number("zero", 0, np.float32)], "is_positive")
    then = inner([make_node("Leaky", ["leakier"], ["t"], domain="mine")], {"t": (FLOAT, FEATURES)})
    other = inner([make_node("Leaky", ["leakier"], ["t"], domain="mine", slope=0.9)], {"t": (FLOAT, FEATURES)})
    net.conv(net.add("If", ["is_positive"], "chosen", then_branch=then, else_branch=other), "y")
    negative = make_node("Neg", ["i"], ["n"])
    leaky = make_node("LeakyRelu", ["n"], ["o"])
    leaky.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    default = [helper.make_attribute("slope", 0.5)]
    calls = [
        make_node("Leaky", ["i"], ["t"], domain="mine"),
        make_node("Leaky", ["t"], ["o"], domain="mine", slope=2.0),
    ]
    functions = [
        helper.make_function("mine", "Leaky", ["i"], ["o"], [negative, leaky], opsets, attribute_protos=default),
        helper.make_function("mine", "Leakier", ["i"], ["o"], calls, opsets),
    ]
    return image_to({"y": (FLOAT, FEATURES)}, net, domains=["mine"], functions=functions)


def own_functions_that_pass_attributes_on() -> onnx.ModelProto:
    """Through two functions, in a branch of one: what their caller leaves out has the default of the innermost."""
    net = Sketch()
    net.conv("x", "stem", (3, 4))
    for value, name in ((None, "left"), (0.125, "given")):
        given = {} if value is None else {"steepest": value}
        net.add("Choose", ["stem"], name, domain="mine", **given)
    net.conv(net.add("Sub", ["left", "given"], "apart"), "y")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]

    def passing(op_type: str, attribute: str, passed: str, domain: str = "mine") -> onnx.NodeProto:
        node = make_node(op_type, ["i"], ["t"], domain=domain)
        node.attribute.add(name=attribute, ref_attr_name=passed, type=onnx.AttributeProto.FLOAT)
        return node

    branches = {
        "then_branch": inner([passing("Pass", "steep", "steepest")], {"t": (FLOAT, None)}),
        "else_branch": inner([make_node("Neg", ["i"], ["t"])], {"t": (FLOAT, None)}),
    }
    zero = numpy_helper.from_array(np.array(0, np.float32))
    choice = [
        make_node("ReduceMax", ["i"], ["most"], keepdims=0),
        make_node("Constant", [], ["zero"], value=zero),
        make_node("Greater", ["most", "zero"], ["is_positive"]),
        make_node("If", ["is_positive"], ["o"], **branches),
    ]
    leaky, default = passing("LeakyRelu", "alpha", "slope", ""), [helper.make_attribute("slope", 0.5)]
    functions = [
        helper.make_function("mine", "Leaky", ["i"], ["t"], [leaky], opsets, attribute_protos=default),
        helper.make_function("mine", "Pass", ["i"], ["t"], [passing("Leaky", "slope", "steep")], opsets, ["steep"]),
        helper.make_function("mine", "Choose", ["i"], ["o"], choice, opsets, ["steepest"]),
    ]
    return image_to({"y": (FLOAT, FEATURES)}, net, domains=["mine"], functions=functions)


def wrong_shapes() -> onnx.ModelProto:
    """What the file says of inner tensors and of the output is of another size than what comes out."""
    net = Sketch()
    net.stem()
    net.conv("features", "second")
    net.conv("second", "y")
    model = image_to({"y": (FLOAT, [1, 4, 9, 9])}, net)
    model.graph.value_info.append(helper.make_tensor_value_info("second", FLOAT, [1, 7, 8]))
    return model


def output_read_on() -> onnx.ModelProto:
    """An output of the middle, which a branch reads."""
    net = Sketch()
    net.stem()
    net.conv("features", "second")
    net.conv("features", "third")
    net.add("Add", ["second", "third"], "y")
    return image_to({"features": (FLOAT, FEATURES), "y": (FLOAT, FEATURES), "second": (FLOAT, FEATURES)}, net)


def straight_through() -> onnx.ModelProto:
    """An input is an output as well, under another name; another one is read by nobody."""
    net = Sketch()
    net.add("Identity", ["x"], "same")
    net.stem()
    net.conv("features", "y")
    return net.model({"x": (FLOAT, IMAGE), "unused": (INT64, [2])}, {"same": (FLOAT, IMAGE), "y": (FLOAT, FEATURES)})


def one_result_twice() -> onnx.ModelProto:
    """Two outputs that are the same tensor."""
    net = Sketch()
    net.stem()
    net.conv("features", "y")
    net.add("Identity", ["y"], "again")
    net.add("Identity", ["features"], "early")
    net.add("Identity", ["features"], "early_again")
    return image_to(dict.fromkeys(("again", "early", "y", "early_again"), (FLOAT, FEATURES)), net)


def five_outputs() -> onnx.ModelProto:
    net = Sketch()
    names = [net.stem()]
    for name in ("b", "c", "d"):
        names.append(net.conv(names[-1], name))
    net.add("GlobalAveragePool", ["d"], "e")
    outputs = dict.fromkeys(names, (FLOAT, FEATURES))
    return image_to({"e": (FLOAT, [1, 4, 1, 1]), **outputs}, net)


def constant_output() -> onnx.ModelProto:
    """A weight as it is, which a layer reads, too."""
    net = Sketch()
    net.stem()
    net.conv("features", "y")
    return image_to({"y": (FLOAT, FEATURES), "y_w": (FLOAT, [4, 4, 3, 3])}, net)


def outputs_that_shapes_tell() -> onnx.ModelProto:
    """The engine makes them constants. One is read by what follows, one is large."""
    net = Sketch()
    net.stem()
    net.add("Shape", ["features"], "shape")
    two = numpy_helper.from_array(np.array([2], np.float32))
    net.add("ConstantOfShape", ["shape"], "twos", value=two)
    net.add("Mul", ["features", "twos"], "doubled")
    net.conv("doubled", "flat")
    net.add("Reshape", ["flat", "shape"], "y")
    return image_to({"shape": (INT64, [4]), "y": (FLOAT, FEATURES), "twos": (FLOAT, FEATURES)}, net)


def weights_as_inputs() -> onnx.ModelProto:
    """As files of IR version 3 have it: weights stand among the inputs, too."""
    net = Sketch()
    net.stem()
    net.conv("features", "y")
    model = image_to({"y": (FLOAT, FEATURES)}, net, opset=9)
    model.ir_version = 3
    for weight in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(weight.name, weight.data_type, weight.dims))
    return model


def all_activations() -> onnx.ModelProto:
    """Products of tensors that are computed, ranks 1 to 5, and no weight larger than a kilobyte."""
    net = Sketch()
    net.add("Transpose", ["x"], "turned", perm=[0, 1, 3, 2])
    net.add("MatMul", ["x", "turned"], "squares")
    net.add("Softmax", ["squares"], "attention")
    net.add("MatMul", ["attention", "x"], "mixed")
    net.add("Unsqueeze", ["mixed", net.number("front", [0])], "five")
    net.add("Einsum", ["five", "x"], "four", equation="abcde,fced->abc")
    net.add("Reshape", ["four", net.number("flat", [-1])], "row")
    net.product("row", "y", 3, 2)
    return image_to({"y": (FLOAT, [2])}, net)


def in_opset(opset: int) -> onnx.ModelProto:
    """One network, with what opsets write differently: axes, ratios and bounds as attributes or as inputs."""
    net = Sketch()

    def over_axes(op_type: str, x: str, y: str, axes: list[int], since: int) -> str:
        if opset >= since:
            return net.add(op_type, [x, net.number(f"{y}_axes", axes)], y)
        return net.add(op_type, [x], y, axes=axes)

    net.stem()
    net.add("BatchNormalization", ["features", *(net.number(f"bn{i}", [1 + i] * 4, np.float32) for i in range(4))], "a")
    net.add("Dropout", ["a"], "b")
    if opset >= 11:
        net.add("Clip", ["b", net.number("low", 0, np.float32), net.number("high", 6, np.float32)], "c")
        net.add("Pad", ["c", net.number("pads", [0, 0, 1, 1, 0, 0, 1, 1])], "d")
    else:
        net.add("Clip", ["b"], "c", min=0.0, max=6.0)
        net.add("Pad", ["c"], "d", pads=[0, 0, 1, 1, 0, 0, 1, 1])
    if opset >= 10:
        net.add("Slice", ["d", *(net.number(name, [at]) for name, at in (("from", 1), ("to", 9), ("axis", 2)))], "e")
    else:
        net.add("Slice", ["d"], "e", starts=[1], ends=[9], axes=[2])
    scales = [1, 1, 2, 2]
    if opset >= 11:
        inputs = [net.number("no_roi", [], np.float32), net.number("scales", scales, np.float32)]
        net.add("Resize", ["e", *inputs], "f", mode="nearest")
    elif opset >= 9:
        op_type = "Resize" if opset == 10 else "Upsample"
        net.add(op_type, ["e", net.number("scales", scales, np.float32)], "f", mode="nearest")
    else:
        net.add("Upsample", ["e"], "f", mode="nearest", scales=[float(scale) for scale in scales])
    net.conv("f", "g")
    over_axes("ReduceMean", "g", "h", [2, 3], since=18)
    over_axes("Squeeze", "h", "i", [2, 3], since=13)
    net.add("Gemm", ["i", net.weight("dense_w", 4, 5), net.weight("dense_b", 5)], "j")
    over_axes("Unsqueeze", "j", "k", [1], since=13)
    net.add("Softmax", ["k"], "y", axis=2)
    return image_to({"y": (FLOAT, [1, 1, 5])}, net, opset=opset)


def numbers_and_truths_cross() -> onnx.ModelProto:
    """A scalar and a mask pass over several layers, and a part of what Unique finds is an output."""
    net = Sketch()
    net.stem()
    net.add("ReduceMax", ["features"], "most", keepdims=0)
    net.add("Greater", ["features", net.number("threshold", 0.3, np.float32)], "mask")
    net.conv("features", "second")
    net.conv("second", "third")
    net.add("Where", ["mask", "third", "second"], "chosen")
    net.add("Div", ["chosen", "most"], "y")
    net.add("Unique", ["third"], "values", "", "", "counts")
    outputs: dict[str, tuple[int, Dims]] = {"y": (FLOAT, FEATURES), "values": (FLOAT, ["n"]), "counts": (INT64, ["n"])}
    return image_to(outputs, net)


def one_and_three_dimensions() -> onnx.ModelProto:
    """Convolutions of a line and of a volume, one transposed."""
    net = Sketch()
    net.add("Conv", ["x", net.weight("line_w", 4, 3, 3)], "line", pads=[1, 1])
    net.add("Unsqueeze", ["line", net.number("axes", [3, 4])], "volume")
    net.add("Conv", ["volume", net.weight("volume_w", 2, 4, 1, 1, 1)], "folded")
    net.add("ConvTranspose", ["folded", net.weight("large_w", 2, 3, 2, 1, 1)], "y", strides=[2, 1, 1])
    return net.model({"x": (FLOAT, [1, 3, 8])}, {"y": (FLOAT, None)})


# What is refused


def unknown_domain() -> onnx.ModelProto:
    net = Sketch()
    net.stem()
    net.add("Swish", ["features"], "swished", domain="my.company")
    net.conv("swished", "y")
    return image_to({"y": (FLOAT, FEATURES)}, net, domains=["my.company"])


def unknown_domain_inside() -> onnx.ModelProto:
    net = Sketch()
    net.stem()
    then = inner([make_node("Swish", ["features"], ["t"], domain="my.company")], {"t": (FLOAT, None)})
    other = inner([make_node("Neg", ["features"], ["t"])], {"t": (FLOAT, None)})
    net.add("If", ["flag"], "y", then_branch=then, else_branch=other)
    return net.model({"x": (FLOAT, IMAGE), "flag": (BOOL, [])}, {"y": (FLOAT, FEATURES)}, domains=["my.company"])


def sequence_input() -> onnx.ModelProto:
    net = Sketch()
    net.add("ConcatFromSequence", ["x"], "joined", axis=1)
    net.conv("joined", "y")
    model = net.model({}, {"y": (FLOAT, FEATURES)})
    model.graph.input.append(helper.make_tensor_sequence_value_info("x", FLOAT, [1, 2, 8, 8]))
    return model


def optional_output() -> onnx.ModelProto:
    net = Sketch()
    net.stem()
    net.conv("features", "y")
    net.add("Optional", ["y"], "maybe")
    model = image_to({"y": (FLOAT, FEATURES)}, net)
    optional_type = helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, FEATURES))
    model.graph.output.append(helper.make_value_info("maybe", optional_type))
    return model


def text_inside() -> onnx.ModelProto:
    net = Sketch()
    net.stem()
    net.add("Cast", ["features"], "text", to=TensorProto.STRING)
    net.add("Cast", ["text"], "number", to=FLOAT)
    net.conv("number", "y")
    return image_to({"y": (FLOAT, FEATURES)}, net)


def one_name_for_two_outputs() -> onnx.ModelProto:
    net = Sketch()
    net.stem()
    net.conv("features", "y")
    model = image_to({"y": (FLOAT, FEATURES)}, net)
    model.graph.output.append(model.graph.output[0])
    return model


def too_many_inputs() -> onnx.ModelProto:
    net = Sketch()
    names = [f"x{number}" for number in range(513)]
    net.add("Concat", names, "row", axis=1)
    net.product("row", "y", 513, 4)
    return net.model(dict.fromkeys(names, (FLOAT, [1, 1])), {"y": (FLOAT, [1, 4])})


def one_name_for_two_weights() -> onnx.ModelProto:
    """The engine would take the first of them."""
    net = Sketch()
    net.stem()
    net.conv("features", "y")
    model = image_to({"y": (FLOAT, FEATURES)}, net)
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((4, 4, 3, 3), np.float32), "y_w"))
    return model


def output_that_is_an_input() -> onnx.ModelProto:
    net = Sketch()
    net.stem()
    net.conv("features", "y")
    return image_to({"y": (FLOAT, FEATURES), "x": (FLOAT, IMAGE)}, net)


def loop_without_end() -> onnx.ModelProto:
    """It goes on as long as a sum that never changes is not negative."""
    net = Sketch()
    net.stem()
    net.add("ReduceMax", ["features"], "most", keepdims=0)
    body = inner(
        [
            make_node("GreaterOrEqual", ["most", "zero"], ["goes_on"]),
            make_node("Identity", ["state"], ["next"]),
        ],
        {"goes_on": (BOOL, []), "next": (FLOAT, FEATURES)},
        reads={"trip": (INT64, []), "go_on": (BOOL, []), "state": (FLOAT, FEATURES)},
    )
    net.number("zero", 0, np.float32)
    net.add("Loop", ["", net.number("true", True, np.bool_), "features"], "looped", body=body)
    net.conv("looped", "y")
    return image_to({"y": (FLOAT, FEATURES)}, net)


def halves_of_another_kind() -> onnx.ModelProto:
    net = Sketch()
    net.stem()
    net.add("Cast", ["features"], "brain", to=TensorProto.BFLOAT16)
    net.add("Cast", ["brain"], "back", to=FLOAT)
    net.conv("back", "y")
    return image_to({"y": (FLOAT, FEATURES)}, net)


def four_bits_inside() -> onnx.ModelProto:
    net = Sketch()
    net.stem()
    net.weights["zero"] = in_bits(np.zeros(()), TensorProto.INT4)
    net.add("QuantizeLinear", ["features", net.number("scale", 0.2, np.float32), "zero"], "narrow")
    net.add("DequantizeLinear", ["narrow", "scale", "zero"], "back")
    net.conv("back", "y")
    return image_to({"y": (FLOAT, FEATURES)}, net, opset=21)


def sparse_beyond_its_shape() -> onnx.ModelProto:
    model = sparse_weights()
    model.graph.sparse_initializer[0].dims[0] = 3
    return model


def labels_in_words() -> onnx.ModelProto:
    """As scikit-learn's converter writes a classifier by default."""
    net = Sketch()
    net.product("x", "last", 3, 3)
    net.add(
        "LinearClassifier", ["last"], "label", "y", domain="ai.onnx.ml",
        coefficients=[0.5] * 9, intercepts=[0.1] * 3, classlabels_strings=["cat", "cow", "dog"],
    )  # fmt: skip
    outputs: dict[str, tuple[int, Dims]] = {"label": (TensorProto.STRING, None), "y": (FLOAT, None)}
    return net.model({"x": (FLOAT, ["batch", 3])}, outputs, domains=["ai.onnx.ml"])


def resized_positions() -> onnx.ModelProto:
    """A constant that is resized, as in transformers of images, and read in two layers."""
    net = Sketch()
    net.stem()
    given = [net.weight("positions", 1, 4, 5, 5), "", net.number("scales", [1, 1, 1.7, 1.7], np.float32)]
    net.add("Resize", given, "resized", mode="cubic", coordinate_transformation_mode="align_corners")
    net.conv(net.add("Add", ["features", "resized"], "placed"), "second")
    net.conv(net.add("Mul", ["second", "resized"], "scaled"), "y")
    return image_to({"y": (FLOAT, FEATURES)}, net)


SERVED: Final[Mapping[str, Build]] = MappingProxyType(
    {
        build.__name__: build
        for build in (
            nonzero_in_the_middle, nonzero_at_the_end, suppressed_boxes, topk_of_a_computed_number, if_of_a_constant,
            if_in_if, weights_in_branches, branches_of_two_shapes, loop_of_a_constant, loop_of_a_computed_number, scan,
            spectrograms, lstm_with_state, recurrent_from_zeros, gru_both_ways, inputs_of_all_types, halves_and_doubles,
            nothing_inside, nothing_out, scalar_input, quantized, strange_names, own_functions, wrong_shapes,
            output_read_on, straight_through, one_result_twice, five_outputs, weights_as_inputs, all_activations,
            numbers_and_truths_cross, one_and_three_dimensions, resized_positions, outputs_that_shapes_tell,
            own_functions_of_another_opset, own_functions_with_defaults, channels_last, halves_alone, signed_integers,
            attention, own_functions_that_pass_attributes_on, loop_that_may_not_run, normalised_before_onnx_had_it,
            narrow_weights, sparse_weights, normalised_in_groups, sequence_inside, sequence_that_grows, optional_inside,
            trees_and_scalers, constant_output, class_token, resized_to_sizes,
        )
    }
)  # fmt: skip
REFUSED: Final[Mapping[str, tuple[Build, str]]] = MappingProxyType(
    {
        "unknown_domain": (unknown_domain, "'my.company'"),
        "unknown_domain_inside": (unknown_domain_inside, "'my.company'"),
        "sequence_input": (sequence_input, "'x' is of type sequence"),
        "optional_output": (optional_output, "'maybe' is of type optional"),
        "text_inside": (text_inside, "'text'"),
        "one_name_for_two_outputs": (one_name_for_two_outputs, "output 'y' is listed 2 times"),
        "too_many_inputs": (too_many_inputs, "513 inputs"),
        "one_name_for_two_weights": (one_name_for_two_weights, "weight 'y_w' is listed 2 times"),
        "output_that_is_an_input": (output_that_is_an_input, "output 'x' is an input, too"),
        "halves_of_another_kind": (halves_of_another_kind, "'brain' has datatype BFLOAT16"),
        "four_bits_inside": (four_bits_inside, "'narrow' has datatype INT4"),
        "sparse_beyond_its_shape": (sparse_beyond_its_shape, "'pairs'"),
        "labels_in_words": (labels_in_words, "'label' has datatype STRING"),
    }
)
"""And what their line has to say."""
