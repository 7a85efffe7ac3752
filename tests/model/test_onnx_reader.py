"""Whatever is wrong with a file is said in one line; what is right comes through with every shape known."""

from __future__ import annotations

import errno
import importlib.metadata
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.helper import make_node

from shisha_rt.errors import BadInput, Error
from shisha_rt.model.graph import Tensor
from shisha_rt.model.input_sizes import InputSizes
from shisha_rt.model.reader.onnx_reader import read_clean, read_model
from shisha_rt.model.zoo import resolve_model
from tests.model.networks import Dims, network, run, weight, write
from tests.wording import raised


def relu(x: Dims = (1, 3), y: Dims = (1, 3)) -> onnx.ModelProto:
    return network([make_node("Relu", ["x"], ["y"], "act")], {"x": x}, {"y": y})


def product() -> onnx.ModelProto:
    """2 KiB of weights, so that they count as large."""
    return network([make_node("MatMul", ["x", "w"], ["y"])], {"x": [1, 16]}, {"y": [1, 32]}, {"w": weight(16, 32)})


def refusal(path: Path, dims: Mapping[str, int] | None = None) -> str:
    """The one line that says why the file is refused: it names the file, and what was expected."""
    with pytest.raises(BadInput) as raised:
        read_model(path, InputSizes(dims or {}))
    message = str(raised.value)
    assert len(message.splitlines()) == 1
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "no such file"),
        (lambda path: path.mkdir(), "is a folder"),
        (lambda path: path.touch(), "is empty"),
        (lambda path: path.write_bytes(product().SerializeToString()[:-600]), "truncated"),
        (lambda path: path.write_text("this is not a network\n" * 100), "not ONNX"),
        (lambda path: path.write_bytes(relu().SerializeToString().replace(b"Relu", b"Re\xff\xfe")), "not text"),
        (lambda path: path.write_bytes(onnx.ModelProto(ir_version=8).SerializeToString()), "no network"),
    ],
    ids=["missing", "folder", "empty", "truncated", "text", "not-utf-8", "no-graph"],
)
def test_what_is_not_a_model_is_refused(make: Callable[[Path], object], words: str, tmp_path: Path) -> None:
    make(tmp_path / "tiny.onnx")
    message = refusal(tmp_path / "tiny.onnx")
    assert words in message
    assert "expected" in message


def deny(monkeypatch: pytest.MonkeyPatch, method: str, denied: Path) -> None:
    """Let a method of `Path` fail for this file as for a user who lacks a permission (root lacks none)."""
    permitted = getattr(Path, method)

    def checked(path: Path, *args: Any, **options: Any) -> Any:
        if path == denied:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return permitted(path, *args, **options)

    monkeypatch.setattr(Path, method, checked)


@pytest.mark.parametrize("denied", ["exists", "stat", "read_bytes"])
def test_a_model_that_may_not_be_read_is_refused(denied: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(relu(), tmp_path)
    deny(monkeypatch, denied, path)
    assert os.strerror(errno.EACCES) in refusal(path)


@pytest.mark.parametrize("name", ["m\udcff.onnx", "red\x1b[31m.onnx", "a\nb.onnx"])
def test_a_model_whose_name_is_no_text_or_obeyed_by_a_terminal_is_refused(tmp_path: Path, name: str) -> None:
    with raised(BadInput, Error.MODEL_UNREADABLE):
        read_model(write(relu(), tmp_path).rename(tmp_path / name))


def test_a_model_of_too_long_a_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / f"{'m' * 300}.onnx"
    for take in (read_model, lambda path: resolve_model(str(path))):
        with raised(BadInput, Error.MODEL_UNREADABLE):
            take(path)


@settings(max_examples=200)
@given(st.data())
def test_damage_is_refused_as_bad_input_or_does_no_harm(data: st.DataObject) -> None:
    content = bytearray(product().SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        # The structure is in the file's two ends; the 2 KiB between them are the weight's values.
        content[data.draw(st.integers(-150, 100))] = data.draw(st.integers(0, 255))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.onnx"
        path.write_bytes(content)
        with suppress(BadInput):
            read_model(path)


def with_sequence_output() -> onnx.ModelProto:
    model = network([make_node("SequenceConstruct", ["x"], ["y"])], {"x": [1, 3]}, {"y": None})
    model.graph.output[0].CopyFrom(helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, [1, 3]))
    return model


def with_sequence_input() -> onnx.ModelProto:
    model = network([make_node("ConcatFromSequence", ["x"], ["y"], axis=0)], {}, {"y": [1, 3]})
    model.graph.input.append(helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [1, 3]))
    return model


