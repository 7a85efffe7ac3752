"""`python -m stages.jobs.write_parts`: write runs of a cleaned model as ONNX files, as standard input asks.

Each file embeds its weights, and computes the same as a session of its device (see `messages.program_parts`).
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from shisha_rt.messages.program_parts import PartsJob
from shisha_rt.placement.segments import segment
from stages.built.clean_model import CleanModel
from stages.engines.device_session import device_model


def main() -> int:
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=PartsJob)
    model = CleanModel.read(Path(job.model_folder))
    for part in job.parts:
        cut = segment(model.graph, part.first, part.last, part.device.name)
        written = device_model(model, cut, part.device).SerializeToString()
        (Path(job.target) / part.file).write_bytes(written)
    return 0


if __name__ == "__main__":
    sys.exit(main())
