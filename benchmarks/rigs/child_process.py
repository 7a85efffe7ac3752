"""Child processes of a benchmark, and the lines of JSON by which they get orders and return results."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

_PATIENCE_S: Final = 20.0

Fields = dict[str, Any]


class ChildProcess:
    """`PYTHON -m MODULE JSON`, which answers each line with one line."""

    def __init__(self, module: str, settings: Fields, python: str = sys.executable, enter: Sequence[str] = ()) -> None:
        self._popen = subprocess.Popen(
            [*enter, python, "-m", module, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self.pid = self._popen.pid

    def tell(self, **command: object) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write(json.dumps(command).encode() + b"\n")

    def hear(self) -> Fields:
        """The next line; raises `RuntimeError` if the process ends instead (its messages are on stderr)."""
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._popen.args!r} ended with status {self._popen.wait()}")
        fields: Fields = json.loads(line)
        return fields

    def ask(self, **command: object) -> Fields:
        self.tell(**command)
        return self.hear()

    def end(self) -> None:
        """Ask it to stop by closing its input; kill it if it does not."""
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._popen.stdin.close()
        try:
            self._popen.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self._popen.stdout.close()


@contextlib.contextmanager
def child_process(
    module: str, *, python: str = sys.executable, enter: Sequence[str] = (), **settings: object
) -> Iterator[tuple[ChildProcess, Fields]]:
    """Start a process; yield it with its first line, which it writes when it is ready.

    `python`: its interpreter. `enter`: a command that executes it elsewhere, such as in another namespace.
    """
    child = ChildProcess(module, settings, python, enter)
    try:
        yield child, child.hear()
    finally:
        child.end()


def say(**fields: object) -> None:
    """In the child: write one line of answer."""
    os.write(1, json.dumps(fields).encode() + b"\n")
