"""`python -m stages.jobs.newest_versions`: print the newest versions of ONNX that the engine accepts."""

from __future__ import annotations

import sys

import msgspec

from stages.engines.onnxruntime.versions import newest_taken


def main() -> int:
    print(msgspec.json.encode(newest_taken()).decode(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