def with_optional_input() -> onnx.ModelProto:
    model = network([make_node("OptionalGetElement", ["x"], ["y"])], {}, {"y": [1, 3]}, opset=18)
    inner = helper.make_tensor_type_proto(TensorProto.FLOAT, [1, 3])
    model.graph.input.append(helper.make_value_info("x", helper.make_optional_type_proto(inner)))
    return model


def with_opset(version: int) -> onnx.ModelProto:
    model = relu()
    model.opset_import[0].version = version
    return model


NEWEST = "expected at most"


def with_ir_version(version: int) -> onnx.ModelProto:
    model = relu()
    model.ir_version = version
    return model


def with_domain(domain: str, version: int) -> onnx.ModelProto:
    model = relu()
    model.opset_import.add(domain=domain, version=version)
    return model


def with_gelu(version: int) -> onnx.ModelProto:
    model = one_node("Gelu", ["x"], "com.microsoft")
    model.opset_import[1].version = version
    return model


def with_input_of_no_shape() -> onnx.ModelProto:
    model = relu()
    model.graph.input[0].type.tensor_type.ClearField("shape")
    return model


def with_input_twice() -> onnx.ModelProto:
    """Of unlike ranks, the second open."""
    model = relu()
    model.graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, "k", 3]))
    return model


def with_branch_of_no_type() -> onnx.ModelProto:
    branches = [
        helper.make_graph([make_node(op, ["x"], ["b"])], op, [], [helper.make_tensor_value_info("b", element, [1, 3])])
        for op, element in (("Relu", TensorProto.FLOAT), ("Neg", 127))
    ]
    choice = make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])
    nodes = [make_node("ReduceSum", ["x"], ["s"], keepdims=0), make_node("Greater", ["s", "zero"], ["c"]), choice]
    return network(nodes, {"x": [1, 3]}, {"y": [1, 3]}, {"zero": np.zeros((), np.float32)})


def normalised(filters: int, weight_dims: Sequence[int] = (4, 2, 1, 1)) -> onnx.ModelProto:
    """A Conv of 4 filters, by default, with a normalisation of `filters` behind it."""
    nodes = [make_node("Conv", ["x", "w"], ["c"]), make_node("BatchNormalization", ["c", "s", "s", "s", "s"], ["y"])]
    weights = {"w": weight(*weight_dims), "s": np.ones(filters, np.float32)}
    return network(nodes, {"x": [1, "channels", 5, 5]}, {"y": None}, weights)


def with_sparse_weight(dims: Sequence[int], place: int = 0) -> onnx.ModelProto:
    model = relu()
    values = numpy_helper.from_array(np.ones(1, np.float32), "thin")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([place]), "at"), dims)
    model.graph.sparse_initializer.append(sparse)
    return model


def with_sparse_weight_elsewhere() -> onnx.ModelProto:
    model = with_sparse_weight([4])
    values = model.graph.sparse_initializer[0].values
    values.ClearField("raw_data")
    values.data_location = TensorProto.EXTERNAL
    values.external_data.add(key="location", value="/etc/passwd")
    return model


def with_short_weight() -> onnx.ModelProto:
    model = product()
    model.graph.initializer[0].raw_data = b"\0" * 12
    return model


