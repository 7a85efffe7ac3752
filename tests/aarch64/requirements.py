"""Print what the project and its tests of engine and worker need, a requirement a line, as pyproject.toml has it."""

from __future__ import annotations

import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
tested = [
    line
    for line in project["optional-dependencies"]["test"]
    if line.startswith(("pytest>", "pytest-timeout", "hypothesis"))
]
print("\n".join([*project["dependencies"], *tested, "ml_dtypes"]))
