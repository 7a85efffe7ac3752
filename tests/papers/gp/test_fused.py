"""Fused splits of whole chains against every plan there is, priced by the checker alone."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from shisha_rt.outcome import Outcome
from shisha_rt.papers.gp.chain import Step, chain_cost, chain_faults, faults, parts, rows_of, runs_from, step_costs
from shisha_rt.papers.gp.fused import fused_split, split_network
from shisha_rt.papers.gp.posynomial import Monomial, Posynomial
from shisha_rt.papers.gp.problem import Formula, Legs, SharedFeature, SplitDevice, SplitLayer, SplitProblem, layer_cost
from shisha_rt.papers.gp.split_answer import layer_shares
from shisha_rt.planner.strategies import Execution, SplitObjective
from tests.drawn import chunks
from tests.papers.gp.random_splits import block_shares, random_device, random_posynomial, random_split_problem
from tests.wording import says


def random_chain(rng: random.Random, *, one_for_all: bool) -> SplitProblem:
    """Two or three small layers, some in groups, each taking what the one before makes, at times through a pooling."""
    layers: list[SplitLayer] = []
    channels, rows = rng.randint(1, 3), rng.randint(1, 6)
    for index in range(rng.randint(2, 3)):
        stride = rng.choice((1, 1, 2))
        filters = rng.randint(1, 4)
        rows = max(1, rows // (stride * rng.choice((1, 1, 2))))
        groups = rng.choice((1, 1, 1, 2, 3))
        features = {"H": rows, "W": 3, "C": channels, "k": rng.choice((1, 3)), "N": filters, "s": stride, "G": groups}
        variables: tuple[SharedFeature, ...] = ("C", "N", "H") if groups == 1 else ("G", "H")
        layers.append(SplitLayer(f"layer{index}", features, rng.choice(variables), rng.choice((1, 2))))
        channels = filters if rng.random() < 0.8 else rng.randint(1, 4)
    legs = tuple(
        Legs(random_posynomial(rng, 0.1, 2), random_posynomial(rng, 0.1, 2)) if rng.random() < 0.6 else None
        for _ in range(rng.randint(1, 3))
    )
    devices = tuple(replace(_roomier(rng, f"device{d}", one_for_all), legs=way) for d, way in enumerate(legs))
    objective: SplitObjective = rng.choice(("latency", "energy"))
    execution: Execution = rng.choice(("sequence", "parallel"))
    chain = SplitProblem(tuple(layers), devices, objective, execution)
    return replace(chain, links=random_links(rng, legs)) if rng.random() < 0.6 else chain


def random_links(rng: random.Random, legs: Sequence[Legs | None]) -> tuple[tuple[Posynomial | None, ...], ...]:
    """Between some of the devices that have memories of their own; not the same both ways, as nothing leans on that."""
    own = [d for d, way in enumerate(legs) if way is not None]
    linked = {(a, b): random_posynomial(rng, 0.1, 1) for a in own for b in own if a != b and rng.random() < 0.7}
    return tuple(tuple(linked.get((a, b)) for b in range(len(legs))) for a in range(len(legs)))


def _roomier(rng: random.Random, name: str, one_for_all: bool) -> SplitDevice:
    device = random_device(rng, name, one_for_all=one_for_all)
    room = rng.uniform(2, 20)
    if not device.limits:
        return device
    other = Posynomial((Monomial(1.0, {"N": 1.0}),))
    limits = {"room": room, "filters": rng.uniform(3, 9)}
    return replace(device, limits=limits, resources={**device.resources, "filters": other})


def every_plan(chain: SplitProblem, done: int = 0, at: int | None = None) -> Iterator[tuple[Step, ...]]:
    """`at`: the device whose own memory has the data."""
    layers, count = chain.layers, len(chain.devices)
    if at is not None:
        fetched = Step("fetched", done, done - 1, tuple(int(d == at) for d in range(count)))
        yield from ((fetched, *rest) for rest in every_plan(chain, done))
    elif done == len(layers):
        yield ()
    if done == len(layers):
        return
    for d in (d for d in range(count) if chain.entry(at, d) is not None):
        step = Step("whole", done, done, tuple(layers[done].units * (d == other) for other in range(count)))
        stays = None if chain.devices[d].legs is None else d
        yield from ((step, *rest) for rest in every_plan(chain, done + 1, stays))
    for mode, last in runs_from(chain, done):
        run_parts = parts(chain, mode, done, last)
        shared = run_parts[-1] if mode == "tiles" else run_parts[0]
        for shares in block_shares(count, shared.units, shared.block):
            if all(chain.entry(at, d) is not None for d, units in enumerate(shares) if units):
                step = Step(mode, done, last, shares)
                yield from ((step, *rest) for rest in every_plan(chain, last + 1))


@pytest.mark.parametrize("one_for_all", [False, True], ids=["each layer's limits", "limits for all"])
@pytest.mark.parametrize("seeds", chunks(60, 5, short=5))
def test_it_is_the_least(seeds: range, one_for_all: bool) -> None:
    for seed in seeds:
        chain = random_chain(random.Random(seed), one_for_all=one_for_all)
        best, some = math.inf, None
        for steps in every_plan(chain):
            value = math.fsum(cost.value for cost in step_costs(chain, steps))
            if value < best and not chain_faults(chain, steps):
                best, some = value, steps
        split = fused_split(chain)
        if some is None:
            assert (split.steps, split.outcome) == (None, Outcome.INFEASIBLE)
            assert split.reason
            continue
        assert split.outcome is Outcome.OPTIMAL
        assert split.steps is not None
        assert chain_cost(chain, split.steps) == pytest.approx(split.value)
        assert split.value == pytest.approx(best)
        assert split.lower_bound == pytest.approx(best)


def test_links_are_gone_over_where_they_are_cheaper() -> None:
    """Of 150 random chains some are better for links, none is worse, and a dear link is none."""
    gained = 0
    for seed in range(150):
        chain = random_chain(random.Random(seed), one_for_all=False)
        if not any(entry for row in chain.links for entry in row):
            continue
        linked, star = fused_split(chain), fused_split(replace(chain, links=()))
        dear = tuple(tuple(entry and entry.times(1e6) for entry in row) for row in chain.links)
        assert linked.value <= star.value * (1 + 1e-9)
        assert fused_split(replace(chain, links=dear)).value == pytest.approx(star.value)
        gained += linked.value < star.value * (1 - 1e-9)
    assert gained >= 5


def test_two_accelerators_hand_on_what_they_made() -> None:
    """Over the host a map goes out and in, over the link once; the next layer is then shared by both."""
    layers = (conv("a", 4, 16, 16), conv("b", 4, 16, 16), conv("c", 4, 16, 32))
    legs = Legs(IN_MAP, OUT_MAP)
    fast = [Posynomial((Monomial(1e-3, {"H": 1, "W": 1, "C": 1, "N": 1}),)), Posynomial((Monomial(1.0, {}),))]
    gpu, fpga = (
        SplitDevice(name, (Formula(latency_s),), legs) for name, latency_s in zip(("gpu", "fpga"), fast, strict=True)
    )
    direct = IN_MAP.times(0.1)
    chain = SplitProblem(layers, (gpu, fpga), links=((None, direct), (direct, None)))
    maps = 4 * 4 * 16
    handed = (Step("whole", 0, 0, (16, 0)), Step("whole", 1, 1, (0, 16)), Step("split", 2, 2, (16, 16)))
    costs = step_costs(chain, handed)
    assert [cost.at for cost in costs] == [None, 0, 1]
    assert costs[1].in_s == pytest.approx((0.0, 0.1 * maps))
    assert costs[2].in_s == pytest.approx((0.1 * maps, 0.0))
    assert costs[2].out_s == pytest.approx((maps, maps))
    with pytest.raises(ValueError, match="linked to it or fetched"):
        step_costs(replace(chain, links=()), handed)
    first, second, third = layer_shares(chain, handed)
    assert first.fused == second.fused == third.fused == (0, 2)
    assert math.fsum(share.cost_s for share in (first, second, third)) == pytest.approx(chain_cost(chain, handed))


def test_nothing_is_fused_across_a_start() -> None:
    """What a start reads is in the host's memory; before and behind it layers stay where they are."""
    layers = tuple(conv(name, 4, 16, 16) for name in "abc")
    legs = Legs(IN_MAP, OUT_MAP)
    chain = SplitProblem(layers, (device("far", 0.01, legs), device("host", 10.0)))
    modes = {starts: fused_split(replace(chain, starts=starts)).steps for starts in ((0,), (0, 1), (0, 1, 2))}
    fetched = {starts: [step.mode for step in steps or ()].count("fetched") for starts, steps in modes.items()}
    assert fetched[0,] == 1
    for starts, steps in modes.items():
        assert steps is not None
        layer_steps = [pair for pair in zip(steps, step_costs(chain, steps), strict=True) if pair[0].mode != "fetched"]
        assert {cost.at for step, cost in layer_steps if step.first in starts} == {None}
        shares = layer_shares(chain, steps)
        assert math.fsum(share.cost_s for share in shares) == pytest.approx(chain_cost(chain, steps))
        assert shares[0].fused == ((0, 2) if starts == (0,) else None)


