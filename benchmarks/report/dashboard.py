"""Grafana's dashboard as this project reads it: its panels, and their queries to Prometheus."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

CONFIGS: Final = Path(__file__).parents[2] / "configs"
DASHBOARD: Final = CONFIGS / "grafana" / "dashboards" / "shisha-rt.json"


@dataclass(frozen=True, slots=True)
class Query:
    """`where`: the panel's or annotation's title. `legend`: of each series, with `{{label}}` for a label's value."""

    where: str
    expr: str
    legend: str = ""
    instant: bool = False


def load_dashboard() -> dict[str, Any]:
    board: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return board


def panel_queries(panel: Mapping[str, Any]) -> list[Query]:
    targets = panel.get("targets", [])
    return [
        Query(panel["title"], target["expr"], target["legendFormat"], target.get("instant", False))
        for target in targets
    ]


def marks(board: Mapping[str, Any]) -> list[Query]:
    """The annotations that are queries to Prometheus."""
    return [
        Query(annotation["name"], annotation["target"]["expr"], annotation["titleFormat"])
        for annotation in board["annotations"]["list"]
        if "target" in annotation
    ]


def queries(board: Mapping[str, Any]) -> Iterator[Query]:
    for panel in board["panels"]:
        yield from panel_queries(panel)
    yield from marks(board)


def filled_in(expr: str, instance: str, *, step_s: int, rate_s: int) -> str:
    """An expression with Grafana's variables replaced, for points of `step_s` and rates over `rate_s`."""
    values = {"$__rate_interval": f"{rate_s}s", "$__interval": f"{step_s}s", "$instance": instance}
    for name, value in values.items():
        expr = expr.replace(name, value)
    return expr
