"""Groups: chains of named types, found wherever they are and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import helper

from shisha_rt.errors import BadInput, Error
from shisha_rt.model.graph import Graph
from shisha_rt.model.reader.onnx_reader import read_model
from shisha_rt.model.zoo import zoo_path
from shisha_rt.placement.operator_groups import DEFAULT_PATTERNS, operator_groups, parse_patterns
from tests.model.networks import graph_of, network, weight
from tests.wording import raised, says

CONV_RELU_POOL = ("Conv", "Relu", "MaxPool")


class TestPatterns:
    def test_without_any_the_papers(self) -> None:
        assert parse_patterns(None) == parse_patterns([]) == DEFAULT_PATTERNS == (("Conv", "Relu"),)

    def test_longer_ones_too(self) -> None:
        assert parse_patterns(["Conv+Relu+MaxPool", "Conv+Add"]) == (CONV_RELU_POOL, ("Conv", "Add"))

    @pytest.mark.parametrize(
        ("texts", "complaint"),
        [
            (["Conv"], "--group Conv: one operator, … Conv+Relu"),
            ([""], "--group : one operator, … Conv+Relu"),
            (["Conv+Rellu"], "--group Conv+Rellu: 'Rellu': no operator of ONNX, … Conv+Relu"),
            (["Conv+"], "--group Conv+: '': no operator of ONNX, … Conv+Relu"),
            (["Conv + Relu"], "--group Conv + Relu: 'Conv ': no operator of ONNX, … Conv+Relu"),
            (["Conv+Relu", "Conv+Add", "Conv+Relu"], "--group Conv+Relu: is named twice, …"),
        ],
    )
    def test_bad_ones(self, texts: list[str], complaint: str) -> None:
        with raised(BadInput, Error.WRONG_OPTION) as refused:
            parse_patterns(texts)
        assert str(refused.value) == says(complaint)


def branching(folder: Path) -> Graph:
    """Operators: 0 stem, 1 Relu (its result is an output), 2 left, 3 its Relu, 4 right, 5 Add, 6 Relu, 7 MaxPool.

    0, 2 and 4 are Convs.
    """
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w"], ["c"]),
        helper.make_node("Relu", ["c"], ["e"]),
        helper.make_node("Conv", ["b", "w"], ["d"]),
        helper.make_node("Add", ["e", "d"], ["f"]),
        helper.make_node("Relu", ["f"], ["g"]),
        helper.make_node("MaxPool", ["g"], ["y"], kernel_shape=[2, 2]),
    ]
    return graph_of(network(nodes, {"x": [1, 4, 8, 8]}, {"b": None, "y": None}, {"w": weight(4, 4, 1, 1)}), folder)


@pytest.mark.parametrize(
    ("pattern", "groups"),
    [
        (("Conv", "Relu"), [(0, 1), (2, 3)]),
        (("Relu", "Conv"), []),  # an output is read by more than the next
        (("Relu", "Add"), [(3, 5)]),  # though another operator stands between them
        (("Conv", "Add"), [(4, 5)]),
        (("Conv", "Relu", "Add", "Relu", "MaxPool"), [(2, 3, 5, 6, 7)]),
        (("Conv", "Relu", "Add", "Relu", "MaxPool", "Relu"), []),
        (("MaxPool", "Relu"), []),
    ],
)
def test_chains(tmp_path: Path, pattern: tuple[str, ...], groups: list[tuple[int, ...]]) -> None:
    assert operator_groups(branching(tmp_path), [pattern]) == tuple(groups)


def test_they_may_share_operators(tmp_path: Path) -> None:
    patterns = [("Conv", "Relu", "Add"), ("Relu", "Add"), ("Conv", "Relu")]
    assert operator_groups(branching(tmp_path), patterns) == ((0, 1), (2, 3), (2, 3, 5), (3, 5))


def test_another_result_that_someone_reads_ends_a_chain(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("TopK", ["x", "k"], ["values", "indices"]),
        helper.make_node("Relu", ["values"], ["a"]),
        helper.make_node("Cast", ["indices"], ["b"], to=1),
        helper.make_node("Add", ["a", "b"], ["y"]),
        helper.make_node("TopK", ["y", "k"], ["z", "unread"]),
        helper.make_node("Relu", ["z"], ["out"]),
    ]
    model = network(nodes, {"x": [1, 8]}, {"out": None})
    model.graph.initializer.append(helper.make_tensor("k", 7, [1], [3]))
    assert operator_groups(graph_of(model, tmp_path), [("TopK", "Relu")]) == ((4, 5),)


@pytest.mark.parametrize(
    ("name", "counts"), [("squeezenet", (26, 1)), ("resnet50", (33, 1)), ("inception_v1", (57, 1))]
)
def test_the_zoos_networks(name: str, counts: tuple[int, int]) -> None:
    """Every Conv of SqueezeNet and Inception v1 has a Relu; of ResNet-50's those before an Add have none."""
    graph = read_model(zoo_path(name)).graph
    assert tuple(len(operator_groups(graph, [pattern])) for pattern in (("Conv", "Relu"), CONV_RELU_POOL)) == counts
