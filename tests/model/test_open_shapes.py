"""Which tensors are static though inference does not know them, and which depend on the data."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper
from onnx.helper import make_node

from shisha_rt.errors import BadInput, Error, Failure
from shisha_rt.model.graph import Graph, Tensor
from shisha_rt.model.indexing import plain_index
from shisha_rt.model.input_sizes import InputSizes
from shisha_rt.model.layers import group_layers
from shisha_rt.model.reader import size_guesses
from shisha_rt.model.reader.onnx_reader import read_clean, read_model
from tests.commands import command_of
from tests.model.networks import network, run, weight, write
from tests.waiting import until
from tests.wording import raised


def square(x: str, y: str) -> onnx.NodeProto:
    return make_node("MatMul", [x, "w"], [y])


def read(nodes: list[onnx.NodeProto], outputs: dict[str, list[int | str]], folder: Path) -> Graph:
    weights = {"w": weight(4, 4), "k": np.array([2]), "axis": np.array([0])}
    used = {name for node in nodes for name in node.input}
    constants = {name: array for name, array in weights.items() if name in used}
    model = read_model(write(network(nodes, {"x": [1, 4]}, outputs, constants), folder))
    (folder / "clean").mkdir()
    model.save(folder / "clean")
    assert read_clean(folder / "clean").tensors == model.graph.tensors  # open axes are written down, too
    return model.graph


def test_what_depends_on_the_data_has_open_axes_and_is_cut_nowhere(tmp_path: Path) -> None:
    nodes = [
        square("x", "a"),
        make_node("NonZero", ["a"], ["found"]),
        make_node("Transpose", ["found"], ["places"]),
        make_node("GatherND", ["a", "places"], ["values"]),
        square("a", "b"),
        make_node("ReduceSum", ["values"], ["sum"], keepdims=0),
        make_node("Add", ["b", "sum"], ["c"]),
        square("c", "y"),
    ]
    graph = read(nodes, {"y": [1, 4], "values": ["n"]}, tmp_path)
    open_axes = {name: tensor.open_axes for name, tensor in graph.tensors.items() if tensor.open_axes}
    assert open_axes == {"found": (1,), "places": (0,), "values": (0,)}
    assert graph.outputs[1] == Tensor("values", (4,), "FP32", (0,))
    # Layer 0 makes the values; that they are summed there, too, leaves both cuts legal.
    assert plain_index(graph, group_layers(graph)).legal_cuts == (0, 1)


def test_a_cut_that_an_open_tensor_would_cross_is_not_legal(tmp_path: Path) -> None:
    nodes = [
        square("x", "a"),
        make_node("NonZero", ["a"], ["found"]),
        square("a", "b"),
        make_node("Cast", ["found"], ["float"], to=TensorProto.FLOAT),
        make_node("ReduceSum", ["float"], ["sum"], keepdims=0),
        square("b", "c"),
        make_node("Cast", ["found"], ["again"], to=TensorProto.FLOAT),
        make_node("MatMul", ["c", "w"], ["d"]),
        make_node("Add", ["d", "sum"], ["e"]),
        make_node("Concat", ["again", "again"], ["y2"], axis=0),
        make_node("ReduceMax", ["y2"], ["most"], keepdims=0),
        make_node("Mul", ["e", "most"], ["y"]),
    ]
    graph = read(nodes, {"y": [1, 4]}, tmp_path)
    index = plain_index(graph, group_layers(graph))
    assert all(not entry.tensor.open_axes for entry in index.crossing)
    assert len(index.legal_cuts) == 3


def test_a_shape_that_only_a_run_shows_is_static(tmp_path: Path) -> None:
    """ONNX has no description of ONNX Runtime's own operators; sizes behind them are then known to inference."""
    nodes = [
        square("x", "a"),
        make_node("FusedMatMul", ["a", "w"], ["b"], domain="com.microsoft"),
        make_node("Shape", ["b"], ["shape"]),
        make_node("ConstantOfShape", ["shape"], ["zeros"]),
        make_node("Add", ["b", "zeros"], ["c"]),
        square("c", "y"),
    ]
    graph = read(nodes, {"y": [1, 4]}, tmp_path)
    assert graph.tensors["b"] == Tensor("b", (1, 4), "FP32")
    assert [operator.op_type for operator in graph.operators] == ["MatMul", "FusedMatMul", "Add", "MatMul"]


@pytest.mark.parametrize(("how_many", "open_axes"), [("k", ()), ("computed", (0, 1))])
def test_topk_is_open_where_its_number_is_computed(how_many: str, open_axes: tuple[int, ...], tmp_path: Path) -> None:
    nodes = [
        square("x", "a"),
        make_node("ArgMax", ["a"], ["largest"], axis=1, keepdims=0),
        make_node("Abs", ["largest"], ["computed"]),
        make_node("TopK", ["a", how_many], ["y", "index"]),
    ]
    graph = read(nodes, {"y": [1, "n"]}, tmp_path)
    assert graph.outputs[0].open_axes == open_axes


