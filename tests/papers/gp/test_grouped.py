"""Convolutions in groups: the exact split against every share, each costed as the real Conv that it is."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from itertools import product
from typing import get_args

import pytest

from shisha_rt.costs.device_costs import operator_cost_s, transfer_cost_s
from shisha_rt.machine.device import ChannelCount, Condition, Device, Family, Multiple, Power, Resource, Term, Transfer
from shisha_rt.model.dimensions import Dimension
from shisha_rt.papers.gp.chain import Step, chain_faults, faults, runs_from
from shisha_rt.papers.gp.fused import split_network
from shisha_rt.papers.gp.methods import split_by
from shisha_rt.papers.gp.of_device import split_device
from shisha_rt.papers.gp.problem import SharedFeature, SplitLayer, SplitProblem, able_devices, layer_cost
from shisha_rt.papers.gp.shared import split_layer
from shisha_rt.papers.gp.split_answer import alone_on_each
from shisha_rt.planner.strategies import Execution, SplitMethod, SplitObjective
from tests.drawn import chunks
from tests.papers.gp.random_splits import block_shares
from tests.papers.gp.test_of_device import conv
from tests.wording import says

KINDS: tuple[tuple[SplitObjective, Execution], ...] = (
    ("latency", "sequence"),
    ("latency", "parallel"),
    ("energy", "sequence"),
)
RIVALS: tuple[SplitMethod, ...] = ("greedy", "balanced", "proportional", "communication")
DIMENSIONS: tuple[Dimension, ...] = ("batch", "rows", "inner", "columns", "elements_in", "elements_out")
GROUP_RULES: tuple[tuple[int | None, ...], ...] = ((None,), (1,), (1, None), (1, 2, None), (1, 3))
"""Of the families of a device, in their order: so many groups alone, or any number (None)."""


def random_family(rng: random.Random, number: int | None) -> Family:
    terms = tuple(
        Term(
            rng.uniform(0.1, 10),
            tuple((name, rng.choice((1.0, 1.0, 2.0))) for name in DIMENSIONS if rng.random() < 0.4),
        )
        for _ in range(rng.randint(1, 3))
    )
    conditions = () if number is None else (Condition("group", number, 1),)
    multiples = tuple(Multiple(count, rng.choice((2, 3))) for count in get_args(ChannelCount) if rng.random() < 0.2)
    return Family(frozenset({"Conv"}), conditions, terms, multiples)


def random_device(rng: random.Random, name: str, rule: Sequence[int | None]) -> Device:
    """Some behind a link, some with a limit of columns over all groups."""
    far = rng.random() < 0.6
    transfer = Transfer(rng.uniform(0, 30), rng.uniform(0.1, 10)) if far else None
    use = Term(1.0, (("batch", 1.0), ("columns", 1.0)))
    return Device(
        name,
        f"{name}.toml",
        "onnxruntime",
        name if far else "host",
        "fp32",
        call_s=rng.uniform(0, 50),
        families=tuple(random_family(rng, number) for number in rule),
        transfer_in=transfer,
        transfer_out=transfer,
        power=Power(rng.uniform(1, 10), rng.uniform(1, 10) if far else None),
        resources=(Resource("filters", rng.uniform(3, 30), (use,)),) if rng.random() < 0.3 else (),
    )


def random_devices(rng: random.Random) -> list[Device]:
    """Two or three; the first runs any number of groups."""
    rules = [(None,), *(rng.choice(GROUP_RULES) for _ in range(rng.randint(1, 2)))]
    return [random_device(rng, f"device{d}", rule) for d, rule in enumerate(rules)]


def random_grouped(rng: random.Random) -> SplitLayer:
    """Depthwise at times; shared in whole groups, or rows."""
    sizes = {"H": rng.randint(1, 8), "W": 3, "C": rng.randint(1, 4), "k": rng.choice((1, 3)), "N": rng.randint(1, 4)}
    if rng.random() < 0.3:
        sizes |= {"C": 1, "N": 1}
    variable: SharedFeature = rng.choice(("G", "G", "H"))
    features = {**sizes, "s": rng.choice((1, 2)), "G": rng.randint(2, 12)}
    return SplitLayer("grouped", features, variable, rng.choice((1, 1, 2, 4)) if variable == "G" else 1)


def problem_of(devices: Sequence[Device], layer: SplitLayer, *kind: str) -> SplitProblem:
    objective, execution = next(pair for pair in KINDS if pair == kind)
    return SplitProblem((layer,), tuple(split_device(device, objective) for device in devices), objective, execution)


def cost_of_convs(devices: Sequence[Device], layer: SplitLayer, shares: Sequence[int], *kind: str) -> float:
    """What the shares cost as real convolutions, by the devices' own formulas; inf where one cannot run."""
    host = Device("host", "host.toml", "onnxruntime", "host", "fp32")
    ends_s, joules = [], []
    for device, units in zip(devices, shares, strict=True):
        if not units:
            continue
        graph = conv({name: round(value) for name, value in layer.share(units).items()})
        busy_s = operator_cost_s(graph, graph.operators[0], device)
        moved_s = transfer_cost_s(graph.inputs[0], host, device) + transfer_cost_s(graph.outputs[0], device, host)
        ends_s.append(busy_s + moved_s)
        assert device.power is not None
        joules.append(device.power.compute_w * busy_s + (device.power.transfer_w or 0.0) * moved_s)
    if kind == ("energy", "sequence"):
        return math.fsum(joules)
    return max(ends_s) if kind == ("latency", "parallel") else math.fsum(ends_s)


