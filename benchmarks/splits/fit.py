"""How well monomials and posynomials fit times of convolutions: of real engines, a link, and described devices."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Annotated, Final

import typer

from benchmarks.report.facts import facts
from benchmarks.report.page import table
from benchmarks.report.results import RESULTS, Row, save_csv, show
from benchmarks.rigs.child_process import Fields, child_process
from benchmarks.splits.convolutions import Features, convolutions, multiply_adds
from benchmarks.splits.link import link_times
from shisha_rt.machine.config.device_files import devices_of
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.papers.gp.fits import CONVOLUTION_TERMS, Errors, Fit, Sample, fit_monomial, fit_posynomial
from shisha_rt.papers.gp.of_device import INPUT_MAP, OUTPUT_MAP, split_device
from shisha_rt.papers.gp.posynomial import Monomial, Posynomial
from shisha_rt.papers.gp.problem import FEATURES

ENGINES: Final[Mapping[str, str]] = {"ort_serial": "ONNX Runtime", "openvino": "OpenVINO"}
BOARD: Final = "tx2-cyclone"
MEASURED: Final = "measured, one thread"
ON_PAPER: Final = "formula, on paper"
_LINK_SIZES: Final = 80
_MACS: Final = CONVOLUTION_TERMS[1]
_STEP: Final = 16
_CHOICES: Final = 20
_AGAIN: Final = 40


@dataclass(frozen=True, slots=True)
class Fitted:
    """`what` was fitted, by each form. `macs`: proportional to multiply-adds only; None for a link.

    `medians`: the median errors of monomial and posynomial, medians over choices of the points held out.
    """

    what: str
    made: str
    monomial: Fit
    posynomial: Fit
    macs: Fit | None
    medians: tuple[float, float]


def splits_fit(
    count: Annotated[int, typer.Option(min=100, help="Convolutions to draw.")] = 320,
    seed: Annotated[int, typer.Option(help="Of what is drawn, and of what is held out.")] = 0,
) -> None:
    """Fit monomials and posynomials to measured convolutions, to a link and to described devices."""
    about = facts(f"splits_fit --count {count} --seed {seed}")
    cores = sorted(os.sched_getaffinity(0))
    drawn = convolutions(count, seed)
    link = [Sample({"bytes": size}, taken_s) for size, taken_s in link_times(_LINK_SIZES, seed, (cores[0], cores[-1]))]
    counters, measured = _measure([*drawn, *drawn[:_AGAIN]], cores[-1])
    times = measured[:count]
    about |= {"energy": _about_energy(counters), "again": _about_noise(times, measured[count:])}
    save_csv("splits_fit_link", [{"bytes": s.features["bytes"], "seconds": s.value} for s in link], about)
    save_csv("splits_fit_convolutions", list(_convolution_rows(drawn, times)), about)

    found = []
    for name, title in ENGINES.items():
        taken = _samples(drawn, times, name, "s")
        found.append(_fitted(title, MEASURED, taken, seed))
        wide = [sample for sample in taken if min(sample.features["C"], sample.features["N"]) >= _STEP]
        found.append(_fitted(f"{title}, {_STEP} or more channels and filters", MEASURED, wide, seed))
        if counters:
            used = _samples(drawn, times, name, "j")
            found.append(_fitted(f"{title}, joules", "measured, all of the package", used, seed))
    by_bytes: tuple[Mapping[str, float], ...] = ({}, {"bytes": 1.0})
    found.append(_fitted("link", "measured, memory of two processes", link, seed, ["bytes"], by_bytes))
    found += (_fitted(what, ON_PAPER, samples, seed) for what, samples in on_paper(drawn))
    rows = [_row(its) for its in found]
    show("Errors on points held out", rows, [about["energy"]])
    print(f"written to {save_csv('splits_fit', rows, about)}")
    print(f"written to {_save_page(found, rows, about)}")


def _measure(drawn: Sequence[Features], core: int) -> tuple[Sequence[str], list[Fields]]:
    """The packages whose energy is counted, and for each convolution {device: {"s": seconds, "j": joules or None}}."""
    module, found = "benchmarks.splits.engine_process", []
    with child_process(module, devices=list(ENGINES), core=core) as (child, up):
        for index, features in enumerate(drawn):
            if index % 40 == 0:
                print(f"splits_fit: convolution {index} of {len(drawn)} ...", flush=True)
            found.append(child.ask(features=features))
    return up["counters"], found


def _about_energy(counters: Sequence[str]) -> str:
    if counters:
        return f"counted by {', '.join(counters)}, whatever else runs there included"
    return "no counters (/sys/class/powercap/intel-rapl:*): power times time, with the errors of the time"


def _about_noise(first: Sequence[Fields], again: Sequence[Fields]) -> str:
    """Differences of convolutions that were measured a second time at the end, in words."""
    found = []
    for name, title in ENGINES.items():
        off = [abs(two[name]["s"] / one[name]["s"] - 1) for one, two in zip(first, again, strict=False)]
        found.append(f"on {title} by {median(off):.1%} in the median (90%: {quantiles(off, n=10)[-1]:.1%})")
    return f"{len(again)} convolutions, measured again, are off {', '.join(found)}"


def _convolution_rows(drawn: Sequence[Features], times: Sequence[Fields]) -> Iterator[Row]:
    for features, its in zip(drawn, times, strict=True):
        taken = {f"{title}, seconds": its[name]["s"] for name, title in ENGINES.items()}
        used = {f"{title}, joules": its[name]["j"] for name, title in ENGINES.items()}
        yield {**features, "multiply-adds": multiply_adds(features), **taken, **used}


def _samples(drawn: Sequence[Features], times: Sequence[Fields], name: str, unit: str) -> list[Sample]:
    return [Sample(features, its[name][unit]) for features, its in zip(drawn, times, strict=True)]


def _fitted(
    what: str,
    made: str,
    samples: Sequence[Sample],
    seed: int,
    names: Sequence[str] = FEATURES,
    terms: Sequence[Mapping[str, float]] = CONVOLUTION_TERMS,
) -> Fitted:
    many = [
        (fit_monomial(samples, names, chosen), fit_posynomial(samples, terms, chosen))
        for chosen in range(seed, seed + _CHOICES)
    ]
    monomials, posynomials = zip(*many, strict=True)
    macs = fit_posynomial(samples, [_MACS], seed) if _MACS in terms else None
    medians = [median(fit.errors.median for fit in fits) for fits in (monomials, posynomials)]
    return Fitted(what, made, monomials[0], posynomials[0], macs, (medians[0], medians[1]))


def on_paper(drawn: Sequence[Features]) -> Iterator[tuple[str, list[Sample]]]:
    machine = load_machine(BOARD)
    for device in (device for place in machine.places for device in devices_of(machine, place)):
        its = split_device(device)
        yield device.name, [Sample(features, its.compute_s(_in_one_group(features))) for features in drawn]
        if its.transfer_s is not None:
            moved_s = [its.transfer_s.at(_in_one_group(features)) for features in drawn]
            yield f"{device.name}, transfers", [Sample(*pair) for pair in zip(drawn, moved_s, strict=True)]
    yield "roofline in steps of 16", [Sample(features, _roofline_s(features)) for features in drawn]


def _in_one_group(features: Features) -> dict[str, float]:
    return {"G": 1.0, **features}


def _roofline_s(features: Features) -> float:
    """A cost that is no posynomial: a call, plus the larger of computing, by 16 channels and filters, and moving.

    Its numbers are of the order of this host's: 50 billion multiply-adds and 10 GB per second.
    """
    steps = {**features, "C": _up(features["C"]), "N": _up(features["N"])}
    weights = features["C"] * features["k"] ** 2 * features["N"]
    whole = _in_one_group(features)
    moved_bytes = 4 * (INPUT_MAP.at(whole) + OUTPUT_MAP.at(whole) + weights)
    return 1e-5 + max(multiply_adds(steps) / 50e9, moved_bytes / 10e9)


def _up(channels: int) -> int:
    return _STEP * math.ceil(channels / _STEP)


def _row(its: Fitted) -> Row:
    return {
        "of": its.what,
        "made": its.made,
        "points": its.monomial.points,
        "held out": its.monomial.held_out,
        **_shown("multiply-adds alone", None if its.macs is None else its.macs.errors),
        **_shown("monomial", its.monomial.errors),
        **_shown("posynomial", its.posynomial.errors),
        f"monomial: median, of {_CHOICES} choices": f"{its.medians[0]:.1%}",
        f"posynomial: median, of {_CHOICES} choices": f"{its.medians[1]:.1%}",
    }


def _shown(name: str, errors: Errors | None) -> dict[str, str]:
    shown = ("", "") if errors is None else (f"{errors.median:.1%}", f"{errors.most:.1%}")
    return dict(zip((f"{name}: median", f"{name}: 90%"), shown, strict=True))


def _save_page(found: Sequence[Fitted], rows: Sequence[Row], about: Mapping[str, str]) -> Path:
    formulas = [
        f"- {its.what}: monomial {_formula(its.monomial.posynomial)}; posynomial {_formula(its.posynomial.posynomial)}"
        for its in found
    ]
    path = RESULTS / "splits_fit.md"
    path.write_text(
        _PAGE.format(
            **about,
            table=table(rows),
            formulas="\n".join(formulas),
        ),
        encoding="utf-8",
    )
    return path


def _formula(posynomial: Posynomial) -> str:
    return " + ".join(map(_monomial, sorted(posynomial.terms, key=lambda term: -len(term.exponents))))


def _monomial(monomial: Monomial) -> str:
    powers = (
        name if power == 1 else f"{name}^{power:.2f}".rstrip("0").rstrip(".")
        for name, power in monomial.exponents.items()
    )
    return " ".join([f"{monomial.coefficient:.3g}", *powers])


_PAGE: Final = """# Monomials and posynomials fitted to convolutions

