"""PartitionTuner's Figure 1 with Table 1's costs, as PROBLEM.json: milliseconds stand for seconds.

The paper does not print the operators' types: those that the NPU can run are the ones that it calls Convolutions.
"""

from __future__ import annotations

import json
from typing import Any

from shisha_rt.placement.problem import Problem
from shisha_rt.placement.problem_file import parse_problem


def figure_1_object() -> dict[str, Any]:
    """v1 -> v2 -> {v3 -> v4 -> v5, v6 -> v7} -> v8. Costs have their transfers in them."""
    seconds = {
        "v1": ("Conv", 1.0, 10.0),
        "v2": ("MaxPool", 2.0, None),
        "v3": ("Conv", 10.0, 2.0),
        "v4": ("Conv", 10.0, 2.0),
        "v5": ("Relu", 1.0, None),
        "v6": ("Conv", 1.0, 1.5),
        "v7": ("Relu", 1.0, None),
        "v8": ("Concat", 5.0, None),
    }
    edges = {"v1": ["v2"], "v2": ["v3", "v6"], "v3": ["v4"], "v4": ["v5"], "v5": ["v8"], "v6": ["v7"], "v7": ["v8"]}
    groups = (("v4", "v5", 10.5, 2.5), ("v6", "v7", 1.5, 2.0))
    return {
        "devices": ["cpu", "npu"],
        "nodes": [
            {"name": name, "op": op, "cost_s": {"cpu": cpu_s, "npu": npu_s}}
            for name, (op, cpu_s, npu_s) in seconds.items()
        ],
        "tensors": [{"name": f"t{name}", "producer": name, "consumers": read_by} for name, read_by in edges.items()],
        "groups": [
            {"nodes": [first, last], "device": device, "cost_s": cost_s}
            for first, last, cpu_s, npu_s in groups
            for device, cost_s in (("cpu", cpu_s), ("npu", npu_s))
        ],
    }


def figure_1() -> Problem:
    return parse_problem(json.dumps(figure_1_object()), "figure 1")
