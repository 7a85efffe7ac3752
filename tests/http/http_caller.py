"""A caller of a daemon's HTTP with nothing but the standard library: what it sends and gets is what is on the wire."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any

import numpy as np

from tests.serving.identity_model import NAME, Array
from tests.waiting import PATIENCE_S

INFER = f"/v2/models/{NAME}/infer"
LENGTH = "Inference-Header-Content-Length"


class HttpCaller(http.client.HTTPConnection):
    """To the daemon behind `url`: `http://HOST:PORT` or `unix:PATH`."""

    def __init__(self, url: str) -> None:
        self._path = url.removeprefix("unix:") if url.startswith("unix:") else None
        super().__init__("localhost" if self._path else url.removeprefix("http://"), timeout=PATIENCE_S)

    def connect(self) -> None:
        if self._path is None:
            super().connect()
        else:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(PATIENCE_S)
            self.sock.connect(self._path)

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers (names in small letters), body."""
        self.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = self.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()

    def tell(self, method: str, path: str, value: object = None) -> tuple[int, Any]:
        """JSON both ways; the status, and None for an answer without a body."""
        status, _, body = self.ask(method, path, b"" if value is None else json.dumps(value).encode())
        return status, json.loads(body) if body else None

    def infer(self, frame: Array, **parameters: object) -> tuple[int, Any]:
        """The answer's one output, or what the error says."""
        self.send_frame(frame, **parameters)
        return self.answer(frame.shape)

    def send_frame(self, frame: Array, **parameters: object) -> None:
        size = {"binary_data_size": frame.nbytes}
        tensor = {"name": "x", "shape": frame.shape, "datatype": "FP32", "parameters": size}
        asked = {"inputs": [tensor], "parameters": {"binary_data_output": True, **parameters}}
        header = json.dumps(asked).encode()
        self.request("POST", INFER, header + frame.tobytes(), {LENGTH: str(len(header))})

    def answer(self, shape: tuple[int, ...]) -> tuple[int, Any]:
        answer = self.getresponse()
        body = answer.read()
        if answer.status != 200:
            return answer.status, json.loads(body)["error"]
        return 200, np.frombuffer(body[int(answer.headers[LENGTH]) :], "<f4").reshape(shape)
