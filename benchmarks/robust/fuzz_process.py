"""`python -m benchmarks.robust.fuzz_process TARGET SEED FIRST COUNT FD`: cases one after the other, in one process.

The number of each case is written to the descriptor before it begins, so that the parent knows to which case a crash, a
hang, or a lack of memory belongs. Defects are written as lines of JSON, and counts at the end.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import sys
import traceback
import warnings
from collections import Counter
from types import FrameType
from typing import Final

from benchmarks.robust.targets import TARGETS, Refused

_MEMORY_BYTES: Final = 4 << 30
_OWN: Final = "shisha_rt"


class TooLong(BaseException):
    """A case exceeded its limit of CPU time, so that a busy host is no defect; the parent notices waiting cases.

    No Exception, so that no handler in between catches it.
    """


def main(arguments: list[str]) -> int:
    name, (seed, first, count, fd) = arguments[0], map(int, arguments[1:])
    target, counts = TARGETS[name], Counter[str]()
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGPROF, _too_long)
    for number in range(first, first + count):
        os.pwrite(fd, number.to_bytes(8, "little"), 0)
        data = target.case(name, seed, number)
        try:
            signal.setitimer(signal.ITIMER_PROF, target.limit_s)
            try:
                target.take(data)
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            counts["taken"] += 1
        except Refused:
            counts["refused"] += 1
        except (Exception, TooLong) as error:
            counts["defects"] += 1
            print(json.dumps({"number": number, "where": _where(error), "what": _what(error)}), flush=True)
    print(json.dumps(dict(counts)), flush=True)
    return 0


def _too_long(_number: int, _frame: FrameType | None) -> None:
    raise TooLong("it takes longer than it may")


def _where(error: BaseException) -> str:
    """The last line of the project's code in the error's traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    own = next((frame for frame in reversed(frames) if f"/{_OWN}/" in frame.filename), frames[-1])
    return f"{own.filename.rpartition(f'/{_OWN}/')[2]}:{own.lineno}"


def _what(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
