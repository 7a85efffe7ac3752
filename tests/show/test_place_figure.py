"""What the picture of a placement says."""

from __future__ import annotations

from pathlib import Path

import pytest

from shisha_rt.placement.problem import Node, Problem, ProblemTensor
from shisha_rt.show import placement


@pytest.mark.parametrize(("assignment", "of_transfers"), [((0, 0), False), ((0, 1), True)])
def test_operators_in_full_and_a_key_to_what_is_drawn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, assignment: tuple[int, int], of_transfers: bool
) -> None:
    figures = []
    monkeypatch.setattr(placement, "write_figure", lambda figure, *_: figures.append(figure))
    nodes = (Node("a", "GlobalAveragePool", (1.0, 2.0)), Node("b", "QLinearGlobalAveragePool", (1.0, 2.0)))
    tensor = ProblemTensor("t", 0, (1,), ((0.0, 1.0), (1.0, 0.0)))
    problem = Problem(("cpu", "pim"), ("m0", "m1"), (0, 1), nodes, (tensor,))
    placement.save_placement(tmp_path / "p.png", "net", problem, assignment)
    labels = [text.get_text() for text in figures[0].axes[0].texts]
    assert {"GlobalAveragePool", "QLinearGlobalAverag…"} <= set(labels)
    assert ("(red)" in figures[0].get_suptitle()) is of_transfers
