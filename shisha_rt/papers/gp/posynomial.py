"""Monomials and posynomials (GP, Eqs. 1 and 2): the cost models that geometric programs are made of.

A monomial is a positive coefficient times powers of positive variables, a posynomial a sum of monomials. Values only.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Monomial:
    """`coefficient` (above 0) times each variable to its exponent."""

    coefficient: float
    exponents: Mapping[str, float]

    def at(self, values: Mapping[str, float]) -> float:
        return self.coefficient * math.prod(math.pow(values[name], power) for name, power in self.exponents.items())

    def times(self, factor: float) -> Monomial:
        return replace(self, coefficient=self.coefficient * factor)

    def by(self, other: Monomial) -> Monomial:
        """The product of both, without variables that cancel out."""
        powers = {name: self.exponents.get(name, 0.0) + power for name, power in other.exponents.items()}
        exponents = {**self.exponents, **powers}
        return Monomial(
            self.coefficient * other.coefficient, {name: power for name, power in exponents.items() if power}
        )

    def fixed(self, values: Mapping[str, float]) -> Monomial:
        """Insert `values`; return the monomial of the remaining variables."""
        rest = {name: power for name, power in self.exponents.items() if name not in values}
        known = {name: power for name, power in self.exponents.items() if name in values}
        return Monomial(Monomial(self.coefficient, known).at(values), rest)


@dataclass(frozen=True, slots=True)
class Posynomial:
    """Sum of `terms`, none of which is 0. Sums and products have one term for equal exponents."""

    terms: tuple[Monomial, ...]

    def at(self, values: Mapping[str, float]) -> float:
        return math.fsum(term.at(values) for term in self.terms)

    def times(self, factor: float) -> Posynomial:
        return Posynomial(tuple(term.times(factor) for term in self.terms))

    def plus(self, other: Posynomial) -> Posynomial:
        return _merged((*self.terms, *other.terms))

    def by(self, other: Posynomial) -> Posynomial:
        return _merged(term.by(factor) for term in self.terms for factor in other.terms)

    def fixed(self, values: Mapping[str, float]) -> Posynomial:
        return _merged(term.fixed(values) for term in self.terms)


def _merged(terms: Iterable[Monomial]) -> Posynomial:
    coefficients: defaultdict[tuple[tuple[str, float], ...], float] = defaultdict(float)
    for term in terms:
        coefficients[tuple(sorted(term.exponents.items()))] += term.coefficient
    return Posynomial(tuple(Monomial(coefficient, dict(key)) for key, coefficient in coefficients.items()))
