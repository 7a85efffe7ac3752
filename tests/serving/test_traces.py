"""Traces of frames, from each way in to an OTLP receiver: whole through deaths and changes of plan, and off the way of
frames when nobody takes them.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from shisha_rt.client import Client
from tests.http.http_caller import INFER, LENGTH, HttpCaller
from tests.serving.daemon_process import DaemonProcess, machine_file
from tests.serving.identity_model import LAYERS, NAME, SHAPE, frame_of, write_identity_model
from tests.serving.page import scrape, values
from tests.serving.tuned import events
from tests.waiting import PATIENCE_S, until

pytest.importorskip("opentelemetry.proto", reason="the extra `otel`")
from tests.serving.otlp_receiver import OtlpReceiver, assert_whole, attributes

PLACES: Final = ("p0", "p1")
PLAN: Final = [
    {"first": 0, "last": 3, "places": ["p0"]},
    {"first": 4, "last": LAYERS - 1, "places": ["p1"]},
]
WHOLE: Final = [{"first": 0, "last": LAYERS - 1, "places": ["p0"]}]
NAMES: Final = ["queue", "copy in", "stage 0 wait", "stage 0 run", "stage 1 wait", "stage 1 run", "copy out"]


def caller(flags: str = "01") -> tuple[str, str, str]:
    """A header, and the ids of trace and span in it."""
    trace_id, span_id = secrets.token_hex(16), secrets.token_hex(8)
    return f"00-{trace_id}-{span_id}-{flags}", trace_id, span_id


@pytest.fixture(scope="module")
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, receiver: OtlpReceiver) -> Iterator[DaemonProcess]:
    folder = tmp_path_factory.mktemp("traced")
    ways = ("--http", f"unix:{folder / 'h'}", "--grpc", "0", "--otlp", receiver.url, "--trace-ratio", "0")
    model = write_identity_model(folder)
    with DaemonProcess(folder, model, "--machine", machine_file(folder, PLACES), *ways) as running:
        running.wait_for_workers()
        assert running.control.set_plan(PLAN)["outcome"] == "live"
        yield running


def test_zeromq(daemon: DaemonProcess, receiver: OtlpReceiver) -> None:
    header, trace_id, span_id = caller()
    answer = daemon.control.infer({"x": frame_of(1)}, traceparent=header)
    frame, steps = receiver.wait_for(trace_id)
    assert frame.parent_span_id.hex() == span_id
    assert attributes(frame) == {
        "shisha.model": NAME,
        "shisha.model_version": "1",
        "shisha.frame": answer.frame,
        "shisha.code": "OK",
    }
    assert [step.name for step in steps] == NAMES
    assert_whole(frame, steps)
    run = attributes(steps[5])
    assert (run["shisha.place"], run["shisha.epoch"], run["shisha.attempt"]) == ("p1", answer.epoch, 0)
    resource = receiver.resources[-1]
    assert (resource["service.name"], resource["service.instance.id"]) == (
        "shisha-rt",
        daemon.control.status()["instance"],
    )


def test_http(daemon: DaemonProcess, receiver: OtlpReceiver) -> None:
    header, trace_id, span_id = caller()
    tensor = {"name": "x", "shape": SHAPE, "datatype": "FP32", "parameters": {"binary_data_size": frame_of(1).nbytes}}
    asked = json.dumps({"inputs": [tensor]}).encode()
    with contextlib.closing(HttpCaller(daemon.http[0])) as http:
        body = asked + frame_of(1).tobytes()
        status, _, _ = http.ask("POST", INFER, body, traceparent=header, **{LENGTH: str(len(asked))})
    assert status == 200
    frame, steps = receiver.wait_for(trace_id)
    assert frame.parent_span_id.hex() == span_id
    assert_whole(frame, steps)


def test_grpc(daemon: DaemonProcess, receiver: OtlpReceiver) -> None:
    triton: Any = pytest.importorskip("tritonclient.grpc")
    header, trace_id, span_id = caller()
    tensor = triton.InferInput("x", list(SHAPE), "FP32")
    tensor.set_data_from_numpy(frame_of(1))
    with contextlib.closing(triton.InferenceServerClient(daemon.grpc[0])) as client:
        client.infer(NAME, [tensor], headers={"traceparent": header})
    frame, steps = receiver.wait_for(trace_id)
    assert frame.parent_span_id.hex() == span_id
    assert_whole(frame, steps)


def test_who_does_not_trace_is_not_traced(daemon: DaemonProcess, receiver: OtlpReceiver) -> None:
    unsampled, unsampled_id, _ = caller("00")
    last, last_id, _ = caller()
    for header in (None, unsampled, "no such thing", last):
        assert daemon.control.infer({"x": frame_of(2)}, traceparent=header).output.shape == SHAPE
    receiver.wait_for(last_id)
    assert receiver.of_trace(unsampled_id) == []
    assert {span.trace_id.hex() for span in receiver.spans if span.name == "frame" and not span.parent_span_id} == set()


def test_an_error_and_its_code(daemon: DaemonProcess, receiver: OtlpReceiver) -> None:
    header, trace_id, _ = caller()
    with pytest.raises(Exception, match="deadline"):
        daemon.control.infer({"x": frame_of(2)}, traceparent=header, deadline_s=0.0)
    frame, _ = receiver.wait_for(trace_id)
    assert attributes(frame)["shisha.code"] == "DEADLINE_EXCEEDED"
    assert frame.status.code == 2


def test_a_worker_that_dies_amid_a_frame(daemon: DaemonProcess, receiver: OtlpReceiver) -> None:
    header, trace_id, _ = caller()
    pid = daemon.wait_for_workers()["p1"]
    os.kill(pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool, Client(daemon.endpoint, timeout_s=PATIENCE_S) as client:
        answer = pool.submit(client.infer, {"x": frame_of(3)}, traceparent=header)
        until(lambda: queued(daemon) == [0, 1], "the frame at stage 1")
        daemon.kill_worker(pid)
        assert (answer.result(PATIENCE_S).output == frame_of(3)).all()
    frame, steps = receiver.wait_for(trace_id)
    lost = [step for step in steps if step.name.endswith(" lost")]
    assert lost
    assert all(step.status.code == 2 for step in lost)
    # At its start, under a plan without the place, if the place's next worker is long in coming.
    assert {"run again", "plan changed"} & {event.name for event in frame.events}
    assert steps[-1].name == "copy out"
    assert_whole(frame, steps)
    daemon.wait_for_workers()


def queued(daemon: DaemonProcess) -> list[int]:
    """Parts that wait for each stage, or are with its worker."""
    return [stage["queued"] for stage in daemon.control.status()["plan"]["stages"]]


def test_a_change_of_plan(daemon: DaemonProcess, receiver: OtlpReceiver) -> None:
    daemon.wait_for_workers()
    epochs = []
    for plan in (WHOLE, PLAN):
        assert daemon.control.set_plan(plan)["outcome"] == "live"
        header, trace_id, _ = caller()
        answer = daemon.control.infer({"x": frame_of(4)}, traceparent=header)
        frame, steps = receiver.wait_for(trace_id)
        assert_whole(frame, steps)
        runs = [attributes(step) for step in steps if step.name.endswith(" run")]
        assert [run["shisha.epoch"] for run in runs] == [answer.epoch] * len(plan)
        epochs.append(answer.epoch)
    assert epochs[0] != epochs[1]


def test_histograms_name_traces(daemon: DaemonProcess, receiver: OtlpReceiver) -> None:
    header, trace_id, _ = caller()
    daemon.control.infer({"x": frame_of(1)}, traceparent=header)
    receiver.wait_for(trace_id)
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    with urllib.request.urlopen(urllib.request.Request(daemon.metrics, headers=accept), timeout=PATIENCE_S) as answer:
        page = answer.read().decode()
    named = [line for line in page.splitlines() if trace_id in line]
    assert len(named) == 1
    assert named[0].startswith('shisha_frame_latency_seconds_bucket{le="')


def test_the_process_is_started_again(daemon: DaemonProcess, receiver: OtlpReceiver) -> None:
    (tracer,) = daemon.running("shisha_rt.traces.process")
    tracer.kill()
    until(lambda: events(daemon.control, "tracer_died"), "the tracer's end")
    header, trace_id, _ = caller()
    daemon.control.infer({"x": frame_of(1)}, traceparent=header)
    receiver.wait_for(trace_id)


def test_a_receiver_that_takes_nothing_costs_traces_alone(daemon: DaemonProcess, receiver: OtlpReceiver) -> None:
    receiver.refusing = True
    try:
        for number in range(20):
            answer = daemon.control.infer({"x": frame_of(number)}, traceparent=caller()[0])
            assert (answer.output == frame_of(number)).all()
        until(
            lambda: values(scrape(daemon.metrics), "shisha_traces_total", "outcome").get("lost", 0) >= 20,
            "the count of lost traces",
        )
    finally:
        receiver.refusing = False
    header, trace_id, _ = caller()
    daemon.control.infer({"x": frame_of(1)}, traceparent=header)
    receiver.wait_for(trace_id)


def test_traces_of_themselves_and_why(tmp_path: Path, identity: Path) -> None:
    """Without a caller who traces; the last ones are sent before the daemon's end."""
    with OtlpReceiver() as receiver:
        options = ("--otlp", receiver.url, "--trace-ratio", "1")
        with DaemonProcess(tmp_path, identity, "--machine", machine_file(tmp_path, ["p0"]), *options) as running:
            for number in range(10):
                running.control.infer({"x": frame_of(number)})
            slow = running.control.status()["slow_frame"]
            assert slow["looked_at"] == 10
            assert {step["what"] for step in slow["steps"]} >= {"queue", "copy_in", "wait", "run", "copy_out"}
        assert len([span for span in receiver.spans if span.name == "frame"]) == 10
        assert slow["trace_id"] in {span.trace_id.hex() for span in receiver.spans}
