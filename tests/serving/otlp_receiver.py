"""A receiver of traces as OpenTelemetry's collector is one: OTLP over HTTP, in protobuf."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.waiting import until


class OtlpReceiver:
    """Collects spans until its context is left. `refusing`: answers that it takes none."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []
        self.refusing = False
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                assert self.path == "/v1/traces"
                if not receiver.refusing:
                    receiver.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(400 if receiver.refusing else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def take(self, request: Any) -> None:
        for whole in request.resource_spans:
            self.resources.append({pair.key: pair.value.string_value for pair in whole.resource.attributes})
            for scope in whole.scope_spans:
                self.spans += scope.spans

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def of_trace(self, trace_id: str) -> list[Any]:
        return [span for span in list(self.spans) if span.trace_id.hex() == trace_id]

    def wait_for(self, trace_id: str, frames: int = 1) -> tuple[Any, list[Any]]:
        """The frame's own span, of the last frame of a trace, and its children by the time that they begin."""

        def own() -> list[Any]:
            return [span for span in self.of_trace(trace_id) if span.name == "frame"]

        until(lambda: len(own()) >= frames, f"{frames} frames of trace {trace_id}")
        frame = max(own(), key=lambda span: span.start_time_unix_nano)
        steps = [span for span in self.of_trace(trace_id) if span.parent_span_id == frame.span_id]
        return frame, sorted(steps, key=lambda span: span.start_time_unix_nano)


def assert_whole(frame: Any, steps: Sequence[Any]) -> None:
    """The steps of a chain cover the frame's time: nothing is missing, nothing counts twice."""
    at = frame.start_time_unix_nano
    for step in steps:
        assert abs(step.start_time_unix_nano - at) <= 1_000_000 + 1, (step.name, step.start_time_unix_nano - at)
        at = step.end_time_unix_nano
    assert abs(frame.end_time_unix_nano - at) <= 1_000_000 + 1, frame.end_time_unix_nano - at


def attributes(span: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in span.attributes}
