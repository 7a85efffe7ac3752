"""Whatever comes in, `parse` returns a request or raises a `ShishaError` with one printable line."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shisha_rt.errors import Code, Error
from shisha_rt.model.graph import Graph, Tensor
from shisha_rt.model.input_sizes import MOST_INPUTS
from shisha_rt.plan.form import plan_of, read
from shisha_rt.plan.plan import Plan
from shisha_rt.protocol.exceptions import ShishaError
from shisha_rt.protocol.limits import Limits
from shisha_rt.protocol.operations import (
    CONTROL_OPS,
    OPERATIONS,
    Cancel,
    Events,
    NoArguments,
    OfModel,
    PlaceSet,
    PlanSet,
    TunerSet,
)
from shisha_rt.protocol.request import InferRequest, Lent, OpRequest, parse, split_envelope
from shisha_rt.protocol.signature import Signature

LIMITS = Limits(max_message_bytes=100_000, max_header_bytes=4096, max_parts=4)
SIGNATURE = Signature(
    "m",
    (Tensor("image", (1, 2), "FP32"), Tensor("mask", (3,), "BOOL")),
    (Tensor("scores", (4,), "FP32"), Tensor("box", (4,), "INT64")),
)
IMAGE = {"name": "image", "shape": [1, 2], "datatype": "FP32", "parameters": {"binary_data_size": 8}}
MASK = {"name": "mask", "shape": [3], "datatype": "BOOL", "parameters": {"binary_data_size": 3}}
INFER = {"op": "infer", "id": "7", "model_name": "m", "inputs": [IMAGE, MASK]}
RAW = (b"IIIIIIII", b"MMM")


def request_of(header: object, *raw: bytes) -> InferRequest | OpRequest:
    return parse([json.dumps(header).encode(), *raw], SIGNATURE, LIMITS)


def infer_of(raw: tuple[bytes, ...] = RAW, **changes: object) -> InferRequest:
    request = request_of({**INFER, **changes}, *raw)
    assert isinstance(request, InferRequest)
    return request


def arguments_of(op: str, **fields: object) -> object:
    request = request_of({"op": op, "id": "7", **fields})
    assert isinstance(request, OpRequest)
    assert request.op == op
    return request.arguments


def refusal(call: Callable[[], object]) -> ShishaError:
    with pytest.raises(ShishaError) as caught:
        call()
    error = caught.value
    assert error.message.isprintable()
    assert error.message.isascii()
    assert len(error.message) < 400
    return error


def test_a_frame() -> None:
    request = infer_of(parameters={"stream": "cam0", "sequence": 7, "deadline_ms": 200, "priority": 2})
    assert (request.id, request.stream, request.sequence, request.deadline_ms) == ("7", "cam0", 7, 200.0)
    assert request.priority == 2
    assert {name: bytes(raw) for name, raw in request.tensors.items()} == {"image": RAW[0], "mask": RAW[1]}
    assert request.outputs == ("scores", "box")
    assert request.size_bytes == 11


def test_a_frame_without_parameters_is_unordered_and_has_no_deadline() -> None:
    request = infer_of()
    assert (request.stream, request.sequence, request.deadline_ms) == (None, None, None)


def test_null_is_as_good_as_a_parameter_that_is_left_out() -> None:
    keys = ("stream", "sequence", "deadline_ms", "priority", "traceparent", "caller")
    assert infer_of(parameters=dict.fromkeys(keys)) == infer_of(parameters={})


def test_inputs_may_come_in_any_order_and_are_given_in_the_models() -> None:
    request = infer_of((RAW[1], RAW[0]), inputs=[MASK, IMAGE])
    assert [(name, bytes(raw)) for name, raw in request.tensors.items()] == [("image", RAW[0]), ("mask", RAW[1])]


def test_as_many_inputs_as_a_model_may_have() -> None:
    names = [f"input_{number}" for number in range(MOST_INPUTS)]
    signature = Signature("m", tuple(Tensor(name, (1, 4), "FP32") for name in names), SIGNATURE.outputs)
    inputs = [{**IMAGE, "name": name, "shape": [1, 4], "parameters": {"binary_data_size": 16}} for name in names]
    header = json.dumps({**INFER, "inputs": inputs}).encode()
    request = parse([header, *[bytes(16)] * MOST_INPUTS], signature, Limits())
    assert isinstance(request, InferRequest)
    assert len(request.tensors) == MOST_INPUTS


def test_the_raw_parts_are_not_copied() -> None:
    image = bytearray(8)
    request = parse([json.dumps(INFER).encode(), image, RAW[1]], SIGNATURE, LIMITS)
    assert isinstance(request, InferRequest)
    image[0] = 9
    assert request.tensors["image"][0] == 9


@pytest.mark.parametrize(
    ("requested", "answered"),
    [
        (None, ("scores", "box")),
        ([], ("scores", "box")),
        ([{"name": "box"}], ("box",)),
        ([{"name": "box", "parameters": {"binary_data": True}}, {"name": "scores"}], ("box", "scores")),
        (
            [{"name": "box", "parameters": None}, {"name": "scores", "parameters": {"binary_data": None}}],
            ("box", "scores"),
        ),
    ],
)
def test_requested_outputs(requested: object, answered: tuple[str, ...]) -> None:
    assert infer_of(outputs=requested).outputs == answered


def test_an_output_goes_to_memory_that_holds_it() -> None:
    def asking(size_bytes: int) -> InferRequest:
        place = {"shared_memory_region": "r", "shared_memory_byte_size": size_bytes, "shared_memory_offset": 8}
        return infer_of(outputs=[{"name": "scores", "parameters": place}])

    assert asking(16).lent_out == {"scores": Lent("r", 16, 8)}
    assert asking(17).lent_out == {"scores": Lent("r", 17, 8)}
    assert refusal(lambda: asking(15)).kind == Error.REGION_TOO_SMALL


def test_what_kserve_knows_and_we_do_not_is_tolerated() -> None:
    image = {**IMAGE, "parameters": {"binary_data_size": 8, "content_type": "np"}}
    request = infer_of(model_version="1", inputs=[image, MASK], parameters={"priority": 3}, outputs=None)
    assert request.stream is None


HUGE = 10**4000
BAD_FRAMES: list[tuple[str, dict[str, Any], Error]] = [
    ("model_name", {"model_name": "another"}, Error.UNKNOWN_MODEL),
    ("model_name", {"model_name": "an\nother\u2028" + "x" * 999}, Error.UNKNOWN_MODEL),
    ("model_name", {"model_name": None}, Error.MALFORMED_REQUEST),
    ("inputs", {"inputs": None}, Error.MALFORMED_REQUEST),
    ("inputs", {"inputs": {}}, Error.MALFORMED_REQUEST),
    ("2 raw parts for 0 inputs", {"inputs": []}, Error.MALFORMED_REQUEST),
    ("2 raw parts for 1 inputs", {"inputs": [IMAGE]}, Error.MALFORMED_REQUEST),
    ("2 raw parts for 3 inputs", {"inputs": [IMAGE, MASK, MASK]}, Error.MALFORMED_REQUEST),
    ("inputs[0]", {"inputs": [3, MASK]}, Error.MALFORMED_REQUEST),
    ("inputs[1]", {"inputs": [IMAGE, {**MASK, "name": "hat"}]}, Error.UNKNOWN_TENSOR),
    ("given twice", {"inputs": [IMAGE, IMAGE]}, Error.REPEATED_TENSOR),
    ("expected FP32", {"inputs": [{**IMAGE, "datatype": "FP64"}, MASK]}, Error.WRONG_DATATYPE),
    ("expected FP32", {"inputs": [{**IMAGE, "datatype": "fp32"}, MASK]}, Error.WRONG_DATATYPE),
    ("datatype", {"inputs": [{**IMAGE, "datatype": 32}, MASK]}, Error.MALFORMED_REQUEST),
    ("expected [1, 2]", {"inputs": [{**IMAGE, "shape": [2, 1]}, MASK]}, Error.WRONG_SHAPE),
    ("expected [1, 2]", {"inputs": [{**IMAGE, "shape": [2]}, MASK]}, Error.WRONG_SHAPE),
    ("expected [1, 2]", {"inputs": [{**IMAGE, "shape": [-1, -2]}, MASK]}, Error.WRONG_SHAPE),
    ("expected [1, 2]", {"inputs": [{**IMAGE, "shape": [HUGE // 10**3990, 2]}, MASK]}, Error.WRONG_SHAPE),
    ("expected [1, 2]", {"inputs": [{**IMAGE, "shape": []}, MASK]}, Error.WRONG_SHAPE),
    ("expected [1, 2]", {"inputs": [{**IMAGE, "shape": [1] * 900}, MASK]}, Error.WRONG_SHAPE),
    ("inputs[0].shape[0]", {"inputs": [{**IMAGE, "shape": [True, 2]}, MASK]}, Error.MALFORMED_REQUEST),
    ("inputs[0].shape[0]", {"inputs": [{**IMAGE, "shape": [1.5, 2]}, MASK]}, Error.MALFORMED_REQUEST),
    ("binary_data_size", {"inputs": [{**IMAGE, "parameters": {}}, MASK]}, Error.WRONG_SIZE),
    ("parameters", {"inputs": [{**IMAGE, "parameters": None}, MASK]}, Error.MALFORMED_REQUEST),
    ("expected 8", {"inputs": [{**IMAGE, "parameters": {"binary_data_size": 4}}, MASK]}, Error.WRONG_SIZE),
    (
        "expected 8",
        {"inputs": [{**tensor, "parameters": {"binary_data_size": 1}} for tensor in (IMAGE, MASK)]},
        Error.WRONG_SIZE,
    ),
    ("binary_data_size", {"inputs": [{**IMAGE, "parameters": {"binary_data_size": -8}}, MASK]}, Error.WRONG_SIZE),
    (
        "binary_data_size",
        {"inputs": [{**IMAGE, "parameters": {"binary_data_size": "8"}}, MASK]},
        Error.MALFORMED_REQUEST,
    ),
    ("parameters", {"parameters": []}, Error.MALFORMED_REQUEST),
    ("parameters.deadline_ms", {"parameters": {"deadline_ms": -1}}, Error.MALFORMED_REQUEST),
    ("parameters.deadline_ms", {"parameters": {"deadline_ms": 1e300}}, Error.MALFORMED_REQUEST),
    ("parameters.deadline_ms", {"parameters": {"deadline_ms": "soon"}}, Error.MALFORMED_REQUEST),
    ("parameters.deadline_ms", {"parameters": {"deadline_ms": True}}, Error.MALFORMED_REQUEST),
    ("parameters.priority", {"parameters": {"priority": 10}}, Error.MALFORMED_REQUEST),
    ("parameters.priority", {"parameters": {"priority": -1}}, Error.MALFORMED_REQUEST),
    ("parameters.priority", {"parameters": {"priority": 1.5}}, Error.MALFORMED_REQUEST),
    ("parameters.sequence", {"parameters": {"sequence": -1}}, Error.MALFORMED_REQUEST),
    ("parameters.sequence", {"parameters": {"sequence": 1.0}}, Error.MALFORMED_REQUEST),
    ("parameters.sequence", {"parameters": {"sequence": True}}, Error.MALFORMED_REQUEST),
    ("parameters.sequence", {"parameters": {"sequence": 2**63}}, Error.MALFORMED_REQUEST),
    ("parameters.stream", {"parameters": {"stream": 3}}, Error.MALFORMED_REQUEST),
    ("parameters.stream", {"parameters": {"stream": ""}}, Error.MALFORMED_REQUEST),
    ("parameters.stream", {"parameters": {"stream": "s" * 257}}, Error.MALFORMED_REQUEST),
    ("outputs[1]", {"outputs": [{"name": "box"}, {"name": "hat"}]}, Error.UNKNOWN_TENSOR),
    ("given twice", {"outputs": [{"name": "box"}, {"name": "box"}]}, Error.REPEATED_TENSOR),
    ("outputs[0]", {"outputs": ["box"]}, Error.MALFORMED_REQUEST),
    ("raw", {"outputs": [{"name": "box", "parameters": {"binary_data": False}}]}, Error.MALFORMED_REQUEST),
    ("op", {"op": None}, Error.MALFORMED_REQUEST),
    ("op", {"op": ["infer"]}, Error.MALFORMED_REQUEST),
    ("op", {"op": "explode"}, Error.UNKNOWN_OPERATION),
    ("alone", {"op": "status"}, Error.MALFORMED_REQUEST),
]


@pytest.mark.parametrize(("complaint", "changes", "kind"), BAD_FRAMES)
def test_a_bad_frame_is_refused_by_name(complaint: str, changes: dict[str, Any], kind: Error) -> None:
    error = refusal(lambda: infer_of(**changes))
    assert (error.kind, error.code) == (kind, kind.code)
    assert complaint in error.message
    assert error.request_id == "7"


@pytest.mark.parametrize("key", ["op", "model_name", "inputs"])
def test_what_is_missing_is_named(key: str) -> None:
    header = {name: value for name, value in INFER.items() if name != key}
    error = refusal(lambda: request_of(header, *RAW))
    assert key in error.message
    assert error.request_id == "7"


@pytest.mark.parametrize(
    "raw",
    [(), RAW[:1], (*RAW, b""), (b"", RAW[1]), (RAW[0] + b"I", RAW[1]), (RAW[1], RAW[0])],
)
def test_raw_parts_that_do_not_match_the_header_are_refused(raw: tuple[bytes, ...]) -> None:
    assert refusal(lambda: infer_of(raw)).code is Code.INVALID_ARGUMENT


def test_a_missing_input_is_named() -> None:
    error = refusal(lambda: infer_of((RAW[0],), inputs=[IMAGE]))
    assert "'mask'" in error.message


@pytest.mark.parametrize(
    ("parts", "complaint"),
    [
        ([], "empty"),
        ([b""], "not JSON"),
        ([b"{"], "not JSON"),
        ([b"{} {}"], "not JSON"),
        ([b'{"id":"7","op":NaN}'], "not JSON"),
        ([b'{"id":"7","op":1e999}'], "not JSON"),
        ([b'{"id":"7","op":' + b"9" * 4000 + b'}'], "op"),
        ([b'{"id":"\xff"}'], "not JSON"),
        ([b'{"id":"\\ud800 lone"}'], "not JSON"),
        ([b"[]"], "no object"),
        ([b'"infer"'], "no object"),
        ([b"null"], "no object"),
        ([b" " * 4097], "4097 bytes; expected at most 4096"),
        ([b"{}"] * 5, "5 parts; expected at most 4"),
        ([b"{}", bytes(100_000)], "expected at most 100000"),
        ([b"{}"], "id"),
        ([b'{"id":7}'], "id"),
        ([b'{"id":null}'], "id"),
    ],
)  # fmt: skip
def test_a_message_without_a_readable_id_is_refused(parts: list[bytes], complaint: str) -> None:
    error = refusal(lambda: parse(parts, SIGNATURE, LIMITS))
    assert error.code is Code.INVALID_ARGUMENT
    assert complaint in error.message
    out_of_range = parts and (b"1e999" in parts[0] or b"999" in parts[0])  # which is no fault of the id
    assert error.request_id == ("7" if out_of_range else None)


def test_a_header_that_is_nested_too_deeply_is_refused() -> None:
    """How deep that is, is the interpreter's: a thousand for Python 3.11, ten thousand for 3.13."""
    error = refusal(lambda: parse([b"[" * 60_000], SIGNATURE, Limits()))
    assert error.code is Code.INVALID_ARGUMENT
    assert "nested" in error.message