@pytest.mark.parametrize("seed", range(12))
def test_layers_split_by_themselves_are_as_the_checker_has_it(seed: int) -> None:
    problem = random_split_problem(random.Random(seed), most=24, layers=3)
    split = split_network(problem)
    if split.steps is None:
        assert split.outcome is Outcome.INFEASIBLE
        return
    shares = [step.shares for step in split.steps]
    assert faults(problem, shares) == []
    costs = [layer_cost(problem, layer, units) for layer, units in zip(problem.layers, shares, strict=True)]
    assert math.fsum(costs) == pytest.approx(split.value)


def conv(name: str, rows: int, channels: int, filters: int, kernel: int = 3, stride: int = 1) -> SplitLayer:
    features = {"H": rows, "W": rows, "C": channels, "k": kernel, "N": filters, "s": stride}
    return SplitLayer(name, features, "N", 16)


def device(name: str, slowness: float, legs: Legs | None = None) -> SplitDevice:
    macs = Monomial(slowness, {"H": 1, "W": 1, "C": 1, "k": 2, "N": 1})
    return SplitDevice(name, (Formula(Posynomial((macs,))),), legs)


IN_MAP = Posynomial((Monomial(1.0, {"H": 1, "W": 1, "C": 1, "s": 2}),))
OUT_MAP = Posynomial((Monomial(1.0, {"H": 1, "W": 1, "N": 1}),))


