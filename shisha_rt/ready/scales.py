"""The scales of a model in int8, found once by a run of it and kept in its folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shisha_rt.fabric.scales import read_scales
from shisha_rt.job import run_job
from shisha_rt.ready.compile import Compiled

Tell = Callable[[str], None]

_LIMIT_S: Final = 600.0  # far more than any model has taken


def make_scales(compiled: Compiled, on_progress: Tell | None = None) -> None:
    """Raises Failure where the engine fails."""
    if read_scales(compiled.model_folder) is not None:
        return
    if on_progress is not None:
        on_progress(f"finding the scales of {compiled.model.name} in int8 (once; kept for the next start)")
    failed = f"{compiled.model.name}: its scales in int8 could not be found"
    run_job("stages.jobs.find_scales", str(compiled.model_folder), failed=failed, limit_s=_LIMIT_S)
