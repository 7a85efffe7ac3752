"""The network that all servers serve: a session of ONNX Runtime on one thread, raw tensors in, raw tensors out.

Settings are in the environment, which reaches a server's workers however it starts them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

SETTINGS: Final = "SHISHA_RACE_NETWORK"
"""JSON: `path` of the file; `inputs`, each with `name`, `shape` and `dtype` of numpy; `ports`, three free ones;
`workers`, how many; `waiting`, the most requests that may wait, if a server has a limit (null: its default);
`timeout_ms`, of Mosec for a request; `batch`, the most frames that a server runs together, and `delay_ms`, how long it
waits for them; `folder`, where each worker records its pid. `further`, of a server of several networks only: `path` and
`inputs` of the others, by name.
"""

FIRST: Final = "network"
"""The name of the only or first network."""


def settings() -> dict[str, Any]:
    return {"batch": 1, "delay_ms": 0, **json.loads(os.environ[SETTINGS])}


class Network:
    """The network in a worker, whose pid is recorded, so that CPU time can be divided into workers and the rest."""

    def __init__(self, name: str = FIRST) -> None:
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        import onnxruntime as ort

        given = settings()
        served = given.get("further", {}).get(name, given)
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = ort.InferenceSession(served["path"], options, providers=["CPUExecutionProvider"])
        self._inputs = [(tensor["name"], tensor["shape"], np.dtype(tensor["dtype"])) for tensor in served["inputs"]]
        (Path(given["folder"]) / str(os.getpid())).touch()

    def run(self, body: bytes) -> bytes:
        """Compute a frame. `body`: all inputs one after the other, little-endian and row-major; outputs likewise."""
        return b"".join(output.tobytes() for output in self._session.run(None, self._frame(body)))

    def run_together(self, bodies: Sequence[bytes]) -> list[bytes]:
        """Compute frames in one run, one behind the other along the first axis, which the model leaves open."""
        if len(bodies) == 1:
            return [self.run(bodies[0])]
        frames = [self._frame(body) for body in bodies]
        outputs = self._session.run(
            None, {name: np.concatenate([frame[name] for frame in frames]) for name in frames[0]}
        )
        parts = [np.split(output, len(bodies)) for output in outputs]
        return [b"".join(part.tobytes() for part in answer) for answer in zip(*parts, strict=True)]

    def _frame(self, body: bytes) -> dict[str, np.ndarray[Any, Any]]:
        frame, offset = {}, 0
        for name, shape, dtype in self._inputs:
            array = np.frombuffer(body, dtype, int(np.prod(shape)), offset).reshape(shape)
            frame[name], offset = array, offset + array.nbytes
        return frame
