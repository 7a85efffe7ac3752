"""Hostile clients of an HTTP server: `malformed` sends malformed requests, one after the other as fast as they are
answered; `slow` opens connections and hardly uses them.

Settings: `port`, `model`, `tensor` (an input, as in the protocol's metadata), `seed`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import Any, Final

from benchmarks.rigs.child_process import Child, Fields, obey
from benchmarks.rigs.malformed import Malformed

_AT_ONCE: Final = 16
_ANSWER_S: Final = 0.05
"""Time to wait for an answer; many requests get none, as they are incomplete, and are then closed."""
_TRICKLE_S: Final = 0.5
_MANNERS: Final = ("silent", "head", "body", "deaf")

Settings = dict[str, Any]


async def malformed(settings: Settings, count: int) -> dict[str, int]:
    """Send `count` malformed requests; return counts of answers by status, and of `none`."""
    found: Counter[str] = Counter()

    async def one_after_the_other(number: int, share: int) -> None:
        requests = Malformed(settings["seed"] + number, settings["model"], settings["tensor"])
        for _ in range(share):
            found[await _exchange(settings["port"], requests.draw())] += 1

    shares = [count // _AT_ONCE + (number < count % _AT_ONCE) for number in range(_AT_ONCE)]
    await asyncio.gather(*(one_after_the_other(number, share) for number, share in enumerate(shares)))
    return dict(found)


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
