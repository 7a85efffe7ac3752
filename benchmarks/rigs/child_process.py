"""Child processes of a benchmark, and the lines of JSON by which they get orders and return results.

`PYTHON -m benchmarks.rigs.child_process MODULE JSON` calls `child` of the module with the settings. It yields its
first line, which says that it is ready, then the answer to each order. A child with a loop of its own yields nothing:
it writes its lines by `say`.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Final

_PATIENCE_S: Final = 20.0

Fields = dict[str, Any]
Child = Generator[Fields, Fields, None]


def command_of(module: str, settings: Fields, python: str = sys.executable) -> list[str]:
    return [python, "-m", "benchmarks.rigs.child_process", module, json.dumps(settings)]


class ChildProcess:
    """A child, which answers each line with one line. `ready`: its first line, which it writes when it is ready."""

    ready: Fields

    def __init__(self, module: str, settings: Fields, python: str = sys.executable, enter: Sequence[str] = ()) -> None:
        self._popen = subprocess.Popen(
            [*enter, *command_of(module, settings, python)],
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
) -> Iterator[ChildProcess]:
    """Start a process; yield it when it is ready.

    `python`: its interpreter. `enter`: a command that executes it elsewhere, such as in another namespace.
    """
    child = ChildProcess(module, settings, python, enter)
    try:
        child.ready = child.hear()
        yield child
    finally:
        child.end()


def obey(answer: Callable[..., Fields], **ready: object) -> Child:
    """In the child: its first line, then what `answer` returns for the fields of each order."""
    order = yield {"ready": True, **ready}
    while True:
        order = yield answer(**order)


def say(**fields: object) -> None:
    """In the child: write one line of answer."""
    os.write(1, json.dumps(fields).encode() + b"\n")


@contextlib.contextmanager
def quiet_output() -> Iterator[None]:
    """In the child: context in which standard output goes to standard error, as that of Ray must not be mixed with our
    lines.
    """
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)


def main(module: str, settings: str) -> None:
    child: Child = importlib.import_module(module).child(**json.loads(settings))
    with contextlib.suppress(KeyboardInterrupt), contextlib.closing(child):
        for ready in child:
            say(**ready)
            for line in sys.stdin:
                say(**child.send(json.loads(line)))
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