def test_what_may_be_fused() -> None:
    """A product behind an image is no tile of it; filters that are not the next one's channels make no pair."""
    image = [conv("a", 8, 3, 16), conv("b", 8, 16, 16), conv("c", 4, 32, 16), conv("d", 4, 16, 16), conv("e", 4, 16, 8)]
    runs = [("split", 0), ("pair", 1), ("tiles", 1), ("tiles", 2), ("tiles", 3)]
    chain = SplitProblem(tuple(image), ())
    assert list(runs_from(chain, 0)) == runs
    assert list(runs_from(chain, 1)) == [("split", 1), ("tiles", 2), ("tiles", 3), ("tiles", 4)]
    assert list(runs_from(replace(chain, starts=(3,)), 1)) == [("split", 1), ("tiles", 2)]
    rows = {"H": 8, "W": 1, "C": 16, "k": 1, "N": 16, "s": 1}
    products = (replace(image[0], features=rows), replace(image[0], features=rows))
    behind = SplitProblem((image[1], *products), ())
    assert list(runs_from(behind, 0)) == [("split", 0), ("pair", 1)]
    assert list(runs_from(SplitProblem(products, ()), 0)) == [("split", 0), ("pair", 1), ("tiles", 1)]


def test_a_tile_reads_what_its_rows_need() -> None:
    """Two of 3 rows each before a pooling by 2; all where all are wanted, and never more than there are."""
    layers = [conv("a", 16, 1, 1), conv("b", 16, 1, 1), conv("c", 8, 1, 1)]
    assert rows_of(layers, 1) == (8, 6, 1)
    assert rows_of(layers, 4) == (14, 12, 4)
    assert rows_of(layers, 7) == (16, 16, 7)
    assert rows_of(layers, 8) == (16, 16, 8)
    strided = [conv("a", 16, 1, 1), conv("b", 8, 1, 1, stride=2)]
    assert rows_of(strided, 2) == (5, 2)