def unsorted_operators() -> onnx.ModelProto:
    return network([make_node("Relu", ["r"], ["y"]), make_node("Relu", ["x"], ["r"])], {"x": [1, 3]}, {"y": [1, 3]})


def one_node(op: str, inputs: list[str], domain: str = "") -> onnx.ModelProto:
    return network([make_node(op, inputs, ["y"], "act", domain=domain)], {"x": [1, 3]}, {"y": [1, "n"]})


def of_type(element: int) -> onnx.ModelProto:
    return network([make_node("Identity", ["x"], ["y"])], {"x": [1, 3]}, {"y": [1, 3]}, element=element)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        pytest.param(one_node("Relu", ["x"], "acme.ops"), ["'acme.ops'", "'act'", "com.microsoft"], id="domain"),
        pytest.param(one_node("Reluu", ["x"]), ["Reluu", "unknown", "opset 17"], id="unknown-operator"),
        pytest.param(one_node("Gelu", ["x"]), ["Gelu", "unknown", "opset 17"], id="operator-of-a-later-opset"),
        pytest.param(with_sequence_output(), ["'y'", "type sequence"], id="sequence-output"),
        pytest.param(with_sequence_input(), ["'x'", "type sequence"], id="sequence-input"),
        pytest.param(with_optional_input(), ["'x'", "type optional"], id="optional-input"),
        pytest.param(of_type(TensorProto.STRING), ["'x'", "STRING", "FP32"], id="string"),
        pytest.param(of_type(TensorProto.BFLOAT16), ["'x'", "BFLOAT16"], id="bfloat16"),
        pytest.param(of_type(TensorProto.COMPLEX64), ["'x'", "COMPLEX64"], id="complex"),
        pytest.param(with_opset(6), ["opset version 6", "expected 7 or newer"], id="old-opset"),
        pytest.param(with_opset(999), ["opset version 999", NEWEST], id="opset-of-the-future"),
        pytest.param(with_ir_version(999), ["IR version 999", NEWEST], id="ir-version-of-the-future"),
        pytest.param(with_gelu(9), ["opset version of com.microsoft 9", f"{NEWEST} 1, the newest"], id="other-opset"),
        pytest.param(with_domain("ai.onnx", 18), ["2 opset versions"], id="two-opsets"),
        pytest.param(relu((1, 0)), ["'x' has size 0 in dimension 1", "expected 1 or more"], id="size-0"),
        pytest.param(relu((0, 3)), ["'x' has size 0 in dimension 0", "expected 1 or more"], id="batch-0"),
        pytest.param(with_branch_of_no_type(), ["not a valid ONNX model", "127"], id="no-such-type"),
        pytest.param(normalised(4, ()), ["'channels'"], id="scalar-filter"),
        pytest.param(with_input_twice(), ["input 'x' is listed 2 times"], id="input-twice"),
        pytest.param(with_sparse_weight([4], place=4), ["'thin'", "its shape"], id="sparse-beyond"),
        pytest.param(with_sparse_weight([4], place=-1), ["'thin'", "its shape"], id="sparse-before"),
        pytest.param(with_sparse_weight([1 << 40] * 2), ["'thin'", "at most"], id="sparse-vast"),
        pytest.param(with_sparse_weight_elsewhere(), ["'thin'", "in the file"], id="sparse-elsewhere"),
        pytest.param(with_short_weight(), ["'w'", "expected 2048 bytes, not 12"], id="short-weight"),
        pytest.param(with_input_of_no_shape(), ["'x'", "no shape"], id="no-rank"),
        pytest.param(one_node("Relu", ["nowhere"]), ["not a valid ONNX model", "nowhere"], id="dangling"),
        pytest.param(unsorted_operators(), ["not a valid ONNX model", "sorted", "Relu", "previous nodes"], id="order"),
        pytest.param(one_node("NonZero", ["x"]), ["not a valid ONNX model"], id="contradicting-types"),
        pytest.param(
            network([make_node("Constant", [], ["y"], value_float=1.0)], {}, {"y": []}), ["no input"], id="no-input"
        ),
        pytest.param(
            network([make_node("Constant", [], ["y"], value_float=1.0)], {"x": [1]}, {"y": []}),
            ["no output depends"],
            id="input-not-used",
        ),
        pytest.param(
            relu(("N", "C"), ("N", "C")),
            ["input 'x' [N, C]", "dimension 1 ('C')", "--shape x=1x16 would run"],
            id="symbolic-dimension",
        ),
        pytest.param(
            relu((1, None), (1, None)),
            ["input 'x' [1, ?]", "dimension 1 ('x:1')", "--shape x=1x16 would run"],
            id="unnamed-dimension",
        ),
        pytest.param(
            one_node("Mystery", ["x"], "com.microsoft"),
            ["engine cannot run", "Mystery"],
            id="not-in-the-engine",
        ),
    ],
)
def test_bad_model_is_refused(model: onnx.ModelProto, words: list[str], tmp_path: Path) -> None:
    message = refusal(write(model, tmp_path))
    for word in words:
        assert word in message


