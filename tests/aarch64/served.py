"""Serve SqueezeNet here, over TCP and over ipc, and hold its answers against those of another processor.

`python served.py FOLDER`: what is asked, and answered first, is kept there; whoever comes later is compared with it.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import numpy as np

from shisha_rt.client import Client
from shisha_rt.model.zoo import zoo_path

PATIENCE_S: Final = 1200.0
TOLERANCE: Final = 1e-4
"""Of the largest value: engines of other processors round differently."""
FRAMES: Final = 2


def main(folder: Path) -> int:
    model, expected = folder / "squeezenet.onnx", folder / "answers.npy"
    if not model.exists():  # the same weights everywhere: they depend on what this processor computes
        shutil.copy(zoo_path("squeezenet"), model)
    for endpoint in ("tcp://127.0.0.1:0", f"ipc://{folder}/socket"):
        start_s = time.monotonic()
        answers, ready_s = served(model, endpoint)
        took_s = time.monotonic() - start_s
        if not expected.exists():
            np.save(expected, answers)
        difference = np.abs(answers - np.load(expected)).max() / np.abs(answers).max()
        print(
            f"{platform.machine()}, {endpoint.partition(':')[0]}: ready after {ready_s:.1f} s, {FRAMES} frames, "
            f"largest difference {difference:.1e} of the largest value, {took_s:.1f} s in all",
            flush=True,
        )
        if not difference < TOLERANCE:
            return 1
    return 0


def served(model: Path, endpoint: str) -> tuple[np.ndarray, float]:
    """The answers of a daemon that is started and stopped, and after how long it was ready."""
    command = [sys.executable, "-m", "shisha_rt", "serve", str(model), "--endpoint", endpoint, "--metrics", "0"]
    start_s = time.monotonic()
    with subprocess.Popen([*command, "--strategy", "seed"], stdout=subprocess.PIPE, start_new_session=True) as daemon:
        assert daemon.stdout is not None
        ready = json.loads(daemon.stdout.readline())
        ready_s = time.monotonic() - start_s
        generator = np.random.default_rng(0)
        with Client(ready["endpoint"], timeout_s=PATIENCE_S) as client:
            (tensor,) = client.metadata()["model"]["inputs"]
            frames = [generator.standard_normal(tensor["shape"]).astype(np.float32) for _ in range(FRAMES)]
            answers = [np.array(client.infer({tensor["name"]: frame}).output) for frame in frames]
        daemon.send_signal(signal.SIGTERM)
        status = daemon.wait(PATIENCE_S)
    assert status == 0, f"the daemon ended with status {status}"
    assert not left(daemon.pid), f"processes are left: {left(daemon.pid)}"
    return np.stack(answers), ready_s


def left(session: int) -> list[int]:
    """The processes of the daemon's session that still run."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(folder.name)) == session:
                pids.append(int(folder.name))
        except ProcessLookupError:
            continue
    return pids


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