Error is |fitted / value - 1| on points that were held out: of half of them it is no more than the median, of 90% no
more than the second figure. Convolutions are random: outputs of 7 to 112 rows and columns (H, W), 1 to 512 channels and
filters (C, N), kernels (k) of 1, 3, 5 and 7, strides (s) of 1 and 2, 0.1 to 300 million multiply-adds. Those of engines
are sessions as workers have them, plain tensors at both ends, on one thread; CPU seconds, the least of nine rounds.

`{repeat}` wrote this page ({date}, commit {commit}; {cpu}; load at the start: {load average at the start}).

Energy: {energy}. Noise: {again}.

{table}

- A **monomial** is what the GP paper fits: one product of powers. A **posynomial** has a term each for a call, the
  multiply-adds, what channels and filters are rounded up by, what is read, made and fetched, and rows; coefficients of
  0 or more; exponents are given.
- What is left with **engines** is to be held against the noise above. Beyond it, they change their kernels and copies
  with the shape: 1 x 1 convolutions of few rows, and maps that leave the caches, are furthest off. A fit is good enough
  to say which split to try, not what it will take.
- What is **on paper** is there to show what a fit makes of a formula that is known. The board's devices are
  posynomials, and are found again; a monomial of the same is off by what the table says. The roofline is neither.

What was fitted, in seconds:

{formulas}
"""