def drawn(seeds: range) -> Iterator[tuple[list[Device], SplitLayer]]:
    for seed in seeds:
        rng = random.Random(seed)
        yield random_devices(rng), random_grouped(rng)


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
@pytest.mark.parametrize("seeds", chunks(200, 25, short=200))
def test_integer_is_the_least_of_all_shares(seeds: range, kind: tuple[str, str]) -> None:
    """200 layers on two or three devices: the least of the enumeration, and shares that cost just that."""
    apart = 0
    for devices, layer in drawn(seeds):
        every = block_shares(len(devices), layer.units, layer.block)
        least = min(cost_of_convs(devices, layer, shares, *kind) for shares in every)
        problem = problem_of(devices, layer, *kind)
        answer = split_layer(problem, layer)
        if answer is None:
            assert least == math.inf
            continue
        shares, blocks = answer
        assert blocks.value == pytest.approx(least, rel=1e-9)
        assert cost_of_convs(devices, layer, shares, *kind) == pytest.approx(least, rel=1e-9)
        assert layer_cost(problem, layer, shares) == pytest.approx(least, rel=1e-9)
        assert faults(problem, [shares]) == []
        assert split_network(problem).value == pytest.approx(least, rel=1e-9)
        apart += blocks.is_split
    assert apart or kind[1] == "sequence", "else nothing was ever shared"


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
def test_no_other_way_is_better_or_gives_what_cannot_run(kind: tuple[str, str]) -> None:
    answers = 0
    for devices, layer in drawn(range(60)):
        problem = problem_of(devices, layer, *kind)
        best = split_network(problem)
        for method in RIVALS:
            rival = split_by(method, problem)
            if rival.steps is None:
                assert rival.reason
                continue
            answers += 1
            assert chain_faults(problem, rival.steps) == []
            assert math.isfinite(rival.value)
            if all(step.mode == "split" for step in rival.steps):
                assert rival.value >= best.value * (1 - 1e-9)
    assert answers > 100


def test_geometric_programs_give_no_groups_to_a_device_that_runs_none() -> None:
    pytest.importorskip("cvxpy")
    pytest.importorskip("clarabel")
    features = {"H": 7, "W": 7, "C": 4, "k": 3, "N": 4, "s": 1, "G": 32}
    layer = SplitLayer("grouped", features, "G", 4)
    rng = random.Random(3)
    devices = [random_device(rng, f"device{d}", rule) for d, rule in enumerate(((None,), (None,), (1,)))]
    problem = problem_of(devices, layer, "latency", "parallel")
    assert able_devices(problem).tolist() == [[True, True, False]]
    answer = split_by("geometric", problem)
    assert answer.steps is not None
    assert answer.steps[0].shares[2] == 0
    assert answer.value >= split_network(problem).value * (1 - 1e-9)


def test_what_cannot_run_is_named() -> None:
    """A device of ordinary convolutions has one group of four, and rows of none."""
    rng = random.Random(1)
    only = random_device(rng, "only", (1,))
    for variable, reason in (("G", "1 (groups) of 4"), ("H", "0 (groups) of 5")):
        features = {"H": 5, "W": 5, "C": 6, "k": 1, "N": 6, "s": 1, "G": 4}
        layer = SplitLayer("grouped", features, "G" if variable == "G" else "H")
        problem = problem_of([only], layer, "latency", "sequence")
        assert split_network(problem).reason == says(f"layer grouped: only … {reason}")
        (fault,) = faults(problem, [[layer.units]])
        assert fault == says("only: layer grouped … 4 groups …")
        step = Step("split", 0, 0, (layer.units,))
        assert chain_faults(problem, [step]) == [fault]
        assert alone_on_each(problem) == {"only": None}


def test_layers_in_groups_make_no_pair() -> None:
    """Filters of a group are channels of one group alone; rows are fused as ever."""
    sizes = {"H": 8, "W": 8, "C": 4, "k": 3, "N": 4, "s": 1}
    for groups in product((1, 2), repeat=2):
        layers = [SplitLayer(f"layer{i}", {**sizes, "G": number}) for i, number in enumerate(groups)]
        modes = [mode for mode, _ in runs_from(SplitProblem(tuple(layers), ()), 0)]
        assert modes == (["split", "pair", "tiles"] if groups == (1, 1) else ["split", "tiles"])