def test_a_normalisation_of_other_than_the_filters_is_refused(tmp_path: Path) -> None:
    message = refusal(write(normalised(3), tmp_path), {"channels": 2})
    assert "not a valid ONNX model" in message or "the engine cannot" in message


def test_the_newest_versions_that_are_named_are_taken(tmp_path: Path) -> None:
    """By the reader, and then by the engine; one more by neither."""

    def newest(model: onnx.ModelProto) -> int:
        message = refusal(write(model, tmp_path))
        assert f"the newest that ONNX Runtime {importlib.metadata.version('onnxruntime')} takes" in message
        return int(message.partition(NEWEST)[2].split(",")[0])

    for make, version in ((with_opset, newest(with_opset(999))), (with_ir_version, newest(with_ir_version(999)))):
        read = read_model(write(make(version), tmp_path))
        np.testing.assert_array_equal(run(read.proto, {"x": np.array([[-1, 0, 2]], np.float32)}), [[[0, 0, 2]]])
        assert newest(make(version + 1)) == version


@pytest.mark.parametrize("parts", [(2, 3), (3, 3), ()])
def test_a_constant_sequence_is_left_as_it_is(parts: tuple[int, ...], tmp_path: Path) -> None:
    """Of unlike tensors, of tensors that would make an array together, and of none."""
    made = make_node("SplitToSequence", ["k", "parts"], ["all"]) if parts else make_node("SequenceEmpty", [], ["all"])
    nodes = [
        made,
        make_node("SequenceInsert", ["all", "x"], ["more"]),
        make_node("ConcatFromSequence", ["more"], ["y"], axis=0),
    ]
    weights = {"k": weight(sum(parts)), "parts": np.array(parts, np.int64)}
    model = network(nodes, {"x": [2]}, {"y": [sum(parts) + 2]}, weights)
    read = read_model(write(model, tmp_path))
    assert {"all", "more"} <= read.graph.tensors.keys()
    np.testing.assert_array_equal(run(read.proto, {"x": weight(2)}), run(model, {"x": weight(2)}))


@pytest.mark.parametrize("domain", ["ai.onnx.ml", "ai.onnx.training", "acme.ops"])
def test_an_import_that_no_operator_needs_hinders_nobody(domain: str, tmp_path: Path) -> None:
    read = read_model(write(with_domain(domain, 99), tmp_path))
    run(read.proto, {"x": np.zeros((1, 3), np.float32)})


@pytest.mark.parametrize(
    ("dims", "words"),
    [
        ({"M": 2}, ["--dim M=2", "expected one of N, C"]),
        ({"C": 0}, ["--dim C=0", "expected 1 to 2147483647"]),
        ({"C": 2**80}, ["--dim C=", "expected 1 to 2147483647"]),
        ({"N": 2}, ["'C'", "--shape x=2x16 would run"]),
    ],
)
def test_bad_dims_are_refused(dims: dict[str, int], words: list[str], tmp_path: Path) -> None:
    message = refusal(write(relu(("N", "C"), ("N", "C")), tmp_path), dims)
    assert [word for word in words if word not in message] == []


