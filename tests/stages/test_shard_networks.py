"""Whole networks with several layers in shards, as cleaned and as ONNX Runtime's optimiser leaves them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import onnx
import pytest

from shisha_rt.model.graph import Graph
from shisha_rt.model.layers import group_layers, layer_of_operator
from shisha_rt.model.reader.onnx_reader import CLEAN_FILE, read_clean, read_model
from shisha_rt.model.shards.rewrite import splittable
from shisha_rt.model.shards.shard_graphs import join_graph
from shisha_rt.model.split import AXES, Splittable
from shisha_rt.model.zoo import zoo_path
from stages.engines.onnxruntime.mapping import map_nodes
from tests.drawn import chunks
from tests.stages.random_layers import random_network
from tests.stages.sharded import Whole, optimised_file
from tests.stages.test_shards import check, random_shares

Form = Literal["cleaned", "optimised"]


def brought_into(form: Form, path: Path, folder: Path, seed: int = 0) -> tuple[Whole, tuple[int, ...]]:
    """The network as its stages are cut from it, and the layer of each of its operators."""
    read_model(path).save(folder)
    graph = read_clean(folder)
    layers = group_layers(graph)
    if form == "cleaned":
        model = onnx.load(str(folder / CLEAN_FILE), load_external_data=False)
        return Whole(model, folder, graph, seed), layer_of_operator(layers)
    model = optimised_file(folder / CLEAN_FILE, folder)
    return Whole(model, folder, seed=seed), map_nodes(graph, layers, model.graph)


def operators_of(node_layers: Sequence[int], first: int, last: int) -> list[int]:
    return [index for index, layer in enumerate(node_layers) if first <= layer <= last]


def ways(graph: Graph, node_layers: Sequence[int], first: int, last: int) -> list[Splittable]:
    operators = operators_of(node_layers, first, last)
    candidates = (splittable(graph, operators, first, last, axis) for axis in AXES)
    return [way for way in candidates if not isinstance(way, str)]


@pytest.mark.parametrize("form", ["cleaned", "optimised"])
@pytest.mark.parametrize("seeds", chunks(200, 5, short=5))
def test_random_networks_with_several_split_layers(seeds: range, form: Form, tmp_path: Path) -> None:
    split_count = 0
    for seed in seeds:
        rng = random.Random(seed)
        path = tmp_path / "drawn.onnx"
        onnx.save(random_network(seed), str(path))
        whole, node_layers = brought_into(form, path, tmp_path, seed)
        graph = whole.graph
        made = {tensor.name: whole.arrays[tensor.name] for tensor in graph.inputs}
        first, layer_count = 0, max(node_layers) + 1
        while first < layer_count:
            last = min(first + rng.choice((0, 0, 1, 2)), layer_count - 1)
            operators = operators_of(node_layers, first, last)
            choices = ways(graph, node_layers, first, last) if operators else []
            if choices:
                way = rng.choice(choices)
                shares = random_shares(way.units, way.block, rng)
                assert shares is not None
                made |= whole.split(operators, way.axis, shares, made)[1]
                split_count += 1
            elif operators:
                made |= whole.unsplit(operators, made)
            first = last + 1
        check(whole, made, [tensor.name for tensor in graph.outputs])
    assert split_count >= 2 * len(seeds)


ZOO = ("squeezenet", "alexnet", "resnet50", "shufflenet", "vgg19")


@pytest.mark.long
@pytest.mark.parametrize("form", ["cleaned", "optimised"])
@pytest.mark.parametrize("name", ZOO)
def test_every_layer_of_real_networks_along_every_axis(name: str, form: Form, tmp_path: Path) -> None:
    """And runs of several layers."""
    whole, node_layers = brought_into(form, zoo_path(name), tmp_path)
    rng = random.Random(0)
    layers = sorted({*node_layers})
    runs = [(layer, layer) for layer in layers]
    runs += [(first, min(first + rng.randint(1, 4), layers[-1])) for first in rng.choices(layers, k=30)]
    for first, last in runs:
        for way in ways(whole.graph, node_layers, first, last):
            shares = random_shares(way.units, way.block, rng)
            assert shares is not None
            split, made = whole.split(operators_of(node_layers, first, last), way.axis, shares)
            joined = [tensor.name for tensor in join_graph(whole.graph, split).outputs]
            check(whole, made, joined if way.joined else way.makes)
