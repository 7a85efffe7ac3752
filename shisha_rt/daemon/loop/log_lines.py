"""Lines of a daemon that its loop never waits for: a terminal may be stopped, a pipe's reader may hang or have gone."""

from __future__ import annotations

import contextlib
import logging
import os
import select
from typing import TextIO


class _WhileRead(logging.StreamHandler[TextIO]):
    """Drops lines that cannot be written; `events` of the daemon has them all."""

    def emit(self, record: logging.LogRecord) -> None:
        write_line(self.stream, self.format(record))


def log_lines(level: int, style: str) -> None:
    logging.basicConfig(level=level, format=style, handlers=[_WhileRead()])


def write_line(stream: TextIO | None, line: str) -> None:
    """Write as much of a line as there is room for now, or nothing if it cannot be written, as on a full disk.

    A pipe that is ready takes `PIPE_BUF` bytes; whoever writes more waits for its reader. `stream`: None if the process
    was started without.
    """
    if stream is None:
        return
    data = f"{line}\n".encode(stream.encoding, errors="backslashreplace")
    with contextlib.suppress(OSError):
        for at in range(0, len(data), select.PIPE_BUF):
            if not select.select([], [stream], [], 0)[1]:
                return
            os.write(stream.fileno(), data[at : at + select.PIPE_BUF])
