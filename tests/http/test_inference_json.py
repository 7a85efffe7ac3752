"""The JSON of requests and answers: what is read, what is refused, and what tensors become in it."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import replace
from typing import Any, cast
from unittest.mock import Mock

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shisha_rt.http.app_state import Caller
from shisha_rt.http.inference.answer import answer_parts
from shisha_rt.http.inference.inferences import Inferences
from shisha_rt.http.inference.request import (
    FilePiece,
    InferenceAsked,
    InputTensor,
    array_of,
    longest_body,
    raw_request,
    read_header,
)
from shisha_rt.model.graph import Tensor
from shisha_rt.model.input_sizes import MOST_INPUTS
from shisha_rt.protocol.access import Permission
from shisha_rt.protocol.exceptions import InvalidArgument
from shisha_rt.protocol.frame_tensors import Answer
from shisha_rt.protocol.limits import MAX_DEADLINE_MS, MAX_NAME_LENGTH
from shisha_rt.protocol.signature import Signature
from shisha_rt.tensors import NAME_OF, NUMPY_OF

SIGNATURE = Signature(
    "m",
    (Tensor("a", (2, 3), "FP32"), Tensor("b", (2,), "INT8"), Tensor("h", (2,), "FP16")),
    (Tensor("y", (2, 2), "FP32"), Tensor("n", (4,), "UINT8")),
)
ONE = Signature("one", (Tensor("x", (1, 2), "FP32"),), (Tensor("y", (1, 2), "FP32"),))
BYTES = {
    "a": {"name": "a", "shape": [2, 3], "datatype": "FP32", "parameters": {"binary_data_size": 24}},
    "b": {"name": "b", "shape": [2], "datatype": "INT8", "parameters": {"binary_data_size": 2}},
    "h": {"name": "h", "shape": [2], "datatype": "FP16", "parameters": {"binary_data_size": 4}},
}


def header(**changes: Any) -> bytes:
    return json.dumps({"inputs": list(BYTES.values()), **changes}).encode()


def with_input(which: str, /, **changes: Any) -> bytes:
    return header(inputs=[*({**BYTES, which: {**BYTES[which], **changes}}.values())])


def test_null_is_as_good_as_a_parameter_that_is_left_out() -> None:
    parameters = dict.fromkeys(("stream", "sequence", "deadline_ms", "timeout", "priority", "sequence_id"))
    asked = read_header(header(parameters=parameters), SIGNATURE)
    assert (asked.parameters.stream_name, asked.parameters.deadline_s) == (None, None)


def test_a_request_with_all_that_there_is() -> None:
    piece = {"shared_memory_region": "r", "shared_memory_byte_size": 16, "shared_memory_offset": 8}
    asked = read_header(
        header(
            id="7",
            parameters={"stream": "s", "sequence": 3, "deadline_ms": 250, "priority": 1, "unknown": [1]},
            outputs=[
                {"name": "n", "parameters": {"classification": 2, "binary_data": True}},
                {"name": "y", "parameters": {**piece, "binary_data": False}},
            ],
            extra=None,
        ),
        SIGNATURE,
    )
    assert (asked.id, asked.parameters.stream_name, asked.parameters.sequence) == ("7", "s", 3)
    assert asked.parameters.deadline_s == 0.25
    assert asked.binary_bytes == 30
    assert [(output.name, output.binary, output.classes) for output in asked.outputs] == [
        ("n", True, 2),
        ("y", False, 0),
    ]
    assert asked.outputs[1].region == FilePiece("r", 8, 16)
    outputs = [{"name": "n"}, {"name": "y", "parameters": {"binary_data": False}}]
    asked = read_header(header(parameters={"binary_data_output": True}, outputs=outputs), SIGNATURE)
    assert [output.binary for output in asked.outputs] == [True, False]


def test_as_many_inputs_as_a_model_may_have() -> None:
    names = [f"input_{number}" for number in range(MOST_INPUTS)]
    signature = Signature("m", tuple(Tensor(name, (2,), "FP32") for name in names), SIGNATURE.outputs)
    inputs = [{"name": name, "shape": [2], "datatype": "FP32", "data": [1, 2]} for name in names]
    assert len(read_header(header(inputs=inputs), signature).inputs) == MOST_INPUTS


def test_what_triton_calls_otherwise() -> None:
    for parameters, expected in [
        ({"timeout": 1_500_000, "sequence_id": 9, "sequence_start": True}, (1.5, "sequence-9")),
        ({"sequence_id": 2**64 - 1}, (None, f"sequence-{2**64 - 1}")),
        ({"timeout": 10**18, "sequence_id": "cam"}, (86_400.0, "sequence-cam")),
        ({"timeout": 0, "sequence_id": 0, "deadline_ms": 0}, (0.0, None)),
        ({"stream": "s", "sequence_id": 9}, (None, "s")),
    ]:
        read = read_header(header(parameters=parameters), SIGNATURE).parameters
        assert (read.deadline_s, read.stream_name) == expected


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "JSON"),
        (b"[]", "object"),
        (b"\xff", "JSON"),
        (b'{"inputs":' + b"[" * 100_000, "JSON"),
        (header(inputs=[]), "length"),
        (header(inputs=[BYTES["a"]]), "'b' is missing"),
        (header(inputs=[*BYTES.values(), BYTES["a"]]), "given twice"),
        (with_input("a", name="c"), "no input 'c'"),
        (with_input("a", datatype="FP64"), "expected FP32"),
        (with_input("a", shape=[3, 2]), "expected [2, 3]"),
        (with_input("a", shape=[-1, 3]), ">= 0"),
        (with_input("a", shape=[2] * 33), "length"),
        (with_input("a", shape=[2.0, 3.0]), "int"),
        (with_input("a", data=[1]), "expected one of data"),
        (with_input("a", parameters={}), "expected one of data"),
        (with_input("a", parameters={"binary_data_size": 23}), "expected 24"),
        (with_input("a", parameters={"binary_data_size": 2**70}), "int"),
        (with_input("a", parameters={"shared_memory_region": "r"}), "shared_memory_byte_size is missing"),
        (with_input("a", parameters={"shared_memory_region": "r", "shared_memory_byte_size": 8}), "expected 24"),
        (with_input("h", parameters={}, data=[1, 2]), "FP16"),
        (header(outputs=[{"name": "z"}]), "no output 'z'"),
        (header(outputs=[{"name": "y"}, {"name": "y"}]), "twice"),
        (header(parameters={"deadline_ms": -1}), ">= 0"),
        (header(parameters={"stream": ""}), "length"),
        (header(parameters={"sequence": 2**64}), "<= 9223372036854775807"),
        (header(id="x" * 257), "length"),
    ],
)
def test_what_is_refused_is_told_in_one_line(data: bytes, says: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_header(data, SIGNATURE)
    assert says.lower() in caught.value.message.lower()
    assert "\n" not in caught.value.message


@settings(max_examples=30, deadline=None)
@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text() | st.integers(), st.lists, max_leaves=8))
def test_strange_values_end_as_a_refusal(value: object) -> None:
    for field in ("name", "shape", "datatype", "parameters", "data"):
        try:
            asked = read_header(with_input("b", **{"parameters": {}, "data": [1, 2], field: value}), SIGNATURE)
            array_of(asked.inputs[1])
        except InvalidArgument:
            continue


def values(datatype: str) -> st.SearchStrategy[list[Any]]:
    kind = NUMPY_OF[datatype]
    if kind.kind == "b":
        each: st.SearchStrategy[Any] = st.booleans()
    elif kind.kind == "f":
        each = st.floats(allow_nan=False, allow_infinity=False, width=32 if kind.itemsize == 4 else 64)
    else:
        each = st.integers(int(np.iinfo(kind).min), int(np.iinfo(kind).max))
    return st.lists(each, min_size=12, max_size=12)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([name for name in NUMPY_OF if name != "FP16"]), st.data())
def test_json_there_and_back_is_exact(datatype: str, data: st.DataObject) -> None:
    array = np.array(data.draw(values(datatype)), NUMPY_OF[datatype]).reshape(2, 3, 2)
    for written in (array.tolist(), array.reshape(-1).tolist()):
        given_ = InputTensor("x", (2, 3, 2), datatype, data=msgspec.Raw(json.dumps(written)))
        decoded = array_of(given_)
        assert decoded.dtype == array.dtype
        assert decoded.tobytes() == array.tobytes()
    answer, raw = json_answer(array, binary=False)
    assert raw == b""
    assert np.array(answer["data"], array.dtype).reshape(answer["shape"]).tobytes() == array.tobytes()


@pytest.mark.parametrize("datatype", [name for name in NUMPY_OF if NUMPY_OF[name].kind in "iu"])
def test_integers_may_be_the_least_and_the_largest(datatype: str) -> None:
    bounds = np.iinfo(NUMPY_OF[datatype])
    values = [bounds.min, 0, bounds.max]
    assert array_of(InputTensor("x", (3,), datatype, data=msgspec.Raw(json.dumps(values)))).tolist() == values


@pytest.mark.parametrize(
    ("datatype", "data"),
    [
        ("FP32", "[1, 2, NaN]"),
        ("FP32", "[1, 2, null]"),
        ("FP32", '[1, 2, "3"]'),
        ("FP32", "[1, 2, 1e39]"),
        ("FP64", "[1, 2, 1e999]"),
        ("FP32", "[1, 2]"),
        ("FP32", "[1, 2, 3, 4]"),
        ("FP32", "[[1, 2], 3]"),
        ("FP32", "[[1], [2], [3]]"),
        ("FP32", "3"),
        ("FP32", "{}"),
        ("UINT8", "[1, 2, 256]"),
        ("UINT8", "[1, 2, -1]"),
        ("INT8", "[1, 2, 128]"),
        ("INT32", "[1, 2, 3.5]"),
        ("INT64", f"[1, 2, {2**63}]"),
        ("UINT64", f"[1, 2, {2**64}]"),
        ("BOOL", "[true, false, 2]"),
    ],
)
def test_what_is_no_such_tensor(datatype: str, data: str) -> None:
    with pytest.raises(InvalidArgument, match="input 'x'"):
        array_of(InputTensor("x", (3,), datatype, data=msgspec.Raw(data)))


def test_rows_are_not_taken_for_columns() -> None:
    with pytest.raises(InvalidArgument, match="input 'x'"):
        array_of(InputTensor("x", (2, 3), "FP32", data=msgspec.Raw("[[1, 2], [3, 4], [5, 6]]")))


def test_a_body_that_is_one_tensor() -> None:
    assert raw_request(8, ONE).inputs[0].binary_bytes == 8
    assert raw_request(8, ONE).parameters.binary_data_output
    for size_bytes in (0, 7, 9, None):
        with pytest.raises(InvalidArgument, match="Content-Length: 8"):
            raw_request(size_bytes, ONE)
    with pytest.raises(InvalidArgument):
        raw_request(30, SIGNATURE)
    with pytest.raises(InvalidArgument):
        raw_request(8, replace(ONE, shapes=(ONE.inputs, (Tensor("x", (1, 3), "FP32"),))))
    several = replace(ONE, most_frames=3)
    assert [raw_request(8 * frames, several).inputs[0].shape for frames in (1, 2, 3)] == [(1, 2), (2, 2), (3, 2)]
    for size_bytes in (12, 32):
        with pytest.raises(InvalidArgument, match="Content-Length: 8, or up to 3 times"):
            raw_request(size_bytes, several)
    empty = replace(several, inputs=(Tensor("x", (1, 0), "FP32"),))
    assert raw_request(0, empty).inputs[0].shape == (1, 0)
    with pytest.raises(InvalidArgument):
        raw_request(8, empty)
    assert longest_body(SIGNATURE) > longest_body(ONE) > 8
    larger = replace(ONE, inputs=(Tensor("x", (1, 999), "FP32"),))
    assert longest_body(replace(ONE, shapes=(ONE.inputs, larger.inputs))) == longest_body(larger)


def test_a_request_of_as_many_frames_as_are_allowed_fits_in_json() -> None:
    several = Signature("m", (Tensor("x", (1, 50_000), "FP32"),), (Tensor("y", (1, 2), "FP32"),), most_frames=8)
    tensor = {"name": "x", "shape": [8, 50_000], "datatype": "FP32", "data": [0.12345678] * 400_000}
    body = json.dumps({"inputs": [tensor]}).encode()
    assert read_header(body, several).inputs[0].shape == (8, 50_000)
    assert len(body) <= longest_body(several)


@pytest.mark.parametrize(
    ("data", "where"), [("[1, 2, 128]", "$[2]"), (" [ 1, true, 2]", "$[1]"), ("[[1, 2, 128]]", "$[0][2]")]
)
def test_a_value_that_does_not_fit_is_told_by_its_place(data: str, where: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        array_of(InputTensor("x", (1, 3), "INT8", data=msgspec.Raw(data.encode())))
    assert where in str(refused.value)


def test_null_is_as_good_as_left_out() -> None:
    tensor = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2], "parameters": None}
    rest = {"id": None, "parameters": None}
    asked = read_header(asking(inputs=[tensor], outputs=None, **rest), ONE)
    assert (asked.id, asked.outputs, asked.parameters.stream_name) == ("", (), None)
    (wanted,) = read_header(asking(outputs=[{"name": "y", "parameters": None}]), ONE).outputs
    assert not wanted.binary


# --- what is sent on to the daemon ------------------------------------------------------------------------------------


class SentOn:
    """A client of the daemon, whose frames it keeps."""

    def __init__(self) -> None:
        self.frames: list[dict[str, Any]] = []

    async def signature(self) -> Signature:
        return ONE

    async def infer(self, _: object, **frame: Any) -> Answer:
        self.frames.append(frame)
        return Answer("1", {}, 1, 1, None, 0.0, 0.0)


def sent_on(user: str = "", **parameters: Any) -> dict[str, Any]:
    """What the daemon is told of a frame with these parameters."""
    client = SentOn()
    asked = read_header(asking(parameters=parameters), ONE)
    caller = Caller(user, Permission.CLIENT)
    asyncio.run(Inferences(cast("Any", Mock())).infer(cast("Any", client), asked, {}, caller, "http 1", None))
    (frame,) = client.frames
    return frame


@pytest.mark.parametrize("deadline_ms", [0, 60_000, MAX_DEADLINE_MS, None])
def test_the_daemon_is_waited_for_longer_than_a_frame_may_take(deadline_ms: float | None) -> None:
    frame = sent_on() if deadline_ms is None else sent_on(deadline_ms=deadline_ms)
    assert frame["deadline_s"] == (None if deadline_ms is None else deadline_ms / 1e3)
    assert frame["timeout_s"] > (MAX_DEADLINE_MS if deadline_ms is None else deadline_ms) / 1e3
    assert frame["timeout_s"] < math.inf


def test_a_stream_may_have_the_longest_name_whoevers_it_is() -> None:
    streams = [
        ("", "cam0"),
        *[("", length * "s") for length in (255, 256)],
        ("", 255 * "s" + "t"),
        *[(64 * "u", length * "s") for length in (191, 192, 256)],
        (63 * "u" + "v", 256 * "s"),
        ("\u00fc" * 64, 256 * "\u00fc"),
        *[("a", "b/c"), ("a/b", "c"), ("a%2Fb", "c"), ("", "a/b/c")],
    ]
    sent = [sent_on(user, stream=stream) for user, stream in streams]
    assert all(0 < len(frame["stream"]) <= MAX_NAME_LENGTH for frame in sent)
    assert len({frame["stream"] for frame in sent}) == len(streams)
    assert all(frame["caller"] == frame["stream"] for frame in sent)
    hashed = sent[2]["stream"]
    assert all(sent_on(user, stream=hashed)["stream"] != hashed for user in ("", hashed))


# --- answers ----------------------------------------------------------------------------------------------------------


def json_answer(array: npt.NDArray[Any], **wanted: Any) -> tuple[Any, bytes]:
    name = "y"
    signature = Signature("m", ONE.inputs, (Tensor(name, array.shape, NAME_OF[array.dtype]),))
    parameters = {"binary_data": wanted.pop("binary"), **wanted}
    asked = read_header(asking(outputs=[{"name": name, "parameters": parameters}]), signature)
    answer, raw = answer_of(asked, array)
    return answer["outputs"][0], raw


def asking(**changes: Any) -> bytes:
    tensor = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}
    return json.dumps({"inputs": [tensor], **changes}).encode()


def answer_of(
    asked: InferenceAsked,
    array: npt.NDArray[Any],
    sequence: int | None = None,
    epochs: tuple[int, ...] | None = None,
) -> tuple[Any, bytes]:
    answer = Answer("1", {"y": array}, 3, 41, sequence, 0.0123456, 0.0032005, epochs, "2")
    header, raw = answer_parts(Signature("m", (), ()), asked, answer)
    return json.loads(header), b"".join(raw)


def test_an_answer_says_what_made_it() -> None:
    array = np.arange(2, dtype=np.float32).reshape(1, 2)
    answer, raw = answer_of(read_header(asking(id="7", parameters={"binary_data_output": True}), ONE), array, 5)
    assert raw == array.tobytes()
    assert answer == {
        "model_name": "m",
        "model_version": "2",
        "id": "7",
        "parameters": {"epoch": 3, "frame": 41, "queue_ms": 12.346, "compute_ms": 3.2, "sequence": 5},
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}],
    }
    answer, raw = answer_of(read_header(asking(), ONE), array)
    assert (answer["outputs"][0]["data"], raw, "id" in answer) == ([0.0, 1.0], b"", False)
    place = {"shared_memory_region": "r", "shared_memory_byte_size": 8}
    answer, raw = answer_of(read_header(asking(outputs=[{"name": "y", "parameters": place}]), ONE), array)
    assert (answer["outputs"], raw) == ([{"name": "y", "datatype": "FP32", "shape": [1, 2]}], b"")
    answer, _ = answer_of(read_header(asking(), ONE), array, epochs=(2, 3))
    assert answer["parameters"]["epochs"] == [2, 3]


@pytest.mark.parametrize(
    ("array", "count", "classes", "shape"),
    [
        (np.array([[0.5, 2, 2], [3, -1, 0]], "f"), 2, ["2.000000:1", "2.000000:2", "3.000000:0", "0.000000:2"], [2, 2]),
        (np.array([7, 250, 3], np.uint8), 2, ["250:1", "7:0"], [2]),
        (np.array([False, True]), 5, ["1:1", "0:0"], [2]),
        (np.array([[[-3, 4]]], np.int64), 1, ["4:1"], [1, 1]),
        (np.empty((0, 4), np.float32), 3, [], [0, 3]),
    ],
)  # fmt: skip
def test_the_largest_as_triton_says_it(array: npt.NDArray[Any], count: int, classes: list[str], shape: Any) -> None:
    answer, raw = json_answer(array, binary=False, classification=count)
    assert (answer["datatype"], answer["data"], answer["shape"], raw) == ("BYTES", classes, shape, b"")
    answer, raw = json_answer(array, binary=True, classification=count)
    assert raw == b"".join(len(text).to_bytes(4, "little") + text.encode() for text in classes)
    assert answer["parameters"] == {"binary_data_size": len(raw)}


@pytest.mark.parametrize("array", [np.array([[np.nan, 1]], np.float32), np.array([np.inf]), np.ones(2, np.float16)])
def test_what_json_has_not_is_told(array: npt.NDArray[Any]) -> None:
    with pytest.raises(InvalidArgument, match="ask for bytes"):
        json_answer(array, binary=False)
    assert json_answer(array, binary=True)[1] == array.tobytes()
