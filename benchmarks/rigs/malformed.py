"""Random malformed HTTP requests, by mutations of a good one. Pure: a seed in, bytes out."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from benchmarks.robust.mutations import mutated_bytes, mutated_json_text

_PATHS: Final = (
    "/",
    "/v2",
    "/v2/models/%00/infer",
    "/v2/models/../../etc/passwd",
    "/v2/models/" + "m" * 5000,
    "/page/feed?since=-1",
    "/page/control",
    "/page/static/../../x",
    "/page/static/%2e%2e%2fx",
    "/v2/systemsharedmemory/region/x/register",
    "/v2/repository/index",
    "//",
    "*",
    "http://other/",
    "/\u00ff\u0000",
)
_METHODS: Final = ("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "CONNECT", "PRI", "get", "P\u0001ST", "")
_HEADERS: Final = (
    "Content-Length: -1",
    "Content-Length: 99999999999999999999",
    "Content-Length: 5\r\nContent-Length: 6",
    "Content-Length: 10\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip, chunked",
    "Content-Encoding: gzip\r\nContent-Length: 4",
    "Content-Encoding: br\r\nContent-Length: 4",
    "Inference-Header-Content-Length: 18446744073709551616\r\nContent-Length: 4",
    "Inference-Header-Content-Length: -5\r\nContent-Length: 4",
    "Inference-Header-Content-Length: 4\r\nContent-Length: 4",
    "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13",
    "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings",
    "Expect: 100-continue\r\nContent-Length: 4",
    "Origin: null",
    "Authorization: Bearer " + "t" * 2000,
    "Cookie: " + "; ".join(f"c{i}=x" for i in range(200)),
    "X: " + "y" * 70_000,
    " folded: line",
    "no colon",
    "\u0000: \u0001",
)
_PARAMETERS: Final = {
    "stream": "s",
    "sequence": 1,
    "deadline_ms": 10,
    "timeout": 5,
    "binary_data_output": True,
    "shared_memory_region": "r",
}


class Malformed:
    """Draws requests for `model`; `tensor`: one of its inputs, as in the metadata."""

    def __init__(self, seed: int, model: str, tensor: Mapping[str, Any]) -> None:
        self._random = random.Random(seed)
        self._model = model
        self._tensor = dict(tensor)
        self._kinds: list[Callable[[], bytes]] = [self._noise, self._head, self._body, self._flipped, self._cut]

    def draw(self) -> bytes:
        return self._random.choice(self._kinds)()

    def _noise(self) -> bytes:
        return self._random.randbytes(self._random.choice((1, 16, 300, 5000)))

    def _head(self) -> bytes:
        pick = self._random.choice
        version = pick(("HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/9", ""))
        lines = [f"{pick(_METHODS)} {pick(_PATHS)} {version}"]
        lines += self._random.sample(["Host: localhost", "Host: localhost", "Host: evil", *_HEADERS], k=3)
        return "\r\n".join([*lines, "", pick(("", "abcd", "5\r\nabcde\r\n0\r\n\r\n", "zz\r\n", "{}"))]).encode(
            "latin-1"
        )

    def _body(self) -> bytes:
        """JSON that is almost a request, sometimes repeated very often or nested very deeply."""
        count = self._random.choice((0, 1, 1, 1, 1, 1, 1, 1, 2, 500))
        inputs = [self._tensor | {"data": [0.5]}] * count
        asked = {"inputs": inputs, "outputs": [{"name": "y"}], "parameters": _PARAMETERS}
        body = mutated_json_text(self._random, json.dumps(asked).encode())
        return self._post(body.replace(b"0.5", b"[" * 900 + b"]" * 900) if self._random.random() < 0.1 else body)

    def _flipped(self) -> bytes:
        """A good request with some bytes changed."""
        return mutated_bytes(
            self._random, self._post(json.dumps({"inputs": [self._tensor | {"data": [0.5]}]}).encode())
        )

    def _cut(self) -> bytes:
        data = self._body()
        return data[: self._random.randrange(len(data))]

    def _post(self, body: bytes) -> bytes:
        head = f"POST /v2/models/{self._model}/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        if self._random.random() < 0.3:
            said = self._random.choice((len(body), 0, len(body) // 2, len(body) + 1))
            head += f"Inference-Header-Content-Length: {said}\r\n"
        return head.encode() + b"\r\n" + body
