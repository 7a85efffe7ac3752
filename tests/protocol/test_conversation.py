"""The client's side of the protocol, without a socket."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shisha_rt.errors import Code, Error
from shisha_rt.model.graph import Tensor
from shisha_rt.plan.plan import Plan
from shisha_rt.protocol.conversation import Conversation, FrameTerms, Outgoing, RequestOutcome, stages_of
from shisha_rt.protocol.exceptions import Internal, InvalidArgument, ShishaError, Unavailable, error_for, error_of
from shisha_rt.protocol.frame_tensors import Answer, arrays_of
from shisha_rt.protocol.header import (
    AnswerParameters,
    InferParameters,
    TensorData,
    TensorHeader,
    encode_answer,
    encode_error,
    encode_infer_answer,
    encode_moved,
)
from shisha_rt.protocol.limits import MAX_DEADLINE_MS, MAX_HEADER_BYTES, MAX_PRIORITY
from shisha_rt.protocol.signature import Signature
from tests.wording import raised

X = Tensor("x", (2,), "FP16")
Y = Tensor("y", (), "INT64")
SIGNATURE = Signature("m", (X,), (Y,))
METADATA: dict[str, Any] = {
    "name": "m",
    "versions": [],
    "platform": "onnx",
    "inputs": [{"name": "x", "datatype": "FP16", "shape": [2]}],
    "outputs": [{"name": "y", "datatype": "INT64", "shape": []}],
}


def introduced() -> Conversation:
    conversation = Conversation()
    answer(conversation, send(conversation, conversation.ask("server_metadata")), {"instance": "first"})
    answer(conversation, send(conversation, conversation.ask("model_metadata")), METADATA)
    assert conversation.signature == SIGNATURE
    return conversation


@pytest.mark.parametrize("fields", [{}, {"instance": None}, {"instance": 5}])
def test_a_daemon_that_does_not_say_which_it_is_is_none(fields: dict[str, Any]) -> None:
    """Whoever asked it again and again would never end."""
    conversation = Conversation()
    ((_, outcome),) = answer(conversation, send(conversation, conversation.ask("server_metadata")), fields)
    assert isinstance(outcome, Internal)
    assert outcome.kind == Error.BROKEN_ANSWER


def send(conversation: Conversation, outgoing: Outgoing) -> str:
    conversation.sends(outgoing)
    return outgoing.id


def answer(conversation: Conversation, request_id: str, fields: dict[str, Any]) -> list[RequestOutcome]:
    return conversation.receive([encode_answer(request_id, fields)])


def frame(conversation: Conversation) -> Outgoing:
    return conversation.infer(np.zeros(2, np.float16))


def result(request_id: str) -> list[bytes]:
    header = encode_infer_answer(
        request_id, "m", "1", [TensorHeader.of(Y)], AnswerParameters(3, 4, 5, 6, epochs=(2, 3))
    )
    return [header, np.int64(7).tobytes()]


def outcome_of(settled: Sequence[RequestOutcome], request_id: str) -> Any:
    ((settled_id, outcome),) = settled
    assert settled_id == request_id
    return outcome


def test_a_result_settles_its_frame_once() -> None:
    conversation = introduced()
    request_id = send(conversation, frame(conversation))
    outcome = outcome_of(conversation.receive(result(request_id)), request_id)
    assert isinstance(outcome, Answer)
    assert outcome.output == 7
    assert (outcome.epoch, outcome.frame, outcome.sequence, outcome.epochs) == (3, 4, None, (2, 3))
    assert (outcome.queue_s, outcome.compute_s) == pytest.approx((0.005, 0.006))
    assert conversation.in_flight == 0
    assert conversation.receive(result(request_id)) == []


def test_what_was_not_sent_is_not_in_flight() -> None:
    conversation = introduced()
    outgoing = frame(conversation)
    assert conversation.receive(result(outgoing.id)) == []
    assert conversation.lose("gone") == []


def test_an_error_settles_its_request() -> None:
    conversation = introduced()
    request_id = send(conversation, frame(conversation))
    answer = encode_error(request_id, error_for(Error.DRAINING, "draining"))
    outcome = outcome_of(conversation.receive([answer]), request_id)
    assert isinstance(outcome, Unavailable)
    assert (outcome.kind, outcome.message, outcome.request_id) == (Error.DRAINING, "draining", request_id)


@pytest.mark.parametrize("code", Code)
def test_every_code_has_an_exception_of_its_own(code: Code) -> None:
    error = error_of(code, "why", "1")
    assert error.code is code
    assert type(error) is not ShishaError
    assert str(error) == "why"


def test_a_code_of_a_newer_daemon_is_still_an_error() -> None:
    assert str(error_of("NEW", "why", "1")) == "NEW: why"


def test_an_abandoned_frame_is_to_be_cancelled_and_other_requests_are_just_forgotten() -> None:
    conversation = introduced()
    request_id = send(conversation, frame(conversation))
    assert conversation.abandon(request_id)
    assert conversation.receive(result(request_id)) == []
    assert not conversation.abandon(request_id)
    assert not conversation.abandon(send(conversation, conversation.ask("status")))


def test_a_loss_ends_all_in_flight_and_forgets_who_it_was() -> None:
    conversation = introduced()
    ids = [send(conversation, frame(conversation)), send(conversation, conversation.ask("status"))]
    lost = conversation.lose("gone")
    assert [request_id for request_id, _ in lost] == ids
    assert all(isinstance(outcome, Unavailable) for _, outcome in lost)
    assert conversation.signature is None
    assert conversation.instance is None


def test_a_probe_is_nobodys_and_only_one_is_under_way() -> None:
    conversation = introduced()
    probe = conversation.probe()
    assert probe is not None
    send(conversation, probe)
    assert conversation.probe() is None
    assert conversation.in_flight == 0
    assert answer(conversation, probe.id, {"instance": "first"}) == []
    again = conversation.probe()
    assert again is not None
    send(conversation, again)
    assert conversation.lose("gone") == []


def test_a_probe_that_finds_another_instance_loses_all_in_flight() -> None:
    conversation = introduced()
    request_id = send(conversation, frame(conversation))
    probe = conversation.probe()
    assert probe is not None
    send(conversation, probe)
    assert isinstance(outcome_of(answer(conversation, probe.id, {"instance": "second"}), request_id), Unavailable)
    assert conversation.instance == "second"
    assert conversation.signature is None


def test_ids_of_the_callers_own_are_not_given_out_twice() -> None:
    conversation = introduced()
    following = str(int(conversation.ask("status").id) + 1)
    send(conversation, conversation.infer(np.zeros(2, np.float16), request_id=following))
    assert conversation.ask("status").id != following
    with pytest.raises(InvalidArgument, match="already in flight"):
        conversation.infer(np.zeros(2, np.float16), request_id=following)
    twins = [conversation.infer(np.zeros(2, np.float16), request_id="twin") for _ in range(2)]
    send(conversation, twins[0])
    with raised(InvalidArgument, Error.ID_IN_USE):
        conversation.check(twins[1])


def test_news_that_another_daemon_takes_over_holds_until_the_connection_is_lost() -> None:
    conversation = introduced()
    assert conversation.receive([encode_error(None, error_for(Error.MALFORMED_REQUEST, "no id"))]) == []
    assert not conversation.moved
    assert conversation.receive([encode_moved()]) == []
    assert conversation.moved
    conversation.lose("gone")
    assert not conversation.moved


def test_an_answer_of_another_version_has_the_model_asked_about_again() -> None:
    conversation = introduced()
    metadata = METADATA | {"versions": ["2"]}
    assert conversation.receive(result(send(conversation, frame(conversation))))
    assert conversation.to_ask is None
    answer(conversation, send(conversation, conversation.ask("model_metadata")), metadata)
    older, *raw = result(send(conversation, frame(conversation)))
    ((_, unsaid),) = conversation.receive([older.replace(b'"model_version":"1",', b""), *raw])
    assert isinstance(unsaid, Answer)
    assert unsaid.model_version == "2"
    assert conversation.to_ask is None, "a daemon that does not say it"
    ((_, of_version_1),) = conversation.receive(result(send(conversation, frame(conversation))))
    assert isinstance(of_version_1, Answer)
    assert of_version_1.model_version == "1"
    assert conversation.to_ask == "model_metadata"
    frame(conversation)  # meanwhile frames can be sent
    answer(conversation, send(conversation, conversation.ask("model_metadata")), metadata)
    assert conversation.to_ask is None


@pytest.mark.parametrize(("model", "endpoint"), [("a", "tcp://1"), ("b", None), ("c", None), (None, None)])
def test_an_address_of_several_models_leads_to_the_one_that_is_asked_for(
    model: str | None, endpoint: str | None
) -> None:
    conversation = Conversation(model=model)
    models = [{"name": "a", "endpoint": "tcp://1"}, {"name": "b", "endpoint": None}]
    answer(conversation, send(conversation, conversation.ask("server_metadata")), {"instance": "1", "models": models})
    assert conversation.leads
    assert conversation.leads_to == endpoint
    conversation.lose("gone")
    assert not conversation.leads


@pytest.mark.parametrize(
    "spoil",
    [
        lambda parts: parts[:1],
        lambda parts: [parts[0], parts[1][1:]],
        lambda parts: [parts[0].replace(b"INT64", b"BYTES"), parts[1]],
        lambda parts: [parts[0].replace(b'"shape":[]', b'"shape":[-1,-1]'), parts[1]],
        lambda parts: [parts[0].replace(b'"epoch":3', b'"epoch":"3"'), parts[1]],
    ],
)
def test_a_result_that_does_not_follow_the_protocol_is_an_internal_error(spoil: Any) -> None:
    conversation = introduced()
    request_id = send(conversation, frame(conversation))
    spoilt = spoil(result(request_id))
    assert spoilt != result(request_id)
    assert isinstance(outcome_of(conversation.receive(spoilt), request_id), Internal)


def test_model_metadata_that_cannot_be_used_is_an_internal_error() -> None:
    conversation = Conversation()
    request_id = send(conversation, conversation.ask("model_metadata"))
    unknown = {**METADATA, "inputs": [*METADATA["inputs"], {"name": "z", "datatype": "BYTES", "shape": [2]}]}
    assert isinstance(outcome_of(answer(conversation, request_id, unknown), request_id), Internal)


def test_metadata_of_the_model_may_come_before_the_daemons() -> None:
    conversation = Conversation()
    for op, fields in ("model_metadata", METADATA), ("server_metadata", {"instance": "first"}):
        assert conversation.to_ask is not None
        answer(conversation, send(conversation, conversation.ask(op)), fields)
    assert conversation.to_ask is None


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=3))
def test_noise_settles_nothing(parts: list[bytes]) -> None:
    conversation = introduced()
    send(conversation, frame(conversation))
    assert conversation.receive(parts) == []
    assert conversation.in_flight == 1


def test_arrays_are_put_in_the_models_order() -> None:
    signature = Signature("m", (X, Y), ())
    y, x = np.array(1, np.int64), np.zeros(2, np.float16)
    assert [array.shape for array in arrays_of({"y": y, "x": x}, signature)] == [(2,), ()]
    with pytest.raises(InvalidArgument, match="2 inputs"):
        arrays_of(x, signature)
    wrong: list[dict[str, Any]] = [{"x": x}, {"x": x, "z": y}, {"x": x, "y": y, "z": y}]
    with raised(InvalidArgument, Error.WRONG_DATATYPE):
        arrays_of({"y": y, "x": x.astype(np.float32)}, signature)
    for others in wrong:
        with raised(InvalidArgument, Error.MISSING_TENSOR):
            arrays_of(others, signature)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 2)])
def test_tensors_of_any_shape_are_sent(shape: tuple[int, ...]) -> None:
    conversation = Conversation()
    conversation.signature = Signature("m", (Tensor("x", shape, "BOOL"),), ())
    outgoing = conversation.infer(np.ones(shape, np.bool_))
    assert bytes(outgoing.parts[1]) == b"\1" * int(np.prod(shape))


def test_the_output_of_an_answer_with_several_must_be_chosen() -> None:
    several = Answer("1", {"a": np.zeros(1), "b": np.zeros(1)}, 1, 1, None, 0.0, 0.0)
    with pytest.raises(ValueError, match="a, b"):
        _ = several.output


def test_a_plan_and_its_printed_stages_ask_for_the_same() -> None:
    plan = Plan.of([(0, 1, "fast0"), (2, 3, "slow0")])
    printed = [
        {"first": 0, "last": 1, "places": ["fast0"]},
        {"first": 2, "last": 3, "places": ["slow0"]},
    ]
    assert stages_of(plan) == stages_of(printed) == printed


def test_a_frame_of_several_served_shapes_goes_in_its_own() -> None:
    conversation = Conversation()
    metadata = {
        "name": "m",
        "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [1, -1]},
            {"name": "z", "datatype": "BOOL", "shape": [2]},
        ],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}],
        "shapes": [{"x": [1, 3], "z": [2]}, {"x": [1, 5], "z": [2]}],
    }
    answer(conversation, send(conversation, conversation.ask("model_metadata")), metadata)
    z = np.zeros(2, np.bool_)
    for width in (3, 5):
        outgoing = conversation.infer({"x": np.zeros((1, width), np.float32), "z": z})
        header = json.loads(bytes(outgoing.parts[0]))
        assert [tensor["shape"] for tensor in header["inputs"]] == [[1, width], [2]]
        assert [len(part) for part in outgoing.parts[1:]] == [4 * width, 2]
    with pytest.raises(InvalidArgument, match="'x=1x4 z=2' are not served; expected one of x=1x3 z=2, x=1x5 z=2"):
        conversation.infer({"x": np.zeros((1, 4), np.float32), "z": z})
    with pytest.raises(InvalidArgument, match=r"shape \[3\]; expected \[2\]"):
        conversation.infer({"x": np.zeros((1, 3), np.float32), "z": np.zeros(3, np.bool_)})


def test_an_answer_has_arrays_of_the_shape_that_came() -> None:
    conversation = introduced()
    request_id = send(conversation, frame(conversation))
    tensors = [TensorHeader("boxes", (0, 4), "FP32", TensorData(0)), TensorHeader("y", (2, 1), "INT8", TensorData(2))]
    header = encode_infer_answer(request_id, "m", "1", tensors, AnswerParameters(1, 1, 0, 0))
    outcome = outcome_of(conversation.receive([header, b"", b"ab"]), request_id)
    assert isinstance(outcome, Answer)
    assert {name: array.shape for name, array in outcome.outputs.items()} == {"boxes": (0, 4), "y": (2, 1)}


@pytest.mark.parametrize(
    ("op", "arguments", "named"),
    [
        ("events", {"since": -1}, "since: "),
        ("model_load", {"model_name": "a/b"}, "model_name: "),
        ("model_load", {"model_name": "a", "version": 7}, "version: "),
        ("model_load", {"model_name": "a", "model": ""}, "model: "),
        ("place_set", {"place": "a" * 257, "up": True}, "place: "),
        ("plan_set", {"stages": [{"first": -1, "last": 0, "places": ["a"]}]}, "stages[0].first: "),
        ("tuner_set", {"pause": True, "resume": True}, "tuner_set "),
        ("events", {"since": object()}, "object "),
        ("cancel", {}, ""),
    ],
)
def test_arguments_are_checked_before_they_are_sent_and_called_as_they_were_given(
    op: str, arguments: dict[str, Any], named: str
) -> None:
    with raised(InvalidArgument, Error.MALFORMED_REQUEST, match=f"^{re.escape(named)}"):
        introduced().ask(op, arguments)


def test_numbers_of_numpy_are_numbers() -> None:
    asked = introduced().ask("events", {"since": np.int64(3)})
    assert json.loads(bytes(asked.parts[0]))["since"] == 3


def test_a_header_that_is_too_large_is_not_sent() -> None:
    conversation = introduced()
    text = "x" * (MAX_HEADER_BYTES - len(conversation.ask("dance", {"text": ""}).parts[0]))
    conversation.check(conversation.ask("dance", {"text": text}))
    with raised(InvalidArgument, Error.REQUEST_TOO_LARGE):
        conversation.check(conversation.ask("dance", {"text": text + "x"}))


def test_who_talks_to_one_model_names_it() -> None:
    conversation = Conversation(model="m")
    named = [json.loads(bytes(conversation.ask(op, {"since": 3}).parts[0])) for op in ("events", "server_metadata")]
    assert named == [
        {"model_name": "m", "since": 3, "op": "events", "id": "1"},
        {"since": 3, "op": "server_metadata", "id": "2"},
    ]


def test_an_operation_of_a_newer_daemon_is_sent() -> None:
    assert introduced().ask("dance", {"since": -1}).op == "dance"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("stream", ""), ("stream", "s" * 257), ("stream", 5), ("traceparent", "t" * 257)],
        *[("deadline_s", -0.001), ("deadline_s", MAX_DEADLINE_MS / 1e3 + 1), ("deadline_s", float("nan"))],
        *[("priority", -1), ("priority", MAX_PRIORITY + 1)],
        *(("sequence", -1), ("sequence", 1 << 63)),
    ],
)
def test_terms_of_a_frame_are_checked_before_it_is_sent(name: str, value: Any) -> None:
    with raised(InvalidArgument, Error.MALFORMED_REQUEST, match=f"^{name} "):
        FrameTerms()._replace(**{name: value}).parameters()


def test_terms_at_their_limits_are_sent() -> None:
    assert FrameTerms().parameters() is None
    for deadline_s in (0, MAX_DEADLINE_MS / 1e3):
        terms = FrameTerms("s" * 256, 0, deadline_s, MAX_PRIORITY, "").parameters()
        assert terms == InferParameters("s" * 256, 0, deadline_s * 1e3, MAX_PRIORITY, "")


def test_a_request_id_that_is_too_long_is_not_sent() -> None:
    conversation = introduced()
    with raised(InvalidArgument, Error.REQUEST_TOO_LARGE, match=r"^request_id"):
        conversation.infer(np.zeros(2, np.float16), request_id="r" * 257)
