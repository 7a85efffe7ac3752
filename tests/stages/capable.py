"""Operators that the PartitionTuner paper's NPU can run."""

from __future__ import annotations

from typing import Final

from shisha_rt.model.graph import Graph

_SIDE: Final = 16


def capable(graph: Graph) -> tuple[bool, ...]:
    """(operators,): by the paper's rule, Convs without groups whose channels fill the NPU, and Relus after them."""
    able: list[bool] = []
    for operator in graph.operators:
        if operator.op_type == "Conv":
            weights = graph.constants.get(operator.inputs[1])
            whole = weights is not None and not any(count % _SIDE for count in weights.shape[:2])
            able.append(whole and operator.attributes.get("group", 1) == 1)
        else:
            maker = graph.producer.get(operator.inputs[0])
            is_after = maker is not None and graph.operators[maker].op_type == "Conv" and able[maker]
            able.append(operator.op_type == "Relu" and is_after)
    return tuple(able)