@pytest.mark.parametrize(
    ("dims", "words"),
    [
        ({"W": 2**31 - 1}, ["its inputs", "N = 1, W = 2147483647", "this host's memory"]),
        ({"W": 2**20}, ["tensor 'a'", "W = 1048576", "this host's memory"]),
    ],
)
def test_sizes_that_cannot_fit_the_host_are_refused_before_anything_is_made_of_them(
    dims: dict[str, int], words: list[str], tmp_path: Path
) -> None:
    nodes = [make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1]), make_node("MatMul", ["x", "t"], ["a"])]
    path = write(network(nodes, {"x": ["N", "W", 64]}, {"a": ["N", "W", "W"]}), tmp_path)
    with raised(BadInput, Error.WRONG_SIZES) as caught:
        read_model(path, InputSizes(dims))
    assert [word for word in words if word not in str(caught.value)] == []


def test_sizes_that_contradict_a_model_are_wrong_sizes(tmp_path: Path) -> None:
    nodes = [make_node("MatMul", ["x", "w"], ["y"])]
    path = write(network(nodes, {"x": ["N", "C"]}, {"y": ["N", 4]}, {"w": weight(17, 4)}), tmp_path)
    with raised(BadInput, Error.WRONG_SIZES, match="N = 1, C = 16"):
        read_model(path, InputSizes({"C": 16}))


def test_dims_for_a_model_without_unknown_dimensions_are_refused(tmp_path: Path) -> None:
    assert "expected none" in refusal(write(relu(), tmp_path), {"N": 2})


@pytest.mark.parametrize(
    ("shape", "dims", "expected"),
    [
        (("N", 3), {}, (1, 3)),
        ((None, 3), {}, (1, 3)),
        (("N", 3), {"N": 4}, (4, 3)),
        (("N", "C"), {"C": 5}, (1, 5)),
        ((1, None), {"x:1": 6}, (1, 6)),
    ],
)
def test_unknown_dimensions_are_set(shape: Dims, dims: dict[str, int], expected: tuple[int], tmp_path: Path) -> None:
    model = read_model(write(relu(shape, shape), tmp_path), InputSizes(dims))
    assert model.graph.inputs == (Tensor("x", expected, "FP32"),)
    assert model.graph.outputs == (Tensor("y", expected, "FP32"),)


@pytest.mark.parametrize(
    ("shapes", "dims", "expected"),
    [
        ({"x": (1, 3, 48, 320)}, {}, (1, 3, 48, 320)),
        ({"x": (2, 3, 48, 320)}, {"N": 2}, (2, 3, 48, 320)),
        ({"x": (1, 3, 8, 9)}, {"W": 9}, (1, 3, 8, 9)),
    ],
)
def test_a_whole_shape_is_set(
    shapes: dict[str, tuple[int, ...]], dims: dict[str, int], expected: tuple[int, ...], tmp_path: Path
) -> None:
    path = write(relu(("N", 3, None, "W"), ("N", 3, None, "W")), tmp_path)
    assert read_model(path, InputSizes(dims, shapes)).graph.outputs == (Tensor("y", expected, "FP32"),)


def test_an_input_without_any_shape_gets_the_one_that_is_given(tmp_path: Path) -> None:
    path = write(with_input_of_no_shape(), tmp_path)
    assert read_model(path, InputSizes({}, {"x": (1, 3)})).graph.inputs == (Tensor("x", (1, 3), "FP32"),)