def test_an_id_that_is_too_long_is_refused_and_given_back() -> None:
    error = refusal(lambda: request_of({**INFER, "id": "7" * 257}, *RAW))
    assert error.request_id == "7" * 257


@pytest.mark.parametrize(
    ("op", "fields", "arguments"),
    [
        ("cancel", {"target": "6"}, Cancel("6")),
        ("server_live", {}, NoArguments()),
        ("server_live", {"target": 3}, NoArguments()),
        ("model_ready", {}, OfModel()),
        ("model_metadata", {"model_name": "m"}, OfModel("m")),
        ("events", {}, Events(0, 1000)),
        ("events", {"since": 4, "limit": 1}, Events(4, 1)),
        ("events", {"since": None, "limit": 1}, Events(0, 1)),
        ("place_set", {"place": "fast0", "speed": 0.5}, PlaceSet("fast0", speed=0.5)),
        ("place_set", {"place": "fast0", "device": "npu", "speed": 0.5}, PlaceSet("fast0", speed=0.5, device="npu")),
        ("place_set", {"place": "fast0", "up": True}, PlaceSet("fast0", up=True)),
        ("place_set", {"place": "fast0", "up": False, "down": True}, PlaceSet("fast0", down=True)),
        ("tuner_set", {"pause": True}, TunerSet(pause=True)),
        ("tuner_set", {"restart": True, "alpha": 5}, TunerSet(restart=True, alpha=5)),
        ("tuner_set", {"strategy": "guided"}, TunerSet(strategy="guided")),
        ("tuner_set", {"objective": "latency"}, TunerSet(objective="latency")),
        ("tuner_set", {"objective": "auto"}, TunerSet(objective="auto")),
    ],
)
def test_arguments_may_stand_at_the_top_or_in_parameters(op: str, fields: dict[str, object], arguments: object) -> None:
    assert arguments_of(op, **fields) == arguments
    assert arguments_of(op, parameters=fields) == arguments


