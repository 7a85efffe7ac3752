"""Log lines wait for nobody."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_MUCH = """
import logging, sys
from shisha_rt.daemon.loop.log_lines import log_lines
log_lines(logging.INFO, "%(message)s")
logging.info("first")
for _ in range(1000):
    logging.info("x" * int(sys.argv[1]))
print("done")
"""


@pytest.mark.parametrize("length", [1000, 12_000])
def test_a_log_that_nobody_reads_holds_nobody(length: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _MUCH, str(length)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            process.wait(timeout=20)
            assert process.stdout.read() == "done\n"
            assert process.stderr is not None
            assert process.stderr.readline() == "first\n"
        finally:
            process.kill()


_A_LINE = """
import sys
from shisha_rt.daemon.loop.log_lines import write_line
write_line(sys.stdout, "said")
"""


def test_a_line_that_cannot_be_written_ends_nobody() -> None:
    """As on a full disk, or where the process was started without an output."""
    with Path("/dev/full").open("w") as full:
        assert subprocess.run([sys.executable, "-c", _A_LINE], stdout=full, check=False).returncode == 0
    closed = subprocess.run(["sh", "-c", 'exec "$0" -c "$1" >&-', sys.executable, _A_LINE], check=False)
    assert closed.returncode == 0
