"""`python -m stages.jobs.plain_engine SETTINGS`: one plain engine, which computes frames on request.

SETTINGS is JSON: the name of the `engine`, the `path` of the model, `cores`, and the frame: the names of the `inputs`,
and an .npz file of their `arrays` in the same order. It prints `{"ready":true}`; then for each line that it reads
(`{"seconds":1.0,"one":false}`) the result: `frames` in `wall_s`, or with `one` the seconds of each single frame
(`times_s`).
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from stages.engines.plain import PLAIN_ENGINES, Frame

_WARM_UP_S = 0.3


def main(arguments: list[str]) -> int:
    settings = json.loads(arguments[0])
    os.sched_setaffinity(0, settings["cores"])
    engine = PLAIN_ENGINES[settings["engine"]](Path(settings["path"]), _frame(settings), settings["cores"])
    engine.run(_WARM_UP_S)
    _say({"ready": True})
    for line in sys.stdin:
        asked = json.loads(line)
        start_s = time.monotonic()
        if asked["one"]:
            times_s = []
            while time.monotonic() < start_s + asked["seconds"]:
                frame_s = time.perf_counter()
                engine.run_frame()
                times_s.append(time.perf_counter() - frame_s)
            _say({"times_s": times_s})
        else:
            frames = engine.run(asked["seconds"])
            _say({"frames": frames, "wall_s": time.monotonic() - start_s})
    return 0


def _frame(settings: dict[str, Any]) -> Frame:
    with np.load(settings["arrays"], allow_pickle=False) as arrays:
        return dict(zip(settings["inputs"], arrays.values(), strict=True))


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
