"""An engine as a script would use it: a session of a file, and one frame; then it writes a line."""

from __future__ import annotations

import json
import sys

import numpy as np
import onnxruntime as ort

from benchmarks.rigs.child_process import say


def main(arguments: list[str]) -> int:
    session = ort.InferenceSession(json.loads(arguments[0])["path"], providers=["CPUExecutionProvider"])
    generator = np.random.default_rng(0)
    frame = {one.name: generator.standard_normal(one.shape).astype(np.float32) for one in session.get_inputs()}
    session.run(None, frame)
    say(answered=True)
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
