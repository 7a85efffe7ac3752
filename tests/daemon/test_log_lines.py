"""Log lines wait for nobody."""

from __future__ import annotations

import subprocess
import sys

_MUCH = """
import logging
from shisha_rt.daemon.loop.log_lines import log_lines
log_lines(logging.INFO, "%(message)s")
logging.info("first")
for _ in range(1000):
    logging.info("x" * 1000)
print("done")
"""


def test_a_log_that_nobody_reads_holds_nobody() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _MUCH], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            process.wait(timeout=20)
            assert process.stdout.read() == "done\n"
            assert process.stderr is not None
            assert process.stderr.readline() == "first\n"
        finally:
            process.kill()
