"""The placer and its process: what it answers is what `place_stage` says, of a small network on described devices."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from onnx.helper import make_node

from shisha_rt.core.tuning import placer_messages as pm
from shisha_rt.core.tuning.events import PlacerDied, PlacerSaid
from shisha_rt.costs.operator_costs import GroupCost, OperatorCosts, described_costs
from shisha_rt.daemon.children import placer as placer_process
from shisha_rt.daemon.children.child_link import ChildLink, ChildProgram
from shisha_rt.daemon.children.placer import Placer
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.errors import BadInput, Error
from shisha_rt.machine.config.device_files import parse_device
from shisha_rt.machine.config.shipped import shipped_configs
from shisha_rt.machine.device import Device, Fusion, Term
from shisha_rt.model.graph import Graph
from shisha_rt.model.index import ModelIndex
from shisha_rt.model.indexing import plain_index
from shisha_rt.model.layers import group_layers
from shisha_rt.model.reader.index_file import write_index
from shisha_rt.model.reader.onnx_reader import read_clean, read_model
from shisha_rt.outcome import Outcome
from shisha_rt.placement.segment_times import segment_times_s
from shisha_rt.placement.segments import segments
from shisha_rt.placement.solver_names import StageSolver
from shisha_rt.placement.stage_placement import StagePlacement
from shisha_rt.placement.stage_problem import place_stage
from shisha_rt.plan.plan import Plan, Stage
from tests.commands import command_of
from tests.model.networks import network, weight, write
from tests.waiting import until
from tests.wording import raised

SIZE = 256
STAGES = ((0, 1, "near"), (2, 3, "far"))
BOTH = Plan.of(STAGES)


def device(name: str) -> Device:
    path = shipped_configs("devices")[name]
    return parse_device(path.read_text(), name=name, source=str(path))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the clean model and its index: four layers, each a product that is best on PIM, and what it cannot run."""
    nodes = []
    for layer in range(4):
        nodes += [
            make_node("MatMul", ["x" if layer == 0 else f"r{layer - 1}", f"w{layer}"], [f"m{layer}"], f"m{layer}"),
            make_node("Add", [f"m{layer}", f"b{layer}"], [f"a{layer}"], f"a{layer}"),
            make_node("Relu", [f"a{layer}"], [f"r{layer}"], f"r{layer}"),
        ]
    weights = {f"w{layer}": weight(SIZE, SIZE, seed=layer) for layer in range(4)}
    biases = {f"b{layer}": weight(SIZE, seed=layer) for layer in range(4)}
    model_folder = tmp_path_factory.mktemp("model")
    model = network(nodes, {"x": (8, SIZE)}, {"r3": (8, SIZE)}, weights | biases)
    read = read_model(write(model, model_folder))
    read.save(model_folder)
    write_index(index_of(read.graph), model_folder)
    return model_folder


def index_of(graph: Graph) -> ModelIndex:
    return plain_index(graph, group_layers(graph))


@pytest.fixture(scope="module")
def graph(folder: Path) -> Graph:
    return read_clean(folder)


@pytest.fixture(scope="module")
def costs(graph: Graph) -> Mapping[str, OperatorCosts]:
    """Two places alike, a third with a slower core, and one on which nothing but PIM is."""
    near = described_costs(graph, [device("cpu_s"), device("pim")])
    return {
        "near": near,
        "twin": near,
        "far": near.slowed({"cpu_s": 2.0}),
        "pim_alone": described_costs(graph, [device("pim")]),
    }


def expected(
    graph: Graph, costs: OperatorCosts, first: int, last: int, solver: StageSolver = "exact"
) -> StagePlacement:
    """Of layers `first` to `last`."""
    layers = group_layers(graph)
    return place_stage(graph, layers[first].first_operator, layers[last].last_operator, costs, solver)


def solved(answer: pm.FromPlacer) -> tuple[StagePlacement, ...]:
    assert isinstance(answer, pm.Solved), answer
    return answer.stages


def told_again(greeting: tuple[pm.ToPlacer]) -> pm.Known:
    """What the other process makes of it."""
    known = pm.TO_PLACER.decode(pm.TO_PLACER.encode(greeting[0]))
    assert isinstance(known, pm.Known)
    return known


class TestMessages:
    def test_a_greeting_tells_the_costs(self, costs: Mapping[str, OperatorCosts]) -> None:
        known = told_again(pm.greeting("folder", "index", "als", costs))
        assert (known.model_folder, known.engine_folder, known.solver) == ("folder", "index", "als")
        decoded = known.costs
        assert list(decoded) == list(costs)
        for place, sent in costs.items():
            assert decoded[place].devices == sent.devices
            np.testing.assert_array_equal(decoded[place].time_s, sent.time_s)

    def test_groups_are_told_too(self) -> None:
        adder = replace(device("pim"), fusions=(Fusion(("MatMul", "Add"), (Term(1e-6),)),))
        groups = GroupCost((0, 1), 1, 2.0), GroupCost((1, 2), 1, 3.0), GroupCost((0, 1), 0, 4.0)
        costs = OperatorCosts((adder, device("cpu_s")), np.ones((3, 2)), groups)
        known = told_again(pm.greeting("folder", "index", "als", {"a": costs}))
        decoded = known.costs["a"]
        assert decoded.devices == costs.devices
        assert sorted(decoded.groups, key=repr) == sorted(groups, key=repr)

    @pytest.mark.parametrize(
        "message",
        [
            pm.Solved(3, (StagePlacement(("a", "b"), 2.0, (1.0, 1.0), None, Outcome.FEASIBLE),), 0.1),
            pm.NotSolved(3, "no device"),
        ],
    )
    def test_answers_come_back_as_they_were(self, message: pm.FromPlacer) -> None:
        assert pm.FROM_PLACER.decode(pm.FROM_PLACER.encode(message)) == message


