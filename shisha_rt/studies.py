"""Functions and classes of the papers' ring by name, loaded on request: serving alone loads none. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

_PAPERS: Final = "shisha_rt.papers."
HOMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "brute": "dcg.brute",
        "priority": "dcg.priority",
        "answer_split": "gp.split_answer",
        "OrderLimits": "order.ordered_plan",
        "ordered_plan": "order.ordered_plan",
        "baseline": "partitiontuner.schemes",
        "forkjoin": "partitiontuner.forkjoin",
        "opseq": "partitiontuner.schemes",
        "partitiontuner": "partitiontuner.schemes",
        "typeseq": "partitiontuner.schemes",
        "scheme_tuner": "partitiontuner.scheduled",
        "processor_costs": "partitiontuner.partition_profile",
        "profile_partitions": "partitiontuner.partition_profile",
        "schedule_partitions": "partitiontuner.scheme_answer",
        "side_by_side": "partitiontuner.scheme_plans",
        "scheme_plan": "partitiontuner.scheme_plans",
        "rival_tuner": "shisha.rivals",
    }
)
"""For each function or class, its module in `papers/`."""


def study(name: str) -> Any:
    """The function or class of that name. Raises KeyError for one that the papers' ring does not offer."""
    return getattr(import_module(_PAPERS + HOMES[name]), name)
