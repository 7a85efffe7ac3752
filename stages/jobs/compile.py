"""`python -m stages.jobs.compile MODEL_FOLDER TARGET FORM`: have the engine bring a cleaned model into a form.

An engine may write a model that it cannot read: so the result is loaded as workers load it and run, whole and cut in
two. If the engine crashes, only this process dies, before anybody uses TARGET as a model.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from shisha_rt.model import index as model_index
from shisha_rt.model.reader import index_file
from shisha_rt.model.spans import groups_of
from shisha_rt.process.arena import Arena
from stages.engines.onnxruntime.compile import compile_into
from stages.engines.onnxruntime.segment import OptimisedModel
from stages.engines.session import untimed
from stages.noise import arena_of_own


def main(arguments: list[str]) -> int:
    model_folder, target, form = arguments
    compile_into(Path(model_folder), Path(target), cast(model_index.Form, form))
    try_out(Path(target))
    return 0


def try_out(folder: Path) -> None:
    """Run one frame through the model in `folder`, and one through its two halves."""
    index = index_file.read_index(folder)
    model = OptimisedModel(folder, index)
    middle = index.legal_cuts[len(index.legal_cuts) // 2 :][:1]

    def run_through(arena: Arena, cuts: Sequence[int] = ()) -> None:
        for run in groups_of(index.layer_count, cuts):
            model.segment((run,)).on_slot(arena, 0)(untimed)

    with arena_of_own(index, run_through) as arena:
        run_through(arena, middle)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
