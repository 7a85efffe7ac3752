"""Equal work has equal fingerprints; whatever changes the work changes them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from msgspec import structs

from shisha_rt.costs.fingerprint import fingerprint, fingerprint_within
from shisha_rt.model.graph import Graph
from shisha_rt.model.layers import group_layers
from tests.costs.networks import chain


def signed(graph: Graph, first: int, last: int, engine_nodes: int = 1) -> str:
    return fingerprint(graph, group_layers(graph), first, last, engine_nodes)


def test_names_do_not_count() -> None:
    assert signed(chain([4, 4, 8]), 0, 1) == signed(chain([4, 4, 8], prefix="other_"), 0, 1)


def test_equal_layers_share_within_a_model_and_across_models() -> None:
    graph = chain([4, 4, 4, 4])
    assert signed(graph, 0, 0) == signed(graph, 1, 1) == signed(graph, 2, 2)
    assert signed(graph, 0, 1) == signed(graph, 1, 2)
    assert signed(graph, 0, 0) == signed(chain([4, 4, 16]), 0, 0)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(chain([4, 8]), id="filters"),
        pytest.param(chain([4, 4], size=9), id="size"),
        pytest.param(chain([4, 4], group=2), id="groups"),
    ],
)
def test_other_work_has_another(other: Graph) -> None:
    assert signed(chain([4, 4]), 0, 0) != signed(other, 0, 0)


def test_an_attribute_a_datatype_and_an_operator_count() -> None:
    graph = chain([4, 4])
    conv, relu = graph.operators
    strided = replace(graph, operators=(replace(conv, attributes={**conv.attributes, "strides": (1, 1)}), relu))
    halved = replace(graph, tensors={name: structs.replace(x, datatype="FP16") for name, x in graph.tensors.items()})
    tanh = replace(graph, operators=(conv, replace(relu, op_type="Tanh")))
    assert len({signed(each, 0, 0) for each in (graph, strided, halved, tanh)}) == 4


def test_how_tensors_are_connected_counts() -> None:
    graph = chain([4, 4, 4])
    skipping = list(graph.operators)
    skipping[2] = replace(skipping[2], inputs=("t0", "w2"))  # reads the graph's input instead of layer 0's output
    assert signed(graph, 0, 1) != signed(replace(graph, operators=tuple(skipping)), 0, 1)


def test_what_is_needed_outside_counts() -> None:
    """A tensor that leaves has to be written out, and may not be fused away."""
    graph = chain([4, 4])
    seen = replace(graph, outputs=(*graph.outputs, graph.tensors["c1"]))
    assert signed(graph, 0, 0) != signed(seen, 0, 0)


def test_what_the_engine_runs_counts() -> None:
    assert signed(chain([4, 4]), 0, 0, engine_nodes=1) != signed(chain([4, 4]), 0, 0, engine_nodes=3)


def test_it_is_the_same_in_every_process() -> None:
    code = "from tests.costs.test_fingerprint import chain, signed; print(signed(chain([4, 4, 8]), 0, 1))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == signed(chain([4, 4, 8]), 0, 1)


def test_parts_of_a_whole() -> None:
    whole, other = (signed(chain(channels), 0, 0) for channels in ([4, 4], [4, 8]))
    parts: list[tuple[str | int, ...]] = [("operator", 1), ("operator", 2), ("entry", 1), ("operator",)]
    assert len({fingerprint_within(of, *part) for of in (whole, other) for part in parts}) == 8
