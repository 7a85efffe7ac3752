"""Placement problems as JSON objects, as `parse_problem` reads them."""

from __future__ import annotations

from typing import Any

from shisha_rt.placement.problem import Problem, ProblemTensor


def problem_object(problem: Problem) -> dict[str, Any]:
    """The problem as the JSON object that `parse_problem` reads."""
    names = problem.devices

    def transfers(tensor: ProblemTensor) -> dict[str, float]:
        pairs = ((source, target) for source in range(len(names)) for target in range(len(names)))
        costs = {f"{names[i]}->{names[j]}": problem.edge_cost_s(tensor, i, j) for i, j in pairs if i != j}
        return {pair: seconds for pair, seconds in costs.items() if seconds}

    processors = {name: str(processor) for name, processor in zip(names, problem.processors, strict=False)}
    return {
        "devices": list(names),
        "memories": {device: problem.memories[m] for device, m in zip(names, problem.memory_of, strict=True)},
        "nodes": [
            {"name": node.name, "op": node.op, "cost_s": {names[d]: node.cost_s[d] for d in node.capable}}
            for node in problem.nodes
        ],
        "tensors": [
            {
                "name": tensor.name,
                "producer": problem.nodes[tensor.producer].name,
                "consumers": [problem.nodes[consumer].name for consumer in tensor.consumers],
                "transfer_s": transfers(tensor),
            }
            for tensor in problem.tensors
        ],
        "groups": [
            {"nodes": [problem.nodes[n].name for n in g.nodes], "device": names[g.device], "cost_s": g.cost_s}
            for g in problem.groups
        ],
        "transfer_counting": problem.transfer_counting,
        **({"processors": processors} if processors else {}),
    }
