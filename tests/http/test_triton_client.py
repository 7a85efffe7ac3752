"""The protocol's stock client, as it is, against a real daemon; and what it does not show of the protocol."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import gzip
import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.http.http_caller import INFER, LENGTH, HttpCaller
from tests.serving.daemon_process import DaemonProcess
from tests.serving.identity_model import NAME, Array, frame_of, write_identity_model
from tests.waiting import until

triton: Any = pytest.importorskip("tritonclient.http", reason="the extra `test` has tritonclient")
triton_aio: Any = pytest.importorskip("tritonclient.http.aio")
triton_memory: Any = pytest.importorskip("tritonclient.utils.shared_memory")

SHAPE = (1, 16, 48, 48)  # 147 kB: large enough to be read straight from the socket into shared memory


def token(word: str = "t0ken") -> dict[str, str]:
    """Headers, anew for each call: the client adds its own to what it is given."""
    return {"Authorization": f"Bearer {word}"}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """With users: one of this host, whose files may be named, and one of whom nothing is known."""
    folder = tmp_path_factory.mktemp("triton")
    access = folder / "access.toml"
    access.write_text(
        f'[[user]]\nname = "own"\npermission = "client"\ntoken_sha256 = "{hashlib.sha256(b"t0ken").hexdigest()}"\n'
        f'unix_user = "{getpass.getuser()}"\n'
        f'[[user]]\nname = "other"\npermission = "client"\ntoken_sha256 = "{hashlib.sha256(b"other").hexdigest()}"\n'
        f'[[user]]\nname = "steers"\npermission = "operator"\ntoken_sha256 = "{hashlib.sha256(b"steer").hexdigest()}"\n'
    )
    model = write_identity_model(folder, size=SHAPE[2])
    http = ("--http", "127.0.0.1:0", "--http", f"unix:{folder / 'h'}", "--http-shared-memory")
    with DaemonProcess(folder, model, *http, "--access", access, endpoint=f"ipc://{folder / 'e'}") as process:
        yield process


@pytest.fixture
def url(daemon: DaemonProcess) -> str:
    return daemon.http[0].removeprefix("http://")


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    with contextlib.closing(triton.InferenceServerClient(url, concurrency=4)) as client:
        yield client


@pytest.fixture
def caller(daemon: DaemonProcess) -> Iterator[HttpCaller]:
    """By the UNIX socket, where the kernel says who calls."""
    with contextlib.closing(HttpCaller(daemon.http[1])) as caller:
        yield caller


def frame(number: int) -> Array:
    return frame_of(number, SHAPE)


def input_of(number: int, **how: Any) -> Any:
    tensor = triton.InferInput("x", list(SHAPE), "FP32")
    tensor.set_data_from_numpy(frame(number), **how)
    return tensor


def test_what_the_server_says_of_itself(client: Any) -> None:
    assert client.is_server_live(token())
    assert client.is_server_ready(token())
    assert client.is_model_ready(NAME, headers=token())
    assert client.is_model_ready(NAME, "1", headers=token())
    assert not client.is_model_ready("another", headers=token())
    assert not client.is_server_live(), "without a token"
    server = client.get_server_metadata(token())
    assert server["name"] == "shisha-rt"
    assert {"binary_tensor_data", "statistics", "system_shared_memory"} <= set(server["extensions"])
    tensor = {"datatype": "FP32", "shape": [-1, *SHAPE[1:]]}  # the first axis has the frames of a request
    for version in ("", "1"):
        model = client.get_model_metadata(NAME, version, headers=token())
        assert (model["versions"], model["platform"], model["max_batch_size"]) == (["1"], "onnx", 32)
        assert (model["inputs"], model["outputs"]) == ([{"name": "x", **tensor}], [{"name": "y", **tensor}])
        config = client.get_model_config(NAME, version, headers=token())
        assert (config["name"], config["max_batch_size"]) == (NAME, 32)
        (given,) = config["input"]
        assert (given["name"], given["data_type"], given["dims"]) == ("x", "TYPE_FP32", list(SHAPE[1:]))
    assert client.get_model_repository_index(token()) == [
        {"name": NAME, "version": "1", "state": "READY", "reason": ""}
    ]


@pytest.mark.parametrize("binary", [True, False], ids=["bytes", "JSON"])
def test_several_frames_in_one_request(client: Any, binary: bool) -> None:
    several = np.concatenate([frame(number) for number in range(4)])
    tensor = triton.InferInput("x", list(several.shape), "FP32")
    tensor.set_data_from_numpy(several, binary_data=binary)
    wanted = [triton.InferRequestedOutput("y", binary_data=binary)]
    answer = client.infer(NAME, [tensor], outputs=wanted, headers=token())
    np.testing.assert_array_equal(answer.as_numpy("y"), several)
    many = triton.InferInput("x", [33, *SHAPE[1:]], "FP32")
    many.set_data_from_numpy(np.zeros((33, *SHAPE[1:]), np.float32))
    with pytest.raises(triton.InferenceServerException, match="33 frames"):
        client.infer(NAME, [many], headers=token())


def test_statistics_are_those_of_the_frames(client: Any) -> None:
    (before,) = client.get_inference_statistics(NAME, headers=token())["model_stats"]
    client.infer(NAME, [input_of(1)], headers=token())
    with pytest.raises(triton.InferenceServerException, match="deadline"):
        client.infer(NAME, [input_of(1)], headers=token(), timeout=1)  # a microsecond
    (after,) = client.get_inference_statistics(headers=token())["model_stats"]
    assert (after["name"], after["version"]) == (NAME, "1")
    assert after["last_inference"] > before["last_inference"]
    assert after["inference_count"] == after["execution_count"] == before["inference_count"] + 1
    spent = {
        name: (
            figures["count"] - before["inference_stats"][name]["count"],
            figures["ns"] - before["inference_stats"][name]["ns"],
        )
        for name, figures in after["inference_stats"].items()
    }
    assert {name for name, (count, _) in spent.items() if count == 1} == {
        *("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")
    }
    assert spent["success"][1] == pytest.approx(spent["queue"][1] + spent["compute_infer"][1], abs=2)
    assert after["batch_stats"][0]["compute_infer"] == after["inference_stats"]["compute_infer"]


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
def test_bytes_and_json(client: Any, *, binary_in: bool, binary_out: bool) -> None:
    wanted = [triton.InferRequestedOutput("y", binary_data=binary_out)]
    tensor = input_of(7, binary_data=binary_in)
    parameters = {"stream": f"{binary_in} {binary_out}", "sequence": 3}
    sent = {"request_id": "mine", "headers": token(), "parameters": parameters}
    result = client.infer(NAME, [tensor], "1", wanted, **sent)
    assert (result.as_numpy("y") == frame(7)).all()
    response = result.get_response()
    assert (response["id"], response["model_name"], response["model_version"]) == ("mine", NAME, "1")
    assert response["parameters"].keys() == {"epoch", "frame", "queue_ms", "compute_ms", "sequence"}


@pytest.mark.parametrize("packing", ["gzip", "deflate"])
def test_packed_both_ways(client: Any, packing: str) -> None:
    packed = {"request_compression_algorithm": packing, "response_compression_algorithm": packing}
    result = client.infer(NAME, [input_of(5)], headers=token(), **packed)
    assert (result.as_numpy("y") == frame(5)).all()


def test_the_largest(client: Any) -> None:
    result = client.infer(
        NAME, [input_of(5)], headers=token(), outputs=[triton.InferRequestedOutput("y", class_count=3)]
    )
    order = np.argsort(-frame(5).reshape(-1), kind="stable")[:3]
    assert result.as_numpy("y").tolist() == [[b"%f:%d" % (frame(5).reshape(-1)[i], i) for i in order]]


def test_many_at_once(client: Any, url: str) -> None:
    under_way = [client.async_infer(NAME, [input_of(number)], headers=token()) for number in range(12)]
    for number, pending in enumerate(under_way):
        assert (pending.get_result().as_numpy("y") == frame(number)).all()

    async def gathered() -> list[Any]:
        async with triton_aio.InferenceServerClient(url) as client:
            calls = [client.infer(NAME, [input_of(number)], headers=token()) for number in range(12)]
            return await asyncio.gather(*calls)

    for number, result in enumerate(asyncio.run(gathered())):
        assert (result.as_numpy("y") == frame(number)).all()


def test_callers_do_not_get_each_others_answers(daemon: DaemonProcess) -> None:
    def call(first: int) -> None:
        with contextlib.closing(HttpCaller(daemon.http[1])) as caller:
            for number in range(first, first + 20):
                status, output = caller.infer(frame(number))
                assert status == 200, output
                assert (output == frame(number)).all()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(call, range(0, 8000, 1000)))


@pytest.fixture
def region() -> Iterator[Any]:
    name = f"shisha-test-{uuid.uuid4().hex}"
    region = triton_memory.create_shared_memory_region("mine", f"/{name}", 2 * frame(0).nbytes)
    yield region
    triton_memory.destroy_shared_memory_region(region)


def test_system_shared_memory(client: Any, region: Any) -> None:
    size_bytes = frame(0).nbytes
    triton_memory.set_shared_memory_region(region, [frame(9)])
    client.register_system_shared_memory("mine", region._shm_key, 2 * size_bytes, headers=token())
    assert client.get_system_shared_memory_status("mine", headers=token()) == [
        {"name": "mine", "key": region._shm_key, "offset": 0, "byte_size": 2 * size_bytes}
    ]
    tensor = triton.InferInput("x", list(SHAPE), "FP32")
    tensor.set_shared_memory("mine", size_bytes)
    wanted = triton.InferRequestedOutput("y")
    wanted.set_shared_memory("mine", size_bytes, size_bytes)
    result = client.infer(NAME, [tensor], outputs=[wanted], headers=token())
    assert result.get_output("y") == {"name": "y", "datatype": "FP32", "shape": list(SHAPE)}
    output = triton_memory.get_contents_as_numpy(region, np.float32, SHAPE, size_bytes)
    assert (output == frame(9)).all()

    with pytest.raises(triton.InferenceServerException, match="not registered"):
        client.get_system_shared_memory_status("yours", headers=token())
    with pytest.raises(triton.InferenceServerException, match="whose user is"):
        client.infer(NAME, [tensor], headers=token("other"))
    wanted.set_shared_memory("mine", size_bytes, size_bytes + 1)
    with pytest.raises(triton.InferenceServerException, match="294912 bytes"):
        client.infer(NAME, [tensor], outputs=[wanted], headers=token())
    client.unregister_system_shared_memory("mine", headers=token())
    client.unregister_system_shared_memory(headers=token())
    assert client.get_system_shared_memory_status(headers=token()) == []
    with pytest.raises(triton.InferenceServerException, match="not registered"):
        client.infer(NAME, [tensor], headers=token())


def test_what_there_is_none_of_is_an_error_that_says_so(client: Any) -> None:
    assert client.get_cuda_shared_memory_status(headers=token()) == []
    client.unregister_cuda_shared_memory(headers=token())
    calls: list[Callable[[], object]] = [
        lambda: client.register_cuda_shared_memory("g", b"handle", 0, 10, headers=token()),
        lambda: client.load_model(NAME, headers=token("steer")),
        lambda: client.unload_model(NAME, headers=token("steer")),
        lambda: client.get_trace_settings(NAME, headers=token()),
        lambda: client.update_trace_settings(settings={"trace_level": "TIMESTAMPS"}, headers=token()),
        lambda: client.get_log_settings(headers=token()),
        lambda: client.update_log_settings({"log_verbose_level": 1}, headers=token()),
    ]
    for call in calls:
        with pytest.raises(triton.InferenceServerException) as caught:
            call()
        assert caught.value.status() == "501"
    for call in (client.load_model, client.unload_model):  # whoever may not steer is told no more than that
        with pytest.raises(triton.InferenceServerException) as caught:
            call(NAME, headers=token())
        assert caught.value.status() == "403"


def test_every_error_has_its_status(caller: HttpCaller) -> None:
    tensor = {"name": "x", "shape": SHAPE, "datatype": "FP32", "parameters": {"binary_data_size": frame(0).nbytes}}
    header = json.dumps({"inputs": [tensor]}).encode()
    body = header + frame(0).tobytes()
    right = str(len(header))

    def status(path: str = INFER, body: bytes = body, length: str | None = None, encoding: str | None = None) -> int:
        headers = {LENGTH: length, "Content_Encoding": encoding}
        given = {name: value for name, value in headers.items() if value is not None}
        code, _, content = caller.ask("POST", path, body, **given)
        assert code == 200 or json.loads(content)["error"].isprintable()
        return code

    assert status(length=right) == 200
    assert status("/v2/models/other/infer", length=right) == 404
    assert status("/v2/models/identity/versions/2/infer", length=right) == 404
    assert status("/v2/models/identity") == 405
    assert status("/v2/models/identity/inf%65r", length=right) == 200
    assert status("/v2/models/identity/infer/", length=right) == 404
    assert status("/v2/nothing") == 404
    assert status(body=b"{") == 400
    assert status(body=body[:-1], length=right) == 400
    assert status(body=body + b"x", length=right) == 400
    assert status(length=str(len(header) - 1)) == 400
    assert status(length="x") == 400
    assert status(length=str(2**40)) == 413
    assert status(body=bytes(40 << 20)) == 413  # 32 frames in JSON may have nearly as much
    assert status(length=right, encoding="br") == 415
    assert status(body=gzip.compress(bytes(16 << 20)), length=right, encoding="gzip") == 400
    assert status(body=frame(0).tobytes(), length="0") == 200
    assert caller.infer(frame(2), deadline_ms=0)[0] == 504
    assert caller.infer(frame(2), deadline_ms=-1)[0] == 400
    assert (caller.infer(frame(3))[1] == frame(3)).all()


def test_a_body_comes_in_pieces_or_not_at_all(daemon: DaemonProcess, caller: HttpCaller) -> None:
    tensor = {"name": "x", "shape": SHAPE, "datatype": "FP32", "parameters": {"binary_data_size": frame(0).nbytes}}
    header = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    body = header + frame(4).tobytes()
    for cut in (1, len(header) - 1, len(header), len(header) + 1, len(header) + 50_000, len(body) - 1):
        for chunked in (False, True):
            size = {"Transfer-Encoding": "chunked"} if chunked else {"Content-Length": str(len(body))}
            pieces = (body[:cut], body[cut : cut + 40_000], body[cut + 40_000 :])
            caller.request("POST", INFER, iter(pieces), {LENGTH: str(len(header)), **size}, encode_chunked=chunked)
            status, output = caller.answer(SHAPE)
            assert status == 200, output
            assert (output == frame(4)).all()

    long = json.dumps({"inputs": [{**tensor, "parameters": {}, "data": frame(5).reshape(-1).tolist()}]}).encode()
    long = long.ljust(2_200_000)  # it comes in several stretches, and the parser sees none of them
    for _ in range(2):
        status, _, content = caller.ask("POST", INFER, long, **{LENGTH: str(len(long))})
        assert status == 200
        assert json.loads(content)["outputs"][0]["data"] == frame(5).reshape(-1).tolist()
    assert (caller.infer(frame(6))[1] == frame(6)).all()

    before = daemon.control.status()["frames"]
    with contextlib.closing(HttpCaller(daemon.http[1])) as gone:
        gone.putrequest("POST", INFER)
        gone.putheader(LENGTH, str(len(header)))
        gone.putheader("Content-Length", str(len(body)))
        gone.endheaders(body[: len(header) + 90_000])
    assert (caller.infer(frame(6))[1] == frame(6)).all()
    after = daemon.control.status()["frames"]
    assert sum(after["answered"].values()) == sum(before["answered"].values()) + 1
    until(lambda: daemon.control.status()["frames"]["in_flight"] == 0, "the end of all frames")


def test_a_file_is_its_owners(caller: HttpCaller) -> None:
    name = f"shisha-test-{uuid.uuid4().hex}"
    path = Path("/dev/shm") / name
    path.write_bytes(bytes(100))
    region = "/v2/systemsharedmemory/region/r"
    try:
        if os.getuid() == 0:
            os.chown(path, 65534, -1)
            assert caller.tell("POST", f"{region}/register", {"key": name, "byte_size": 100})[0] == 404
            os.chown(path, 0, -1)
        assert caller.tell("POST", f"{region}/register", {"key": name, "byte_size": 101})[0] == 400
        assert caller.tell("POST", f"{region}/register", {"key": f"../shm/{name}", "byte_size": 100})[0] == 400
        assert caller.tell("POST", f"{region}/register", {"byte_size": 100})[0] == 400
        assert caller.tell("POST", f"{region}/register", {"key": name, "byte_size": 100})[0] == 200
        assert caller.tell("POST", f"{region}/register", {"key": name, "byte_size": 100})[0] == 409
        assert caller.tell("GET", f"{region}/status")[1][0]["byte_size"] == 100
        assert caller.tell("POST", f"{region}/unregister")[0] == 200
    finally:
        path.unlink()
