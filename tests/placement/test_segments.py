"""Runs of operators on one device: what they read, what they hand on."""

from __future__ import annotations

from shisha_rt.model.graph import Graph, Operator, Tensor
from shisha_rt.model.spans import ends
from shisha_rt.placement.segments import Segment, segment, segments


def graph() -> Graph:
    """From x and y: a -> b -> c (of what a and b make, and x) -> d; `ta` is handed out, a's second is never read."""
    operators = (
        Operator("a", "Add", "", ("x", "y"), ("ta", "unread"), {}),
        Operator("b", "Clip", "", ("ta", "", "w"), ("tb",), {}),
        Operator("c", "Sum", "", ("tb", "ta", "x", "tb"), ("tc",), {}),
        Operator("d", "Relu", "", ("tc",), ("z",), {}),
    )
    tensors = {name: Tensor(name, (2,), "FP32") for name in ("x", "y", "ta", "unread", "tb", "tc", "z")}
    outputs = tensors["ta"], tensors["z"]
    return Graph("net", operators, (tensors["x"], tensors["y"]), outputs, tensors, {"w": Tensor("w", (), "FP32")})


def test_one_device_is_one_segment_with_the_graph_s_ends() -> None:
    assert segments(graph(), 0, ["p"] * 4) == (Segment("p", 0, 3, ("x", "y"), ("ta", "z")),)


def test_each_change_of_device_starts_a_segment() -> None:
    assert segments(graph(), 0, ["p", "q", "p", "p"]) == (
        Segment("p", 0, 0, ("x", "y"), ("ta",)),
        Segment("q", 1, 1, ("ta",), ("tb",)),
        Segment("p", 2, 3, ("tb", "ta", "x"), ("z",)),
    )


def test_a_stage_in_the_middle_counts_from_its_first_operator() -> None:
    assert segments(graph(), 1, ["p", "q"]) == (
        Segment("p", 1, 1, ("ta",), ("tb",)),
        Segment("q", 2, 2, ("tb", "ta", "x"), ("tc",)),
    )


def test_what_goes_in_and_out_is_each_named_once_and_without_constants() -> None:
    assert ends(graph(), 1, 2) == (("ta", "x"), ("tc",))
    assert segment(graph(), 1, 2, "p") == Segment("p", 1, 2, ("ta", "x"), ("tc",))
