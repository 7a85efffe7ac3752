"""Shards run for real: put together they are what the whole is.

Random layers and networks, as they are written and as ONNX Runtime's optimiser leaves them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from shisha_rt.model.shards.rewrite import split_run, splittable
from shisha_rt.model.split import AXES, Axis, Splittable
from tests.drawn import chunks
from tests.stages.random_layers import Drawn, random_layer, random_pair
from tests.stages.sharded import Arrays, Whole, optimised

PAIR_AXES: Final[tuple[Axis, ...]] = ("channels", "columns", "groups", "rows")
_TOLERANCE: Final = 2e-5
# Their kernels take the last few values of a run in another way; that of a matrix with one row is another one, too.
_ROUNDS_BY_SIZE: Final = ("Elu", "InstanceNormalization")


def random_shares(units: int, block: int, rng: random.Random) -> tuple[int, ...] | None:
    """Two to four of them; None where there are too few blocks."""
    blocks = -(-units // block)
    parts = min(rng.randint(2, 4), blocks)
    if parts < 2:
        return None
    at = [0, *sorted(rng.sample(range(1, blocks), parts - 1))]
    ends = [*(block * end for end in at[1:]), units]
    return tuple(end - block * start for start, end in zip(at, ends, strict=True))


def check(whole: Whole, made: Arrays, outputs: Sequence[str], *, exact: bool = False) -> None:
    for name in outputs:
        assert name in made, f"{name} is not made"
    for name, value in made.items():
        if name not in whole.arrays:
            continue
        expected = whole.arrays[name]
        if exact:
            np.testing.assert_array_equal(value, expected, err_msg=name)
        else:
            scale = float(np.abs(expected).max()) or 1.0
            np.testing.assert_allclose(value, expected, rtol=1e-4, atol=_TOLERANCE * scale, err_msg=name)


@pytest.mark.parametrize("seeds", chunks(1000, 30, short=30))
def test_random_layers_are_the_sum_of_their_shards(seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        axis: Axis = AXES[seed % len(AXES)]
        whole = Whole(random_layer(seed, axis), tmp_path, seed=seed)
        assert _check_split(whole, axis, seed) == "", f"{seed}: {axis}"


@pytest.mark.parametrize("seeds", chunks(1000, 30, short=30, first=5000))
def test_random_layers_as_the_engine_optimised_them(seeds: range, tmp_path: Path) -> None:
    refusals = []
    for seed in seeds:
        axis: Axis = AXES[seed % len(AXES)]
        model = optimised(random_layer(seed, axis, aligned=axis != "columns" and seed % 4 > 0), tmp_path)
        refused = _check_split(Whole(model, tmp_path, seed=seed), axis, seed)
        assert refused == "" or "block" in refused, f"{seed}: {axis}: {refused}"
        refusals += [refused] if refused else []
    assert len(refusals) < len(seeds) / 2, "most of them are split, so that there is something to compare"


@pytest.mark.parametrize("seeds", chunks(400, 16, short=16))
def test_random_pairs_and_runs_of_rows(seeds: range, tmp_path: Path) -> None:
    refusals = []
    for seed in seeds:
        axis = PAIR_AXES[seed // 4 % len(PAIR_AXES)]
        model = random_pair(seed, axis)
        if seed % 4 < 2:
            assert _check_split(Whole(model, tmp_path, seed=seed), axis, seed, summed=axis != "rows") == "", seed
        else:
            whole = Whole(optimised(model, tmp_path), tmp_path, seed=seed)
            refused = _check_split(whole, axis, seed, summed=axis != "rows")
            assert refused == "" or "block" in refused, f"{seed}: {axis}: {refused}"
            refusals += [refused] if refused else []
    assert len(refusals) < len(seeds) / 4, "half are as the engine optimised them, and most of these are split"


def test_filters_of_a_shard_are_a_range_of_the_one_file(tmp_path: Path) -> None:
    """And input channels, which lie apart there, a copy."""
    whole = Whole(optimised(_convolution(channels=32, filters=64), tmp_path), tmp_path)
    operators = range(len(whole.graph.operators))
    split = split_run(whole.graph, operators, "channels", (16, 48))
    (first,), (second,) = (whole.sharded.shard(split, part).graph.initializer for part in (0, 1))
    where = [{entry.key: entry.value for entry in weight.external_data} for weight in (first, second)]
    assert int(where[0]["offset"]) + int(where[0]["length"]) == int(where[1]["offset"])
    assert int(where[1]["length"]) == 48 * 32 * 9 * 4
    split = split_run(whole.graph, operators, "inputs", (16, 16))
    (copied,) = whole.sharded.shard(split, 1).graph.initializer
    assert not copied.external_data


def _convolution(channels: int, filters: int) -> onnx.ModelProto:
    drawn = Drawn(0)
    drawn.shape = (1, channels, 6, 6)
    drawn.name = drawn.given(drawn.shape)
    weight = drawn.constant((filters, channels, 3, 3))
    drawn.add("Conv", [drawn.name, weight], (1, filters, 6, 6), pads=[1, 1, 1, 1])
    return drawn.model()


@pytest.mark.parametrize("padding", [0, 1, 2])
def test_channels_that_have_become_rows(padding: int, tmp_path: Path) -> None:
    """8 channels, of which a pooling makes 6, 8 or 10 rows: 6 cannot be shared as the channels are."""
    drawn = Drawn(0)
    drawn.shape = (1, 4, 6, 5)
    drawn.name = drawn.given(drawn.shape)
    drawn.add("Conv", [drawn.name, drawn.constant((8, 4, 1, 1))], (1, 8, 6, 5))
    drawn.add("Transpose", [drawn.name], (1, 6, 8, 5), perm=[0, 2, 1, 3])
    made, pads = (1, 6, 6 + 2 * padding, 5), [padding, 0, padding, 0]
    drawn.add("MaxPool", [drawn.name], made, kernel_shape=[3, 1], pads=pads)
    whole = Whole(drawn.model(), tmp_path)
    way = splittable(whole.graph, range(3), 0, 0, "channels")
    assert isinstance(way, Splittable)
    assert way.joined == (padding == 0)
    for seed in range(4):
        assert not _check_split(whole, "channels", seed)


def _check_split(whole: Whole, axis: Axis, seed: int, *, summed: bool | None = None) -> str:
    """Split all that there is, in random shares; why it cannot be, if so."""
    operators = range(len(whole.graph.operators))
    way = splittable(whole.graph, operators, 0, 0, axis)
    if isinstance(way, str):
        return way
    assert summed is None or way.summed == summed
    shares = random_shares(way.units, way.block, random.Random(seed))
    assert shares is not None
    split, made = whole.split(operators, axis, shares)
    assert split.shares == shares
    kinds = {operator.op_type for operator in whole.graph.operators}
    exact = axis in ("channels", "groups") and not way.summed and min(shares) > 1 and kinds.isdisjoint(_ROUNDS_BY_SIZE)
    check(whole, made, [tensor.name for tensor in whole.graph.outputs], exact=exact)
    return ""


def _if(result: str, operators: tuple[str, str], read: str, captured: str) -> onnx.NodeProto:
    """One or the other of `read` and a constant that only the graphs inside see."""
    ends = [helper.make_tensor_value_info(f"{result}_{kind}", TensorProto.FLOAT, None) for kind in operators]
    graphs = [
        helper.make_graph([helper.make_node(kind, [read, captured], [end.name])], kind, [], [end])
        for kind, end in zip(operators, ends, strict=True)
    ]
    return helper.make_node("If", ["condition"], [result], result, then_branch=graphs[0], else_branch=graphs[1])


@pytest.mark.parametrize("axis", ["channels", "inputs", "rows"])
def test_operators_with_graphs_inside_before_and_behind(axis: Axis, tmp_path: Path) -> None:
    drawn = Drawn(0)
    drawn.opset = 13
    image = drawn.given((1, 8, 6, 6))
    first, second, weight = (drawn.constant(shape) for shape in ((8, 1, 1), (8, 1, 1), (8, 8, 3, 3)))
    zero = drawn.array(np.array(0, np.float32))
    drawn.nodes = [
        helper.make_node("ReduceSum", [image], ["total"], keepdims=0),
        helper.make_node("Greater", ["total", zero], ["condition"]),
        _if("before", ("Add", "Mul"), image, first),
        helper.make_node("Conv", ["before", weight], ["made"], pads=[1, 1, 1, 1]),
        _if("behind", ("Add", "Sub"), "made", second),
    ]
    drawn.name, drawn.shape = "behind", (1, 8, 6, 6)
    whole = Whole(drawn.model(), tmp_path)
    split, made = whole.split(range(5), axis, (2, 4 if axis == "rows" else 6))
    check(whole, made, ["behind"])
    assert split.join.operators == (0, 1, 4)
