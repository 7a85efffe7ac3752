"""What shards read, make and have of weights, by hand: shapes alone, no engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from shisha_rt.model.dimensions import dimensions
from shisha_rt.model.graph import Graph, Operator, Tensor
from shisha_rt.model.shards.blocked import NCHWC
from shisha_rt.model.shards.rewrite import split_run, splittable
from shisha_rt.model.shards.shard_graphs import join_graph, shard_graph
from shisha_rt.model.shards.shards import Excerpt, ShardOperator, Slice, SplitRun
from shisha_rt.model.split import Axis, Splittable
from tests.wording import says

Shape = tuple[int, ...]


def operator(
    kind: str, inputs: str, output: str, texts: Mapping[str, str] | None = None, **attributes: Any
) -> Operator:
    domain, _, op_type = kind.rpartition(":")
    return Operator(output, op_type, domain, tuple(inputs.split(",")), (output,), attributes, texts or {})


def graph_of(
    operators: list[Operator], given: dict[str, Shape], made: dict[str, Shape], weights: dict[str, Shape], *outputs: str
) -> Graph:
    tensors = {name: Tensor(name, shape, "FP32") for name, shape in {**given, **made}.items()}
    return Graph(
        name="g",
        operators=tuple(operators),
        inputs=tuple(tensors[name] for name in given),
        outputs=tuple(tensors[name] for name in outputs or [*made][-1:]),
        tensors=tensors,
        constants={name: Tensor(name, shape, "FP32") for name, shape in weights.items()},
    )


def convolution(**attributes: Any) -> Graph:
    """Operators: 0 Conv of 8 channels to 12, 1 Relu, 2 MaxPool, 3 Softmax over the channels."""
    return graph_of(
        [
            operator("Conv", "x,w,b", "c", kernel_shape=(3, 3), pads=(1, 1, 1, 1), **attributes),
            operator("Relu", "c", "r"),
            operator("MaxPool", "r", "p", kernel_shape=(2, 2), strides=(2, 2)),
            operator("Softmax", "p", "y", axis=1),
        ],
        {"x": (1, 8, 10, 6)},
        {"c": (1, 12, 10, 6), "r": (1, 12, 10, 6), "p": (1, 12, 5, 3), "y": (1, 12, 5, 3)},
        {"w": (12, 8, 3, 3), "b": (12,)},
    )


def ends_of_join(graph: Graph, split: SplitRun) -> tuple[list[str], list[str]]:
    """Names of what the join reads and makes."""
    join = join_graph(graph, split)
    return [tensor.name for tensor in join.inputs], [tensor.name for tensor in join.outputs]


def steps(graph: Graph, axis: Axis, shares: tuple[int, ...], part: int) -> dict[str, ShardOperator]:
    """By the name of the operator."""
    shard_steps = split_run(graph, range(len(graph.operators)), axis, shares).shards[part].steps
    return {graph.operators[step.index].name: step for step in shard_steps if isinstance(step, ShardOperator)}


def refusal(graph: Graph, axis: Axis) -> str:
    reason = splittable(graph, range(len(graph.operators)), 0, 0, axis)
    assert isinstance(reason, str)
    return reason


def test_filters_are_kept_apart_until_something_needs_them_all() -> None:
    graph = convolution()
    assert splittable(graph, range(4), 3, 3, "channels") == Splittable(3, 3, "channels", 12, 1, ("p",), joined=True)
    split = split_run(graph, range(4), "channels", (4, 8))
    second = split.shards[1]
    assert second.reads == (Excerpt("x"),)
    assert second.makes == (Excerpt("p", Slice(1, 4, 8)),)
    assert set(second.constants.values()) == {Excerpt("w", Slice(0, 4, 8)), Excerpt("b", Slice(0, 4, 8))}
    assert split.join.operators == (3,)
    assert ends_of_join(graph, split) == (["p"], ["y"])
    shapes = shard_graph(graph, split, 1)
    assert [tensor.shape for tensor in shapes.outputs] == [(1, 8, 5, 3)]
    assert dimensions(shapes, shapes.operators[0])["columns"] == 8
    assert [tensor.name for tensor in join_graph(graph, split).inputs] == ["p"]


def test_partial_sums_have_the_bias_once_and_no_activation() -> None:
    graph = convolution()
    split = split_run(graph, range(4), "inputs", (3, 4, 1))
    assert [shard.makes for shard in split.shards] == [(Excerpt(f"c#{part}"),) for part in range(3)]
    assert [shard.reads[0].slice for shard in split.shards] == [Slice(1, 0, 3), Slice(1, 3, 4), Slice(1, 7, 1)]
    has_bias = [any(excerpt.name == "b" for excerpt in shard.constants.values()) for shard in split.shards]
    assert has_bias == [True, False, False]
    assert split.join.operators == (1, 2, 3)
    assert split.join.sum is not None
    assert (split.join.sum.tensor, split.join.sum.parts) == ("c", ("c#0", "c#1", "c#2"))
    assert [node.op_type for node in join_graph(graph, split).operators] == ["Sum", "Relu", "MaxPool", "Softmax"]


def test_rows_have_a_halo_and_padding_at_the_edges_alone() -> None:
    graph = convolution()
    split = split_run(graph, range(4), "rows", (2, 1, 2))  # of the pooling's 5 rows
    assert [shard.reads[0].slice for shard in split.shards] == [Slice(2, 0, 5), Slice(2, 3, 4), Slice(2, 5, 5)]
    assert [shard.makes[0].slice for shard in split.shards] == [Slice(2, 0, 2), Slice(2, 2, 1), Slice(2, 3, 2)]
    pads = [steps(graph, "rows", (2, 1, 2), part)["c"].attributes["pads"] for part in range(3)]
    assert pads == [(1, 1, 0, 1), (0, 1, 0, 1), (0, 1, 1, 1)]


@pytest.mark.parametrize(
    ("how", "expected"), [("SAME_UPPER", (1, 1, 0, 2)), ("SAME_LOWER", (2, 2, 0, 1)), ("VALID", (0, 0, 0, 0))]
)
def test_padding_that_follows_from_the_size_is_made_explicit(how: str, expected: tuple[int, ...]) -> None:
    size = 5 if how == "VALID" else 8
    graph = graph_of(
        [operator("Conv", "x,w", "y", {"auto_pad": how}, kernel_shape=(4, 4))],
        {"x": (1, 3, 8, 8)},
        {"y": (1, 4, size, size)},
        {"w": (4, 3, 4, 4)},
    )
    step = steps(graph, "rows", (2, size - 2), 0)["y"]
    assert step.attributes["pads"] == expected
    assert "auto_pad" in step.without


def test_a_pair_is_filters_first_and_then_inputs_on_the_same_shares() -> None:
    graph = graph_of(
        [
            operator("Conv", "x,w", "a"),
            operator("Conv", "a,d", "b", group=6, pads=(1, 1, 1, 1)),
            operator("Flatten", "b", "f"),
            operator("Gemm", "f,m,n", "g", transB=1),
            operator("Relu", "g", "y"),
        ],
        {"x": (1, 4, 3, 3)},
        {"a": (1, 6, 3, 3), "b": (1, 6, 3, 3), "f": (1, 54), "g": (1, 10), "y": (1, 10)},
        {"w": (6, 4, 1, 1), "d": (6, 1, 3, 3), "m": (10, 54), "n": (10,)},
    )
    way = splittable(graph, range(5), 0, 2, "channels")
    assert way == Splittable(0, 2, "channels", 6, 1, ("g",), summed=True, joined=True)
    shard = split_run(graph, range(5), "channels", (2, 4)).shards[1]
    assert set(shard.constants.values()) == {
        Excerpt("w", Slice(0, 2, 4)),
        Excerpt("d", Slice(0, 2, 4)),
        Excerpt("m", Slice(1, 18, 36)),
    }
    assert list(shard.zeros.values()) == ["FP32"]  # in place of the bias
    assert steps(graph, "channels", (2, 4), 1)["b"].attributes == {"group": 4}


def test_what_is_read_outside_is_made_whole() -> None:
    """By the shards in their shares, or by the join; also what the heavy operator itself waits for."""
    graph = graph_of(
        [
            operator("Sigmoid", "x", "s"),
            operator("Conv", "s,w", "a"),
            operator("Relu", "a", "r"),
            operator("LRN", "r", "l", size=3),
            operator("Sum", "s,l,a", "y"),
        ],
        {"x": (1, 4, 5, 5)},
        {"s": (1, 4, 5, 5), "a": (1, 4, 5, 5), "r": (1, 4, 5, 5), "l": (1, 4, 5, 5), "y": (1, 4, 5, 5)},
        {"w": (4, 4, 1, 1)},
    )
    split = split_run(graph, range(4), "channels", (1, 3))
    assert split.shards[0].makes == (Excerpt("a", Slice(1, 0, 1)), Excerpt("r", Slice(1, 0, 1)))
    assert [excerpt.name for excerpt in split.shards[0].reads] == ["x"]
    assert split.join.operators == (0, 3)
    assert ends_of_join(graph, split)[1] == ["s", "l"]


def blocked() -> Graph:
    """24 filters, which two blocks of 16 are kept for, and a sum with what another layer made."""
    return graph_of(
        [
            operator(f"{NCHWC}:ReorderInput", "x", "i"),
            operator(f"{NCHWC}:Conv", "i,w,b,z", "c", {"activation": "LeakyRelu"}),
            operator(f"{NCHWC}:ReorderOutput", "c", "y", channels=24),
        ],
        {"x": (1, 32, 5, 5), "z": (1, 32, 5, 5)},
        {"i": (1, 32, 5, 5), "c": (1, 32, 5, 5), "y": (1, 24, 5, 5)},
        {"w": (32, 32, 1, 1), "b": (32,)},
    )


def test_blocks_stay_whole_and_the_last_share_gets_what_rounds_them_up() -> None:
    graph = blocked()
    way = splittable(graph, range(3), 0, 0, "channels")
    assert isinstance(way, Splittable)
    assert (way.units, way.block) == (32, 16)
    split = split_run(graph, range(3), "channels", (16, 8))
    assert split.shares == (16, 16)
    assert split.shards[1].makes == (Excerpt("y", Slice(1, 16, 8)),)
    assert Excerpt("z", Slice(1, 16, 16)) in split.shards[1].reads
    assert steps(graph, "channels", (16, 8), 1)["y"].attributes == {"channels": 8}
    with pytest.raises(ValueError, match=r"a share of 8, .* 16"):
        split_run(graph, range(3), "channels", (8, 16))


def test_a_fused_activation_and_sum_come_after_all_partial_sums() -> None:
    graph = blocked()
    split = split_run(graph, range(3), "inputs", (16, 16))
    assert split.join.sum is not None
    assert split.join.sum.activation == "LeakyRelu"
    assert [len(steps(graph, "inputs", (16, 16), part)["c"].inputs) for part in (0, 1)] == [4, 2]
    assert all("activation" in steps(graph, "inputs", (16, 16), part)["c"].without for part in (0, 1))
    assert split.shards[1].constants["w/1:16+16"] == Excerpt("w", Slice(1, 16, 16), blocked=True)


def test_what_cannot_be_split_says_why() -> None:
    graph = convolution()
    assert refusal(graph, "groups") == "Conv 'c' has one group"
    assert refusal(graph, "columns") == says("Conv 'c' has no columns: a convolution has …")
    two = graph_of(
        [operator("Conv", "x,w", "a"), operator("Softmax", "a", "s", axis=1), operator("Conv", "s,w", "y")],
        {"x": (1, 4, 5, 5)},
        dict.fromkeys("asy", (1, 4, 5, 5)),
        {"w": (4, 4, 1, 1)},
    )
    assert refusal(two, "channels") == "Conv 'y' comes behind: Softmax 's' needs all channels"
    assert refusal(two, "inputs") == says("Conv 'y' comes behind: Conv 'a' is …")
    attention = graph_of([operator("MatMul", "x,z", "y")], {"x": (2, 4), "z": (4, 2)}, {"y": (2, 2)}, {})
    assert refusal(attention, "columns") == says("MatMul 'y' has no … weights: it is not …")
    integers = graph_of(
        [operator("ConvInteger", "x,w", "y")], {"x": (1, 4, 5, 5)}, {"y": (1, 4, 5, 5)}, {"w": (4, 4, 1, 1)}
    )
    assert refusal(integers, "channels") == says("ConvInteger 'y' works on integers: it is not …")
    quantised = graph_of(
        [operator("DequantizeLinear", "w,s", "d"), operator("Conv", "x,d", "y")],
        {"x": (1, 4, 5, 5)},
        {"d": (4, 4, 1, 1), "y": (1, 4, 5, 5)},
        {"w": (4, 4, 1, 1), "s": ()},
    )
    assert refusal(quantised, "channels") == says("Conv 'y' has weights … integers: it is not …")
    light = graph_of([operator("Relu", "x", "y")], {"x": (1, 4)}, {"y": (1, 4)}, {})
    assert refusal(light, "rows") == says("there is no …")
    named = graph_of(
        [operator("Conv", "x,w", "y"), operator("Relu", "y", "y#1")],
        {"x": (1, 4, 5, 5)},
        dict.fromkeys(("y", "y#1"), (1, 4, 5, 5)),
        {"w": (4, 4, 1, 1)},
    )
    assert refusal(named, "inputs") == says("'y#1' is another tensor's name, and … a shard's own sum")
    assert isinstance(splittable(named, range(2), 0, 0, "channels"), Splittable)
    vector = graph_of([operator("Gemm", "x,w", "y")], {"x": (1, 4)}, {"y": (1, 4)}, {"w": (4, 4)})
    assert refusal(vector, "rows") == "Gemm 'y' has one row"


@pytest.mark.parametrize("shares", [(12,), (6, 7), (6, 5), (0, 12), (13, -1)])
def test_shares_that_do_not_add_up_are_refused(shares: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"1 that add .* to 12"):
        split_run(convolution(), range(4), "channels", shares)


def test_what_is_made_of_shares_may_have_fewer_axes() -> None:
    """An operator of another domain makes one number of all channels: it is left for the join."""
    graph = graph_of(
        [
            operator("Conv", "x,w", "a", kernel_shape=(1, 1)),
            Operator("count", "Count", "elsewhere", ("a",), ("n",), {}),
            operator("Add", "a,n", "y"),
        ],
        {"x": (1, 4, 6, 6)},
        {"a": (1, 4, 6, 6), "n": (), "y": (1, 4, 6, 6)},
        {"w": (4, 4, 1, 1)},
    )
    for axis in ("channels", "rows", "inputs"):
        way = splittable(graph, [0, 1, 2], 0, 0, axis)
        assert isinstance(way, Splittable)
        assert way.joined


@pytest.mark.parametrize(("other", "stays"), [(12, True), (6, False)])
def test_two_convolutions_whose_filters_are_as_many_are_split_together(other: int, *, stays: bool) -> None:
    """One beside the other, as the branches of a residual block; their sum is the first that reads both."""
    graph = graph_of(
        [operator("Conv", "x,v", "a"), operator("Conv", "x,w", "b"), operator("Concat", "a,b", "y", axis=1)],
        {"x": (1, 8, 5, 5)},
        {"a": (1, 12, 5, 5), "b": (1, other, 5, 5), "y": (1, 12 + other, 5, 5)},
        {"v": (12, 8, 1, 1), "w": (other, 8, 1, 1)},
    )
    answer = splittable(graph, range(3), 0, 1, "channels")
    if stays:
        assert isinstance(answer, Splittable)
        assert answer.units == 12
        assert set(steps(graph, "channels", (4, 8), 1)) >= {"a", "b"}
    else:
        assert answer == says("Conv 'b' has 6 … split before it 12")
