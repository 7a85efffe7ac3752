"""Mutants of the pure cores, drawn at random, and whether the tests that CONTRIBUTING names for a package find them.

A mutant is a module with one small fault: a comparison or a sum turned round, a condition negated, a number off by one,
a statement, an argument or a result left out. mutmut and cosmic-ray make every mutant of a package, which is days of
tests here, and take no sample by a seed. `python -m tests.mutants COUNT SEED` prints which are found.
"""

from __future__ import annotations

import ast
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
MUTATED: Final[Mapping[str, str]] = {
    "core/lifecycle": "core",
    "core/tuning": "core",
    "planner": "planner",
    "plan/verify.py": "plan",
    "protocol": "protocol",
}
"""Modules of `shisha_rt`, each with its row in CONTRIBUTING's table."""
_TIMEOUT_S: Final = 60
"""Of one test: a mutant that never ends is found as well."""
_TURNED: Final[Mapping[type[ast.AST], Callable[[], Any]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
_LEFT_ALONE: Final = (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom)
"""Messages, and what only guards against bugs."""
_NOT_RUN: Final = ("annotation", "returns", "decorator_list", "bases")


@dataclass(frozen=True)
class Mutant:
    module: Path
    line: int
    change: str
    source: str
    package: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.change}"


def mutants(seed: int) -> Iterator[Mutant]:
    """Without end; each place of the mutated modules is as likely as any other."""
    rng = random.Random(seed)
    places = _all_places()
    while True:
        path, package, place = rng.choice(places)
        fault = _Fault(place)
        tree = ast.fix_missing_locations(fault.visit(ast.parse(path.read_text(encoding="utf-8"))))
        yield Mutant(path.relative_to(ROOT), fault.line, fault.change, ast.unparse(tree), package)


@cache
def _all_places() -> list[tuple[Path, str, int]]:
    modules = [(path, package) for part, package in MUTATED.items() for path in _modules(ROOT / "shisha_rt" / part)]
    return [(path, package, place) for path, package in modules for place in range(1, _Fault.count(path) + 1)]


def _modules(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


class _Fault(ast.NodeTransformer):
    """Puts in the fault with this number, counted from 1, of all that a module can have."""

    def __init__(self, number: int = 0) -> None:
        self._number = number
        self.seen = 0
        self.line, self.change = 0, ""

    @classmethod
    def count(cls, path: Path) -> int:
        none = cls()
        none.visit(ast.parse(path.read_text(encoding="utf-8")))
        return none.seen

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, _LEFT_ALONE):
            return node
        for broken in _broken(node):
            self.seen += 1
            if self.seen == self._number:
                self.line = getattr(node, "lineno", 0)
                self.change = f"{_first_line(node)} -> {_first_line(broken)}"
                return broken
        return self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        unseen = (*_NOT_RUN, "keywords") if isinstance(node, ast.ClassDef) else _NOT_RUN
        kept = {field: getattr(node, field) for field in unseen if hasattr(node, field)}
        for field, value in kept.items():
            setattr(node, field, [] if isinstance(value, list) else None)
        super().generic_visit(node)
        for field, value in kept.items():
            setattr(node, field, value)
        return node


def _broken(node: ast.AST) -> Iterator[ast.AST]:
    """The node in each way in which it can be wrong."""
    match node:
        case ast.Compare(left, ops, comparators):
            for k, op in enumerate(ops):
                yield ast.Compare(left, [*ops[:k], _TURNED[type(op)](), *ops[k + 1 :]], comparators)
        case ast.BoolOp(op, values):
            yield ast.BoolOp(_TURNED[type(op)](), values)
        case ast.BinOp(left, op, right) if type(op) in _TURNED:
            yield ast.BinOp(left, _TURNED[type(op)](), right)
        case ast.IfExp(test, body, orelse):
            yield ast.IfExp(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.If(test, body, orelse) if ast.unparse(test) != "TYPE_CHECKING":
            yield ast.If(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.While(test, body, orelse):
            yield ast.While(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value) | float(value)):
            yield ast.Constant(value + 1)
        case ast.Call(func, args, keywords):
            for k in range(len(keywords)):
                yield ast.Call(func, args, [*keywords[:k], *keywords[k + 1 :]])
        case ast.Expr(ast.Call()) | ast.AugAssign():
            yield ast.Pass()
        case ast.Return(ast.expr() as value) if not (isinstance(value, ast.Constant) and not value.value):
            yield ast.Return(ast.Constant(None))


def _first_line(node: ast.AST) -> str:
    return ast.unparse(ast.fix_missing_locations(node)).splitlines()[0]


class Bench:
    """A copy of the tree in a folder of its own, in which mutants take the place of modules."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".*", "__pycache__", "results"), dirs_exist_ok=True)

    def finds(self, mutant: Mutant) -> bool:
        place = self._folder / mutant.module
        as_it_is = place.read_text(encoding="utf-8")
        place.write_text(mutant.source, encoding="utf-8")
        nearest = Path("tests").joinpath(*mutant.module.parts[1 : 3 if mutant.package == "core" else 2])
        try:
            return not (self.passes([str(nearest)]) and self.passes(named_tests(mutant.package)))
        finally:
            place.write_text(as_it_is, encoding="utf-8")

    def passes(self, paths: Sequence[str]) -> bool:
        """Whether all unit tests in these files and folders pass."""
        command = [sys.executable, "-m", "pytest", "-xq", "-m", "unit and not long", "--timeout", str(_TIMEOUT_S)]
        done = subprocess.run(
            [*command, "-p", "no:cacheprovider", *paths],
            cwd=self._folder,
            capture_output=True,
            text=True,
        )
        assert done.returncode in (0, 1, 2), done.stdout + done.stderr  # none of them; failures; nothing to import
        return done.returncode == 0


def named_tests(package: str) -> list[str]:
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| `{package}/` \| `([^`]+)` \|", table, re.MULTILINE)
    return [word for word in row.split() if word.startswith("tests/")]


def survivors(count: int, seed: int) -> list[Mutant]:
    """Those of so many mutants that no test finds."""
    drawn = list(islice(mutants(seed), count))
    with tempfile.TemporaryDirectory(prefix="shisha-rt-mutants-") as folder:
        bench = Bench(Path(folder))
        for package in sorted({mutant.package for mutant in drawn}):
            assert bench.passes(named_tests(package)), f"{package}: its tests fail without a mutant"
        return [mutant for mutant in drawn if not bench.finds(mutant)]


if __name__ == "__main__":
    count, seed = map(int, sys.argv[1:])
    left = survivors(count, seed)
    print(*left, f"{count - len(left)} of {count} found", sep="\n")
