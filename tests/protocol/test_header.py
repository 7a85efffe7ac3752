"""Headers: the bytes that strangers see, and back."""

from __future__ import annotations

import json

import msgspec
import pytest

from shisha_rt.errors import Error
from shisha_rt.model.graph import Tensor
from shisha_rt.protocol.exceptions import error_for
from shisha_rt.protocol.header import (
    AnswerParameters,
    ErrorBody,
    InferParameters,
    RequestedOutput,
    TensorHeader,
    decode_fields,
    decode_head,
    decode_infer_answer,
    encode_answer,
    encode_error,
    encode_infer,
    encode_infer_answer,
    encode_operation,
)
from shisha_rt.protocol.limits import Limits
from shisha_rt.protocol.request import InferRequest, OpRequest, parse
from shisha_rt.protocol.signature import Signature

IMAGE = Tensor("data_0", (1, 3, 224, 224), "FP32")
SCORES = Tensor("softmaxout_1", (1, 1000), "FP32")
SIGNATURE = Signature("squeezenet", (IMAGE,), (SCORES,))


def test_an_infer_header_is_as_the_documentation_prints_it() -> None:
    header = encode_infer("7", "squeezenet", [TensorHeader.of(IMAGE)], InferParameters("cam0", 7, 200))
    assert header == (
        b'{"op":"infer","id":"7","model_name":"squeezenet",'
        b'"parameters":{"stream":"cam0","sequence":7,"deadline_ms":200},'
        b'"inputs":[{"name":"data_0","shape":[1,3,224,224],"datatype":"FP32",'
        b'"parameters":{"binary_data_size":602112}}]}'
    )


@pytest.mark.parametrize("outputs", [(), ("softmaxout_1",)])
@pytest.mark.parametrize("parameters", [None, InferParameters(), InferParameters("cam0", 0, 0.5, caller="7")])
def test_an_infer_header_is_read_back(parameters: InferParameters | None, outputs: tuple[str, ...]) -> None:
    header = encode_infer("7", "squeezenet", [TensorHeader.of(IMAGE)], parameters, list(map(RequestedOutput, outputs)))
    request = parse([header, bytes(IMAGE.size_bytes)], SIGNATURE, Limits())
    assert isinstance(request, InferRequest)
    given = parameters or InferParameters()
    assert (request.stream, request.sequence, request.deadline_ms, request.caller) == (
        given.stream,
        given.sequence,
        given.deadline_ms,
        given.caller,
    )
    assert request.outputs == ("softmaxout_1",)


def test_an_operation_header_is_read_back() -> None:
    request = parse([encode_operation("events", "1", {"since": 3})], SIGNATURE, Limits())
    assert isinstance(request, OpRequest)
    assert (request.op, request.id) == ("events", "1")


@pytest.mark.parametrize("sequence", [None, 0, 9])
def test_a_result_is_read_back(sequence: int | None) -> None:
    parameters = AnswerParameters(2, 40, 0.25, 3.5, sequence)
    encoded = encode_infer_answer("7", "squeezenet", "1", [TensorHeader.of(SCORES)], parameters)
    assert ("sequence" in json.loads(encoded)["parameters"]) == (sequence is not None)
    assert decode_head(encoded).error is None
    header = decode_infer_answer(encoded)
    assert (header.id, header.model_name) == ("7", "squeezenet")
    assert header.outputs == (TensorHeader.of(SCORES),)
    parameters = header.parameters
    assert (parameters.epoch, parameters.frame, parameters.sequence) == (2, 40, sequence)
    assert (parameters.queue_ms, parameters.compute_ms) == (0.25, 3.5)


def test_an_answer_has_its_fields_beside_the_id() -> None:
    encoded = encode_answer("1", {"live": True})
    assert encoded == b'{"id":"1","live":true}'
    assert decode_fields(encoded) == {"id": "1", "live": True}


def test_an_error_is_read_back() -> None:
    encoded = encode_error("7", error_for(Error.WRONG_SHAPE, "why"))
    assert encoded == b'{"id":"7","error":{"code":"INVALID_ARGUMENT","message":"why","kind":"wrong_shape"}}'
    assert decode_head(encoded).error == ErrorBody("INVALID_ARGUMENT", "why", "wrong_shape")


def test_an_error_for_an_unreadable_id_says_null() -> None:
    encoded = encode_error(None, error_for(Error.WRONG_SHAPE, "why"))
    assert encoded.startswith(b'{"id":null,')
    assert decode_head(encoded).id is None


def test_an_answer_without_an_id_is_none() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_head(b"{}")
