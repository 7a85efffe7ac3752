"""One model compiled for several shapes: what a plan may be is what is right in all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from shisha_rt.costs.layer_costs import RawCosts, RawTimes, mean_costs
from shisha_rt.errors import BadInput, Error
from shisha_rt.machine.config.machine_file import load_machine, parse_machine
from shisha_rt.measure.compile import compile_model
from shisha_rt.measure.make_ready import make_ready
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.measure.shapes import compile_shapes
from shisha_rt.model.input_sizes import InputSizes
from shisha_rt.plan.plan import Plan
from tests.model.networks import network, weight
from tests.wording import raised


def widths(*sizes: int) -> list[InputSizes]:
    return [InputSizes(shapes={"x": (1, 4, 6, size)}) for size in sizes]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Convolutions over an image of any width, the last of them after a skip."""
    nodes = [
        helper.make_node("Conv", ["x", "a_w"], ["a"], name="a", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "c_w"], ["c"], name="c", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c", "b"], ["d"]),
        helper.make_node("Conv", ["d", "e_w"], ["y"], name="e"),
    ]
    weights = {"a_w": weight(8, 4, 3, 3, seed=1), "c_w": weight(8, 8, 3, 3, seed=2), "e_w": weight(3, 8, 1, 1, seed=3)}
    model = network(nodes, {"x": [1, 4, 6, "width"]}, {"y": [1, 3, 6, "width"]}, weights)
    file = tmp_path / "wide.onnx"
    onnx.save(model, file)
    return file


def test_they_share_what_a_plan_is_made_of(path: Path) -> None:
    compiled = compile_shapes(path, widths(6, 40, 9))
    alone = [compile_model(path, sizes) for sizes in widths(6, 40, 9)]
    assert [shape.model.graph.inputs[0].shape[3] for shape in compiled.shapes] == [6, 40, 9]
    assert compiled.legal_cuts == frozenset.intersection(*(single.legal_cuts for single in alone))
    assert all(shape.legal_cuts == compiled.legal_cuts for shape in compiled.shapes)
    assert all(
        needed >= own
        for of_one in (single.index.needs for single in alone)
        for needed, own in zip(compiled.needs, of_one, strict=True)
    )
    for layer, *layers in zip(compiled.layers, *(single.layers for single in alone), strict=True):
        assert (layer.in_bytes, layer.out_bytes) == (max(i.in_bytes for i in layers), max(i.out_bytes for i in layers))
        assert layer.weight_bytes == sum(i.weight_bytes for i in layers)  # so small that they are not shared
    assert compiled.key not in {single.key for single in alone}
    assert compiled.key == compile_shapes(path, widths(9, 6, 40)).key
    rules = ModelOnMachine(compiled, load_machine("this-machine"), {}).rules
    place = rules.places[0]
    assert rules.problems(Plan.of([(0, 2, place)])) == []


