"""The protocol's stock client over gRPC, as it is, against a real daemon; and the definition that both go by."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import hashlib
import os
import queue
import signal
import socket
import struct
import uuid
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shisha_rt.client import AsyncClient
from shisha_rt.daemon.front.http_messages import GrpcListener, ServeHttp
from shisha_rt.errors import Error
from shisha_rt.http.app_state import AppState
from shisha_rt.http.grpc import service
from shisha_rt.http.grpc.infer import answer_message, read_request
from shisha_rt.http.grpc.messages import MESSAGES, METHODS, SERVICE
from shisha_rt.http.grpc.service import _handlers
from shisha_rt.http.inference.inferences import Inferences, Room
from shisha_rt.http.inference.request import AskedParameters, InferenceAsked
from shisha_rt.model.graph import Tensor
from shisha_rt.protocol.exceptions import InvalidArgument
from shisha_rt.protocol.frame_tensors import Answer
from shisha_rt.protocol.signature import Signature
from shisha_rt.tensors import NUMPY_OF
from tests.daemon.test_http_address import certificate_in
from tests.http.http_caller import HttpCaller
from tests.http.test_process import http_pid
from tests.process.descriptors import open_descriptors
from tests.serving.daemon_process import DaemonProcess
from tests.serving.host_process import HostProcess
from tests.serving.identity_model import NAME, Array, frame_of, write_identity_model
from tests.serving.page import scrape, values
from tests.waiting import PATIENCE_S, until

triton: Any = pytest.importorskip("tritonclient.grpc", reason="the extra `test` has tritonclient")
triton_memory: Any = pytest.importorskip("tritonclient.utils.shared_memory")
stubs: Any = pytest.importorskip("tritonclient.grpc.service_pb2")
stub_methods: Any = pytest.importorskip("tritonclient.grpc.service_pb2_grpc")
grpc: Any = pytest.importorskip("grpc")

SHAPE = (1, 16, 48, 48)


def token(word: str = "t0ken") -> dict[str, str]:
    return {"authorization": f"Bearer {word}"}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """With users: one of this host, whose files may be named, one of whom nothing is known, and an operator."""
    folder = tmp_path_factory.mktemp("triton")
    access = folder / "access.toml"
    access.write_text(
        f'[[user]]\nname = "own"\npermission = "client"\ntoken_sha256 = "{hashlib.sha256(b"t0ken").hexdigest()}"\n'
        f'unix_user = "{getpass.getuser()}"\n'
        f'[[user]]\nname = "other"\npermission = "client"\ntoken_sha256 = "{hashlib.sha256(b"other").hexdigest()}"\n'
        f'[[user]]\nname = "steers"\npermission = "operator"\ntoken_sha256 = "{hashlib.sha256(b"steer").hexdigest()}"\n'
    )
    model = write_identity_model(folder, size=SHAPE[2])
    ways = ("--grpc", "0", "--http", f"unix:{folder / 'h'}", "--http-shared-memory")
    with DaemonProcess(folder, model, *ways, "--access", access, endpoint=f"ipc://{folder / 'e'}") as process:
        yield process


@pytest.fixture
def client(daemon: DaemonProcess) -> Iterator[Any]:
    with contextlib.closing(triton.InferenceServerClient(daemon.grpc[0])) as client:
        yield client


def frame(number: int) -> Array:
    return frame_of(number, SHAPE)


def input_of(number: int) -> Any:
    tensor = triton.InferInput("x", list(SHAPE), "FP32")
    tensor.set_data_from_numpy(frame(number))
    return tensor


def test_the_definition_has_the_published_names_and_numbers() -> None:
    def compare(ours: Any, theirs: Any) -> None:
        for field in ours.fields:
            other = theirs.fields_by_name[field.name]
            assert (field.number, field.type, field.label) == (other.number, other.type, other.label), other.full_name
            assert (field.containing_oneof is None) == (other.containing_oneof is None), other.full_name
            if field.message_type is not None:
                compare(field.message_type, other.message_type)
            if field.enum_type is not None:
                numbers = [{value.name: value.number for value in end.enum_type.values} for end in (field, other)]
                assert numbers[0] == numbers[1]

    published = stubs.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    assert published.full_name == SERVICE
    assert {method.name for method in METHODS} == {method.name for method in published.methods}
    for method in METHODS:
        other = published.methods_by_name[method.name]
        assert method.streams == other.client_streaming == other.server_streaming
        compare(method.request.DESCRIPTOR, other.input_type)
        compare(method.answer.DESCRIPTOR, other.output_type)


def test_what_the_server_says_of_itself(client: Any) -> None:
    assert client.is_server_live(token())
    assert client.is_server_ready(token())
    assert client.is_model_ready(NAME, headers=token())
    assert client.is_model_ready(NAME, "1", headers=token())
    assert not client.is_model_ready("another", headers=token())
    server = client.get_server_metadata(token(), as_json=True)
    assert server["name"] == "shisha-rt"
    assert {"statistics", "system_shared_memory"} <= set(server["extensions"])
    for version in ("", "1"):
        model = client.get_model_metadata(NAME, version, headers=token())
        assert (list(model.versions), model.platform) == (["1"], "onnx")
        for tensor, name in ((model.inputs[0], "x"), (model.outputs[0], "y")):
            assert (tensor.name, tensor.datatype, list(tensor.shape)) == (name, "FP32", [-1, *SHAPE[1:]])
        config = client.get_model_config(NAME, version, headers=token()).config
        assert (config.name, config.max_batch_size, config.backend) == (NAME, 32, "shisha-rt")
        (given,) = config.input
        assert (given.name, given.data_type, list(given.dims)) == ("x", 11, list(SHAPE[1:]))
    (model,) = client.get_model_repository_index(token()).models
    assert (model.name, model.version, model.state) == (NAME, "1", "READY")


def test_a_frame_comes_back_with_what_is_said_of_it(client: Any) -> None:
    sent = {"request_id": "mine", "headers": token(), "parameters": {"stream": "cam0", "sequence": 3}}
    result = client.infer(NAME, [input_of(7)], "1", [triton.InferRequestedOutput("y")], **sent)
    assert (result.as_numpy("y") == frame(7)).all()
    response = result.get_response()
    assert (response.id, response.model_name, response.model_version) == ("mine", NAME, "1")
    assert response.parameters.keys() == {"epoch", "frame", "queue_ms", "compute_ms", "sequence"}
    assert response.parameters["sequence"].int64_param == 3
    assert response.parameters["compute_ms"].double_param > 0


def test_several_frames_in_one_request(client: Any) -> None:
    several = np.concatenate([frame(number) for number in range(4)])
    tensor = triton.InferInput("x", list(several.shape), "FP32")
    tensor.set_data_from_numpy(several)
    assert (client.infer(NAME, [tensor], headers=token()).as_numpy("y") == several).all()
    many = triton.InferInput("x", [33, *SHAPE[1:]], "FP32")
    many.set_data_from_numpy(np.zeros((33, *SHAPE[1:]), np.float32))
    with pytest.raises(triton.InferenceServerException, match="33 frames"):
        client.infer(NAME, [many], headers=token())


def test_many_at_once(client: Any) -> None:
    def call(number: int) -> None:
        assert (client.infer(NAME, [input_of(number)], headers=token()).as_numpy("y") == frame(number)).all()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(call, range(40)))


def test_a_stream_answers_in_order_and_goes_on_after_an_error(client: Any) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client.start_stream(callback=lambda result, error: answers.put((result, error)), headers=token())
    try:
        for number in range(50):
            client.async_stream_infer("another" if number == 20 else NAME, [input_of(number)], request_id=str(number))
        for number in range(50):
            result, error = answers.get(timeout=PATIENCE_S)
            if number == 20:
                assert "no model 'another' is served" in str(error)
                continue
            assert error is None
            assert result.get_response().id == str(number)
            assert result.get_response().parameters["triton_final_response"].bool_param
            assert (result.as_numpy("y") == frame(number)).all()
    finally:
        client.stop_stream()


def test_values_each_by_itself(daemon: DaemonProcess) -> None:
    """As clients without raw tensors send them."""
    with grpc.insecure_channel(daemon.grpc[0]) as channel:
        infer = stub_methods.GRPCInferenceServiceStub(channel).ModelInfer
        metadata = tuple(token().items())
        request = stubs.ModelInferRequest(model_name=NAME)
        tensor = request.inputs.add(name="x", datatype="FP32", shape=SHAPE)
        tensor.contents.fp32_contents.extend(frame(3).reshape(-1).tolist())
        answer = infer(request, metadata=metadata)
        assert answer.raw_output_contents[0] == frame(3).tobytes()
        tensor.contents.fp32_contents.append(1.0)
        assert_refused(lambda: infer(request, metadata=metadata), "INVALID_ARGUMENT", "wrong_size")
        request.raw_input_contents.append(frame(3).tobytes())
        assert_refused(lambda: infer(request, metadata=metadata), "INVALID_ARGUMENT", "malformed_request")


@pytest.mark.parametrize(
    ("datatype", "field", "extremes", "beyond"),
    [
        ("BOOL", "bool", [False, True], None),
        ("INT8", "int", [-128, 127], 128),
        ("INT16", "int", [-(2**15), 2**15 - 1], -(2**15) - 1),
        ("INT32", "int", [-(2**31), 2**31 - 1], None),
        ("INT64", "int64", [-(2**63), 2**63 - 1], None),
        ("UINT8", "uint", [0, 255], 256),
        ("UINT16", "uint", [0, 2**16 - 1], 2**16),
        ("UINT32", "uint", [0, 2**32 - 1], None),
        ("UINT64", "uint64", [0, 2**64 - 1], None),
        ("FP32", "fp32", [0.5, float("inf")], None),
        ("FP64", "fp64", [0.1, -0.0], None),
    ],
)
def test_values_of_each_datatype(datatype: str, field: str, extremes: list[Any], beyond: int | None) -> None:
    graph_tensor = Tensor("x", (2,), datatype)
    signature = Signature("m", (graph_tensor,), (graph_tensor,))
    request = MESSAGES["ModelInferRequest"](model_name="m")
    tensor = request.inputs.add(name="x", datatype=datatype, shape=[2])
    contents = getattr(tensor.contents, f"{field}_contents")
    contents.extend(extremes)
    _, (piece,) = read_request(request, signature)
    assert piece == np.array(extremes, NUMPY_OF[datatype]).tobytes()
    if beyond is not None:
        contents[0] = beyond
        with pytest.raises(InvalidArgument, match=f"no {datatype}"):
            read_request(request, signature)


def assert_refused(call: Callable[[], object], code: str, kind: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    assert caught.value.code().name == code, caught.value.details()
    assert dict(caught.value.trailing_metadata())["shisha-kind"] == kind
    assert caught.value.details().isprintable()


def test_the_largest(client: Any) -> None:
    outputs = [triton.InferRequestedOutput("y", class_count=3)]
    result = client.infer(NAME, [input_of(5)], headers=token(), outputs=outputs)
    order = np.argsort(-frame(5).reshape(-1), kind="stable")[:3]
    assert result.as_numpy("y").tolist() == [[b"%f:%d" % (frame(5).reshape(-1)[i], i) for i in order]]


def test_errors_have_their_codes(client: Any, daemon: DaemonProcess) -> None:
    wrong = triton.InferInput("z", list(SHAPE), "FP32")
    wrong.set_data_from_numpy(frame(0))
    expected: list[tuple[str, Callable[[], object]]] = [
        ("UNAUTHENTICATED", lambda: client.is_server_live()),
        ("UNAUTHENTICATED", lambda: client.infer(NAME, [input_of(1)], headers=token("nobody"))),
        ("NOT_FOUND", lambda: client.infer("another", [input_of(1)], headers=token())),
        ("NOT_FOUND", lambda: client.infer(NAME, [input_of(1)], "2", headers=token())),
        ("NOT_FOUND", lambda: client.get_model_config("another", headers=token())),
        ("INVALID_ARGUMENT", lambda: client.infer(NAME, [wrong], headers=token())),
        ("DEADLINE_EXCEEDED", lambda: client.infer(NAME, [input_of(1)], headers=token(), timeout=1)),
        ("PERMISSION_DENIED", lambda: client.load_model(NAME, headers=token())),
        ("UNIMPLEMENTED", lambda: client.load_model(NAME, headers=token("steer"))),
        ("UNIMPLEMENTED", lambda: client.get_trace_settings(NAME, headers=token())),
        ("UNIMPLEMENTED", lambda: client.get_log_settings(headers=token())),
        ("UNIMPLEMENTED", lambda: client.register_cuda_shared_memory("g", b"aGFuZGxl", 0, 10, headers=token())),
    ]
    for code, call in expected:
        with pytest.raises(triton.InferenceServerException) as caught:
            call()
        assert caught.value.status() == f"StatusCode.{code}", caught.value
    assert not client.get_cuda_shared_memory_status(headers=token()).regions

    def counted() -> dict[str, float]:
        return values(scrape(daemon.metrics), "shisha_grpc_requests_total", "code")

    until(lambda: all(counted().get(code, 0) > 0 for code, _ in expected), "the counts of requests over gRPC")
    assert values(scrape(daemon.metrics), "shisha_access_refused_total", "reason")["grpc_no_token"] > 0


def test_a_fault_of_ours_is_told_and_counted_and_ends_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    signature = Signature("m", (Tensor("x", (1, 2), "FP32"),), (Tensor("y", (1, 2), "FP32"),))
    frames: list[object] = []

    async def infer(*_: object, **__: object) -> Answer:
        frames.append(None)
        if len(frames) in (1, 3):
            raise RuntimeError("a fault on purpose")
        return Answer("1", {"y": np.zeros((1, 2), np.float32)}, 1, 1, None, 0.0, 0.0)

    async def known(*_: object, **__: object) -> Signature:
        return signature

    async def run() -> None:
        app_state = AppState(ServeHttp("tcp://127.0.0.1:1", ()))
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((_handlers(app_state, Inferences(app_state), 1 << 20),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        request = stubs.ModelInferRequest(model_name="m", raw_input_contents=[bytes(8)])
        request.inputs.add(name="x", datatype="FP32", shape=[1, 2])
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = stub_methods.GRPCInferenceServiceStub(channel)
            with pytest.raises(grpc.RpcError) as caught:
                await stub.ModelInfer(request)
            assert caught.value.code().name == "INTERNAL"
            assert dict(caught.value.trailing_metadata())["shisha-kind"] == Error.FAILED
            answers = [answer async for answer in stub.ModelStreamInfer(iter([request] * 3))]
        assert [bool(answer.error_message) for answer in answers] == [False, True, False]
        counted = app_state.counted()
        assert counted is not None
        assert counted.by_code == {"INTERNAL": 2, "OK": 1}
        await server.stop(None)
        await app_state.close()

    monkeypatch.setattr(AsyncClient, "signature", known)
    monkeypatch.setattr(AsyncClient, "infer", infer)
    asyncio.run(run())


@contextlib.asynccontextmanager
async def asked_alone() -> AsyncIterator[tuple[Any, Any, Room, int]]:
    """A caller of the service without a daemon behind it, and a request of one frame; the service's room and port."""
    app_state = AppState(ServeHttp("tcp://127.0.0.1:1", ()))
    inferences = Inferences(app_state)
    server = grpc.aio.server(handlers=[_handlers(app_state, inferences, 1 << 20)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    request = stubs.ModelInferRequest(model_name="m", raw_input_contents=[bytes(8)])
    request.inputs.add(name="x", datatype="FP32", shape=[1, 2])
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield stub_methods.GRPCInferenceServiceStub(channel), request, inferences.room, port
    await server.stop(None)
    await app_state.close()


GARBAGE = b"\xff\xff\xff"


@pytest.mark.parametrize("method", ["ModelInfer", "ModelReady", "SystemSharedMemoryRegister"])
def test_what_is_no_message_is_a_bad_request_and_no_fault_of_ours(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with asked_alone() as (_, __, ___, port), grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            with pytest.raises(grpc.RpcError) as caught:
                await channel.unary_unary(f"/{SERVICE}/{method}")(GARBAGE)
        assert caught.value.code().name == "INVALID_ARGUMENT"
        assert dict(caught.value.trailing_metadata())["shisha-kind"] == Error.MALFORMED_REQUEST

    asyncio.run(run())
    # grpc.aio may find the loop of another test closed, and tells asyncio.
    assert [record for record in caplog.records if record.name != "asyncio"] == []


def test_what_is_no_message_ends_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    async def infer(*_: object, **__: object) -> Answer:
        return Answer("1", {"y": np.zeros((1, 2), np.float32)}, 1, 1, None, 0.0, 0.0)

    async def known(*_: object, **__: object) -> Signature:
        return Signature("m", (Tensor("x", (1, 2), "FP32"),), (Tensor("y", (1, 2), "FP32"),))

    async def run() -> list[str]:
        async with asked_alone() as (_, request, __, port), grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            sent = request.SerializeToString()
            stream = channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")(iter([sent, GARBAGE, sent]))
            answers = [stubs.ModelStreamInferResponse.FromString(answer) async for answer in stream]
        return [answer.infer_response.model_name for answer in answers]

    monkeypatch.setattr(AsyncClient, "signature", known)
    monkeypatch.setattr(AsyncClient, "infer", infer)
    assert asyncio.run(run()) == ["m", "", "m"]


@pytest.mark.parametrize("method", ["ModelInfer", "ServerLive"])
def test_a_request_that_never_comes_is_given_up(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with asked_alone() as (_, __, ___, port), grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.stream_unary(f"/{SERVICE}/{method}")(timeout=PATIENCE_S)  # and nothing is written
            with pytest.raises(grpc.RpcError) as caught:
                await call
        assert dict(caught.value.trailing_metadata())["shisha-kind"] == Error.TOO_SLOW

    monkeypatch.setattr(service, "_RECEIVED_WITHIN_S", 0.1)
    asyncio.run(run())


@pytest.mark.parametrize("method", ["ModelInfer", "ServerLive", "ModelStreamInfer"])
def test_who_calls_is_known_before_anything_is_received(method: str, daemon: DaemonProcess) -> None:
    async def run() -> None:
        async with grpc.aio.insecure_channel(daemon.grpc[0]) as channel:
            call = channel.stream_unary(f"/{SERVICE}/{method}")(timeout=PATIENCE_S)  # and nothing is written
            with pytest.raises(grpc.RpcError) as caught:
                await call
        assert caught.value.code().name == "UNAUTHENTICATED"

    asyncio.run(run())


def test_a_request_is_freed_before_its_frame_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else frees its tensors: a message that is cleared keeps its memory."""
    came: list[weakref.ref[Any]] = []
    freed: list[bool] = []

    class Request:
        def __init__(self, message: Any) -> None:
            self.message = message
            came.append(weakref.ref(self))

        def __getattr__(self, name: str) -> Any:
            return getattr(self.message, name)

        @classmethod
        def FromString(cls, data: bytes) -> Request:  # noqa: N802
            return cls(MESSAGES["ModelInferRequest"].FromString(data))

    async def infer(*_: object, **__: object) -> Answer:
        freed.append(came[-1]() is None)
        return Answer("1", {"y": np.zeros((1, 2), np.float32)}, 1, 1, None, 0.0, 0.0)

    async def known(*_: object, **__: object) -> Signature:
        return Signature("m", (Tensor("x", (1, 2), "FP32"),), (Tensor("y", (1, 2), "FP32"),))

    async def run() -> None:
        async with asked_alone() as (stub, request, *_):
            await stub.ModelInfer(request)
            assert [answer.error_message async for answer in stub.ModelStreamInfer(iter([request]))] == [""]

    monkeypatch.setattr(service, "_InferRequest", Request)
    monkeypatch.setattr(AsyncClient, "signature", known)
    monkeypatch.setattr(AsyncClient, "infer", infer)
    asyncio.run(run())
    assert freed == [True, True]


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
def test_what_has_come_is_counted_also_while_its_model_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """As many as 32 of each stream were kept uncounted while a daemon did not answer."""
    answers, ended = asyncio.Event(), list[str]()

    async def infer(*_: object, **__: object) -> Answer:
        return Answer("1", {"y": np.zeros((1, 2), np.float32)}, 1, 1, None, 0.0, 0.0)

    async def known(*_: object, **__: object) -> Signature:
        await answers.wait()
        return Signature("m", (Tensor("x", (1, 2000), "FP32"),), (Tensor("y", (1, 2), "FP32"),))

    async def run() -> None:
        request = stubs.ModelInferRequest(model_name="m", raw_input_contents=[bytes(8000)])
        request.inputs.add(name="x", datatype="FP32", shape=[1, 2000])
        async with asked_alone() as (stub, _, room, _), asyncio.timeout(PATIENCE_S):
            monkeypatch.setattr(room, "_limit_bytes", 3 * request.ByteSize() + 4000)  # and for answers
            if method == "ModelInfer":
                asked = [asyncio.ensure_future(stub.ModelInfer(request)) for _ in range(5)]
            else:
                asked = [stub.ModelStreamInfer(iter([request] * 5))]
            while ended.count("RESOURCE_EXHAUSTED") < 2:
                await asyncio.sleep(0.01)
            assert room.taken_bytes == 3 * request.ByteSize()
            answers.set()
            if method == "ModelStreamInfer":
                assert [bool(answer.error_message) async for answer in asked[0]] == [False] * 3 + [True] * 2
            else:
                came = await asyncio.gather(*asked, return_exceptions=True)
                assert [isinstance(each, grpc.RpcError) for each in came].count(True) == 2
            assert not room.taken_bytes

    monkeypatch.setattr(AppState, "count_rpc", lambda _, code: ended.append(code))
    monkeypatch.setattr(AsyncClient, "signature", known)
    monkeypatch.setattr(AsyncClient, "infer", infer)
    asyncio.run(run())


def test_epochs_of_several_frames_are_a_text_as_a_parameter_is_no_list() -> None:
    signature = Signature("m", (Tensor("x", (1, 2), "FP32"),), (Tensor("y", (2, 2), "FP32"),))
    asked = InferenceAsked("7", (), parameters=AskedParameters(binary_data_output=True))
    answer = Answer("1", {"y": np.zeros((2, 2), np.float32)}, 3, 1, None, 0.0, 0.0, epochs=(2, 3))
    assert answer_message(signature, asked, answer).parameters["epochs"].string_param == "2,3"


OUTPUT_BYTES = 1 << 20


@pytest.fixture
def _large_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    values = OUTPUT_BYTES // 4
    outputs = {"y": np.zeros((1, values), np.float32)}

    async def infer(*_: object, **__: object) -> Answer:
        return Answer("1", outputs, 1, 1, None, 0.0, 0.0)

    async def known(*_: object, **__: object) -> Signature:
        return Signature("m", (Tensor("x", (1, 2), "FP32"),), (Tensor("y", (1, values), "FP32"),))

    monkeypatch.setattr(service, "SLOWEST_BYTES_PER_S", 1 << 30)
    monkeypatch.setattr(AsyncClient, "signature", known)
    monkeypatch.setattr(AsyncClient, "infer", infer)


def called(method: str, number: int, message: bytes) -> bytes:
    """A call in HTTP/2's frames."""

    def frame(kind: int, flags: int, data: bytes) -> bytes:
        return len(data).to_bytes(3, "big") + bytes([kind, flags]) + number.to_bytes(4, "big") + data

    fields = {":method": "POST", ":scheme": "http", ":path": f"/{SERVICE}/{method}", ":authority": "x"}
    fields |= {"content-type": "application/grpc", "te": "trailers"}
    pairs = [(name.encode(), value.encode()) for name, value in fields.items()]
    head = b"".join(b"\0%c%b%c%b" % (len(name), name, len(value), value) for name, value in pairs)
    return frame(1, 4, head) + frame(0, 1, b"\0" + len(message).to_bytes(4, "big") + message)


_TAKES_NOTHING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0])
"""A connection's begin, and settings by which nothing of an answer may be sent."""


@pytest.mark.usefixtures("_large_answers")
@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
def test_answers_that_are_not_read_are_counted_and_their_connection_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(service, "_UNREAD_S", 2.0)

    async def run() -> None:
        async with asked_alone() as (stub, request, room, port), asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await stub.ModelInfer(request)
            before = len(open_descriptors())
            writer.write(_TAKES_NOTHING)
            for number in range(1, 9, 2):
                writer.write(called(method, number, request.SerializeToString()))
            while room.taken_bytes < 4 * OUTPUT_BYTES:
                await asyncio.sleep(0.01)
            monkeypatch.setattr(room, "_limit_bytes", 4 * OUTPUT_BYTES)
            with pytest.raises(grpc.RpcError) as caught:
                await stub.ModelInfer(request)
            assert dict(caught.value.trailing_metadata())["shisha-kind"] == Error.TOO_MANY_BYTES
            await reader.read()
            while room.taken_bytes:
                await asyncio.sleep(0.01)
            await stub.ModelInfer(request)
            writer.close()
            assert len(open_descriptors()) <= before

    asyncio.run(run())


_SETTINGS, _PING, _WINDOW_UPDATE = 4, 6, 8


async def sent_of_a_request(port: int, size_bytes: int) -> int:
    """How many bytes of a `ModelInfer` of that size a server lets a caller send that obeys its flow control.

    Counted until the server has acknowledged settings often enough without taking more.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    settings = bytes([0, 0, 0, _SETTINGS, 0, 0, 0, 0, 0])
    empty = called("ModelInfer", 1, b"")
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings + empty[: -9 - 5])
    connection = stream = first = 65535
    begin, sent_bytes, quiet = b"\0" + size_bytes.to_bytes(4, "big"), 0, 0
    while quiet < 20:
        fits = min(connection, stream, 16384, size_bytes - sent_bytes)
        if fits > 0:
            piece = (begin + bytes(fits))[:fits] if not sent_bytes else bytes(fits)
            writer.write(fits.to_bytes(3, "big") + bytes([0, 0, 0, 0, 0, 1]) + piece)
            sent_bytes, connection, stream, quiet = sent_bytes + fits, connection - fits, stream - fits, 0
            continue
        quiet += 1
        writer.write(settings)
        acknowledged = False
        while not acknowledged:
            head = await reader.readexactly(9)
            said = await reader.readexactly(int.from_bytes(head[:3], "big"))
            kind, is_acknowledgement, number = head[3], head[4], int.from_bytes(head[5:], "big")
            acknowledged = kind == _SETTINGS and bool(is_acknowledgement)
            if kind == _WINDOW_UPDATE and number:
                stream += int.from_bytes(said, "big")
            elif kind == _WINDOW_UPDATE:
                connection += int.from_bytes(said, "big")
            elif kind == _SETTINGS and not is_acknowledgement:
                before, first = first, dict(struct.iter_unpack(">HI", said)).get(4, first)
                stream += first - before
                writer.write(settings[:4] + b"\1" + settings[5:])
            elif kind == _PING and not is_acknowledgement:  # by which it measures the connection
                writer.write(head[:4] + b"\1" + head[5:] + said)
    writer.close()
    return sent_bytes


def test_what_is_not_received_yet_is_taken_from_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only as many requests are received at once as there is room for; gRPC itself takes little of all others."""
    monkeypatch.setattr(service, "_MOST_RECEIVED", 1)
    size_bytes = 4_000_000

    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as held:
            port = held.getsockname()[1]
        app_state = AppState(
            ServeHttp("tcp://127.0.0.1:1", (), grpc=(GrpcListener(f"127.0.0.1:{port}", beyond=False),))
        )
        listens = asyncio.Event()
        serving = asyncio.create_task(service.serve_grpc(app_state, Inferences(app_state), listens.set))
        await listens.wait()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel, asyncio.timeout(PATIENCE_S):
            received = channel.stream_unary(f"/{SERVICE}/ModelInfer")()  # has the only turn, and nothing is written
            await received.wait_for_connection()
            sent = [await sent_of_a_request(port, size_bytes) for _ in range(5)]
            received.cancel()
        assert max(sent) <= service._UNRECEIVED_BYTES + 65535
        app_state.ending.set()
        await serving
        await app_state.close()

    asyncio.run(run())


@pytest.mark.long
def test_the_streams_of_a_host_that_has_vanished_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_PING_S", 1)

    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as held:
            port = held.getsockname()[1]
        listeners = (GrpcListener(f"127.0.0.1:{port}", beyond=False),)
        app_state = AppState(ServeHttp("tcp://127.0.0.1:1", (), grpc=listeners, models=()))
        listens = asyncio.Event()
        serving = asyncio.create_task(service.serve_grpc(app_state, Inferences(app_state), listens.set))
        await listens.wait()
        ended, vanished = asyncio.Event(), asyncio.Event()

        async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(1 << 16):
                if not vanished.is_set():
                    writer.write(data)
            writer.close()
            ended.set()

        async def between(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(pass_on(reader, server_writer), pass_on(server_reader, writer))

        way = await asyncio.start_server(between, "127.0.0.1", 0)
        address = "{}:{}".format(*way.sockets[0].getsockname())
        async with grpc.aio.insecure_channel(address) as channel:
            call = stub_methods.GRPCInferenceServiceStub(channel).ModelStreamInfer()
            await call.write(stubs.ModelInferRequest(id="1"))
            assert (await call.read()).infer_response.id == "1"
            vanished.set()
            async with asyncio.timeout(PATIENCE_S):
                await ended.wait()
            call.cancel()
        way.close()
        app_state.ending.set()
        await serving
        await app_state.close()

    asyncio.run(run())


def test_statistics_are_those_of_the_frames(client: Any) -> None:
    def count() -> int:
        (model,) = client.get_inference_statistics(NAME, headers=token()).model_stats
        assert model.inference_stats.success.ns > 0
        return int(model.inference_count)

    client.infer(NAME, [input_of(1)], headers=token())
    before = count()
    client.infer(NAME, [input_of(1)], headers=token())
    assert count() == before + 1


def test_system_shared_memory(client: Any, daemon: DaemonProcess) -> None:
    size_bytes = frame(0).nbytes
    region = triton_memory.create_shared_memory_region("mine", f"/shisha-test-{uuid.uuid4().hex}", 2 * size_bytes)
    try:
        triton_memory.set_shared_memory_region(region, [frame(9)])
        client.register_system_shared_memory("mine", region._shm_key, 2 * size_bytes, headers=token())
        (status,) = client.get_system_shared_memory_status("mine", headers=token()).regions.values()
        assert (status.name, status.key, status.offset, status.byte_size) == (
            "mine",
            region._shm_key,
            0,
            2 * size_bytes,
        )
        with contextlib.closing(HttpCaller(daemon.http[0])) as caller:  # the same user's, over HTTP
            assert caller.tell("GET", "/v2/systemsharedmemory/status")[1][0]["name"] == "mine"
        tensor = triton.InferInput("x", list(SHAPE), "FP32")
        tensor.set_shared_memory("mine", size_bytes)
        wanted = triton.InferRequestedOutput("y")
        wanted.set_shared_memory("mine", size_bytes, size_bytes)
        result = client.infer(NAME, [tensor], outputs=[wanted], headers=token())
        assert result.get_response().raw_output_contents == [b""]
        output = triton_memory.get_contents_as_numpy(region, np.float32, SHAPE, size_bytes)
        assert (output == frame(9)).all()
        with pytest.raises(triton.InferenceServerException, match="whose user is known"):
            client.infer(NAME, [tensor], headers=token("other"))
        client.unregister_system_shared_memory("mine", headers=token())
        with pytest.raises(triton.InferenceServerException, match="not registered"):
            client.infer(NAME, [tensor], headers=token())
    finally:
        triton_memory.destroy_shared_memory_region(region)


def test_who_cancels_wants_no_answer(daemon: DaemonProcess, client: Any) -> None:
    with daemon.workers_stopped():
        call = client.async_infer(NAME, [input_of(1)], callback=lambda result, error: None, headers=token())
        until(lambda: daemon.control.status()["frames"]["in_flight"] > 0, "the frame's arrival")
        call.cancel()
        until(lambda: daemon.control.status()["frames"]["answered"].get("CANCELLED", 0) > 0, "the cancelled frame")
    assert (client.infer(NAME, [input_of(2)], headers=token()).as_numpy("y") == frame(2)).all()


def test_another_process_takes_over_at_the_same_port(daemon: DaemonProcess, client: Any) -> None:
    client.infer(NAME, [input_of(1)], headers=token())
    killed = http_pid(daemon)
    assert killed is not None
    os.kill(killed, signal.SIGKILL)

    def answers() -> bool:
        with contextlib.suppress(triton.InferenceServerException):
            return bool((client.infer(NAME, [input_of(4)], headers=token()).as_numpy("y") == frame(4)).all())
        return False

    until(answers, "an answer of the next process", every_s=0.1)
    assert http_pid(daemon) != killed


def test_a_message_too_large_is_refused(client: Any) -> None:
    tensor = triton.InferInput("x", [200, *SHAPE[1:]], "FP32")
    tensor.set_data_from_numpy(np.zeros((200, *SHAPE[1:]), np.float32))
    with pytest.raises(triton.InferenceServerException) as caught:
        client.infer(NAME, [tensor], headers=token())
    assert caught.value.status() == "StatusCode.RESOURCE_EXHAUSTED"


def test_several_models_through_one_address(tmp_path: Path) -> None:
    files = write_identity_model(tmp_path, size=8), write_identity_model(tmp_path, size=16, name="other")
    with (
        HostProcess(tmp_path, *files, "--grpc", "127.0.0.1:0") as host,
        contextlib.closing(triton.InferenceServerClient(host.grpc[0])) as client,
    ):
        assert {model.name for model in client.get_model_repository_index().models} == {NAME, "other"}
        for name, size in ((NAME, 8), ("other", 16)):
            shape = (1, 16, size, size)
            tensor = triton.InferInput("x", list(shape), "FP32")
            tensor.set_data_from_numpy(frame_of(5, shape))
            assert (client.infer(name, [tensor]).as_numpy("y") == frame_of(5, shape)).all()
        with pytest.raises(triton.InferenceServerException) as caught:  # would not be heeded
            client.load_model("other", config='{"max_batch_size":4}')
        assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
        client.unload_model("other")
        until(lambda: not client.is_model_ready("other"), "the end of the unloaded model")
        assert client.is_model_ready(NAME)


def test_tls_where_other_hosts_can_reach_it(tmp_path: Path) -> None:
    certificate, key = certificate_in(tmp_path)
    access = tmp_path / "access.toml"
    access.write_text(f'[[user]]\nname = "own"\ntoken_sha256 = "{hashlib.sha256(b"t0ken").hexdigest()}"\n')
    secured = ("--access", access, "--http-certificate", certificate, "--http-key", key)
    model = write_identity_model(tmp_path, size=8)
    with DaemonProcess(tmp_path, model, "--grpc", "0.0.0.0:0", *secured, endpoint=f"ipc://{tmp_path / 'e'}") as daemon:
        port = daemon.grpc[0].rpartition(":")[2]
        credentials = grpc.ssl_channel_credentials(certificate.read_bytes())
        name = (("grpc.ssl_target_name_override", "localhost"),)
        with grpc.secure_channel(f"127.0.0.1:{port}", credentials, name) as channel:
            live = stub_methods.GRPCInferenceServiceStub(channel).ServerLive
            assert live(stubs.ServerLiveRequest(), metadata=tuple(token().items()), timeout=PATIENCE_S).live
            with pytest.raises(grpc.RpcError) as caught:
                live(stubs.ServerLiveRequest(), timeout=PATIENCE_S)
            assert caught.value.code().name == "UNAUTHENTICATED"
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, pytest.raises(grpc.RpcError) as caught:
            stub_methods.GRPCInferenceServiceStub(channel).ServerLive(stubs.ServerLiveRequest(), timeout=PATIENCE_S)
        assert caught.value.code().name == "UNAVAILABLE"