def test_plan_set_takes_stages_as_they_are_printed() -> None:
    stages = [
        {"first": 0, "last": 3, "places": ["fast0"], "service_s": 0.004},
        {"first": 4, "last": 9, "places": ["slow0"], "service_s": None},
    ]
    arguments = arguments_of("plan_set", stages=stages)
    assert isinstance(arguments, PlanSet)
    assert read(arguments.stages) == Plan.of([(0, 3, "fast0"), (4, 9, "slow0")])


def test_null_is_as_good_as_a_key_of_a_stage_that_is_left_out() -> None:
    stage = {"first": 0, "last": 3, "places": ["fast0"]}
    keys = ("layers", "after", "split", "engine", "batch")
    arguments = arguments_of("plan_set", stages=[stage | dict.fromkeys(keys)])
    assert isinstance(arguments, PlanSet)
    assert read(arguments.stages) == plan_of([stage])


STAGE = {"first": 0, "last": 3, "places": ["fast0"]}


@pytest.mark.parametrize(
    ("op", "fields", "complaint"),
    [
        ("cancel", {}, "target"),
        ("cancel", {"target": 6}, "target"),
        ("cancel", {"target": "6", "parameters": {"target": "6"}}, "twice"),
        ("status", {"parameters": [1]}, "parameters"),
        ("events", {"since": -1}, "since"),
        ("events", {"since": True}, "since"),
        ("events", {"since": 2**63}, "since"),
        ("events", {"limit": 0}, "limit"),
        ("events", {"limit": 10_001}, "limit"),
        ("plan_set", {}, "stages"),
        ("plan_set", {"stages": []}, "stages"),
        ("plan_set", {"stages": [STAGE] * 1025}, "stages"),
        ("plan_set", {"stages": [{**STAGE, "first": -1}]}, "stages[0].first"),
        ("plan_set", {"stages": [{**STAGE, "last": 1.5}]}, "stages[0].last"),
        ("plan_set", {"stages": [{**STAGE, "places": []}]}, "stages[0].places"),
        ("plan_set", {"stages": [{**STAGE, "places": "fast0"}]}, "stages[0].places"),
        ("plan_set", {"stages": [{**STAGE, "places": [0]}]}, "stages[0].places[0]"),
        ("plan_set", {"stages": [{**STAGE, "engine": "tvm"}]}, "stages[0]: engine: 'tvm'; expected onnxruntime, "),
        ("place_set", {"speed": 1.0}, "place"),
        ("place_set", {"place": ""}, "place"),
        ("place_set", {"place": "fast\x1b[0m"}, "place"),
        ("place_set", {"place": "fast0"}, "exactly one of"),
        ("place_set", {"place": "fast0", "up": True, "down": True}, "exactly one of"),
        ("place_set", {"place": "fast0", "speed": 1, "down": True}, "exactly one of"),
        ("place_set", {"place": "fast0", "speed": 0}, "speed"),
        ("place_set", {"place": "fast0", "speed": True}, "speed"),
        ("place_set", {"place": "fast0", "up": 1}, "up"),
        ("place_set", {"place": "fast0", "device": "npu"}, "exactly one of"),
        ("place_set", {"place": "fast0", "device": "npu", "down": True}, "device with speed"),
        ("place_set", {"place": "fast0", "device": "", "speed": 0.5}, "device"),
        ("place_set", {"place": "fast0", "device": 3, "speed": 0.5}, "device"),
        ("model_load", {"model_name": "a\n"}, "model_name"),
        ("tuner_set", {}, "at most one"),
        ("tuner_set", {"pause": True, "resume": True, "alpha": 5}, "at most one"),
        ("tuner_set", {"pause": True, "restart": True, "alpha": 5}, "at most one"),
        ("tuner_set", {"resume": True, "restart": True, "alpha": 5}, "at most one"),
        ("tuner_set", {"alpha": 0}, "alpha"),
        ("tuner_set", {"strategy": ["guided"]}, "strategy"),
        ("tuner_set", {"objective": "power"}, "objective: 'power'"),
        ("tuner_set", {"objective": 3}, "objective"),
        ("model_load", {"model_name": "net", "version": "a/b"}, "a slash"),
        ("model_load", {"model_name": "..", "model": "net.onnx"}, "model_name"),
        ("place_set", {"place": "a\nb", "up": True}, "control characters"),
    ],
)
def test_bad_arguments_are_refused_by_name(op: str, fields: dict[str, object], complaint: str) -> None:
    limits = Limits()
    header = json.dumps({"op": op, "id": "7", **fields}).encode()
    error = refusal(lambda: parse([header], SIGNATURE, limits))
    assert error.code is Code.INVALID_ARGUMENT
    assert complaint in error.message
    assert error.request_id == "7"


