"""What a hop goes over: whatever carries it, what comes back is what was sent."""

from __future__ import annotations

import shutil

import pytest

from benchmarks.rigs.child_process import child_process
from benchmarks.rigs.hop_process import WAYS


@pytest.mark.parametrize("way", [way for way in WAYS if not way.startswith("ray")])
def test_all_carriers_bring_tensors_there_and_back(way: str) -> None:
    if way == "tls" and shutil.which("openssl") is None:
        pytest.skip("needs openssl, which makes its key")
    with child_process(
        "benchmarks.rigs.hop_process", way=way, address="127.0.0.1", enter_far=[], cluster="", resource=""
    ) as near:
        for size_bytes in (1, 1 << 20):
            for in_flight in (1, 8):
                assert near.ask(size_bytes=size_bytes, seconds=0.01, in_flight=in_flight)["hops"] > 24
