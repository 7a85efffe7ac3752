"""Groups of layers; what a run of operators reads and hands on is told by the tests of layers and segments."""

from __future__ import annotations

from shisha_rt.model.graph import Graph, Operator, Tensor
from shisha_rt.model.spans import ends, ends_of, groups_of, starts_of


def test_groups_are_joined_by_illegal_cuts() -> None:
    assert groups_of(5, {3, 0}) == ((0, 0), (1, 3), (4, 4))
    assert groups_of(3, ()) == ((0, 2),)


def test_without_a_word_on_cuts_all_are_legal() -> None:
    assert groups_of(3, None) == ((0, 0), (1, 1), (2, 2))


def test_starts_end_with_the_number_of_layers() -> None:
    assert starts_of(5, {3, 0}) == (0, 1, 4, 5)
    assert starts_of(1, None) == (0, 1)


def test_what_several_runs_read_and_hand_on() -> None:
    """From x: a -> b -> c, and then d of what a, b and c make; `td` is handed out."""
    operators = (
        Operator("a", "Relu", "", ("x",), ("ta",), {}),
        Operator("b", "Relu", "", ("ta",), ("tb",), {}),
        Operator("c", "Add", "", ("tb", "x"), ("tc",), {}),
        Operator("d", "Sum", "", ("ta", "tb", "tc"), ("td",), {}),
    )
    tensors = {name: Tensor(name, (1,), "FP32") for name in ("x", "ta", "tb", "tc", "td")}
    graph = Graph("net", operators, (tensors["x"],), (tensors["td"],), tensors, {})
    assert ends_of(graph, [(0, 0), (3, 3)]) == (("x", "tb", "tc"), ("ta", "td"))  # ta is read in both and between
    assert ends_of(graph, [(0, 0), (2, 2)]) == (("x", "tb"), ("ta", "tc"))
    assert ends_of(graph, [(1, 1), (2, 3)]) == ends(graph, 1, 3) == (("ta", "x"), ("td",))
