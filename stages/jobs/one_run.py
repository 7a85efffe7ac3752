"""`python -m stages.jobs.one_run`: run a model once, as standard input asks (see `model.reader.one_run`)."""

from __future__ import annotations

import sys

import msgspec

from shisha_rt.model.reader.one_run import RunAsked
from stages.engines.onnxruntime.one_run import run_once


def main() -> int:
    asked = msgspec.json.decode(sys.stdin.buffer.read(), type=RunAsked)
    sys.stdout.buffer.write(msgspec.json.encode(run_once(asked)) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
