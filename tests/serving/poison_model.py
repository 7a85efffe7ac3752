"""An identity network (see `identity_model`) in which a frame may have orders: to crash its worker, and worse.

The first elements of a frame, where they are below 0, are orders. Frames of `frame_of` have none: their answer is the
frame itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import onnx
from onnx import TensorProto, helper

from tests.serving.identity_model import Array, frame_of, write_identity_model

NAME: Final = "poison"
FLOATS, TURNS, INDEX, DEATH = range(4)
"""Orders: allocate so many floats, turn a loop so often, read at this index of a list of one, and
(if it is 1) divide the least integer by -1, which has no answer: the processor traps."""
FATAL: Final = 1000
"""No value of noise comes near, which is what networks are measured on."""


def poison(order: int, amount: float, number: int = 1) -> Array:
    """A frame that has this order."""
    frame = frame_of(number)
    frame.reshape(-1)[order] = -amount
    return frame


def write_poison_model(folder: Path) -> Path:
    """poison.onnx: x -> y, as `write_identity_model` has it."""
    model = onnx.load(write_identity_model(folder))
    graph = model.graph
    graph.name = NAME

    def constant(name: str, *values: int) -> str:
        graph.initializer.append(helper.make_tensor(name, TensorProto.INT64, [len(values)], values))
        return name

    def add(op_type: str, sources: list[str], target: str, **attributes: Any) -> str:
        graph.node.append(helper.make_node(op_type, sources, [target], name=target, **attributes))
        return target

    graph.initializer.append(helper.make_tensor("nothing", TensorProto.FLOAT, [], [0.0]))
    graph.initializer.append(helper.make_tensor("on", TensorProto.BOOL, [], [True]))
    flat = add("Reshape", ["x", constant("flat_shape", -1)], "flat")
    add("Neg", [add("Slice", [flat, constant("from", 0), constant("to", 4)], "head")], "below")
    add("Cast", [add("Relu", ["below"], "amounts")], "orders", to=TensorProto.INT64)
    names = [f"order{i}" for i in range(4)]
    graph.node.append(helper.make_node("Split", ["orders", constant("ones", 1, 1, 1, 1)], names, name="each"))
    zeros = helper.make_tensor("value", TensorProto.FLOAT, [1], [0.0])
    made = [add("ReduceSum", [add("ConstantOfShape", [names[FLOATS]], "many", value=zeros)], "floats", keepdims=0)]
    scalar = constant("scalar")
    graph.initializer[-1].CopyFrom(helper.make_tensor("scalar", TensorProto.INT64, [0], []))
    turns = add("Reshape", [names[TURNS], scalar], "turns")
    graph.node.append(helper.make_node("Loop", [turns, "on", "nothing"], ["turned"], name="loop", body=_body()))
    made.append(add("Reshape", ["turned", scalar], "turned_s"))
    add("Add", [names[DEATH], names[DEATH]], "twice")
    integers = [
        add("Gather", [constant("list", 0), names[INDEX]], "read"),
        add("Div", [constant("least", -(2**63)), add("Sub", [constant("one", 1), "twice"], "divisor")], "divided"),
    ]
    made += [add("Reshape", [add("Cast", [name], f"{name}_f", to=TensorProto.FLOAT), scalar], f"{name}_s")
             for name in integers]  # fmt: skip
    add("Mul", [add("Sum", made, "all"), "nothing"], "none")
    for node in graph.node:
        node.output[:] = ["answer" if name == "y" else name for name in node.output]
    add("Add", ["answer", "none"], "y")
    order = {name: i for i, node in enumerate(graph.node) for name in node.output}
    assert order["answer"] < order["y"]
    path = folder / f"{NAME}.onnx"
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def write_fatal_model(folder: Path) -> Path:
    """fatal.onnx: a frame with an element of -FATAL ends its worker; frames may share runs."""
    model = onnx.load(write_identity_model(folder))
    graph = model.graph
    integers = {"odd": 2 * FATAL - 1, "least": -(2**63)}
    graph.initializer.extend(
        helper.make_tensor(name, TensorProto.INT64, [1], [each]) for name, each in integers.items()
    )
    graph.initializer.append(helper.make_tensor("nothing", TensorProto.FLOAT, [1], [0.0]))
    for node in graph.node:
        node.output[:] = ["answer" if name == "y" else name for name in node.output]
    graph.node.extend(
        [
            helper.make_node("Neg", ["x"], ["below"]),
            helper.make_node("Relu", ["below"], ["amounts"]),
            helper.make_node("Cast", ["amounts"], ["orders"], to=TensorProto.INT64),
            helper.make_node("Add", ["orders", "orders"], ["twice"]),
            helper.make_node("Sub", ["odd", "twice"], ["divisor"]),
            helper.make_node("Div", ["least", "divisor"], ["divided"]),
            helper.make_node("Cast", ["divided"], ["quotients"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["quotients", "nothing"], ["none"]),
            helper.make_node("Add", ["answer", "none"], ["y"]),
        ]
    )
    path = folder / "fatal.onnx"
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def _body() -> onnx.GraphProto:
    """Of a loop that hands on what it was given, and a little more."""
    return helper.make_graph(
        [
            helper.make_node("Add", ["before", "before"], ["after"]),
            helper.make_node("Identity", ["goes_on"], ["still"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("before", TensorProto.FLOAT, []),
        ],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, []),
            helper.make_tensor_value_info("after", TensorProto.FLOAT, []),
        ],
    )
