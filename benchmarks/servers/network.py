"""What all servers serve alike: a session of ONNX Runtime on one thread, raw tensors in, raw tensors out.

What to serve stands in the environment, which reaches a server's workers however it starts them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

import numpy as np

SETTINGS: Final = "SHISHA_RACE_NETWORK"
"""JSON: `path` of the file; `inputs` with `name`, `shape` and `dtype` of numpy; `ports`, three that are free; how many
`workers`; `waiting`, the most requests that may wait where a server has a limit (null: as it comes); `timeout_ms`, that
Mosec has for a request; `folder`, where each worker notes itself. `further`, of a server of several networks: `path`
and `inputs` of the others, by name.
"""

FIRST: Final = "network"
"""The name of the one network, or the first."""


def settings() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(os.environ[SETTINGS])
    return found


class Network:
    """In a worker. Its process is noted: what a frame costs is told apart in workers and all else of a server."""

    def __init__(self, name: str = FIRST) -> None:
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        import onnxruntime as ort

        its = settings()
        served = its["further"].get(name, its)
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = ort.InferenceSession(served["path"], options, providers=["CPUExecutionProvider"])
        self._inputs = [(one["name"], one["shape"], np.dtype(one["dtype"])) for one in served["inputs"]]
        (Path(its["folder"]) / str(os.getpid())).touch()

    def run(self, body: bytes) -> bytes:
        """All inputs one after the other, little-endian and row-major; all outputs likewise."""
        frame, offset = {}, 0
        for name, shape, dtype in self._inputs:
            array = np.frombuffer(body, dtype, int(np.prod(shape)), offset).reshape(shape)
            frame[name], offset = array, offset + array.nbytes
        return b"".join(output.tobytes() for output in self._session.run(None, frame))
