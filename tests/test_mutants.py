"""Of small faults put into the pure cores at random, the tests that CONTRIBUTING names find most."""

from __future__ import annotations

import ast
from itertools import islice

import pytest

from tests.mutants import MUTATED, ROOT, mutants, named_tests, survivors

COUNT, SEED = 40, 1
LEAST = 0.55
"""Two standard deviations of such a sample below 0.7. Some mutants are no faults: a bound that is never met, a hint, a
default that everybody overrides.
"""


@pytest.mark.long
def test_most_mutants_are_found() -> None:
    left = survivors(COUNT, SEED)
    share = 1 - len(left) / COUNT
    print(*left, f"{share:.0%} of {COUNT} mutants found", sep="\n")
    assert share >= LEAST


def test_a_mutant_is_its_module_with_one_difference() -> None:
    for mutant in islice(mutants(SEED), 3):
        before = ast.unparse(ast.parse((ROOT / mutant.module).read_text(encoding="utf-8"))).splitlines()
        after = mutant.source.splitlines()
        assert before != after, mutant
        assert abs(len(before) - len(after)) <= 1, mutant
        compile(mutant.source, str(mutant.module), "exec")


def test_a_seed_draws_the_same_mutants_again() -> None:
    first, again, other = ([str(mutant) for mutant in islice(mutants(seed), 2)] for seed in (3, 3, 4))
    assert first == again != other


def test_each_is_of_a_package_whose_tests_are_named() -> None:
    for part, package in MUTATED.items():
        assert (ROOT / "shisha_rt" / part).exists()
        assert [name for name in named_tests(package) if not (ROOT / name).exists()] == []


def test_each_package_has_a_row_that_names_its_own_tests() -> None:
    packages = [path.parent.name for path in (ROOT / "shisha_rt").glob("*/__init__.py")]
    named = {package: named_tests(package) for package in packages}
    own = {package: f"tests/{package}" for package in packages if (ROOT / "tests" / package).exists()}
    assert [path for package, path in own.items() if path not in named[package]] == []