def test_blocks_of_a_pair_are_channels_that_its_devices_can_run() -> None:
    """Of 96 filters in blocks of 16, a device that reads multiples of 24 channels gets multiples of 48."""
    picky = replace(device("picky", 1.0), formulas=(Formula(Posynomial((Monomial(1.0, {"N": 1}),)), channels=24),))
    problem = SplitProblem((conv("a", 4, 24, 96), conv("b", 4, 96, 24)), (picky, device("other", 1.0)))
    assert [(layer.variable, layer.block) for layer in parts(problem, "pair", 0, 1)] == [("N", 48), ("C", 48)]
    assert chain_faults(problem, [Step("pair", 0, 1, (48, 48))]) == []
    (fault,) = chain_faults(problem, [Step("pair", 0, 1, (32, 64))])
    assert fault == says("picky: layer b … 32 channels and 24 filters…")
    assert not math.isfinite(step_costs(problem, [Step("pair", 0, 1, (32, 64))])[0].value)


def test_dear_links_fuse_and_free_ones_do_not() -> None:
    """Two alike devices behind links: tiles or pairs save moving what is between, and cost a halo."""
    layers = tuple(replace(conv(name, 32, 16, 16), block=1) for name in "ab")
    for price, modes in ((0.0, ["split", "split"]), (3.0, ["tiles"])):
        legs = Legs(IN_MAP.times(price), OUT_MAP.times(price))
        devices = tuple(device(name, 0.01, legs) for name in "ab")
        chain = SplitProblem(layers, devices, execution="parallel")
        split = fused_split(chain)
        assert split.steps is not None
        assert [step.mode for step in split.steps] == modes


def test_a_whole_layer_stays_where_the_next_one_is() -> None:
    """The fast device's link costs as much as a layer: both layers there, one input in and one output back."""
    layers = (conv("a", 4, 16, 16), conv("b", 4, 16, 16))
    legs = Legs(IN_MAP, OUT_MAP)
    chain = SplitProblem(layers, (device("host", 1.0), device("far", 0.01, legs)))
    split = fused_split(chain)
    assert split.steps is not None
    assert [(step.mode, step.shares) for step in split.steps] == [
        ("whole", (0, 16)),
        ("whole", (0, 16)),
        ("fetched", (0, 16)),
    ]
    apart = split_network(chain)
    assert apart.value == pytest.approx(split.value + 2 * 4 * 4 * 16)


class TestLimits:
    ROOM = Posynomial((Monomial(1.0, {"C": 1, "N": 1}),))

    def limited(self, unlimited: SplitDevice, limit: float, *, one_for_all: bool) -> SplitDevice:
        return replace(unlimited, resources={"ALM": self.ROOM}, limits={"ALM": limit}, one_for_all=one_for_all)

    def problem(self, limits: tuple[float, ...], *, one_for_all: bool) -> SplitProblem:
        """Two layers of 16 by 32, whose device has room for so much of C times N."""
        devices = tuple(
            self.limited(device(f"d{i}", 1.0), limit, one_for_all=one_for_all) for i, limit in enumerate(limits)
        )
        return SplitProblem((conv("a", 4, 16, 32), conv("b", 4, 16, 32)), devices)

    def test_a_layer_that_fits_nowhere_names_the_limit(self) -> None:
        split = split_network(self.problem((100, 300), one_for_all=False))
        assert (split.outcome, split.reason) == (
            Outcome.INFEASIBLE,
            "layer a: d0 has room for 0 (ALM), d1 has room for 16 (ALM) of 32 in blocks of 16",
        )

    def test_all_layers_together(self) -> None:
        split = split_network(self.problem((600,), one_for_all=True))
        assert split.reason == says("d0: all layers … need 1024 ALM at least, … has 600")
        two = split_network(self.problem((600, 300), one_for_all=True))
        assert two.reason == says("the limits of ALM of d0, ALM of d1 for all layers …")

    def test_a_budget_is_spent_where_it_gains_most(self) -> None:
        """Room for one layer of two on the fast device: the heavier one is there."""
        layers = (conv("light", 4, 16, 32), conv("heavy", 8, 16, 32))
        fast = self.limited(device("fast", 0.1), 512, one_for_all=True)
        split = split_network(SplitProblem(layers, (fast, device("slow", 1.0))))
        assert split.steps is not None
        assert (split.outcome, [step.shares for step in split.steps]) == (Outcome.OPTIMAL, [(0, 32), (32, 0)])
