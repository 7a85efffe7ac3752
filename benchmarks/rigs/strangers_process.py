"""Hostile clients of an HTTP server: `malformed` sends malformed requests, one after the other as fast as they are
answered; `slow` opens connections and hardly uses them.

Settings: `port`, `model`, `tensor` (an input, as in the protocol's metadata), `seed`.

Malformed requests are mutations of a good one, by a seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from benchmarks.rigs.child_process import Child, Fields, obey
from benchmarks.robust.mutations import mutated_bytes, mutated_json_text

# --- malformed requests -----------------------------------------------------------------------------------------------


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


# --- strangers --------------------------------------------------------------------------------------------------------


_AT_ONCE: Final = 16
_ANSWER_S: Final = 0.05
"""Time to wait for an answer; many requests get none, as they are incomplete, and are then closed."""
_TRICKLE_S: Final = 0.5
_MANNERS: Final = ("silent", "head", "body", "deaf")

Settings = dict[str, Any]


async def malformed(settings: Settings, count: int) -> dict[str, int]:
    """Send `count` malformed requests; return counts of answers by status, and of `none`."""
    counts: Counter[str] = Counter()

    async def one_after_the_other(number: int, share: int) -> None:
        requests = Malformed(settings["seed"] + number, settings["model"], settings["tensor"])
        for _ in range(share):
            counts[await _exchange(settings["port"], requests.draw())] += 1

    shares = [count // _AT_ONCE + (number < count % _AT_ONCE) for number in range(_AT_ONCE)]
    await asyncio.gather(*(one_after_the_other(number, share) for number, share in enumerate(shares)))
    return dict(counts)


async def _exchange(port: int, request: bytes) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        async with asyncio.timeout(_ANSWER_S):
            line = await reader.readline()
        return line[9:12].decode("latin-1") or "none"
    except (TimeoutError, ConnectionError, ValueError):
        return "none"
    finally:
        writer.transport.abort()


async def slow(settings: Settings, count: int, seconds: float) -> dict[str, int]:
    """Keep `count` connections for `seconds`, of alternating kinds: nothing is sent; a head or a body is sent slowly;
    no answer is read. Return how many the server has closed.
    """
    cut: Counter[str] = Counter()

    async def linger(number: int) -> None:
        manner = _MANNERS[number % len(_MANNERS)]
        reader, writer = await asyncio.open_connection("127.0.0.1", settings["port"], limit=1)
        host = b"Host: localhost\r\n"
        begin = {
            "silent": b"",
            "head": b"POST /v2 HTTP/1.1\r\n" + host,
            "body": b"POST /v2/models/%s/infer HTTP/1.1\r\n%sContent-Length: 100000\r\n\r\n"
            % (settings["model"].encode(), host),
            "deaf": (b"GET /page/page.css HTTP/1.1\r\n%s\r\n" % host) * 8,
        }[manner]
        until_s = asyncio.get_running_loop().time() + seconds
        try:
            writer.write(begin)
            if manner == "deaf":
                writer.transport.pause_reading()  # type: ignore[attr-defined]
            while asyncio.get_running_loop().time() < until_s:
                if manner in ("head", "body"):
                    writer.write(b"x")
                await asyncio.sleep(_TRICKLE_S)
                if reader.at_eof() or writer.is_closing():
                    cut[manner] += 1
                    return
        except ConnectionError:
            cut[manner] += 1
        finally:
            writer.transport.abort()

    await asyncio.gather(*map(linger, range(count)))
    return dict(cut)


def child(**settings: Any) -> Child:
    def answer(**order: Any) -> Fields:
        with contextlib.suppress(KeyboardInterrupt):
            if "malformed" in order:
                return {"found": asyncio.run(malformed(settings, order["malformed"]))}
            return {"found": asyncio.run(slow(settings, order["slow"], order["seconds"]))}
        return {"found": {}}

    return obey(answer)