@pytest.mark.parametrize(
    "node",
    [
        make_node("ExpandDims", ["x", "number"], ["y"], domain="com.microsoft"),
        make_node("ConvTransposeWithDynamicPads", ["images", "filters", "numbers"], ["y"], domain="com.microsoft"),
        make_node("CropAndResize", ["images", "box", "first", "sizes"], ["y"], domain="com.microsoft"),
        make_node("DFT", ["signals", "", "axis"], ["y"], onesided=1),
    ],
    ids=lambda node: str(node.op_type),
)
def test_sizes_that_a_computed_value_decides_are_open(node: onnx.NodeProto, tmp_path: Path) -> None:
    """They were taken for those of made-up values, and other frames failed."""
    nodes = [
        make_node("ReduceMax", ["x"], ["most"], keepdims=0),
        make_node("Cast", ["most"], ["number"], to=TensorProto.INT32),
        make_node("Cast", ["most"], ["axis"], to=TensorProto.INT64),
        make_node("Expand", ["axis", "four"], ["numbers"]),
        make_node("Expand", ["number", "two"], ["sizes"]),
        make_node("Reshape", ["x", "image"], ["images"]),
        make_node("Reshape", ["x", "signal"], ["signals"]),
        node,
    ]
    weights = {
        "filters": weight(1, 1, 3, 3),
        "box": np.array([[0, 0, 1, 1]], np.float32),
        "first": np.zeros(1, np.int32),
    }
    shapes = {"image": np.array([1, 1, 4, 4]), "signal": np.array([1, 4, 4, 1])}
    shapes |= {"four": np.array([4]), "two": np.array([2])}
    model = network(nodes, {"x": [1, 16]}, {"y": None}, weights | shapes, opset=20)
    assert read_model(write(model, tmp_path)).graph.outputs[0].open_axes


def test_what_the_engine_cannot_run_is_told_in_a_line(tmp_path: Path) -> None:
    """Inference finds a contradiction, and so does the engine."""
    nodes = [make_node("Add", ["x", "three"], ["y"])]
    model = network(nodes, {"x": [1, 4]}, {"y": [1, 4]}, {"three": weight(3)})
    with pytest.raises(BadInput, match="not a valid ONNX model") as raised:
        read_model(write(model, tmp_path))
    assert len(str(raised.value).splitlines()) == 1


def test_several_unknown_sizes_are_told_at_once_with_a_command_that_works(tmp_path: Path) -> None:
    """The convolution tells the channels; a product behind it tells that the image is 8 by 8."""
    nodes = [
        make_node("Conv", ["image", "kernel"], ["a"]),
        make_node("Flatten", ["a"], ["flat"]),
        make_node("MatMul", ["flat", "table"], ["b"]),
        make_node("Add", ["b", "state"], ["y"]),
    ]
    model = network(
        nodes,
        {"image": ["N", "C", None, "W"], "state": [1, "S"]},
        {"y": ["N", "S"]},
        {"kernel": weight(2, 3, 1, 1), "table": weight(2 * 64 * 64, 16)},
    )
    path = write(model, tmp_path)
    with pytest.raises(BadInput) as raised:
        read_model(path)
    message = str(raised.value)
    assert "4 unknown dimensions" in message
    assert "input 'image' [N, C, ?, W]: dimensions 1 ('C'), 2 ('image:2'), 3 ('W')" in message
    assert "input 'state' [1, S]: dimension 1 ('S')" in message
    assert "expected their sizes: --shape image=1x3x64x64 --shape state=1x16 would run, but" in message


@pytest.mark.parametrize(
    ("size", "expected"),
    [("[48, 80]", "1x3x48x80"), ("[1e400, 2]", "1x3x224x224"), ("[" * 9999, "1x3x224x224"), ("[1, 1e6]", "1x3x224")],
)
def test_the_image_size_in_a_files_metadata_is_tried_if_it_is_one(size: str, expected: str, tmp_path: Path) -> None:
    model = network([make_node("Relu", ["x"], ["y"])], {"x": [1, 3, "H", "W"]}, {"y": [1, 3, "H", "W"]})
    model.metadata_props.add(key="imgsz", value=size)
    with pytest.raises(BadInput, match=f"--shape x={expected}"):
        read_model(write(model, tmp_path))


