"""What `status` answers of plans of every shape, built by hand, for tests of how it is shown."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final

from shisha_rt.plan.form import written
from shisha_rt.plan.plan import Plan, Stage

STATUS: Final[dict[str, Any]] = {
    "state": "serving",
    "version": "0.1.0",
    "instance": "abc",
    "pid": 4242,
    "uptime_s": 3725.4,
    "model": {
        "name": "net",
        "layers": 26,
        "legal_cuts": 25,
        "engine": "onnxruntime 1.23",
        "form": "prepacked",
        "shapes": [{"inputs": {"x": [1, 3]}, "frames": 5}],
    },
    "machine": {"name": "board", "emulated": False},
    "plan": {
        "epoch": 3,
        "stages": [
            {"first": 0, "last": 11, "places": ["fast0"], "service_s": 0.002},
            {"first": 12, "last": 25, "places": ["slow0"], "service_s": 0.004},
        ],
    },
    "preparing": None,
    "throughput_fps": 250.0,
    "bottleneck_s": 0.004,
    "bottleneck_stage": 1,
    "latency_s": 0.006,
    "objective": "throughput",
    "places": [
        {"name": "fast0", "state": "up", "available": True, "pid": 1, "cores": [0, 1], "threads": 2, "speed": 1.0,
         "emulated": False, "restarts": 0, "last_error": None},
        {"name": "slow0", "state": "up", "available": True, "pid": 2, "cores": [2], "threads": 1, "speed": 1.0,
         "emulated": False, "restarts": 0, "last_error": None},
    ],
    "frames": {"in_flight": 2, "slots": 6, "slots_free": 4, "answered": {"OK": 90, "CANCELLED": 1}, "replayed": 0},
    "fault": None,
}  # fmt: skip

FORK: Final = Plan(
    (
        Stage(((0, 2),), (("a",),)),
        Stage(((3, 5), (9, 9)), (("b",),), (0,)),
        Stage(((6, 8),), (("c",), ("d",)), (0,)),
        Stage(((10, 11),), (("a",),), (1, 2)),
    )
)
"""Two branches, one of them on copies; fork and join are a pool."""

FORK_S: Final = (0.001, 0.002, 0.003, 0.0014)


def copies(count: int) -> Plan:
    return Plan.chain([(0, 25, tuple((f"core{i}",) for i in range(count)))])


def team(size: int) -> Plan:
    return Plan.chain([(0, 25, (tuple(f"core{i}" for i in range(size)),))])


def branches(count: int) -> Plan:
    """A fork into so many stages, and their join."""
    middle = [Stage(((i, i),), ((f"p{i}",),), (0,)) for i in range(1, count + 1)]
    last = Stage(((count + 1, count + 2),), (("p0",),), tuple(range(1, count + 1)))
    return Plan((Stage(((0, 0),), (("p0",),)), *middle, last))


def status_of(
    plan: Plan,
    service_s: Sequence[float | None],
    slowest: int | None = 0,
    team_s: Mapping[str, float | None] | None = None,
    state: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """`team_s` and `state`, by a team's lead: where they are not the stage's time, and not up."""
    stages = written(plan, service_s=service_s)
    for stage, entry in zip(plan.stages, stages, strict=True):
        entry["teams"] = [
            {
                "places": list(members),
                "service_s": (team_s or {}).get(members[0], entry["service_s"]),
                "waited_s": 0.0001,
                "frames": 7,
                "state": (state or {}).get(members[0], "up"),
            }
            for members in stage.teams
        ]
    status = copy.deepcopy(STATUS)
    status |= {"plan": {"epoch": 3, "stages": stages}, "bottleneck_stage": slowest}
    status["tuner"] = {
        "state": "watching", "strategy": "guided", "objective": "throughput", "serves": "throughput",
        "alpha": 10, "trials_total": 9, "moves_total": 0,
    }  # fmt: skip
    status["places"] = [STATUS["places"][1] | {"name": name, "cores": [i]} for i, name in enumerate(plan.places)]
    return status
