"""Fits of monomials and posynomials: what made the points is found again, and what is no posynomial is come near to."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping

import pytest

from shisha_rt.errors import BadInput, Error
from shisha_rt.papers.gp.fits import (
    CONVOLUTION_TERMS,
    Sample,
    errors_of,
    fit_monomial,
    fit_posynomial,
)
from shisha_rt.papers.gp.posynomial import Monomial, Posynomial
from shisha_rt.papers.gp.problem import FEATURES
from tests.wording import raised

Value = Callable[[Mapping[str, float]], float]


def drawn(count: int, value: Value, seed: int = 3) -> list[Sample]:
    random_ = random.Random(seed)
    found = []
    for _ in range(count):
        size = random_.randint(7, 112)
        features = {
            "H": float(size),
            "W": float(size),
            "C": float(round(2 ** random_.uniform(0, 9))),
            "k": float(random_.choice((1, 3, 5, 7))),
            "N": float(round(2 ** random_.uniform(0, 9))),
            "s": float(random_.choice((1, 2))),
        }
        found.append(Sample(features, value(features)))
    return found


def multiply_adds(x: Mapping[str, float]) -> float:
    return x["H"] * x["W"] * x["C"] * x["k"] ** 2 * x["N"]


def roofline(x: Mapping[str, float]) -> float:
    """A call, the larger of computing and moving, and steps of 16 channels."""
    steps = {**x, "C": 16 * math.ceil(x["C"] / 16), "N": 16 * math.ceil(x["N"] / 16)}
    moved = x["H"] * x["W"] * (x["C"] * x["s"] ** 2 + x["N"]) + x["C"] * x["k"] ** 2 * x["N"]
    return 2e-5 + max(2e-11 * multiply_adds(steps), 4e-10 * moved)


def test_a_monomial_is_found_again() -> None:
    truth = Monomial(3e-9, {"H": 1.5, "C": 0.8, "k": 1.9, "N": -0.5, "s": 0.25})
    fit = fit_monomial(drawn(60, truth.at), ("H", "C", "k", "N", "s"), seed=1)
    (found,) = fit.posynomial.terms
    assert (fit.points, fit.held_out) == (48, 12)
    assert found.coefficient == pytest.approx(truth.coefficient, rel=1e-6)
    assert found.exponents == pytest.approx(truth.exponents, abs=1e-6)
    assert fit.errors.most < 1e-6


def test_features_that_never_change_are_left_out() -> None:
    samples = [Sample({"C": float(n), "k": 3.0}, 5.0 * n**2) for n in range(1, 20)]
    (found,) = fit_monomial(samples, ("C", "k"), seed=0).posynomial.terms
    assert found.exponents == pytest.approx({"C": 2.0})
    assert found.coefficient == pytest.approx(5.0)


def test_a_posynomial_is_found_again_and_no_other_term_with_it() -> None:
    pytest.importorskip("scipy")
    truth = Posynomial((Monomial(1e-5, {}), Monomial(2e-11, dict(CONVOLUTION_TERMS[1])), Monomial(1e-9, {"C": 1.0})))
    terms = (*CONVOLUTION_TERMS, {"C": 1.0}, {"N": 1.0})
    fit = fit_posynomial(drawn(100, truth.at), terms, seed=0)
    assert fit.errors.most < 1e-6
    large = [term for term in fit.posynomial.terms if term.coefficient > 1e-16]
    assert [term.coefficient for term in large] == pytest.approx([1e-5, 2e-11, 1e-9], rel=1e-4)


def test_it_is_not_too_short_where_points_scatter() -> None:
    """Twice as long as often as half as long: a constant must lie about in the middle."""
    pytest.importorskip("scipy")
    samples = [Sample({"C": 1.0}, 2.0 if index % 2 else 0.5) for index in range(200)]
    ((term,),) = (fit_posynomial(samples, [{}], seed=0).posynomial.terms,)
    assert 0.7 < term.coefficient < 1.3


def test_a_roofline_in_steps_is_no_monomial() -> None:
    pytest.importorskip("scipy")
    samples = drawn(400, roofline)
    monomial = fit_monomial(samples, FEATURES[:1] + FEATURES[2:], seed=0).errors
    posynomial = fit_posynomial(samples, CONVOLUTION_TERMS, seed=0).errors
    assert monomial.median > 0.2
    assert posynomial.median < monomial.median / 2
    assert posynomial.most < monomial.most / 2


def test_only_the_seed_chooses_what_is_held_out() -> None:
    samples = drawn(100, roofline)
    fits = [fit_monomial(samples, ("H", "C", "k", "N", "s"), seed) for seed in (4, 4, 5)]
    assert fits[0] == fits[1]
    assert fits[0] != fits[2]


def test_errors_are_those_of_the_points() -> None:
    samples = [Sample({"C": value}, 10.0) for value in (9.0, 10.0, 11.0, 12.0, 13.0)]
    found = errors_of(Posynomial((Monomial(1.0, {"C": 1.0}),)), samples)
    assert (found.median, found.most) == pytest.approx((0.1, 0.26))


def test_terms_alike_and_empty_ones_are_borne() -> None:
    pytest.importorskip("scipy")
    samples = [Sample({"C": float(n)}, 2.0 * n) for n in range(1, 30)]
    fit = fit_posynomial(samples, [{"C": 1.0}, {"C": 1.0}, {"C": -300.0}], seed=0)
    assert fit.errors.most < 1e-6


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([], "0 points for 3 unknowns, of which 20% are held out: expected 4 or more"),
        ([Sample({"C": 1.0, "N": 2.0}, 1.0)] * 3, "3 points for 3 unknowns, of which 20% are held out: expected 4 or"),
        (
            [Sample({"C": 1.0, "N": 2.0}, 1.0)] * 9 + [Sample({"C": 1.0, "N": 2.0}, -1.0)],
            "point 9: value = -1, expected a number > 0",
        ),
        ([Sample({"C": 0.0, "N": 2.0}, 1.0)] * 9, "point 0: C = 0, expected a number > 0"),
        ([Sample({"C": 1.0, "N": math.nan}, 1.0)] * 9, "point 0: N = nan"),
        ([Sample({"C": 1.0, "N": 1.0}, math.inf)] * 9, "point 0: value = inf"),
        ([Sample({"C": 1.0}, 1.0)] * 9, "point 0: N is missing, expected C, N"),
    ],
)
def test_refused_in_one_line(samples: list[Sample], expected: str) -> None:
    with raised(BadInput, Error.WRONG_VALUE) as of_monomial:
        fit_monomial(samples, ("C", "N"), seed=0)
    with raised(BadInput, Error.WRONG_VALUE) as of_posynomial:
        fit_posynomial(samples, [{"C": 1.0}, {"N": 1.0}, {}], seed=0)
    for caught in (of_monomial, of_posynomial):
        assert str(caught.value).startswith(expected)
        assert "\n" not in str(caught.value)


def test_as_many_points_as_it_asks_for_are_enough() -> None:
    pytest.importorskip("scipy")
    samples = drawn(4, multiply_adds)
    assert fit_monomial(samples, ("C", "N"), seed=0).points == 3
    assert fit_posynomial(samples, [{"C": 1.0}, {"N": 1.0}, {}], seed=0).points == 3
