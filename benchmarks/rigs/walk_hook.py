"""Hook of a walked process: it records each call of a project function while it is asked to.

This file is copied as `sitecustomize.py` into a folder on PYTHONPATH, so all Python processes started below have it
from their start, and so have their forks. It imports nothing of the project, whose tree may be an older one. A byte of
shared memory, the switch, states what to do. Lines are written at once, as processes here end by SIGKILL, and to a file
that is opened for each line, as a process may close all descriptors that it finds.
"""

from __future__ import annotations

import json
import mmap
import os
import socket
import sys
import threading
import time
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

FOLDER: Final = "SHISHA_WALK_FOLDER"
TREE: Final = "SHISHA_WALK_TREE"
SWITCH: Final = "switch"
OFF, NOTE = range(2)

_PACKAGES: Final = ("shisha_rt", "stages")
_SENDS: Final = frozenset({"send", "sendall", "sendmsg", "sendto"})
_WITHIN: Final = ("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>")  # parts of the function that they stand in
_A_FUNCTION: Final = 0x1  # CO_OPTIMIZED: neither a module nor the body of a class


class Hook:
    """Writes `PID.jsonl`: first the process's command, then [time_ns, kind, chain of functions] for each call."""

    def __init__(self, folder: str, tree: str) -> None:
        self._roots = tuple(f"{tree}/{package}/" for package in _PACKAGES)
        self._skip = len(tree) + 1
        self._names: dict[CodeType, str | None] = {}
        with Path(folder, SWITCH).open("rb") as file:
            self._switch = mmap.mmap(file.fileno(), 1, prot=mmap.PROT_READ)
        self._folder = folder

    def start(self) -> None:
        threading.setprofile(self.note)
        sys.setprofile(self.note)

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        if self._switch[0] != NOTE:
            return
        if event == "call":
            if self._name(frame.f_code) is not None:
                self._write([time.monotonic_ns(), "call", self._chain(frame)])
        elif event == "c_call" and argument.__name__ in _SENDS:
            end = getattr(argument, "__self__", None)
            if isinstance(end, socket.socket) and end.family == socket.AF_UNIX:
                self._write([time.monotonic_ns(), "send", self._chain(frame)])

    def _chain(self, frame: FrameType | None) -> list[str]:
        """The project's functions that are being executed, the innermost last."""
        names = []
        while frame is not None:
            name = self._name(frame.f_code)
            if name is not None:
                names.append(name)
            frame = frame.f_back
        return names[::-1]

    def _name(self, code: CodeType) -> str | None:
        """FILE:FUNCTION, or None for functions outside of the project."""
        if code not in self._names:
            ours = code.co_filename.startswith(self._roots) and bool(code.co_flags & _A_FUNCTION)
            line = f"@{code.co_firstlineno}" if code.co_name == "<lambda>" else ""
            name = f"{code.co_filename[self._skip :]}:{code.co_qualname}{line}"
            self._names[code] = name if ours and code.co_name not in _WITHIN else None
        return self._names[code]

    def _write(self, line: object) -> None:
        with Path(self._folder, f"{os.getpid()}.jsonl").open("a") as file:
            if file.tell() == 0:
                command = Path("/proc/self/cmdline").read_text().rstrip("\0").split("\0")
                file.write(json.dumps(command[0].split() if len(command) == 1 else command) + "\n")
            file.write(json.dumps(line) + "\n")


if FOLDER in os.environ:
    Hook(os.environ[FOLDER], os.environ[TREE]).start()
