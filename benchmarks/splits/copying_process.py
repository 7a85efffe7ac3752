"""A process that copies data from shared memory on request, and confirms it."""

from __future__ import annotations

import json
import mmap
import os
import sys
from typing import Final

import numpy as np

WRITTEN: Final = b"."


def main(arguments: list[str]) -> int:
    """Each line on standard input is a number of bytes; the answer is a byte, once they are copied."""
    settings = json.loads(arguments[0])
    os.sched_setaffinity(0, {settings["core"]})
    shared = np.frombuffer(mmap.mmap(settings["file"], settings["size"]), np.uint8)
    own = np.ones(settings["size"], np.uint8)
    os.write(1, WRITTEN)
    for line in sys.stdin.buffer:
        count = int(line)
        own[:count] = shared[:count]
        os.write(1, WRITTEN)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
