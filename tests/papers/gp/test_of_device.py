"""Described devices as posynomials: the same costs, transfers and resources as the formulas give for a real Conv."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from shisha_rt.costs.device_costs import operator_cost_s, transfer_cost_s
from shisha_rt.errors import BadInput, Error
from shisha_rt.machine.config.device_files import devices_of, parse_device
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.machine.config.shipped import shipped_configs
from shisha_rt.machine.device import Condition, Device, DirectLink, Family, Multiple, Term, Transfer
from shisha_rt.model.graph import Graph
from shisha_rt.papers.gp.chain import faults
from shisha_rt.papers.gp.of_device import device_links, split_device
from shisha_rt.papers.gp.problem import SplitLayer, SplitProblem, common_block, layer_cost
from tests.model.single_operator import single_operator
from tests.wording import raised

MACHINE = load_machine("tx2-cyclone")
CPU, GPU, FPGA = (device for place in MACHINE.places for device in devices_of(MACHINE, place))


def shipped(name: str) -> Device:
    return parse_device(shipped_configs("devices")[name].read_text(), name=name, source=f"{name}.toml")


def conv(features: dict[str, int]) -> Graph:
    """Of one image, padded so that H and W are the input's over the stride; with a bias. C and N: of each group."""
    height, width, channels, kernel, filters, stride, groups = (features[name] for name in "HWCkNsG")
    return single_operator(
        "Conv",
        [
            (1, groups * channels, height * stride, width * stride),
            (groups * filters, channels, kernel, kernel),
            (groups * filters,),
        ],
        (1, groups * filters, height, width),
        {"group": groups},
    )


def drawn(random_: random.Random) -> dict[str, int]:
    sizes = {"H": 56, "W": 56, "C": 300, "k": 7, "N": 300, "s": 3}
    drawn_sizes = {name: random_.randint(1, most) for name, most in sizes.items()}
    return {**drawn_sizes, "G": random_.choice((1, 1, 2, 3, 32))}


MANY = Device(
    "many",
    "many.toml",
    "onnxruntime",
    "host",
    "bf16",
    1e-5,
    (
        Family(
            frozenset({"Conv"}),
            (),
            (
                Term(1e-9, (("rows", 0.5), ("inner", 1.5))),
                Term(1e-16, (("elements_in", 2.0), ("columns", -1.0))),
                Term(1e-10, (("bytes_in", 1.0), ("batch", 3.0))),
                Term(1e-9, (("bytes_out", 0.5),)),
                Term(1e-3),
                Term(0.0, (("rows", 1.0),)),
            ),
        ),
    ),
)


@pytest.mark.parametrize(
    "device", [CPU, GPU, FPGA, MANY, *map(shipped, ("a53", "cpu_p", "evta"))], ids=lambda device: device.name
)
def test_it_costs_what_the_formulas_say(device: Device) -> None:
    random_ = random.Random(7)
    posynomials = split_device(device)
    unlimited = replace(device, resources=())
    for _ in range(50):
        features = drawn(random_)
        graph = conv(features)
        cost_s = operator_cost_s(graph, graph.operators[0], unlimited)
        assert posynomials.compute_s(features) == (pytest.approx(cost_s, rel=1e-9) if cost_s < math.inf else cost_s)
        moved_s = posynomials.transfer_s.at(features)
        legs_s = transfer_cost_s(graph.inputs[0], CPU, device), transfer_cost_s(graph.outputs[0], device, CPU)
        assert moved_s == pytest.approx(math.fsum(legs_s), rel=1e-9)
        within = all(posynomials.resources[it.name].at(features) <= it.limit for it in device.resources)
        runs = posynomials.formula(features) is not None
        assert (operator_cost_s(graph, graph.operators[0], device) < math.inf) == (runs and within)


def test_links_are_those_of_the_devices() -> None:
    """Both ways alike, for the input map of the reader's share; whichever device states it."""
    link = DirectLink("gpu", Transfer(1e-6, 1e12))
    gpu = replace(GPU, memory="gpu", transfer_in=FPGA.transfer_in, transfer_out=FPGA.transfer_out)
    fpga = replace(FPGA, links=(link,))
    assert device_links([CPU, gpu, FPGA]) == ()
    assert device_links([CPU, GPU, fpga]) == ((None,) * 3,) * 3
    links = device_links([CPU, gpu, fpga])
    assert [(a, b) for a in range(3) for b in range(3) if links[a][b] is not None] == [(1, 2), (2, 1)]
    features = drawn(random.Random(3))
    graph = conv(features)
    for source, target, entry in ((gpu, fpga, links[1][2]), (fpga, gpu, links[2][1])):
        assert entry is not None
        assert entry.at(features) == pytest.approx(transfer_cost_s(graph.inputs[0], source, target), rel=1e-9)


def test_terms_alike_are_one() -> None:
    (formula,) = split_device(MANY).formulas
    exponents = [tuple(sorted(term.exponents.items())) for term in formula.seconds.terms]
    assert len(set(exponents)) == len(exponents)
    assert all(term.coefficient > 0 for term in formula.seconds.terms)


