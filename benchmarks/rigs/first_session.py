"""An engine as a script would use it: a session of a file, and one frame; then it writes a line."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort

from benchmarks.rigs.child_process import Child


def child(path: str) -> Child:
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    generator = np.random.default_rng(0)
    frame = {tensor.name: generator.standard_normal(tensor.shape).astype(np.float32) for tensor in session.get_inputs()}
    session.run(None, frame)
    yield {"answered": True}
