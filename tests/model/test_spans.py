"""Groups of layers; what a run of operators reads and hands on is told by the tests of layers and segments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shisha_rt.model.graph import Graph, Operator, Tensor
from shisha_rt.model.indexing import plain_index, with_splits
from shisha_rt.model.layers import group_layers
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


class Counted(tuple[Operator, ...]):
    """Operators that count how many of them are looked at."""

    looks = 0

    def __iter__(self) -> Iterator[Operator]:
        self.looks += len(self)
        return super().__iter__()

    def __getitem__(self, at: Any) -> Any:
        item = super().__getitem__(at)
        self.looks += len(item) if isinstance(at, slice) else 1
        return item


def looks(layer_count: int) -> tuple[int, int]:
    """How many operators of a chain of products are looked at for its layers, and for how they may be split."""
    tensors = {f"t{i}": Tensor(f"t{i}", (1, 64), "FP32") for i in range(layer_count + 1)}
    operators = Counted(Operator(f"o{i}", "MatMul", "", (f"t{i}", "w"), (f"t{i + 1}",), {}) for i in range(layer_count))
    outer = (tensors["t0"],), (tensors[f"t{layer_count}"],)
    graph = Graph("chain", operators, *outer, tensors, {"w": Tensor("w", (64, 64), "FP32")})
    layers = group_layers(graph)
    for_layers = operators.looks
    split = with_splits(plain_index(graph, layers), graph, layers)
    assert len(layers) == layer_count
    assert len(split.splits) >= layer_count
    return for_layers, operators.looks - for_layers


def test_layers_and_their_splits_are_found_in_linear_time() -> None:
    few, many = looks(10), looks(100)
    assert [many[0] <= 10 * few[0], many[1] <= 12 * few[1]] == [True, True]