def test_groups_that_a_device_runs() -> None:
    """The first family that fits counts: a53 has a formula for one group, two, and any number; the NPU for one."""
    assert [formula.groups for formula in split_device(shipped("a53")).formulas] == [1, 2, None]
    assert [formula.groups for formula in split_device(shipped("evta")).formulas] == [1]
    (any_number,) = CPU.families[:1]
    of_four = replace(any_number, conditions=(Condition("group", 4, 1),))
    both = replace(CPU, families=(of_four, any_number))
    assert [formula.groups for formula in split_device(both).formulas] == [4, None]
    with raised(BadInput, Error.DEVICE_UNFIT, match="has Conv"):
        split_device(replace(CPU, families=(of_four,)))


def test_power_and_limits() -> None:
    fpga = split_device(FPGA, "energy", one_for_all=True)
    assert (fpga.power_w, fpga.transfer_power_w, fpga.one_for_all) == (4.0, 3.0, True)
    assert fpga.limits == {"ALM": 80330, "ALUT": 160660, "LAB": 8033, "M20K": 587}
    features = {"H": 14.0, "W": 14.0, "C": 512.0, "k": 3.0, "N": 512.0, "s": 1.0}
    assert [formula.groups for formula in fpga.formulas] == [1]
    problem = SplitProblem((SplitLayer("conv5", features),), (fpga,), "energy")
    assert len(faults(problem, [[512]])) == 3
    whole = problem.layers[0].share(512)
    joules = 4 * fpga.compute_s(whole) + 3 * fpga.transfer_s.at(whole)
    assert layer_cost(problem, problem.layers[0], [512]) == pytest.approx(joules)


def test_the_board_has_the_shapes_of_the_paper() -> None:
    """First layers fit the FPGA and are quickest there, moving included; of deep ones hardly a part fits."""
    cpu, gpu, fpga = (split_device(device) for device in (CPU, GPU, FPGA))
    first = {"H": 112.0, "W": 112.0, "C": 3.0, "k": 7.0, "N": 64.0, "s": 2.0, "G": 1.0}
    deep = {"H": 14.0, "W": 14.0, "C": 512.0, "k": 3.0, "N": 512.0, "s": 1.0, "G": 1.0}
    assert fpga.compute_s(first) + fpga.transfer_s.at(first) < gpu.compute_s(first) / 4
    assert all(fpga.resources[name].at(first) < limit for name, limit in fpga.limits.items())
    assert 0.03 < min(limit / fpga.resources[name].at(deep) for name, limit in fpga.limits.items()) < 0.1
    for features in (first, deep):
        assert 4 < cpu.compute_s(features) / gpu.compute_s(features) < 6


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (shipped("openvino"), "openvino.toml: device openvino is"),
        (shipped("pim"), "pim.toml: no [[family]] has Conv"),
        (replace(CPU, source="d.toml", max_rank=3), "d.toml: max_rank = 3, expected 4 or more"),
        (replace(CPU, source="d.toml", datatypes=frozenset({"FP16"})), "d.toml: datatypes without FP32, expected it"),
        (shipped("a53"), "a53.toml: power_w is missing"),
        (
            replace(CPU, source="d.toml", families=(Family(frozenset(), (), (Term(1.0, (("bytes_in", 0.5),)),)),)),
            "d.toml: cost of Conv: bytes_in = 0.5 makes no posynomial",
        ),
    ],
)
def test_refused_in_one_line(device: Device, expected: str) -> None:
    with raised(BadInput, Error.DEVICE_UNFIT) as caught:
        split_device(device, "latency" if device.name == "pim" else "energy")
    assert str(caught.value).startswith(expected)
    assert "\n" not in str(caught.value)


def test_blocks_that_every_device_can_run() -> None:
    evta = split_device(shipped("evta"))
    (formula,) = evta.formulas
    of_24 = replace(evta, formulas=(replace(formula, filters=24),))
    cpu, fpga = map(split_device, (CPU, FPGA))
    assert [common_block([evta, cpu], variable) for variable in ("C", "N", "H")] == [16, 16, 1]
    assert [common_block([evta, of_24], variable) for variable in ("C", "N", "H")] == [16, 48, 1]
    assert common_block([cpu, fpga], "N") == 1


def test_multiples_are_of_channels_over_all_groups() -> None:
    """The first family that fits counts, as it does for a real Conv; what is no multiple is left to a later one."""
    (family, *_) = shipped("evta").families
    sixteens = replace(family, conditions=(), multiples=(Multiple("in_channels", 16), Multiple("filters", 8)))
    both = replace(shipped("evta"), families=(sixteens, replace(sixteens, multiples=(), terms=(Term(1.0),))))
    features = {"H": 4, "W": 4, "C": 4, "k": 3, "N": 4, "s": 1, "G": 4}
    for device in (both, replace(both, families=(sixteens,))):
        for changed in ({}, {"C": 3}, {"C": 8}, {"N": 3}, {"N": 2}, {"G": 1}, {"G": 2, "C": 8}):
            shares = {**features, **changed}
            graph = conv(shares)
            cost_s = operator_cost_s(graph, graph.operators[0], device)
            assert split_device(device).compute_s(shares) == (
                pytest.approx(cost_s, rel=1e-9) if cost_s < math.inf else cost_s
            )
