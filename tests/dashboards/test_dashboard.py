"""Grafana's dashboard, without Grafana: what it would refuse, draw wrongly or show nothing of."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks.report.dashboard import CONFIGS, filled_in, load_dashboard, marks, panel_queries, queries
from benchmarks.report.panels import Found, Marks, draw, stretches
from benchmarks.rigs.prometheus import Series
from shisha_rt.core.lifecycle.places import STANDINGS
from shisha_rt.core.tuning.state import WAITING, State
from shisha_rt.daemon.host_share import RELEASED
from shisha_rt.plan.rate import EVERY_OBJECTIVE
from tests.dashboards.test_alerts import needs_promtool, promtool, world

ROOT: Final = Path(__file__).parents[2]
BOARD: Final = load_dashboard()
PANELS: Final[list[dict[str, Any]]] = BOARD["panels"]
DRAWN: Final = [panel for panel in PANELS if panel["type"] != "row"]
GRAFANAS_OWN: Final = {"__all", "__interval", "__rate_interval", "__url_time_range", "__value"}
OF_MODEL: Final = 'model=~"$model|"'
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


def test_every_panel_has_a_place_of_its_own() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)
    for panel in PANELS:
        at = panel["gridPos"]
        assert at["x"] >= 0
        assert at["x"] + at["w"] <= 24
    for first, other in combinations(PANELS, 2):
        a, b = first["gridPos"], other["gridPos"]
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        above = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert beside or above, (first["title"], other["title"])


def test_every_panel_says_what_it_shows_and_in_which_unit() -> None:
    for panel in DRAWN:
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel_queries(panel), panel["title"]


def test_all_is_asked_of_the_chosen_prometheus() -> None:
    for panel in DRAWN:
        assert panel["datasource"] == SOURCE
        assert all(target["datasource"] == SOURCE for target in panel["targets"])
        assert [target["refId"] for target in panel["targets"]] == list("ABCDEFGH"[: len(panel["targets"])])
    for annotation in BOARD["annotations"]["list"]:
        if not annotation.get("builtIn"):
            assert annotation["datasource"] == annotation["target"]["datasource"] == SOURCE
            assert annotation["expr"] == annotation["target"]["expr"]


def test_variables_that_are_used_are_there() -> None:
    known = {variable["name"] for variable in BOARD["templating"]["list"]}
    text = (CONFIGS / "grafana" / "dashboards" / "shisha-rt.json").read_text(encoding="utf-8")
    assert set(re.findall(r"\$\{?(\w+)", text)) == known | GRAFANAS_OWN


def test_a_panel_of_one_daemon_asks_for_that_one() -> None:
    for panel in DRAWN:
        for query in panel_queries(panel):
            selectors = re.findall(r"\b(shisha|process)_\w+(?=[{\[)]| |$)(?!=)", query.expr)
            chosen, of_model = (query.expr.count(selector) for selector in ('instance="$instance"', OF_MODEL))
            expected = (0, 0) if panel["type"] == "table" else (len(selectors), selectors.count("shisha"))
            assert (chosen, of_model) == expected, query
    for query in marks(BOARD):
        assert 0 < query.expr.count('{instance="$instance"') == query.expr.count(OF_MODEL), query


@pytest.mark.parametrize(
    ("chosen", "shown"), [(None, ["", "a", "a.b", "b"]), ("a", ["", "a"]), (re.escape("a.b"), ["", "a.b"])]
)
def test_the_model_that_is_chosen_and_what_is_of_none_are_shown(chosen: str | None, shown: list[str]) -> None:
    (variable,) = [variable for variable in BOARD["templating"]["list"] if variable["name"] == "model"]
    assert (variable["includeAll"], variable["current"]["value"], variable["multi"]) == (True, "$__all", False)
    pattern = OF_MODEL.split('"')[1].replace("$model", variable["allValue"] if chosen is None else chosen)
    assert [model for model in ("", "a", "a.b", "b") if re.fullmatch(pattern, model)] == shown


def test_models_are_told_apart_unless_what_is_counted_adds_up() -> None:
    for panel in DRAWN:
        for query in panel_queries(panel):
            for group in re.findall(r"\b(?:sum|count|min|max)\b(?: by \(([^)]*)\))?", query.expr):
                assert "model" in group.split(", ") or group in ("outcome", "status", "reason"), query
            aggregated = re.search(r"\bby \(", query.expr)
            assert query.instant or aggregated or "process_" in query.expr or "{{model}}" in query.legend, query


@needs_promtool
def test_each_of_two_models_has_states_and_stages_of_its_own(tmp_path: Path) -> None:
    series: dict[str, str] = {}
    for model, tuner, place, layers in (("a", "tuning", "up", 3), ("b", "watching", "released", 5)):
        labels = f'job="shisha",instance="one",model="{model}"'
        series |= {
            f'shisha_tuner_state{{{labels},shisha_tuner_state="{state}"}}': f"{state == tuner:d}x9"
            for state in (*(state.value for state in State), WAITING)
        }
        series |= {
            f'shisha_place_state{{{labels},place="core0",shisha_place_state="{state}"}}': f"{state == place:d}x9"
            for state in (*STANDINGS, RELEASED)
        }
        series[f'shisha_stage_layers{{{labels},stage="0",place="core0"}}'] = f"{layers}x9"
    looks = [
        {
            "expr": filled_in(query.expr, "one", step_s=30, rate_s=60).replace("$model", chosen),
            "eval_time": "2m",
            "exp_samples": [
                {"labels": f'{{model="{model}"{labels}}}', "value": value}
                for model, value in (("a", of_a), ("b", of_b))
                if chosen in (".*", model)
            ],
        }
        for title, labels, of_a, of_b in (
            ("Tuner", "", 5, 7),
            ("Places", ',place="core0"', 1, 7),
            ("Places up", "", 1, 0),
            ("Layers of each stage", ',stage="0"', 3, 5),
        )
        for chosen in (".*", "a")
        for query in panel_queries(next(panel for panel in DRAWN if panel["title"] == title))
    ]
    path = tmp_path / "dashboard_test.yml"
    path.write_text(json.dumps({"tests": [world(series, looks)]}), encoding="utf-8")
    promtool("test", "rules", path)


def test_every_metric_is_on_the_page_of_metrics() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    rules = [(CONFIGS / "prometheus" / name).read_text() for name in ("recording_rules.yml", "alerts.yml")]
    asked = " ".join([*(query.expr for query in queries(BOARD)), *rules])
    names = set(re.findall(r"(?<![\w:])(?:shisha|process)_\w+", asked)) - {"shisha_rt"}
    groups = set(re.findall(r"- name: (\w+)", " ".join(rules)))
    metrics = {re.sub(r"_(bucket|sum|count)$", "", name) for name in names - groups}
    assert len(metrics) > 30
    assert [name for name in sorted(metrics) if f"`{name}`" not in page] == []


def test_every_series_has_a_name() -> None:
    for panel in DRAWN:
        for query in panel_queries(panel):
            by = {name for group in re.findall(r"\bby \(([^)]*)\)", query.expr) for name in group.split(", ")} - {"le"}
            shown = set(re.findall(r"\{\{(\w+)\}\}", query.legend))
            assert shown <= by | {"place", "device", "memory", "model"}, query
            assert query.instant or by <= shown, query
    assert all(query.legend for query in marks(BOARD))


def test_every_state_has_a_name_and_a_colour() -> None:
    states = [*(state.value for state in State), WAITING]
    for title, label, names, base in (
        ("Tuner", "shisha_tuner_state", states, 1),
        ("What the tuner does, and what for", "shisha_tuner_state", states, 1),
        ("What the tuner does, and what for", "shisha_objective", EVERY_OBJECTIVE, 11),
        ("Places", "shisha_place_state", (*STANDINGS, RELEASED), 1),
    ):
        panel = next(panel for panel in DRAWN if panel["title"] == title)
        (mapping,) = panel["fieldConfig"]["defaults"]["mappings"]
        texts = {value: about["text"] for value, about in mapping["options"].items()}
        asked = " ".join(query.expr for query in panel_queries(panel))
        coded = re.findall(rf'(\d+) \* {label}\{{instance="\$instance",model=~"\$model\|",{label}="(\w+)"\}}', asked)
        assert [name for _, name in coded] == [*names]
        assert [int(number) for number, _ in coded] == [*range(base, base + len(coded))]
        assert all(texts[number] == name.replace("_", " ") for number, name in coded)


@pytest.mark.long
def test_the_picture_of_it_has_every_panel() -> None:
    labels = dict.fromkeys(
        ("stage", "place", "outcome", "memory", "device", "status", "reason", "instance", "model"), "1"
    )
    series = [Series(labels, [(float(at), 1.0 + at % 3) for at in range(30)])]
    by_panel = {panel["id"]: Found([(query.legend, series) for query in panel_queries(panel)]) for panel in DRAWN}
    figure = draw(BOARD, by_panel, [Marks("blue", [5.0])], (0.0, 30.0))
    assert len(figure.axes) == len(DRAWN)
    assert {text.get_text() for text in figure.texts} >= {panel["title"] for panel in PANELS}
    legend = figure.axes[-1].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["descriptors", "regions 1"]


def test_marks_of_one_stretch_are_one() -> None:
    assert stretches([1.0, 2.0, 3.0, 7.0, 8.0, 20.0], step_s=1) == [1.0, 7.0, 20.0]
    assert stretches([], step_s=1) == []


def test_grafana_finds_the_dashboard_and_its_prometheus() -> None:
    provisioning = CONFIGS / "grafana" / "provisioning"
    assert "path: /etc/grafana/shisha-rt" in (provisioning / "dashboards" / "shisha-rt.yml").read_text()
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert "configs/grafana/dashboards:/etc/grafana/shisha-rt" in page
    assert "type: prometheus" in (provisioning / "datasources" / "prometheus.yml").read_text()