def test_no_sizes_are_tried_that_could_take_all_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A width that a user gave makes every try too large; where a smaller one is given, the others are left out."""
    tried: list[object] = []
    monkeypatch.setattr(size_guesses, "first_that_runs", lambda _, tries: tried.extend(tries))
    model = network([make_node("Relu", ["x"], ["y"])], {"x": [1, 3, "H", "W"]}, {"y": [1, 3, "H", "W"]})
    path = write(model, tmp_path)
    for width in (10**7, 10**5):
        with raised(BadInput, Error.UNKNOWN_SIZES, match="'H'"):
            read_model(path, InputSizes({"W": width}))
        assert bool(tried) == (width == 10**5)
    assert ((1, 3, 64, 10**5),) in tried
    assert ((1, 3, 640, 10**5),) not in tried


def test_where_nothing_that_is_tried_runs_no_sizes_are_told(tmp_path: Path) -> None:
    model = network(
        [make_node("MatMul", ["x", "w"], ["y"])], {"x": ["N", "A", "B"]}, {"y": ["N", "A", 4]}, {"w": weight(17, 4)}
    )
    model.graph.node.add(op_type="Reshape", input=["y", "shape"], output=["z"])
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([77, 3]), "shape"))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("z", TensorProto.FLOAT, [77, 3]))
    with pytest.raises(BadInput, match=r"2 unknown dimensions.*--dim A=8, or whole shapes"):
        read_model(write(model, tmp_path))


def test_sizes_that_a_branch_was_exported_with_do_not_hold_for_others(tmp_path: Path) -> None:
    def branch(op: str) -> onnx.GraphProto:
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in (f"{op}_a", f"{op}_b")]
        nodes = [make_node(op, ["x"], [f"{op}_a"]), make_node("Relu", [f"{op}_a"], [f"{op}_b"])]
        return helper.make_graph(nodes, op, [], ends[1:], value_info=ends[:1])

    choice = make_node("If", ["flag"], ["c"], then_branch=branch("Neg"), else_branch=branch("Abs"))
    model = network([choice, make_node("Relu", ["c"], ["y"])], {"x": ["N", 4]}, {"y": ["N", 4]})
    model.graph.input.append(helper.make_tensor_value_info("flag", TensorProto.BOOL, []))
    read = read_model(write(model, tmp_path), InputSizes({"N": 3}))
    assert read.graph.outputs == (Tensor("y", (3, 4), "FP32"),)
    x = weight(3, 4)
    (y,) = run(read.proto, {"x": x, "flag": np.array(False)})
    np.testing.assert_array_equal(y, np.abs(x))


def endless(folder: Path) -> Path:
    """A loop that no run comes to the end of; only a run could show what it makes."""
    unit = onnx.numpy_helper.from_array(np.array(1, np.float32), "one")
    flag = helper.make_tensor_value_info("on", TensorProto.BOOL, [])
    number, last, sums = (
        helper.make_tensor_value_info(*described)
        for described in (("i", TensorProto.INT64, []), ("v", TensorProto.FLOAT, [1]), ("sum", TensorProto.FLOAT, [1]))
    )
    still = helper.make_tensor_value_info("still", TensorProto.BOOL, [])
    nodes = [make_node("Identity", ["on"], ["still"]), make_node("Add", ["v", "one"], ["sum"])]
    body = helper.make_graph(nodes, "body", [number, flag, last], [still, sums], [unit])
    model = network([make_node("Loop", ["often", "go", "x"], ["y"], body=body)], {"x": [1]}, {"y": ["n"]})
    for name, value in (("often", np.array(2**62)), ("go", np.array(True))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    return write(model, folder)


def test_a_run_that_comes_to_no_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shisha_rt.model.reader.one_run.RUN_LIMIT_S", 2.0)
    with pytest.raises(BadInput, match="cannot run it: it came to"):
        read_model(endless(tmp_path))


def test_where_there_is_no_room_to_run_a_model_that_is_told_in_a_line(tmp_path: Path) -> None:
    nodes = [make_node("MatMul", ["x", "w"], ["a"]), make_node("NonZero", ["a"], ["y"])]
    model = network(nodes, {"x": [1, 99]}, {"y": [2, "n"]}, {"w": weight(99, 999)})
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    path = write(model, tmp_path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(Failure, match=r"cannot be written there.*TMPDIR chooses another folder"):
            read_model(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_run_that_is_ended_leaves_no_files(tmp_path: Path) -> None:
    path, folder = endless(tmp_path), tmp_path / "temporary"
    folder.mkdir()
    with subprocess.Popen(
        [sys.executable, "-m", "shisha_rt", "layers", str(path)], env={**os.environ, "TMPDIR": str(folder)}
    ) as command:
        until(lambda: _runs_a_job(command.pid), "a job")  # an exception in the midst of a fork is lost
        assert any(folder.iterdir())
        command.terminate()
    assert command.returncode == 143
    assert list(folder.iterdir()) == []


def _runs_a_job(pid: int) -> bool:
    """Whether a child of the process is the program that it was started for, and no longer a copy of its parent."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return any("stages.jobs.one_run" in command_of(child) for child in psutil.Process(pid).children())
    return False
