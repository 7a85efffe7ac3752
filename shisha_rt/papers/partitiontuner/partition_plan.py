"""A schedule of partitions as a plan: each partition is a stage on its place (PartitionTuner, Section 3.5).

In the paper, the sections of a schedule run one after the other: a stage waits for all stages that end the section
before. A plan can do without this barrier (`plan_by_needs`): with the same stages, each waits only for those that
compute its inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from shisha_rt.model.spans import runs_of
from shisha_rt.papers.partitiontuner.processors import ProcessorCosts
from shisha_rt.placement.schedule import Partition, Schedule, Section
from shisha_rt.plan.plan import Plan, Stage
from shisha_rt.plan.rate import latency_s


@dataclass(frozen=True, slots=True)
class Foretold:
    """Predicted times of a plan of partitions: `stage_s` (stages,) without hand-overs, `latency_s` with them.

    `handover_s`: what hand-overs add to the latency.
    """

    stage_s: tuple[float, ...]
    latency_s: float
    handover_s: float


def plan_in_sections(costs: ProcessorCosts, schedule: Schedule) -> Plan:
    """Plan with each section after the one before it."""
    stages: list[Stage] = []
    ended: tuple[int, ...] = ()
    for section in schedule.sections:
        ends = []
        for lane in section.lanes:
            after = ended
            for partition in lane:
                stages.append(partition_stage(costs, partition.nodes, partition.device, after))
                after = (len(stages) - 1,)
            ends.append(len(stages) - 1)
        ended = tuple(ends)
    return Plan(tuple(stages))


def plan_in_lanes(costs: ProcessorCosts, schedule: Schedule) -> Plan:
    """Plan in sections, but with each of several parallel lanes as one stage, for fewer hand-overs."""
    return plan_in_sections(costs, Schedule(tuple(map(_with_whole_lanes, schedule.sections))))


def _with_whole_lanes(section: Section) -> Section:
    """Join the partitions of each lane of a section with several lanes: such a lane is on one device."""
    if len(section.lanes) == 1:
        return section
    return replace(
        section,
        lanes=tuple(
            (Partition(lane[0].device, tuple(n for part in lane for n in part.nodes), lane[0].start_s, lane[-1].end_s),)
            for lane in section.lanes
        ),
    )


def plan_by_needs(costs: ProcessorCosts, plan: Plan) -> Plan:
    """The same stages, each after only those that compute its inputs."""
    stage_of = {node: index for index, stage in enumerate(plan.stages) for node in nodes_of_stage(costs, stage)}
    after: list[set[int]] = [set() for _ in plan.stages]
    for tensor in costs.passed:
        if tensor.maker in stage_of:
            for reader in tensor.readers:
                after[stage_of[reader]].add(stage_of[tensor.maker])
    return Plan(
        tuple(
            replace(stage, after=tuple(sorted(waits - {index})))
            for index, (stage, waits) in enumerate(zip(plan.stages, after, strict=True))
        )
    )


def plan_in_turn(costs: ProcessorCosts, schedule: Schedule) -> Plan:
    """Partitions by their starts, each after those that compute its inputs and the previous one on its place."""
    turn = sorted(schedule.partitions, key=lambda partition: (partition.start_s, partition.end_s))
    stages = Plan(tuple(partition_stage(costs, partition.nodes, partition.device, ()) for partition in turn))
    last: dict[int, int] = {}
    following = []
    for index, (stage, partition) in enumerate(zip(plan_by_needs(costs, stages).stages, turn, strict=True)):
        before = last.get(partition.device)
        following.append(replace(stage, after=tuple(sorted({*stage.after, *([] if before is None else [before])}))))
        last[partition.device] = index
    return Plan(tuple(following))


def foretold(costs: ProcessorCosts, plan: Plan) -> Foretold:
    """Predict the times of a plan whose stages are partitions, each on one place."""
    stage_s = tuple(
        costs.stage_s(runs_of(sorted(nodes_of_stage(costs, stage))), costs.places.index(stage.place))
        for stage in plan.stages
    )
    pure_s = latency_s(plan, [(s,) for s in stage_s])
    with_handovers_s = latency_s(plan, [(s + costs.handover_s,) for s in stage_s])
    return Foretold(stage_s, with_handovers_s, with_handovers_s - pure_s)


def nodes_of_stage(costs: ProcessorCosts, stage: Stage) -> Iterator[int]:
    """Yield the nodes of a stage that divides no node."""
    starts = {first: node for node, (first, _) in enumerate(costs.spans)}
    return (starts[layer] for layer in stage.layers if layer in starts)


def partition_stage(costs: ProcessorCosts, nodes: Iterable[int], place: int, after: tuple[int, ...]) -> Stage:
    layers = (layer for node in sorted(nodes) for layer in range(costs.spans[node][0], costs.spans[node][1] + 1))
    return Stage(runs_of(layers), ((costs.places[place],),), after)