class TestPlacer:
    @pytest.mark.parametrize("solver", ["exact", "als"])
    def test_each_stage_is_placed_as_on_its_own(
        self, graph: Graph, costs: Mapping[str, OperatorCosts], solver: StageSolver
    ) -> None:
        answer = Placer(graph, index_of(graph), solver, costs).answer(pm.Solve(1, BOTH))
        near, far = (expected(graph, costs[place], first, last, solver) for first, last, place in STAGES)
        assert solved(answer) == (near, far)
        assert set(near.devices) == {"cpu_s", "pim"}  # else there was nothing to decide

    def test_runs_of_layers_have_segments_of_their_own_on_one_device_too(
        self, graph: Graph, costs: Mapping[str, OperatorCosts]
    ) -> None:
        """As a worker builds them: what it tells of each is held against what is known of each."""
        plan = Plan((Stage(((0, 0), (2, 2), (3, 3)), (("slow",),)), Stage(((1, 1),), (("near",),), (0,))))
        slow = described_costs(graph, [device("cpu_s")])
        placer = Placer(graph, index_of(graph), "exact", {**costs, "slow": slow})
        apart, _ = solved(placer.answer(pm.Solve(1, plan)))
        assert apart.breaks == (3, 6)
        assert apart.segments == [("cpu_s", 3)] * 3
        assert len(apart.segments_s) == 3

    @pytest.mark.parametrize("place", ["near", "core"])
    def test_a_stage_of_several_runs_has_the_segments_of_each(
        self, graph: Graph, costs: Mapping[str, OperatorCosts], place: str
    ) -> None:
        """Runs on one device are sessions of their own, and what stays there moves neither out nor in."""
        costs = {**costs, "core": described_costs(graph, [device("cpu_s")])}
        plan = Plan((Stage(((0, 0), (2, 3)), ((place,),)), Stage(((1, 1),), (("near",),))))
        placement, _ = solved(Placer(graph, index_of(graph), "exact", costs).answer(pm.Solve(1, plan)))
        layers = group_layers(graph)
        own = [(layers[0].first_operator, layers[0].last_operator), (layers[2].first_operator, layers[3].last_operator)]
        alone = [expected(graph, costs[place], *run) for run in ((0, 0), (2, 3))]
        parts = [
            part for (first, _), run in zip(own, alone, strict=True) for part in segments(graph, first, run.devices)
        ]
        assert [device for device, _ in placement.segments] == [part.device for part in parts]
        assert [count for _, count in placement.segments] == [part.last - part.first + 1 for part in parts]
        assert placement.segments_s == segment_times_s(graph, parts, costs[place])
        assert placement.cost_s <= sum(run.cost_s for run in alone) * (1 + 1e-12)

    def test_what_was_solved_is_not_solved_again(
        self, graph: Graph, costs: Mapping[str, OperatorCosts], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls: list[Any] = []

        def counting(*arguments: Any) -> Any:
            calls.append(arguments)
            return place_stage(*arguments)

        monkeypatch.setattr(placer_process, "place_stage", counting)
        placer = Placer(graph, index_of(graph), "exact", costs)

        def solves(plan: Plan, ratios: Sequence[tuple[str, str, float]] = ()) -> int:
            before = len(calls)
            solved(placer.answer(pm.Solve(1, plan, tuple(ratios))))
            return len(calls) - before

        assert solves(BOTH) == 2
        assert solves(BOTH) == 0
        assert solves(Plan.of([(0, 1, "twin"), (2, 3, "far")])) == 0
        assert solves(Plan.of([(0, 1, "far"), (2, 3, "near")])) == 2
        assert solves(BOTH, [("near", "pim", 3.0)]) == 1
        assert solves(BOTH, [("near", "pim", 2.0), ("far", "cpu_s", 2.0)]) == 2
        assert solves(BOTH, [("far", "cpu_s", 2.0), ("near", "pim", 3.0)]) == 0


class TestPacing:
    PLAN = Plan.chain([(0, 1, ["near", "far"]), (2, 3, ["twin"])])

    def answer(self, graph: Graph, costs: Mapping[str, OperatorCosts], *ratios: tuple[str, str, float]) -> pm.Solved:
        placer = Placer(graph, index_of(graph), "exact", costs, paces=True)
        answer = placer.answer(pm.Solve(1, self.PLAN, ratios))
        assert isinstance(answer, pm.Solved)
        return answer

    def test_a_stage_is_paced_by_what_its_placement_takes_on_each_team(
        self, graph: Graph, costs: Mapping[str, OperatorCosts]
    ) -> None:
        answer = self.answer(graph, costs)
        (near_s, far_s), (twin_s,) = answer.paced_s
        assert [near_s, twin_s] == pytest.approx([stage.cost_s for stage in answer.stages])
        assert far_s > near_s

    def test_what_devices_take_now_is_no_part_of_it(self, graph: Graph, costs: Mapping[str, OperatorCosts]) -> None:
        slow = self.answer(graph, costs, ("near", "cpu_s", 1.5), ("near", "pim", 1.5))
        assert slow.stages[0].cost_s > 1.2 * slow.paced_s[0][0]
        parts = segments(graph, group_layers(graph)[0].first_operator, slow.stages[0].devices)
        assert slow.paced_s[0][0] == pytest.approx(sum(segment_times_s(graph, parts, costs["near"])))

    def test_nothing_is_paced_unless_times_are_modelled(self, graph: Graph, costs: Mapping[str, OperatorCosts]) -> None:
        answer = Placer(graph, index_of(graph), "exact", costs).answer(pm.Solve(1, self.PLAN))
        assert isinstance(answer, pm.Solved)
        assert answer.paced_s == ()


@dataclass
class Asking:
    """A placer's process, asked over its link."""

    link: ChildLink[pm.ToPlacer, pm.FromPlacer]
    poller: Poller
    answers: list[pm.FromPlacer]
    deaths: list[str]
    requests: int = 0

    def solve(self, plan: Plan, ratios: Sequence[tuple[str, str, float]] = ()) -> pm.FromPlacer:
        self.requests += 1
        self.link.send(pm.Solve(self.requests, plan, tuple(ratios)))
        self.until(lambda: bool(self.answers))
        answer = self.answers.pop()
        assert answer.request == self.requests
        return answer

    def until(self, true: Callable[[], bool]) -> None:
        def look() -> None:
            self.link.look()
            for event in self.poller.poll(0.02):
                match event:
                    case PlacerSaid():
                        self.answers.append(event.message)
                    case PlacerDied():
                        self.deaths.append(event.reason)

        until(true, every_s=0, meanwhile=look)


@pytest.fixture(scope="module")
def process(folder: Path, costs: Mapping[str, OperatorCosts]) -> Iterator[Asking]:
    with ExitStack() as closing:
        poller = Poller()
        closing.callback(poller.close)
        greeting = pm.greeting(str(folder), str(folder), "exact", costs)
        program = ChildProgram(placer_process.__name__, pm.TO_PLACER, pm.FROM_PLACER)
        link = ChildLink(program, poller, PlacerDied, PlacerSaid)
        link.start(greeting)
        closing.callback(link.close)
        yield Asking(link, poller, [], [])


class TestTheProcess:
    def test_it_answers_as_place_stage_does(
        self, process: Asking, graph: Graph, costs: Mapping[str, OperatorCosts]
    ) -> None:
        answer = process.solve(BOTH)
        assert solved(answer) == tuple(expected(graph, costs[place], first, last) for first, last, place in STAGES)

    def test_a_slower_device_changes_the_answer_of_its_place_alone(
        self, process: Asking, graph: Graph, costs: Mapping[str, OperatorCosts]
    ) -> None:
        near, far = solved(process.solve(BOTH))
        slow_near, same_far = solved(process.solve(BOTH, [("near", "pim", 100.0)]))
        assert slow_near == expected(graph, costs["near"].slowed({"pim": 100.0}), 0, 1)
        assert slow_near.devices == ("cpu_s",) * 6 != near.devices
        assert same_far == far

    def test_a_team_without_costs_is_refused_and_the_next_request_answered(self, process: Asking) -> None:
        refusal = process.solve(Plan.chain([(0, 3, [["near", "far"]])]))
        assert isinstance(refusal, pm.NotSolved)
        assert refusal.reason.startswith("team near+far: ")
        assert len(solved(process.solve(BOTH))) == 2

    def test_a_stage_that_no_device_can_run_is_refused_in_its_own_words(
        self, process: Asking, graph: Graph, costs: Mapping[str, OperatorCosts]
    ) -> None:
        with raised(BadInput, Error.DEVICE_UNFIT) as refused:
            expected(graph, costs["pim_alone"], 0, 3)
        assert process.solve(Plan.of([(0, 3, "pim_alone")])) == pm.NotSolved(process.requests, str(refused.value))

    def test_a_killed_process_is_followed_by_one_that_knows_as_much(self, process: Asking) -> None:
        before = process.solve(BOTH)
        children = psutil.Process().children()
        (child,) = (child for child in children if placer_process.__name__ in command_of(child))
        os.kill(child.pid, signal.SIGKILL)
        process.until(lambda: bool(process.deaths))
        assert process.deaths == ["killed by signal 9 (SIGKILL)"]
        assert solved(process.solve(BOTH)) == solved(before)
