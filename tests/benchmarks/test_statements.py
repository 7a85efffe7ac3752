"""How the pages of the papers count what repeats: each tally by its rows, each row of one kind."""

from __future__ import annotations

import re
from typing import Final

import pytest

from benchmarks.report.facts import ROOT
from benchmarks.report.page import COUNTED, KINDS, OURS, Kind, Repeats, Statement, page, table, tables_of, tally
from benchmarks.report.results import RESULTS, read_csv

PAGES: Final = ("shisha", "dcg", "partitiontuner", "splits_paper")


def stated(kind: Kind, repeats: Repeats = "yes", where: str = "Figure 0") -> Statement:
    return Statement(where, "x", "1", {"ours": "2"}, kind, repeats, "because")


def test_what_is_fitted_or_made_so_and_aims_of_ours_are_not_counted() -> None:
    rows = [
        stated("predicted").row(),
        stated("predicted", "nearly").row(),
        stated("predicted", "partly").row(),
        stated("measured", "no").row(),
        stated("fitted").row(),
        stated("by construction").row(),
        stated("by construction").row(),
        stated("predicted", where=OURS).row(),
    ]
    assert str(tally(rows)) == "1, 2, 1 of 4; apart from these: 1 fitted, 2 by construction, 1 aims of ours"
    assert str(tally(rows[:1])) == "1, 0, 0 of 1"


def test_why_stands_where_it_does_not_repeat() -> None:
    assert [stated("predicted", repeats).row()["likely reason"] for repeats in ("yes", "no")] == ["", "because"]


def test_a_page_has_the_tally_above_its_statements() -> None:
    rows = [stated("predicted").row(), stated("fitted", "no").row()]
    text = page("# Head\n", {"Statements": rows, "Empty": [], "Other": [{"a": 1.23456, "b": None}], "Text": "said"})
    assert "**1, 0, 0 of 1; apart from these: 1 fitted**" in text
    assert "## Other\n\n| a | b |\n| --- | --- |\n| 1.235 |  |\n" in text
    assert "## Text\n\nsaid\n" in text
    assert "Empty" not in text
    assert tables_of(text)["Statements"] == [{key: str(value) for key, value in row.items()} for row in rows]
    assert table(rows).count("\n") == 3


@pytest.mark.parametrize("name", PAGES)
def test_kept_pages_count_their_rows(name: str) -> None:
    text = (RESULTS / f"{name}.md").read_text(encoding="utf-8")
    stated_in = {title: rows for title, rows in tables_of(text).items() if "kind" in rows[0]}
    assert stated_in
    for title, rows in stated_in.items():
        assert {row["kind"] for row in rows} <= set(KINDS)
        assert {row["repeats"] for row in rows} <= {"yes", "nearly", "partly", "no"}
        (said,) = re.findall(r"alone\): \*\*(.*)\*\*", text.split(f"\n## {title}\n")[1].split("\n## ")[0])
        assert said == str(tally(rows))
        counted = [row for row in rows if row["kind"] in COUNTED and row["paper's"] != OURS]
        assert int(re.findall(r"of (\d+)", said)[0]) == len(counted)


@pytest.mark.parametrize("name", PAGES)
def test_kept_pages_have_the_rows_of_their_files(name: str) -> None:
    """The summary of all papers counts the files."""
    rows = read_csv(RESULTS / f"{name}_statements.csv")
    assert rows in tables_of((RESULTS / f"{name}.md").read_text(encoding="utf-8")).values()


def test_shishas_first_figures_are_of_the_kinds_that_their_file_says() -> None:
    text = (ROOT / "docs" / "research.md").read_text(encoding="utf-8")
    table_lines = text.split("| the paper | here | kind | repeats |")[1].split("\n\n")[0].splitlines()[2:]
    said = [[cell.strip(" *") for cell in line.split("|")[-3:-1]] for line in table_lines]
    assert said == [[row["kind"], row["repeats"]] for row in read_csv(RESULTS / "bandwidth_statements.csv")]