@pytest.mark.parametrize(
    ("shapes", "dims", "words"),
    [
        ({"z": (1, 3)}, {}, ["--shape z=1x3", "no such input", "'x'"]),
        ({"x": (1, 3)}, {}, ["--shape x=1x3: 2 sizes", "expected 4: [N, 3, ?, W]"]),
        ({"x": (1, 4, 8, 8)}, {}, ["dimension 1 is 3 in the model"]),
        ({"x": (1, 3, 8, 8)}, {"W": 9}, ["dimension 3 is 8, but --dim W=9 says 9 for 'W'"]),
        ({"x": (1, 3, 0, 8)}, {}, ["size 0 in dimension 2"]),
    ],
)
def test_bad_shapes_are_refused(
    shapes: dict[str, tuple[int, ...]], dims: dict[str, int], words: list[str], tmp_path: Path
) -> None:
    path = write(relu(("N", 3, None, "W"), ("N", 3, None, "W")), tmp_path)
    with pytest.raises(BadInput) as raised:
        read_model(path, InputSizes(dims, shapes))
    message = str(raised.value)
    assert len(message.splitlines()) == 1
    assert [word for word in words if word not in message] == []


def test_what_exporters_write_for_an_unknown_size_is_no_name(tmp_path: Path) -> None:
    """Both dimensions are called `?`: they are two, and one option does not set both."""
    path = write(relu((1, 3, "?", "?"), (1, 3, "?", "?")), tmp_path)
    message = refusal(path)
    assert "input 'x' [1, 3, ?, ?]: dimensions 2 ('x:2'), 3 ('x:3')" in message
    assert read_model(path, InputSizes({"x:2": 4, "x:3": 5})).graph.inputs[0].shape == (1, 3, 4, 5)


def test_shapes_that_the_file_states_wrongly_are_found_anew(tmp_path: Path) -> None:
    assert read_model(write(relu(y=(1, 4)), tmp_path)).graph.outputs == (Tensor("y", (1, 3), "FP32"),)


# External data


