"""Costs with places on other hosts, small enough to be worked out by hand."""

from __future__ import annotations

from typing import Any

LAYERS = 4

TENSORS: list[dict[str, Any]] = [
    {"name": "image", "size_bytes": 100, "made": -1, "readers": [0]},
    {"name": "a", "size_bytes": 10, "made": 0, "readers": [1, 3]},
    {"name": "b", "size_bytes": 20, "made": 1, "readers": [2]},
    {"name": "c", "size_bytes": 40, "made": 2, "readers": [3, 4]},
    {"name": "d", "size_bytes": 5, "made": 3, "readers": [4]},
]


def linked() -> dict[str, Any]:
    """Places l0 here, x0 and x1 on the host x, y0 on the host y: 10 bytes a second there, 20 back."""
    return {
        "layers": [{"name": name, "weight": 1} for name in "abcd"],
        "places": [
            {"name": "l0", "rank": 1},
            {"name": "x0", "rank": 1, "host": "x"},
            {"name": "x1", "rank": 1, "host": "x"},
            {"name": "y0", "rank": 1, "host": "y"},
        ],
        "time_s": [[1.0] * 4] * LAYERS,
        "tensors": TENSORS,
        "links": [
            {
                "host": host,
                "there": {"latency_s": 1.0, "bytes_per_s": 10.0},
                "back": {"latency_s": 0.5, "bytes_per_s": 20.0},
            }
            for host in "xy"
        ],
    }
