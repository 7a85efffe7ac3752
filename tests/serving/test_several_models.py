"""Several models at one address: clients led and forwarded, places dealt, models loaded, replaced and lost."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import onnx
import psutil
import pytest
import zmq
from onnx import TensorProto, helper, numpy_helper
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from shisha_rt.cli.app import main
from shisha_rt.client import Client, FailedPrecondition, NotFound, ShishaError, Unavailable, Unimplemented
from shisha_rt.core.dealer import RESTS_S
from shisha_rt.errors import Code, Error
from shisha_rt.protocol.header import decode_head, encode_operation
from shisha_rt.protocol.keys import new_pair, write_pair
from tests.http.http_caller import HttpCaller
from tests.machine.host.control_group import quota_group
from tests.serving.daemon_process import DaemonEnded, machine_file
from tests.serving.host_process import HostProcess
from tests.serving.identity_model import frame_of, write_identity_model
from tests.serving.load import Load, assert_kept
from tests.serving.page import scrape
from tests.waiting import PATIENCE_S, until
from tests.wording import raised

SHAPE: Final = (1, 4, 8, 8)


def write_times(folder: Path, factor: float, name: str = "times", shape: tuple[int, ...] = SHAPE) -> Path:
    """A model whose answer is `factor` times its input: so an answer tells which version made it."""
    channels = shape[1]
    weights = numpy_helper.from_array((np.eye(channels, dtype="f4") * factor)[:, :, None, None], "w")
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"])]
    ends = [[helper.make_tensor_value_info(end, TensorProto.FLOAT, shape)] for end in "xy"]
    graph = helper.make_graph(nodes, name, ends[0], ends[1], [weights])
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / f"{name}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


X: Final = np.arange(np.prod(SHAPE), dtype="f4").reshape(SHAPE)


class Asking(threading.Thread):
    """A client that asks one frame after the other, in a stream with several in flight: which factors answered."""

    def __init__(self, client: Client) -> None:
        super().__init__(daemon=True)
        self.client = client
        self.factors: list[float] = []
        self.errors: list[ShishaError] = []
        self.stopping = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopping.set()
        self.join(PATIENCE_S)
        self.client.close()

    def run(self) -> None:
        with self.client.stream(in_flight=4) as stream:
            for answer in stream.run(self._frames(), errors="return"):
                if isinstance(answer, ShishaError):
                    self.errors.append(answer)
                    time.sleep(0.02)
                    continue
                factor = float(answer.output.flat[1])
                assert (answer.output == factor * X).all(), "an answer is of two versions"
                self.factors.append(factor)

    def _frames(self) -> Iterator[Any]:
        while not self.stopping.wait(0.003):
            yield {"x": X}

    def wait_for(self, count: int) -> None:
        wanted = len(self.factors) + count
        until(lambda: len(self.factors) >= wanted, f"{count} more answers")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that models are served from."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def host(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    files = write_identity_model(models), write_times(models, 2.0)
    with HostProcess(tmp_path_factory.mktemp("several"), *files, "--http", "127.0.0.1:0") as running:
        yield running


def test_a_client_that_does_not_follow_may_send_all_before_it_reads(host: HostProcess) -> None:
    """More than queues on the way take, of both: requests that are held are sent on, and answers wait to be read."""
    count, data = 300, X.tobytes()
    inputs = [{"name": "x", "shape": SHAPE, "datatype": "FP32", "parameters": {"binary_data_size": len(data)}}]
    with zmq.Context() as context, context.socket(zmq.DEALER) as client:
        client.linger, client.rcvtimeo = 0, round(1e3 * PATIENCE_S)
        client.connect(host.endpoint)
        for number in range(count):
            header = {"op": "infer", "id": str(number), "model_name": "times", "inputs": inputs}
            client.send_multipart([json.dumps(header).encode(), data])
        answers = [client.recv_multipart() for _ in range(count)]
    assert sorted(int(json.loads(header)["id"]) for header, *_ in answers) == [*range(count)]
    assert all((np.frombuffer(output, "f4") == 2 * X.reshape(-1)).all() for _, output in answers)


def post(host: HostProcess, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(host.http[0] + path, data), timeout=PATIENCE_S) as answer:
        return json.loads(answer.read() or b"null")


def test_a_folder_of_a_single_model_takes_another_version(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    write_times(folder, 2.0)
    with HostProcess(tmp_path, folder) as host, host.model("times") as client:
        newer = write_times(folder, 3.0, "newer")
        host.control.call("model_load", model_name="times", model=str(newer), version="2")
        assert (client.infer(X).output == 3 * X).all()


def test_clients_are_led_to_their_models_daemon(host: HostProcess) -> None:
    with host.model("identity") as first, host.model("times") as other:
        assert (first.infer(frame_of(3)).output == frame_of(3)).all()
        assert (other.infer(X).output == 2 * X).all()
        assert first._link.at != other._link.at
        assert first._link.at.startswith("ipc://")
        assert first.status()["pid"] == host.entry("identity")["pid"]
    with host.model("another") as nobody, raised(NotFound, Error.UNKNOWN_MODEL, match="expected 'identity' or 'times'"):
        nobody.infer(X)
    with (
        Client(host.endpoint, timeout_s=PATIENCE_S) as unnamed,
        raised(NotFound, Error.UNKNOWN_MODEL, match="several models"),
    ):
        unnamed.infer(X)


def test_daemons_have_a_short_folder_where_paths_are_too_long(tmp_path: Path) -> None:
    """Paths of UNIX sockets have at most 107 bytes; no model could be served."""
    folder = tmp_path / ("d" * 100)
    folder.mkdir()
    files = write_identity_model(tmp_path), write_times(tmp_path, 2.0)
    with HostProcess(folder, *files) as host, host.model("identity") as client:
        assert (client.infer(frame_of(3)).output == frame_of(3)).all()
        daemons = Path(client._link.at.removeprefix("ipc://")).parent
        assert daemons.parent == Path(f"/tmp/shisha-rt-{os.geteuid()}")
        assert client.metadata()["server"]["shared_memory_socket"].startswith(f"{daemons}/")
    assert not daemons.exists()


def test_an_address_that_is_taken_is_told_at_once(host: HostProcess, tmp_path: Path) -> None:
    """A second host process there closed what it had not yet, and then waited for ever without a word."""
    models = write_identity_model(tmp_path), write_times(tmp_path, 2.0)
    with pytest.raises(DaemonEnded) as ended, HostProcess(tmp_path, *models, endpoint=host.endpoint):
        pass
    assert ended.value.status == 2
    assert Error.ADDRESS_TAKEN in ended.value.stderr


def test_requests_of_those_who_do_not_follow_are_forwarded(host: HostProcess) -> None:
    with Load(host.endpoint, model_name="identity") as load:
        load.wait_for_answers(50)
    assert_kept(load)


def test_what_is_asked_of_all(host: HostProcess) -> None:
    names = {"identity", "times"}
    assert host.control.call("server_ready") == {"ready": True}
    assert {entry["name"] for entry in host.control.call("repository_index")["models"]} == names
    assert {model["name"] for model in host.control.call("server_metadata")["models"]} == names
    assert {"model_starting", "model_serves", "ready"} <= set(host.kinds())
    until(lambda: len(host.control.call("model_statistics")["model_stats"]) == 2, "statistics of both")
    assert host.control.call("status", model_name="times")["status"]["model"]["name"] == "times"
    assert sum(len(place["models"]) for place in host.control.status()["places"]) >= 2
    with raised(Unimplemented, Error.UNKNOWN_OPERATION):
        host.control.call("nothing_of_the_kind")
    with urllib.request.urlopen(host.metrics) as answer:
        heads = [line.split()[:3] for line in answer.read().decode().splitlines() if line.startswith("# ")]
    assert len(heads) == len(set(map(tuple, heads))), "each name has one head, whoever counts by it"
    asked = urllib.request.Request(host.metrics, headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    with urllib.request.urlopen(asked) as answer:
        families = text_string_to_metric_families(answer.read().decode())  # type: ignore[no-untyped-call]
    assert "shisha_frames" in {family.name for family in families}
    models = {sample.labels["model"] for sample in scrape(host.metrics) if sample.name == "shisha_frames_in_flight"}
    assert models == names


def test_events_of_the_host_say_where_those_of_a_model_are(
    host: HostProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    for further, hints in (([], 1), (["--json"], 0), (["--model", "times"], 0)):
        assert main(["events", "--endpoint", host.endpoint, *further]) == 0
        assert capsys.readouterr().err.count("--model NAME") == hints


def test_over_http_models_have_paths_of_their_own(host: HostProcess) -> None:
    asked = {"inputs": [{"name": "x", "shape": list(SHAPE), "datatype": "FP32", "data": X.flatten().tolist()}]}
    answer = post(host, "/v2/models/times/infer", asked)
    assert (answer["model_name"], answer["model_version"]) == ("times", "1")
    assert answer["outputs"][0]["data"] == (2 * X).flatten().tolist()
    assert post(host, "/v2/models/identity/versions/1")["name"] == "identity"
    for nothing in ({}, {"ready": None}):
        assert {entry["state"] for entry in post(host, "/v2/repository/index", nothing)} == {"READY"}
    with pytest.raises(urllib.error.HTTPError, match="404"):
        post(host, "/v2/models/another")
    with urllib.request.urlopen(f"{host.http[0]}/", timeout=PATIENCE_S) as page:
        assert page.url.endswith("/?model=identity")


def test_models_come_and_go(host: HostProcess, models: Path, tmp_path: Path) -> None:
    three = write_times(models, 3.0, "three")
    post(host, "/v2/repository/index", {})
    (http,) = host.running("shisha_rt.http.process")
    held = http.num_fds()
    assert host.control.call("model_load", model_name="three", model=str(three)) == {"model_name": "three"}
    with host.model("three") as client:
        assert (client.infer(X).output == 3 * X).all()
        assert post(host, "/v2/models/three/ready") == {"name": "three", "ready": True}
        host.wait_for("three", lambda says: says["frames"], "what it has done")
        assert http.num_fds() > held
        with pytest.raises(urllib.error.HTTPError, match="400"):  # it would not be heeded
            post(host, "/v2/repository/models/three/load", {"parameters": {"config": "{}"}})
        post(host, "/v2/repository/models/three/unload", {})
        until(lambda: http.num_fds() <= held, "the end of what the HTTP process has for it")
        unloaded = host.entry("three")
        assert (unloaded["state"], unloaded["frames"], unloaded["throughput_fps"]) == ("UNAVAILABLE", None, None)
        assert "three" not in {row["name"] for row in host.control.call("model_statistics")["model_stats"]}
        until(lambda: _is_gone(client), "its end")
        post(host, "/v2/repository/models/three/load", {"parameters": None})
        assert (client.infer(X).output == 3 * X).all()
    host.control.call("model_unload", model_name="three")
    with raised(NotFound, Error.UNKNOWN_MODEL):
        host.control.call("model_load", model_name="four")
    with raised(FailedPrecondition, Error.LOAD_FAILED):
        host.control.call("model_load", model_name="four", model=str(models / "none.onnx"))
    elsewhere = write_times(tmp_path, 3.0)  # no folder that its operator has served models from
    (models / "link.onnx").symlink_to(elsewhere)
    for path in (elsewhere, models / "link.onnx"):
        with raised(FailedPrecondition, Error.LOAD_FAILED, match="lies in no"):
            host.control.call("model_load", model_name="four", model=str(path))
    with raised(NotFound, Error.UNKNOWN_MODEL):
        host.control.call("model_unload", model_name="nobody")


def _is_gone(client: Client) -> bool:
    """Whether the public address answers that the model is gone: no daemon of it is ending any more."""
    try:
        client.infer(X, timeout_s=1.0)
    except ShishaError as error:
        return error.kind == Error.MODEL_GONE
    return False


@pytest.mark.parametrize("factors", [(5.0,), pytest.param((7.0, 9.0), marks=pytest.mark.long)])
def test_a_version_takes_over_and_no_request_is_lost(
    host: HostProcess, models: Path, tmp_path: Path, factors: tuple[float, ...]
) -> None:
    """Streams of those who follow and of those who do not, in order; every answer is of one version."""
    same = shutil.copy(write_identity_model(tmp_path), models / "same.onnx")
    with ExitStack() as running:
        led = running.enter_context(Asking(host.model("times")))
        by_bytes = running.enter_context(Asking(host.model("times", share=False)))
        forwarded = running.enter_context(Load(host.endpoint, model_name="identity"))
        led.wait_for(1)
        versions = [led.factors[0], *factors]
        for factor in factors:
            for asking in (led, by_bytes):
                asking.wait_for(10)
            changed = write_times(models, factor, f"times{factor:g}")
            host.control.call("model_load", model_name="times", model=str(changed), version=f"{factor:g}")
            host.control.call("model_load", model_name="identity", model=str(same), version=f"{factor:g}")
            until(lambda f=factor: led.factors[-1] == by_bytes.factors[-1] == f, "answers of the new version")  # type: ignore[misc]
            forwarded.wait_for_answers(30)
        host.control.call("model_undo", model_name="times")
        until(lambda: led.factors[-1] == versions[-2], "the version before")
    for asking in (led, by_bytes):
        assert not asking.errors
        changes = [factor for before, factor in zip([0.0, *asking.factors], asking.factors, strict=False)
                   if factor != before]  # fmt: skip
        assert changes == [*versions, versions[-2]][: len(changes)]
    # Each daemon numbers its frames by itself; all else is kept.
    assert (forwarded.faults, forwarded.codes, forwarded.messages) == ([], {}, [])
    assert forwarded.results == forwarded.answered == forwarded.sent
    assert float(host.entry("times")["version"]) == (factors[-2] if factors[1:] else 1)
    daemons = host.running("shisha_rt.repository.hosted")
    until(lambda: sum(p.is_running() for p in daemons) == 2, "the end of the daemons before")


@pytest.mark.parametrize(("factor", "different"), [pytest.param(2.0, 0, marks=pytest.mark.long), (2.02, 20)])
def test_a_version_computes_what_is_answered_before_it_takes_over(
    host: HostProcess, models: Path, factor: float, different: int
) -> None:
    """The old one answers meanwhile, whatever way frames come by; what differs by more than rounding is counted."""
    changed, before, version = write_times(models, factor, f"shadowed{factor:g}"), 2.0, f"{factor:g}"
    host.control.call("model_load", model_name="times", model=str(models / "times.onnx"), version="2")
    with ExitStack() as running:
        shared = running.enter_context(Asking(host.model("times")))
        running.enter_context(Asking(host.model("times", share=False)))
        shared.wait_for(5)
        loaded = host.control.call("model_load", model_name="times", model=str(changed), version=version, shadow=20)
        ends = loaded["shadow"]
        assert (ends["compared"], ends["different"], ends["failed"]) == (20, different, 0)
        assert ends["difference"] == pytest.approx(factor / before - 1, abs=1e-5)
        until(lambda: shared.factors[-1] == pytest.approx(factor), "answers of the new version")
    assert not shared.errors
    assert host.entry("times")["version"] == version
    again = host.control.call("model_load", model_name="times", model=str(changed), version=version, shadow=20)
    assert "shadow" not in again, "it serves already"


def test_a_comparison_that_dies_changes_nothing_and_can_begin_again(host: HostProcess, models: Path) -> None:
    changed, before = write_times(models, 3.0, "watched"), host.entry("times")["version"]

    def comparing() -> list[psutil.Process]:
        return host.running("shisha_rt.daemon.children.shadow")

    def load(frames: int) -> Any:
        with Client(host.endpoint, timeout_s=PATIENCE_S) as client:
            wanted: dict[str, Any] = {
                "model_name": "times",
                "model": str(changed),
                "version": "watched",
                "shadow": frames,
            }
            return client.call("model_load", **wanted)["shadow"]

    until(lambda: not comparing(), "the end of an earlier one")
    with Asking(host.model("times")) as asking, ThreadPoolExecutor(1) as pool:
        loading = pool.submit(load, 1_000_000)
        until(lambda: comparing() and asking.factors, "a comparison")
        comparing()[0].kill()
        with raised(FailedPrecondition, Error.LOAD_FAILED):
            loading.result()
        assert host.entry("times")["version"] == before
        assert load(3)["compared"] == 3  # at once
    assert not asking.errors


def test_another_model_is_no_version(host: HostProcess, models: Path) -> None:
    other = write_times(models, 2.0, "other", (1, 4, 4, 4))
    with raised(FailedPrecondition, Error.LOAD_FAILED, match="other inputs or"):
        host.control.call("model_load", model_name="times", model=str(other))
    assert host.kinds()[-2:] == ["model_starting", "model_ended"]
    alone = onnx.load(models / "times.onnx")  # the same inputs and outputs, but of one frame
    alone.graph.node[0].output[0] = "of all"
    alone.graph.node.append(helper.make_node("ReduceMean", ["of all"], ["y"], axes=[0]))
    onnx.save(alone, models / "alone.onnx")
    with host.model("times") as client, raised(FailedPrecondition, Error.LOAD_FAILED, match="ReduceMean"):
        both = client.infer(np.concatenate([X, X])).output
        host.control.call("model_load", model_name="times", model=str(models / "alone.onnx"))
    assert len(both) == 2
    broken = models / "broken.onnx"
    broken.write_bytes(b"no model")
    with raised(FailedPrecondition, Error.LOAD_FAILED, match="not be started"):
        host.control.call("model_load", model_name="times", model=str(broken))
    assert host.entry("times")["state"] == "READY"


def test_a_load_that_names_no_file_is_refused_and_ends_nothing(host: HostProcess, models: Path) -> None:
    loop = models / "loop"
    loop.symlink_to(loop)
    for model in ("\0", str(models / ("x" * 300)), str(loop / "net.onnx")):
        with raised(FailedPrecondition, Error.LOAD_FAILED):
            host.control.call("model_load", model_name="times", model=model)
    assert host.entry("times")["state"] == "READY"


def test_a_load_that_fails_changes_nothing(host: HostProcess, models: Path) -> None:
    """Neither a model that was not known, nor one that is unloaded."""
    broken = models / "broken.onnx"
    broken.write_bytes(b"no model")
    before = host.control.call("repository_index")["models"]
    with raised(FailedPrecondition, Error.LOAD_FAILED):
        host.control.call("model_load", model_name="new", model=str(broken))
    assert host.control.call("repository_index")["models"] == before
    with raised(NotFound, Error.UNKNOWN_MODEL):
        host.control.call("model_load", model_name="new")
    host.control.call("model_load", model_name="new", model=str(write_times(models, 3.0, "times3")))
    host.control.call("model_unload", model_name="new")
    with raised(FailedPrecondition, Error.LOAD_FAILED):
        host.control.call("model_load", model_name="new", model=str(broken), version="9")
    assert host.entry("new")["version"] == "1"
    host.control.call("model_load", model_name="new")
    with host.model("new") as client:
        assert (client.infer(X).output == 3 * X).all()
    host.control.call("model_unload", model_name="new")


def test_a_file_that_is_written_anew_is_another_version_and_none_to_go_back_to(host: HostProcess, models: Path) -> None:
    file = write_times(models, 3.0, "anew")
    host.control.call("model_load", model_name="anew", model=str(file))
    host.control.call("model_load", model_name="anew")
    assert host.entry("anew")["version"] == "1"
    write_times(models, 6.0, "anew")
    host.control.call("model_load", model_name="anew")
    assert host.entry("anew")["version"] == "2"
    with host.model("anew") as client:
        assert (client.infer(X).output == 6 * X).all()
        with raised(FailedPrecondition, Error.LOAD_FAILED, match=str(file)):
            host.control.call("model_undo", model_name="anew")
        assert (client.infer(X).output == 6 * X).all()
    host.control.call("model_unload", model_name="anew")
    with raised(FailedPrecondition, Error.LOAD_FAILED, match="is unloaded"):
        host.control.call("model_undo", model_name="anew")


def test_a_version_of_a_folder_is_the_file_that_is_in_it(tmp_path: Path) -> None:
    """A load of version 1 served the newest file by that name."""
    for version, factor in (("1", 2.0), ("3", 6.0)):
        write_times(tmp_path / "repository" / "times" / version, factor)
    with HostProcess(tmp_path, tmp_path / "repository") as host, host.model("times") as client:
        for asked, served, factor in ((None, "3", 6), ("1", "1", 2), (None, "3", 6)):
            host.control.call("model_load", model_name="times", version=asked)
            assert host.entry("times")["version"] == served
            until(lambda f=factor: (client.infer(X).output == f * X).all(), "news of it for the client")  # type: ignore[misc]
        with raised(FailedPrecondition, Error.LOAD_FAILED):
            host.control.call("model_load", model_name="times", version="2")
        assert host.entry("times")["version"] == "3"


def test_a_load_whose_model_is_unloaded_meanwhile_is_answered(host: HostProcess, models: Path) -> None:
    file = write_times(models, 4.0, "brief")

    def load() -> None:
        with Client(host.endpoint, timeout_s=PATIENCE_S) as client, raised(FailedPrecondition, Error.LOAD_FAILED):
            client.call("model_load", model_name="brief", model=str(file))

    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(load)
        until(lambda: any(each["name"] == "brief" for each in host.control.status()["models"]), "a model that comes")
        host.control.call("model_unload", model_name="brief")
        loading.result()


def test_a_load_that_the_end_of_the_host_process_cuts_short_is_answered(tmp_path: Path) -> None:
    """That of a model that was not known was lost with the connection."""
    third = write_times(tmp_path, 3.0, "third")
    with HostProcess(tmp_path, write_identity_model(tmp_path), write_times(tmp_path, 2.0)) as host:

        def load(name: str) -> None:
            with Client(host.endpoint, timeout_s=PATIENCE_S) as client, raised(FailedPrecondition, Error.LOAD_FAILED):
                client.call("model_load", model_name=name, model=str(third), version="3")

        with ThreadPoolExecutor(2) as pool:
            loads = [pool.submit(load, name) for name in ("times", "new")]
            until(lambda: host.kinds().count("model_starting") == 4, "both loads")
            assert host.terminate() == 0
            for loading in loads:
                loading.result()
        host.assert_nothing_left()


def test_while_it_drains_an_address_says_so_and_admits_no_frames(tmp_path: Path) -> None:
    with (
        HostProcess(tmp_path, write_identity_model(tmp_path), write_times(tmp_path, 2.0)) as host,
        zmq.Context() as context,
        context.socket(zmq.DEALER) as client,
    ):
        client.linger, client.rcvtimeo = 0, round(1e3 * PATIENCE_S)
        pid = host.entry("times")["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            client.connect(host.endpoint)
            client.send(encode_operation("model_metadata", "forwarded", {"model_name": "times"}))
            client.send(encode_operation("server_live", "0"))
            assert decode_head(client.recv_multipart()[0]).id == "0"
            host.popen.send_signal(signal.SIGTERM)
            until(lambda: host.control.status()["state"] == "draining", "it drains")
            assert host.control.call("server_live") == {"live": True}
            assert host.control.call("server_ready") == {"ready": False}
            client.send(encode_operation("infer", "1", {"model_name": "times", "inputs": []}))
            client.send(encode_operation("model_load", "2", {"model_name": "times", "version": "2"}))
            refused = [decode_head(client.recv_multipart()[0]) for _ in range(2)]
            assert [(head.id, head.error and head.error.kind) for head in refused] == [
                ("1", "draining"),
                ("2", "draining"),
            ]
        finally:
            os.kill(pid, signal.SIGCONT)
        last = decode_head(client.recv_multipart()[0])
        assert (last.id, last.error) == ("forwarded", None)
        assert host.wait() == 0


def test_a_daemon_that_is_unwanted_as_soon_as_it_is_started_ends(host: HostProcess, models: Path) -> None:
    """Also if it has not heard the signal, and if the next load of its model has failed by then."""
    daemons = {process.pid for process in host.running("shisha_rt.repository.hosted")}
    file, broken = write_times(models, 4.0, "unwanted"), models / "broken.onnx"
    broken.write_bytes(b"no model")
    asked: list[tuple[str, dict[str, str]]] = []
    for name in ("unwanted", "unwanted too"):
        asked += [("model_load", {"model": str(file)}), ("model_unload", {}), ("model_load", {"model": str(broken)})]
        asked[-3:] = [(op, {"model_name": name, **rest}) for op, rest in asked[-3:]]
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.connect(host.endpoint)
        for number, (op, arguments) in enumerate(asked):
            socket.send(encode_operation(op, str(number), arguments))
        for _ in asked:
            assert socket.poll(round(PATIENCE_S * 1000))
            socket.recv_multipart()
    until(lambda: {process.pid for process in host.running("shisha_rt.repository.hosted")} <= daemons, "their end")
    assert host.entry("times")["state"] == "READY"


def test_a_daemon_that_was_stopped_for_a_while_is_ready_again(host: HostProcess) -> None:
    pid = host.entry("times")["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        host.wait_for("times", lambda says: says["state"] == "UNAVAILABLE", "it is stopped")
        assert host.control.call("server_ready") == {"ready": False}
    finally:
        os.kill(pid, signal.SIGCONT)
    host.wait_for("times", lambda says: (says["pid"], says["state"]) == (pid, "READY"), "it goes on")


@pytest.mark.long
def test_a_daemon_that_hangs_is_not_ready_and_replaced(host: HostProcess) -> None:
    pid = host.entry("times")["pid"]
    with host.model("times") as client:
        before = client.infer(X).output
        os.kill(pid, signal.SIGSTOP)
        said = host.wait_for("times", lambda says: says["state"] == "UNAVAILABLE", "it is stopped")
        assert (said["pid"], said["reason"] != "") == (pid, True)
        assert host.control.call("server_ready") == {"ready": False}
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(f"{host.http[0]}/v2/health/ready", timeout=PATIENCE_S)
        host.wait_for("times", lambda says: says["pid"] not in (pid, None) and says["state"] == "READY", "another")
    with host.model("times") as client:
        assert (client.infer(X).output == before).all()


def test_a_daemon_that_is_killed_is_back_and_others_notice_nothing(host: HostProcess) -> None:
    pid = host.entry("times")["pid"]
    with Asking(host.model("times")) as asking, Load(host.endpoint, model_name="identity") as other:
        asking.wait_for(5)
        os.kill(pid, signal.SIGKILL)
        host.wait_for("times", lambda says: says["pid"] not in (pid, None) and says["state"] == "READY", "another")
        asking.wait_for(5)
        other.wait_for_answers(20)
    assert asking.errors
    assert all(isinstance(error, Unavailable) for error in asking.errors)
    assert_kept(other)


@pytest.mark.parametrize("how", ["killed", "unloaded"])
def test_a_version_whose_model_is_gone_before_it_takes_over_is_refused(
    host: HostProcess, models: Path, how: str
) -> None:
    changed, before = write_times(models, 8.0, "late"), host.entry("times")

    def daemons() -> set[int]:
        return {process.pid for process in host.running("shisha_rt.repository.hosted")}

    others = daemons()
    arguments: dict[str, Any] = {"model_name": "times", "model": str(changed), "version": "late"}

    def load() -> None:
        with Client(host.endpoint, timeout_s=PATIENCE_S) as client, raised(FailedPrecondition, Error.LOAD_FAILED):
            client.call("model_load", **arguments)

    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(load)
        until(lambda: daemons() - others, "a daemon that is to take over")
        late = min(daemons() - others)  # its children look like it until they run something else
        os.kill(late, signal.SIGSTOP)  # else it may have taken over by then
        if how == "killed":
            os.kill(before["pid"], signal.SIGKILL)
            host.wait_for("times", lambda entry: entry["pid"] != before["pid"], "its death to be noticed")
        else:
            host.control.call("model_unload", model_name="times")
        with suppress(ProcessLookupError):
            os.kill(late, signal.SIGCONT)
        loading.result()
    if how == "unloaded":
        host.control.call("model_load", model_name="times")
    after = host.wait_for("times", lambda entry: entry["state"] == "READY" and entry["pid"] != before["pid"], "back")
    assert after["version"] == before["version"]
    until(lambda: late not in daemons(), "the end of the other version")


def test_a_host_process_that_is_killed_leaves_its_daemons_to_the_next(tmp_path: Path) -> None:
    models = [write_identity_model(tmp_path), write_times(tmp_path, 2.0)]
    with HostProcess(tmp_path, *models) as first:
        pids = {name: first.entry(name)["pid"] for name in ("identity", "times")}
        with first.model("times") as led:
            assert (led.infer(X).output == 2 * X).all()
            first.popen.kill()
            first.popen.wait()
            assert (led.infer(X).output == 2 * X).all(), "its client goes on"
            with HostProcess(tmp_path, *models, endpoint=first.endpoint) as second:
                assert {name: second.entry(name)["pid"] for name in ("identity", "times")} == pids
                assert not second.control.status()["host"]["shared"], "whose cores but its daemons' could it have?"
                assert all(psutil.pid_exists(pid) for pid in pids.values())
                assert (led.infer(X).output == 2 * X).all()
                with second.model("identity") as client:
                    assert (client.infer(frame_of(3)).output == frame_of(3)).all()


def test_a_daemon_that_ends_as_it_is_taken_over_is_started_again_and_so_is_one_whose_file_is_another(
    tmp_path: Path,
) -> None:
    model = write_times(tmp_path, 2.0)
    with HostProcess(tmp_path, model, write_times(tmp_path, 3.0, "other")) as first:
        pid = first.entry("times")["pid"]
        first.popen.kill()
        first.popen.wait()
        os.kill(pid, signal.SIGSTOP)  # it does not answer what it is asked
        with HostProcess(tmp_path, model, write_times(tmp_path, 4.0, "other"), endpoint=first.endpoint) as second:
            os.kill(pid, signal.SIGKILL)
            second.wait_for("other", lambda entry: entry["state"] == "READY", "it serves")
            with second.model("other") as client:
                assert (client.infer(X).output == 4 * X).all()
            second.wait_for("times", lambda says: says["pid"] not in (pid, None) and says["state"] == "READY", "back")
            with second.model("times") as client:
                assert (client.infer(X).output == 2 * X).all()


def test_daemons_on_other_places_are_not_taken_over(tmp_path: Path) -> None:
    models = write_identity_model(tmp_path), write_times(tmp_path, 2.0)
    with HostProcess(tmp_path, *models, "--machine", machine_file(tmp_path, ["one", "two"])) as first:
        pids = {first.entry(name)["pid"] for name in ("identity", "times")}
        first.popen.kill()
        first.popen.wait()
        machine = machine_file(tmp_path, ["one", "two", "three"])
        with HostProcess(tmp_path, *models, "--machine", machine, endpoint=first.endpoint) as second:
            for name in ("identity", "times"):
                second.wait_for(
                    name, lambda entry: entry["pid"] not in (*pids, None) and entry["state"] == "READY", "new"
                )
            with second.model("times") as client:
                assert (client.infer(X).output == 2 * X).all()


def test_daemons_that_have_more_places_are_taken_over(tmp_path: Path) -> None:
    models = write_identity_model(tmp_path), write_times(tmp_path, 2.0)
    with HostProcess(tmp_path, *models, "--machine", machine_file(tmp_path, ["one", "two"])) as first:
        pids = {name: first.entry(name)["pid"] for name in ("identity", "times")}
        first.popen.kill()
        first.popen.wait()
        machine = machine_file(tmp_path, ["one"])
        with HostProcess(tmp_path, *models, "--machine", machine, endpoint=first.endpoint) as second:
            for name in pids:
                second.wait_for(name, lambda entry: entry["places"] == ["one"], "the place that is left")
            assert {name: second.entry(name)["pid"] for name in pids} == pids
            with second.model("times") as client:
                assert (client.infer(X).output == 2 * X).all()


def test_a_host_process_that_is_killed_amid_a_load_leaves_nothing_that_no_other_wants(tmp_path: Path) -> None:
    """Neither the version that takes over from one, nor one that has not begun to serve."""
    models = [write_identity_model(tmp_path), write_times(tmp_path, 2.0)]
    with HostProcess(tmp_path, *models) as first:
        third = write_times(tmp_path, 3.0, "times3")
        first.control.call("model_load", model_name="times", model=str(third), version="3")
        daemons = len(first.running("shisha_rt.repository.hosted"))

        def load() -> None:
            wanted: dict[str, Any] = {"model_name": "identity", "model": str(models[0]), "version": "3"}
            with Client(first.endpoint, timeout_s=2.0) as client, pytest.raises(ShishaError):
                client.call("model_load", **wanted)  # its answer goes down with the host process

        with ThreadPoolExecutor(1) as pool, first.model("times") as led:
            loading = pool.submit(load)
            until(lambda: len(first.running("shisha_rt.repository.hosted")) > daemons, "a daemon that is to take over")
            first.popen.kill()
            first.popen.wait()
            with HostProcess(tmp_path, *models, endpoint=first.endpoint) as second:
                wanted = {second.entry(name)["pid"] for name in ("identity", "times")}

                def running() -> set[int]:
                    """Their children look like them until they run something else."""
                    of_both = (each.running("shisha_rt.repository.hosted") for each in (first, second))
                    return {process.pid for process in itertools.chain(*of_both)}

                until(lambda: running() == wanted, "the end of all others")
                assert (led.infer(X).output == 2 * X).all()
                loading.result()


def ready(host: HostProcess, model: str | None = None) -> bool:
    """What is said over HTTP of all models, or of one."""
    where = "/v2/health/ready" if model is None else f"/v2/models/{model}/ready"
    try:
        return bool(post(host, where)["ready"])
    except urllib.error.HTTPError:
        return False


def test_an_address_is_not_ready_while_one_of_its_models_is_not(tmp_path: Path) -> None:
    """As its worker is started again: which takes longer, the oftener it has died."""
    models = write_identity_model(tmp_path), write_times(tmp_path, 2.0)
    with HostProcess(tmp_path, *models, "--http", "127.0.0.1:0") as host:
        assert ready(host)

        def neither_is_ready() -> bool:
            for place in host.control.call("status", model_name="times")["status"]["places"]:
                if place["pid"]:
                    with suppress(ProcessLookupError):
                        os.kill(place["pid"], signal.SIGKILL)
            return not ready(host, "times") and not ready(host) and host.entry("times")["state"] == "UNAVAILABLE"

        until(neither_is_ready, "neither is ready", every_s=0.1)
        assert ready(host, "identity")
        until(lambda: ready(host, "times") and ready(host), "both are")


def test_a_model_that_cannot_start_is_given_up_and_the_other_has_its_places(tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    with HostProcess(tmp_path, write_times(tmp_path, 2.0), broken, "--http", "127.0.0.1:0") as host:
        model = host.wait_for("broken", lambda model: model["state"] == "UNAVAILABLE", "given up")
        assert "broken.onnx" in model["reason"]
        assert not model["places"]
        assert not ready(host), "one that is to be served is not"
        assert ready(host, "times")
        host.control.call("model_unload", model_name="broken")
        assert ready(host), "nobody wants it any more"
        with raised(FailedPrecondition, Error.LOAD_FAILED):
            host.control.call("model_load", model_name="broken")
        assert ready(host), "whoever has asked for it knows"
        with host.model("times") as client:
            assert (client.infer(X).output == 2 * X).all()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_places_go_where_frames_are(tmp_path: Path) -> None:
    """While workers and daemons are killed: nothing is lost of a model whose daemon was not."""
    # One core computes it more slowly than a client can send its frames.
    busy = write_identity_model(tmp_path, channels=256, size=16, name="busy")
    with (
        HostProcess(tmp_path, busy, write_times(tmp_path, 2.0), write_times(tmp_path, 3.0, "thrice")) as host,
        Load(host.endpoint, model_name="busy", shape=(1, 256, 16, 16), streams=2, depth=4) as load,
    ):
        host.wait_for("busy", lambda entry: len(entry["places"]) == 2, "both places")
        assert host.entry("times")["places"], "its warm worker stays"
        with Asking(host.model("times")) as asking:
            asking.wait_for(5)
            assert len(host.entry("busy")["places"]) == 2, "it shares with one that needs little"
            with Asking(host.model("thrice")) as third:
                third.wait_for(5)
                host.wait_for("busy", lambda entry: len(entry["places"]) == 1, "one place, as three share two")
                places = host.control.call("status", model_name="busy")["status"]["places"]
                os.kill(next(place["pid"] for place in places if place["pid"]), signal.SIGKILL)
                load.wait_for_answers(20)
        host.wait_for("busy", lambda entry: len(entry["places"]) == 2, "both places again")
        load.wait_for_answers(20)
        assert {"place_dealt", "place_taken_back"} <= set(host.kinds())
    assert_kept(load)
    assert not asking.errors + third.errors


@contextmanager
def busy_on_two_places(folder: Path, but: Collection[Code] = ()) -> Iterator[HostProcess]:
    """Two models of which one, `busy`, has more frames than a single core computes, and so two places.

    `but`: errors that its frames may end in.
    """
    busy = write_identity_model(folder, channels=256, size=16, name="busy")
    with (
        HostProcess(folder, busy, write_times(folder, 2.0), is_program=True) as host,
        Load(host.endpoint, model_name="busy", shape=(1, 256, 16, 16), streams=2, depth=4) as load,
    ):
        host.wait_for("busy", lambda entry: len(entry["places"]) == 2, "both places")
        yield host
        load.wait_for_answers(20)
    assert_kept(load, but=but)


def place_of(host: HostProcess, model: str, name: str) -> dict[str, Any]:
    places = host.control.call("status", model_name=model)["status"]["places"]
    return next(place for place in places if place["name"] == name)


@pytest.mark.long
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_a_place_that_a_daemon_has_given_up_is_not_dealt_to_it_until_it_is_brought_up_again(tmp_path: Path) -> None:
    # A frame that its place was given twice may have been computed each time the worker was killed.
    with busy_on_two_places(tmp_path, but={Code.INTERNAL}) as host:
        lost = host.entry("busy")["places"][1]

        def is_given_up() -> bool:
            place = place_of(host, "busy", lost)
            if place["pid"]:
                with suppress(ProcessLookupError):
                    os.kill(place["pid"], signal.SIGKILL)
            return bool(place["state"] == "out")

        until(is_given_up, "a place to be given up", every_s=0.1)
        host.wait_for("busy", lambda entry: lost not in entry["places"], "one place")
        until(lambda: host.kinds()[-1] == "place_taken_back", "its release")
        time.sleep(RESTS_S[0] + 1)  # until it might be dealt again
        assert lost not in host.entry("busy")["places"]
        host.control.call("place_set", model_name="busy", place=lost, up=True)
        host.wait_for("busy", lambda entry: lost in entry["places"], "both places again")


@pytest.mark.long
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_models_follow_a_quota_and_no_frame_is_lost(tmp_path: Path) -> None:
    """A core that is not dealt any more is leased by none of their daemons."""
    every = {*os.sched_getaffinity(0)}
    with quota_group(2.0 * len(every)) as group, ExitStack() as leaving:
        with group.entered():
            host = leaving.enter_context(busy_on_two_places(tmp_path))

        def leased() -> list[set[int]]:
            said = [host.control.status()]
            said += [host.control.call("status", model_name=name)["status"] for name in ("busy", "times")]
            return [set(status["host"]["leased"]) for status in said]

        group.allow(1.0)
        host.wait_for("busy", lambda entry: len(entry["places"]) == 1, "one place")
        host.wait_for("times", lambda entry: entry["places"] == host.entry("busy")["places"], "the same place")
        (place,) = host.entry("busy")["places"]
        (core,) = place_of(host, "busy", place)["cores"]
        until(lambda: leased() == [{core}] * 3, "leases to be given back")
        group.allow(2.0 * len(every))
        host.wait_for("busy", lambda entry: len(entry["places"]) == 2, "both places again")
        allotted = [event for event in host.control.events()["events"] if event["kind"] == "places_allotted"]
        assert allotted[0]["released"] == allotted[1]["taken"]


def test_over_http_an_answer_has_the_version_that_computed_it_where_all_is_forwarded(tmp_path: Path) -> None:
    """With keys the HTTP process is led to no model's daemon, and nothing tells it that another takes over."""
    pair, access, folder = new_pair(), tmp_path / "access.toml", tmp_path / "models"
    write_pair(tmp_path, "boss", pair)
    access.write_text(f'[[user]]\nname = "boss"\npublic_key = "{pair.public}"\npermission = "operator"\n')
    access.chmod(0o600)
    for version in 1, 2, 3:
        write_times(folder / "times" / str(version), float(version), "model")
    options = "--access", access, "--secret-key", tmp_path / "boss.key_secret", "--http", f"unix:{tmp_path}/http"
    keys = tmp_path / "boss.key_secret", tmp_path / "boss.key"
    with (
        HostProcess(tmp_path, folder, *options, keys=keys) as host,
        closing(HttpCaller(f"unix:{tmp_path}/http")) as caller,
    ):

        def ask(path: str) -> tuple[int, str]:
            inputs = [{"name": "x", "shape": SHAPE, "datatype": "FP32", "data": X.flatten().tolist()}]
            status, answer = caller.tell("POST", f"/v2/models/times{path}/infer", {"inputs": inputs})
            if status == 200:
                assert answer["outputs"][0]["data"][1] == float(answer["model_version"]), "an answer of another version"
            return status, answer.get("model_version", answer.get("kind"))

        assert ask("") == ask("/versions/3") == (200, "3")
        host.control.call("model_load", model_name="times", version="1")
        assert ask("/versions/3") == (404, "unknown_model")
        assert ask("") == ask("/versions/1") == (200, "1")
        host.control.call("model_load", model_name="times", version="2")
        assert ask("/versions/2") == (200, "2")
        host.control.call("model_load", model_name="times", version="3")
        assert ask("") == (200, "3")
        host.control.call("model_load", model_name="times", version="1")
        for path in "", "/config", "/stats", "/ready":
            assert caller.ask("GET", f"/v2/models/times/versions/3{path}")[0] == 404
            assert caller.ask("GET", f"/v2/models/times/versions/1{path}")[0] == 200


def test_a_changed_allow_list_is_read_and_told_of(tmp_path: Path) -> None:
    """The host process read it without a word, where a daemon writes an event."""
    access, user = tmp_path / "access.toml", f'[[user]]\nname = "one"\npublic_key = "{new_pair().public}"\n'
    access.touch(mode=0o600)
    models = write_identity_model(tmp_path), write_times(tmp_path, 2.0)
    with HostProcess(tmp_path, *models, "--access", access, endpoint=f"ipc://{tmp_path / 'host'}") as host:
        access.write_text(user)
        host.popen.send_signal(signal.SIGHUP)
        until(lambda: "access_read" in host.kinds(), "the list is read")