@pytest.mark.parametrize(
    ("sizes", "complaint"),
    [
        (widths(6, 9, 6), "shapes x=1x4x6x6 are set twice"),
        ([InputSizes(dims={"width": 6}), *widths(6)], "set twice"),
        ([InputSizes(shapes={"x": (1, 4, 6)}), *widths(6)], "x"),
        ([*widths(6), InputSizes(shapes={"z": (1, 4, 6, 6)})], "z"),
    ],
)
def test_bad_input(path: Path, sizes: list[InputSizes], complaint: str) -> None:
    with raised(BadInput, Error.WRONG_SIZES) as caught:
        compile_shapes(path, sizes)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_network_that_is_another_in_another_shape(tmp_path: Path) -> None:
    """One row more, and its output has an axis more."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"], name="a"), helper.make_node("Squeeze", ["a"], ["y"])]
    model = network(nodes, {"x": ["rows", 4]}, {"y": [None, None]}, {"w": weight(4, 4)})
    file = tmp_path / "other.onnx"
    onnx.save(model, file)
    sizes = [InputSizes(dims={"rows": rows}) for rows in (1, 2)]
    with raised(
        BadInput,
        Error.WRONG_SIZES,
        match=r"x=1x4 and x=2x4 .* \('y', 'FP32', 1\) and \('y', 'FP32', 2\)",
    ):
        compile_shapes(file, sizes)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('timing = "modelled"\n[[place]]\nname = "a"\ncores = [0]\n', 'timing = "modelled"'),
        (
            '[[memory]]\nname = "m"\nbandwidth_bytes_per_s = 1e9\n[[place]]\nname = "a"\ncores = [0]\nmemory = "m"\n',
            "limited bandwidth",
        ),
    ],
)
def test_where_costs_are_told_by_formulas_one_shape_is_served(path: Path, text: str, what: str) -> None:
    machine = parse_machine(text, name="m", source="m.toml")
    with raised(BadInput, Error.WRONG_SIZES, match=f"m.toml: .*{what}.*expected one --shape"):
        make_ready(path, machine, sizes=widths(6, 9))


def test_weights_that_are_the_same_in_all_shapes_are_there_once(tmp_path: Path) -> None:
    """They are of 1 MiB, so that they are worth it."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    model = network(nodes, {"x": ["rows", 512]}, {"y": ["rows", 512]}, {"w": weight(512, 512)})
    file = tmp_path / "dense.onnx"
    onnx.save(model, file)
    for _ in range(2):  # and again from the cache
        compiled = compile_shapes(file, [InputSizes(dims={"rows": rows}) for rows in (1, 3, 8)])
        large = [
            {entry.stat().st_ino for entry in shape.engine_folder.iterdir() if entry.stat().st_size > 2**20}
            for shape in compiled.shapes
        ]
        assert len(large[0]) == 1
        assert large[0] == large[1] == large[2]
        assert (
            compiled.layers[0].weight_bytes == compile_model(file, InputSizes(dims={"rows": 1})).layers[0].weight_bytes
        )


def test_who_is_second_to_share_weights_leaves_no_link_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it replaces is the same file by then, and `rename` does nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    onnx.save(network(nodes, {"x": ["n", 512]}, {"y": ["n", 512]}, {"w": weight(512, 512)}), tmp_path / "dense.onnx")
    first = compile_model(tmp_path / "dense.onnx", InputSizes(dims={"n": 1}))
    link_to = Path.hardlink_to

    def link_after_another(link: Path, twin: Path) -> None:
        others = link.with_name("another")
        link_to(others, twin)
        others.replace(second.engine_folder / twin.name)
        link_to(link, twin)

    second = compile_model(tmp_path / "dense.onnx", InputSizes(dims={"n": 2}))
    monkeypatch.setattr(Path, "hardlink_to", link_after_another)
    shapes = compile_shapes(tmp_path / "dense.onnx", [InputSizes(dims={"n": rows}) for rows in (1, 2)]).shapes
    assert [shape.engine_folder for shape in shapes] == [first.engine_folder, second.engine_folder]
    assert not [file for file in second.engine_folder.parent.iterdir() if file.is_file() and file.suffix != ".lock"]


def test_layers_cost_the_mean_of_the_shapes(path: Path) -> None:
    compiled = compile_shapes(path, widths(6, 40))

    def raw(cpu_s: float) -> RawCosts:
        times = RawTimes(1, np.full(3, cpu_s), np.full(3, 2 * cpu_s), 1.0)
        groups = ((0, 0), (1, 1), (2, 2))
        return RawCosts(compiled.model.graph, compiled.layers, groups, {"a": times}, {("a", "b"): times})

    mean = mean_costs(compiled.model.graph, compiled.layers, [raw(1.0), raw(4.0)])
    assert mean.times["a"].cpu_s.tolist() == [2.5] * 3
    assert mean.teams["a", "b"].wall_s.tolist() == [5.0] * 3