def external(folder: Path, **changes: str) -> Path:
    """The product's model with its weight in `w.bin`; `changes` go to what the model says about it."""
    model = product()
    tensor = model.graph.initializer[0]
    (folder / "w.bin").write_bytes(b"head" + tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in ({"location": "w.bin", "offset": "4", "length": "2048"} | changes).items():
        tensor.external_data.add(key=key, value=value)
    (folder / "tiny.onnx").write_bytes(model.SerializeToString())
    return folder / "tiny.onnx"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"location": "/etc/hostname"}, "outside the model's folder"),
        ({"location": "../w.bin"}, "outside the model's folder"),
        ({"location": "sub/../w.bin"}, "outside the model's folder"),
        ({"location": "..\\w.bin"}, "outside the model's folder"),
        ({"location": "link.bin"}, "outside the model's folder"),
        ({"location": "folder_link/w.bin"}, "outside the model's folder"),
        ({"location": "other.bin"}, "missing"),
        ({"location": ""}, "missing"),
        ({"offset": "8"}, "in external data 'w.bin'"),
        ({"offset": "-4"}, "in external data 'w.bin'"),
        ({"offset": "four"}, "in external data 'w.bin'"),
        ({"length": "12"}, "in external data 'w.bin'"),
    ],
)
def test_bad_external_data_is_refused(changes: dict[str, str], words: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(b"head" + bytes(2048))
    (folder / "link.bin").symlink_to(tmp_path / "w.bin")
    (folder / "folder_link").symlink_to(tmp_path)
    message = refusal(external(folder, **changes))
    assert words in message
    assert "tiny.onnx" not in message  # once, at its start
    assert "'w'" in message


@pytest.mark.parametrize("location", ["w\0.bin", "w" * 300, "w/" * 3000, "loop.bin"])
def test_external_data_of_no_possible_name_is_refused(location: str, tmp_path: Path) -> None:
    (tmp_path / "loop.bin").symlink_to("loop.bin")
    with raised(BadInput, Error.EXTERNAL_DATA, match="'w'") as error:
        read_model(external(tmp_path, location=location))
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("denied", ["is_file", "open"])
def test_external_data_that_may_not_be_read_is_refused(
    denied: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = external(tmp_path)
    deny(monkeypatch, denied, path.parent / "w.bin")
    with raised(BadInput, Error.EXTERNAL_DATA, match="'w'") as error:
        read_model(path)
    assert os.strerror(errno.EACCES) in str(error.value)


def test_external_data_is_read_and_part_of_the_key(tmp_path: Path) -> None:
    path = external(tmp_path)
    first = read_model(path)
    frame = {"x": weight(1, 16, seed=3)}
    np.testing.assert_allclose(run(first.proto, frame)[0], run(product(), frame)[0], rtol=1e-4)
    (tmp_path / "w.bin").write_bytes(b"head" + bytes(2048))
    assert read_model(path).key != first.key


# What comes through


def test_key_depends_on_file_and_dims(tmp_path: Path) -> None:
    path = write(relu(("N", "C"), ("N", "C")), tmp_path)
    given: list[dict[str, int]] = [{"C": 3}, {"C": 4}, {"N": 1, "C": 3}, {"C": 3, "N": 1}]
    keys = [read_model(path, InputSizes(dims)).key for dims in given]
    assert keys[2] == keys[3]
    write(relu(("N", "C"), ("N", "D")), tmp_path)
    assert len({*keys, read_model(path, InputSizes({"C": 3})).key}) == 4


def test_saved_model_is_the_same_and_its_graph_needs_no_weights(tmp_path: Path) -> None:
    model = read_model(write(product(), tmp_path))
    folder = tmp_path / "clean"
    folder.mkdir()
    model.save(folder)
    frame = {"x": weight(1, 16, seed=3)}
    np.testing.assert_array_equal(run(onnx.load(folder / "clean.onnx"), frame)[0], run(model.proto, frame)[0])
    (folder / "clean.bin").unlink()
    assert read_clean(folder) == model.graph


def test_graph_holds_what_planning_needs(tmp_path: Path) -> None:
    nodes = [
        make_node("Conv", ["x", "w"], ["c"], "conv", strides=[2, 2], group=2),
        make_node("Clip", ["c", "", "top"], ["y"], "clip"),
    ]
    weights = {"w": weight(4, 1, 1, 1), "top": np.float32(6.0)}
    model = network(nodes, {"x": ["N", 2, 4, 4]}, {"y": ["N", 4, 2, 2]}, {k: np.asarray(v) for k, v in weights.items()})
    graph = read_model(write(model, tmp_path)).graph
    conv, clip = graph.operators
    assert (graph.name, conv.name, conv.attributes) == ("tiny", "conv", {"strides": (2, 2), "group": 2})
    assert clip.inputs == ("c", "", "top")
    assert graph.tensors == {
        "x": Tensor("x", (1, 2, 4, 4), "FP32"),
        "c": Tensor("c", (1, 4, 2, 2), "FP32"),
        "y": Tensor("y", (1, 4, 2, 2), "FP32"),
    }
    assert graph.constants == {"w": Tensor("w", (4, 1, 1, 1), "FP32"), "top": Tensor("top", (), "FP32")}


def test_default_domain_may_be_spelled_out(tmp_path: Path) -> None:
    model = relu()
    model.graph.node[0].domain = model.opset_import[0].domain = "ai.onnx"
    assert [operator.domain for operator in read_model(write(model, tmp_path)).graph.operators] == [""]


def test_an_opset_may_be_stated_twice_but_not_in_two_versions(tmp_path: Path) -> None:
    """As tools write it that merge graphs, and as ONNX Runtime takes it."""
    model = relu()
    version = model.opset_import[0].version
    model.opset_import.append(helper.make_opsetid("ai.onnx", version))
    read_model(write(model, tmp_path))
    model.opset_import.append(helper.make_opsetid("", version - 1))
    assert "2 opset versions" in refusal(write(model, tmp_path))


def test_functions_that_stand_for_more_than_memory_holds_are_refused(tmp_path: Path) -> None:
    """Sixty that each call the next one twice."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]

    def function(number: int) -> onnx.FunctionProto:
        called = {"op_type": f"f{number + 1}", "domain": "own"} if number < 59 else {"op_type": "Relu"}
        body = [make_node(**called, inputs=[a], outputs=[b]) for a, b in (("x", "t"), ("t", "y"))]
        return helper.make_function("own", f"f{number}", ["x"], ["y"], body, imports)

    model = network([make_node("f0", ["x"], ["y"], domain="own")], {"x": [1]}, {"y": [1]})
    model.opset_import.append(imports[1])
    model.functions.extend(map(function, range(60)))
    assert "over 100000 operators; expected fewer" in refusal(write(model, tmp_path))
    last = list(model.functions)[57:]
    del model.functions[:]
    model.functions.extend(last)
    model.graph.node[0].op_type = "f57"
    assert len(read_model(write(model, tmp_path)).graph.operators) == 8


def test_functions_that_call_themselves_are_refused(tmp_path: Path) -> None:
    """Each call leaves out another attribute, which would be a function of its own: 2 ** 30 of them."""
    names = [f"a{number}" for number in range(30)]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    body = [make_node("f", ["x"], ["y"], domain="own") for _ in names]
    for node, left_out in zip(body, names, strict=True):
        for name in names:
            if name != left_out:
                node.attribute.add(name=name, ref_attr_name=name, type=onnx.AttributeProto.FLOAT)
    model = network([make_node("f", ["x"], ["y"], domain="own", a0=0.5)], {"x": [1]}, {"y": [1]})
    model.opset_import.append(imports[1])
    model.functions.append(helper.make_function("own", "f", ["x"], ["y"], body, imports, names))
    assert "call themselves" in refusal(write(model, tmp_path))


def with_function(op: str, version: int) -> onnx.ModelProto:
    """Of opset 17, with a function of another one."""
    body, imports = [make_node(op, ["i"], ["o"])], [helper.make_opsetid("", version)]
    model = network([make_node("f", ["x"], ["y"], domain="own")], {"x": [2, 3, 4]}, {"y": [2, 3, 4]})
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.functions.append(helper.make_function("own", "f", ["i"], ["o"], body, imports))
    return model


@pytest.mark.parametrize(("op", "version"), [("Softmax", 12), ("Gelu", 20), ("Reluu", 13)])
def test_a_function_that_means_something_else_in_the_models_opset_is_refused(
    op: str, version: int, tmp_path: Path
) -> None:
    with raised(BadInput, Error.MODEL_UNSUPPORTED, match=rf"\bf .*'own'.*\b{version}\b.*\b17\b.*\b{op}\b"):
        read_model(write(with_function(op, version), tmp_path))


def test_a_function_of_a_future_opset_hinders_only_who_calls_it(tmp_path: Path) -> None:
    model = with_function("Relu", 999)
    with raised(BadInput, Error.MODEL_UNSUPPORTED, match=r"'own'.*\b999\b.*\b17\b"):
        read_model(write(model, tmp_path))
    model.graph.node[0].CopyFrom(make_node("Relu", ["x"], ["y"]))
    assert len(read_model(write(model, tmp_path)).graph.operators) == 1


def test_a_choice_whose_branches_do_not_make_its_outputs_is_refused(tmp_path: Path) -> None:
    value = helper.make_tensor_value_info("own", TensorProto.FLOAT, [1])
    branch = helper.make_graph([make_node("Relu", ["x"], ["own"])], "branch", [], [value])
    node = make_node("If", ["flag"], ["y", "z"], "choice", then_branch=branch, else_branch=branch)
    model = network([node], {"x": [1]}, {"y": [1]}, {"flag": np.array(True)})
    assert "If ('choice'): a branch has 1 outputs; expected 2" in refusal(write(model, tmp_path))
