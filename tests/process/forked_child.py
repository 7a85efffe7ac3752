"""A child that says what it has inherited, and ends as it is told."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path


def main(arguments: list[str]) -> int | str:
    how, *numbers = arguments
    inherited = {
        "parent": os.getppid(),
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "said": [os.read(int(number), 100).decode() for number in numbers],
        "folder": str(Path.cwd()),
        "variable": os.environ.get("SHISHA_TEST"),
        "cores": sorted(os.sched_getaffinity(0)),
        "niceness": os.nice(0),
        "killed_before": int(Path("/proc/self/oom_score_adj").read_text()),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "terminated": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
        "descriptors": sorted(int(path.name) for path in Path("/proc/self/fd").iterdir()),
        "modules": len(sys.modules),
    }
    if how == "fills memory":
        inherited["huge_kib"] = _huge_kib(bytearray(1 << 26))
    print(json.dumps(inherited), flush=True)
    match how:
        case "waits":
            time.sleep(600)
        case "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "raises":
            raise ValueError("a reason")
        case "wants a thread":
            threading.stack_size(1 << 46)  # nowhere is there so much memory
            threading.Thread(target=time.sleep).start()
        case "wants a process":  # as os.fork where there is none
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        case "complains":
            return "a complaint"
    return 7


def _huge_kib(memory: bytearray) -> int:
    """How much of this process's memory, `memory` included, is in huge pages."""
    memory[::4096] = bytes(len(memory) // 4096)
    (line,) = (line for line in Path("/proc/self/smaps_rollup").read_text().splitlines() if "AnonHugePages" in line)
    return int(line.split()[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
