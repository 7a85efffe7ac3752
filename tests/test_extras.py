"""How an extra is installed."""

from __future__ import annotations

import shlex
import subprocess
import sys

from shisha_rt.extras import pip_install


def test_an_extra_is_added_to_what_is_installed() -> None:
    """No index is asked for the package: what is here, from a checkout, a wheel or a link, counts."""
    command = [sys.executable, "-m", *shlex.split(pip_install("plot")), "--no-index", "--no-deps", "--dry-run"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