def test_another_model_is_not_found() -> None:
    for op in "model_ready", "status", "plan_get", "tuner_get":
        assert refusal(lambda: arguments_of(op, model_name="another")).kind == Error.UNKNOWN_MODEL  # noqa: B023 (at once)


def test_control_operations_are_operations() -> None:
    assert set(OPERATIONS) > CONTROL_OPS


@pytest.mark.parametrize(
    ("parts", "split"),
    [
        ([], (False, [])),
        ([b"{}"], (False, [b"{}"])),
        ([b"", b"{}", b"x"], (True, [b"{}", b"x"])),
        ([b""], (True, [])),
        ([b"", b""], (True, [b""])),
    ],
)
def test_a_delimiter_is_split_off(parts: list[bytes], split: tuple[bool, list[bytes]]) -> None:
    assert split_envelope(parts) == split


@pytest.mark.parametrize("name", ["max_message_bytes", "max_header_bytes", "max_parts", "max_in_flight"])
def test_limits_are_positive(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Limits(**{name: 0})


QUICK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Times on a busy machine say nothing about `parse`."""


def survives(parts: list[bytes]) -> None:
    """The property: a request, or one line."""
    try:
        parse(parts, SIGNATURE, LIMITS)
    except ShishaError as error:
        assert error.message.isprintable()  # noqa: PT017  a request is as good
        assert error.message.isascii()  # noqa: PT017


@QUICK
@given(st.lists(st.binary(max_size=60), max_size=6))
def test_noise_is_refused_in_one_line(parts: list[bytes]) -> None:
    survives(parts)


TEXT = st.text(st.sampled_from("aZ9 '$`\n\0é\u2028\U0001f642"), max_size=9)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@QUICK
@given(
    header=st.dictionaries(
        st.sampled_from(["id", "op", "model_name", "inputs", "outputs", "parameters", "stages"]), JSON
    ),
    op=st.sampled_from(["infer", *OPERATIONS]),
    raw=st.lists(st.binary(max_size=9), max_size=3),
)
@example(header={"parameters": {"a\nb": 1}}, op="infer", raw=[])
def test_any_json_is_refused_in_one_line_or_understood(header: dict[str, Any], op: str, raw: list[bytes]) -> None:
    survives([json.dumps(header).encode(), *raw])
    survives([json.dumps({**header, "id": "7", "op": op}).encode(), *raw])


@QUICK
@given(
    path=st.sampled_from([(key,) for key in INFER] + [("inputs", 0, key) for key in IMAGE] + [("inputs", 1)]),
    value=JSON,
)
def test_a_good_frame_with_one_thing_changed(path: tuple[Any, ...], value: object) -> None:
    header: Any = json.loads(json.dumps(INFER))
    place = header
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    survives([json.dumps(header).encode(), *RAW])


def _graph(width: int, length: int) -> Graph:
    """Of the network whose `image` has that width, and whose `mask` that length."""
    inputs = (Tensor("imäge", (1, width), "FP32"), Tensor("mask", (length,), "BOOL"))
    outputs = (Tensor("scores", (4,), "FP32"), Tensor("found", (1, width), "INT64", (0,)))
    return Graph("m", (), inputs, outputs, {}, {})


SERVED = [(2, 3), (5, 3), (2, 4)]
SEVERAL = Signature.of("m", [_graph(*sizes) for sizes in SERVED])


def parsed(image: Sequence[object], mask: Sequence[object], sizes: tuple[int, int] | None = None) -> InferRequest:
    """A frame of these shapes, which claims and has as many bytes as `sizes` have (at first, what `SEVERAL` serves)."""
    image_bytes, mask_bytes = (4 * sizes[0], sizes[1]) if sizes is not None else (8, 3)
    inputs = [
        {"name": "mask", "shape": mask, "datatype": "BOOL", "parameters": {"binary_data_size": mask_bytes}},
        {"name": "imäge", "shape": image, "datatype": "FP32", "parameters": {"binary_data_size": image_bytes}},
    ]
    header = json.dumps({**INFER, "inputs": inputs}).encode()
    request = parse([header, bytes(mask_bytes), bytes(image_bytes)], SEVERAL, LIMITS)
    assert isinstance(request, InferRequest)
    return request


def test_a_signature_of_several_shapes_has_open_axes_where_they_differ() -> None:
    assert [tensor.open_axes for tensor in (*SEVERAL.inputs, *SEVERAL.outputs)] == [(1,), (0,), (), (0, 1)]
    assert Signature.of("m", [_graph(2, 3)]).shapes == ()


@pytest.mark.parametrize("layout", range(3))
def test_the_shapes_of_a_frame_choose_its_layout(layout: int) -> None:
    width, length = SERVED[layout]
    request = parsed([1, width], [length], (width, length))
    assert request.layout == layout
    assert {name: len(raw) for name, raw in request.tensors.items()} == {"imäge": 4 * width, "mask": length}


@pytest.mark.parametrize("image", [[1, 5], [5, 1], [1, 2, 1], [2], [], [1, -2], [1, 10**999]])
def test_shapes_that_are_not_served_together_are_refused_with_those_that_are(image: list[int]) -> None:
    error = refusal(lambda: parsed(image, [4]))
    assert error.code is Code.INVALID_ARGUMENT
    assert error.message.endswith(
        r"are not served; expected one of im\xe4ge=1x2 mask=3, im\xe4ge=1x5 mask=3, im\xe4ge=1x2 mask=4"
    )


def test_the_bytes_are_those_of_the_shape() -> None:
    assert "expected 20" in refusal(lambda: parsed([1, 5], [3], (2, 3))).message


@settings(deadline=None)
@given(
    st.lists(st.integers(-1, 6) | st.integers() | st.none() | st.floats(), max_size=3),
    st.lists(st.integers(0, 5), max_size=2),
    st.sampled_from(SERVED),
)
def test_only_what_is_served_passes(image: list[object], mask: list[object], sizes: tuple[int, int]) -> None:
    try:
        request = parsed(image, mask, sizes)
    except ShishaError as error:
        assert error.code is Code.INVALID_ARGUMENT  # noqa: PT017  a request is as good
    else:
        assert (image, mask) == ([1, sizes[0]], [sizes[1]])
        assert SERVED[request.layout] == sizes
