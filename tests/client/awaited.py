"""The asynchronous client as if it were synchronous, so that one suite holds for both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Self

from shisha_rt.client import Answer, AsyncClient, ShishaError


class AwaitedClient:
    """Each call runs the event loop until the call's end; between calls it stands still."""

    def __init__(self, runner: asyncio.Runner, endpoint: str, **options: Any) -> None:
        self._runner = runner
        self._client = AsyncClient(endpoint, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        return lambda *arguments, **options: self._runner.run(method(*arguments, **options))

    def close(self) -> None:
        self._runner.run(self._client.close())

    def stream(self, *arguments: Any, **options: Any) -> AwaitedStream:
        return AwaitedStream(self._runner, self._client.stream(*arguments, **options))


class AwaitedStream:
    def __init__(self, runner: asyncio.Runner, stream: Any) -> None:
        self._runner = runner
        self._stream = stream

    def __enter__(self) -> Self:
        self._runner.run(self._stream.__aenter__())
        return self

    def __exit__(self, *raised: object) -> None:
        self._runner.run(self._stream.__aexit__(*raised))

    def close(self) -> None:
        self._runner.run(self._stream.close())

    def run(self, frames: Any, **options: Any) -> Iterator[Answer | ShishaError]:
        answers = self._stream.run(frames, **options)

        async def following() -> Any:
            return await anext(answers, None)

        while (answer := self._runner.run(following())) is not None:
            yield answer
