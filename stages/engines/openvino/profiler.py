"""OpenVINO's profile of a segment: counters of each node, kept as means over all runs since it was compiled.

A node lists operators that it was made from, under the names that they are given here, but not all of them. An operator
that no node lists was fused into the node that lists its reader. The time of a node that lists none, such as a change
of format, counts for the node before it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from shisha_rt.machine.device import Precision
from shisha_rt.model.graph import Graph
from shisha_rt.placement.segments import Segment
from stages.built.clean_model import CleanModel
from stages.engines.fused import host
from stages.engines.openvino.session import compile_network, read_network, shared_tensor
from stages.noise import noise_for

# The engine derives names from names. A full stop at the end keeps any name from being a prefix of another; if nothing
# follows it, the name means the operator itself, and not, for example, the transposition of its weight.
_OPERATOR: Final = re.compile(r"operator_(\d+)\.(?=,|$)")


def openvino_operator_times(
    model: CleanModel, segment: Segment, precision: Precision, threads: int, rounds: int
) -> tuple[float, ...]:
    """See `operator_times`."""
    cut = model.with_weights(model.cut(segment))
    for position, node in enumerate(cut.graph.node):
        node.name = f"operator_{position}."
    compiled = compile_network(read_network(cut), precision, threads, profiled=True)
    request = compiled.create_infer_request()
    feeds = noise_for(model.ends(segment).inputs, np.random.default_rng(0))
    for position, array in enumerate(feeds.values()):
        request.set_input_tensor(position, shared_tensor(array))
    request.infer(share_outputs=True)
    first_s = _mean_times_s(request)
    for _ in range(rounds):
        request.infer(share_outputs=True)
    mean_s = _mean_times_s(request)
    operator_of = _operator_of_nodes(model.graph_of(segment), _listed(compiled))
    times_s = [0.0] * len(cut.graph.node)
    operator = 0
    for node, node_s in mean_s.items():
        operator = operator_of.get(node, operator)
        # The first run allocates memory, and is subtracted from the mean.
        times_s[operator] += max(0.0, (node_s * (1 + rounds) - first_s[node]) / rounds)
    return tuple(times_s)


def _mean_times_s(request: Any) -> dict[str, float]:
    """Mean seconds by node, in the order in which nodes run."""
    return {info.node_name: info.real_time.total_seconds() for info in request.profiling_info}


def _listed(compiled: Any) -> dict[str, list[int]]:
    """The operators that each node lists, ascending; nodes that list none are left out."""
    nodes = compiled.get_runtime_model().get_ordered_ops()
    lists = {node.get_friendly_name(): node.get_rt_info()["originalLayersNames"].astype(str) for node in nodes}
    operators_of = {name: sorted(map(int, _OPERATOR.findall(text))) for name, text in lists.items()}
    return {name: operators for name, operators in operators_of.items() if operators}


def _operator_of_nodes(graph: Graph, listed: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The operator for which each node's time counts, among the listed and the unlisted ones fused into the node."""
    taken = {operator for operators in listed.values() for operator in operators}
    times = {}
    for node, operators in listed.items():
        covered = list(operators)
        for operator in covered:  # the list grows in the loop
            made_by = (graph.producer.get(name) for name in graph.operators[operator].inputs)
            covered += {i for i in made_by if i is not None and i not in taken and i not in covered}
        times[node] = host(graph, covered)
    return times
