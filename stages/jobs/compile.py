"""`python -m stages.jobs.compile MODEL_FOLDER TARGET`: have the engine optimise a cleaned model into TARGET."""

from __future__ import annotations

import sys
from pathlib import Path

from stages.engines.onnxruntime.compile import compile_into


def main(arguments: list[str]) -> int:
    model_folder, target = arguments
    compile_into(Path(model_folder), Path(target))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
