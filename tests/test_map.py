"""The rules of the map: who may import what, read from the sources themselves.

1. A package's docstring ends "Pure." or "Shell."; so may a module's that differs. Pure modules, and all that they pull
   in from this project, touch nothing outside their arguments.
2. `shisha_rt` never imports `stages`; `stages` imports from `shisha_rt` only `process/`, `messages/`, pure modules, the
   reader and what is known of the host.
3. Only `stages/engines` imports an inference engine.
4. No module is a bag of odds and ends.
5. A public class or function has a name of its own in the whole project; `main` is each program's.
6. Packages have an order, `ORDER`, and import only earlier ones: whoever reads them in it follows the data. Modules
   beside the packages import none of them, but for the program's entry.
7. The papers are the outermost ring: nothing else imports them, and `shisha_rt/studies.py` loads them by name.
8. Nothing is unpickled: what a process says to another is decoded as the types that are expected.
"""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.wording import says

ROOT: Final = Path(__file__).parent.parent
PACKAGES: Final = ("shisha_rt", "stages")

MARKS: Final = ("Pure.", "Shell.")
# What section 3 of the design allows to touch the world within a pure package.
SHELLS_WITHIN: Final = frozenset(
    {
        "shisha_rt.model.reader",
        "shisha_rt.model.zoo",
        "shisha_rt.machine.config",
        "shisha_rt.machine.host",
        "shisha_rt.protocol.keys",
        "shisha_rt.protocol.multipart",
        "shisha_rt.papers.gp.split_answer",
        "shisha_rt.papers.partitiontuner.partition_profile",
        "shisha_rt.papers.partitiontuner.scheme_answer",
        "shisha_rt.papers.partitiontuner.program",
    }
)
# fmt: off
ORDER: Final = (
    "process", "model", "machine", "plan", "costs", "planner", "placement", "core", "messages", "measure", "protocol",
    "client", "hosts", "daemon", "repository", "show", "http", "traces", "cli", "papers",
)
# fmt: on
PAPERS: Final = "papers"
ENTRY: Final = "shisha_rt.__main__"
FOR_STAGES: Final = (
    "shisha_rt",
    "shisha_rt.process*",
    "shisha_rt.messages*",
    "shisha_rt.model.reader*",
    "shisha_rt.machine.host*",
)
ENGINES: Final = frozenset({"onnxruntime", "openvino"})

# fmt: off
WORLD: Final = frozenset({
    "asyncio", "ctypes", "datetime", "fcntl", "io", "logging", "mmap", "multiprocessing", "os", "pathlib",
    "psutil", "secrets", "select", "selectors", "shutil", "signal", "socket", "sqlite3", "subprocess",
    "tempfile", "threading", "time", "uuid", "zmq",
})
# fmt: on
WORLD_CALLS: Final = frozenset({"open", "input", "print"})
NUMPY_GENERATORS: Final = frozenset({"Generator", "BitGenerator", "SeedSequence", "PCG64"})
PICKLERS: Final = frozenset({"pickle", "marshal", "shelve", "dill", "cloudpickle"})
RUBBISH_NAMES: Final = frozenset({"util", "utils", "helper", "helpers", "common", "misc"})

Sources = Mapping[str, str]
"""Module name (a package by its own name) -> source text."""


@cache
def project() -> Sources:
    return {module_name(path): path.read_text() for package in PACKAGES for path in (ROOT / package).rglob("*.py")}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def matches(module: str, patterns: tuple[str, ...]) -> bool:
    """`a.b*` is the package a.b and all in it, or modules whose names begin so."""
    return any(fnmatch(module, pattern) for pattern in patterns)


parsed: Final = cache(ast.parse)


@cache
def own_mark(source: str) -> str | None:
    """The word that a module's docstring ends with, if it is a mark."""
    words = (ast.get_docstring(parsed(source)) or "").split()
    return words[-1] if words and words[-1] in MARKS else None


def is_pure(module: str, sources: Sources) -> bool:
    """By its own mark, else by that of the package that it is in."""
    mark = own_mark(sources[module]) if module in sources else None
    package = module.rpartition(".")[0]
    return mark == "Pure." if mark is not None else bool(package) and is_pure(package, sources)


@cache
def imports(source: str) -> tuple[str, ...]:
    """Dotted names, each as deep as the source says: `from a import b` is a.b, and b may be no module.

    Imports under TYPE_CHECKING are left out: they never run.
    """
    names: list[str] = []
    pending: deque[ast.AST] = deque([parsed(source)])
    while pending:
        node = pending.popleft()
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            pending.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            names += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where a module stands"
            names += (f"{node.module}.{alias.name}" for alias in node.names)
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):  # not what statements are made of
            pending.extend(getattr(node, block, ()))
    return tuple(names)


def run_by_import(name: str, sources: Sources) -> Iterator[str]:
    """The project's modules that importing a dotted name runs: each package on the way, and the module."""
    parts = name.split(".")
    prefixes = (".".join(parts[:end]) for end in range(1, len(parts) + 1))
    return (prefix for prefix in prefixes if prefix in sources)


def reached(module: str, sources: Sources) -> set[str]:
    """The project's modules that run when `module` is imported, itself included."""
    modules: set[str] = set()
    pending = list(run_by_import(module, sources))
    while pending:
        current = pending.pop()
        if current not in modules:
            modules.add(current)
            pending.extend(inner for name in imports(sources[current]) for inner in run_by_import(name, sources))
    return modules


@cache
def world_uses(source: str) -> tuple[str, ...]:
    """What a source takes from the world: modules, global randomness, files, the terminal."""
    uses = [f"imports {name}" for name in imports(source) if name.split(".")[0] in WORLD]
    for name in used_names(source):
        if name in WORLD_CALLS or (name.startswith("random.") and name != "random.Random"):
            uses.append(f"uses {name}")
        if name.startswith("numpy.random.") and name.split(".")[2] not in NUMPY_GENERATORS:
            uses.append(f"uses {name}")
    return tuple(uses)


def used_names(source: str) -> Iterator[str]:
    """Every name and attribute chain, imported names spelled out: `np.random.rand` is numpy.random.rand."""
    tree = parsed(source)
    origin: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            origin.update({alias.asname: alias.name for alias in node.names if alias.asname})
        elif isinstance(node, ast.ImportFrom):
            origin.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    yield from origin.values()
    for node in ast.walk(tree):
        rest: list[str] = []
        while isinstance(node, ast.Attribute):
            rest.insert(0, node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            yield ".".join([origin.get(node.id, node.id), *rest])


def impurities(sources: Sources) -> list[str]:
    """Rule 1."""
    faults = []
    for module in sorted(name for name in sources if is_pure(name, sources)):
        for inner in sorted(reached(module, sources)):
            through = "" if inner == module else f" (through {inner})"
            faults += [f"{module} is pure but {use}{through}" for use in world_uses(sources[inner])]
    return faults


def crossings(sources: Sources) -> list[str]:
    """Rule 2."""
    faults = []
    for module, source in sorted(sources.items()):
        for name in imports(source):
            sides = module.split(".")[0], name.split(".")[0]
            if sides == ("shisha_rt", "stages"):
                faults.append(f"{module} imports {name}")
            if sides == ("stages", "shisha_rt"):
                *_, target = name, *run_by_import(name, sources)
                if not (is_pure(target, sources) or matches(target, FOR_STAGES)):
                    faults.append(f"{module} imports {name}")
    return faults


def engine_imports(sources: Sources) -> list[str]:
    """Rule 3."""
    return [
        f"{module} imports {name}"
        for module, source in sorted(sources.items())
        if not matches(module, ("stages.engines*",))
        for name in imports(source)
        if name.split(".")[0] in ENGINES
    ]


def misshapen(sources: Sources) -> list[str]:
    """Rule 4."""
    return [f"{module} is named after nothing" for module in sources if module.split(".")[-1] in RUBBISH_NAMES]


def twins(sources: Sources) -> list[str]:
    """Rule 5."""
    homes: dict[str, list[str]] = {}
    for module, source in sorted(sources.items()):
        for node in parsed(source).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                homes.setdefault(node.name, []).append(module)
    return [
        f"{name} is defined in {', '.join(modules)}"
        for name, modules in sorted(homes.items())
        if len(modules) > 1 and not name.startswith("_") and name != "main"
    ]


def package_of(name: str) -> str | None:
    """The package of `shisha_rt` that a dotted name is in; None for what stands beside the packages, or elsewhere."""
    top, _, inner = name.partition(".")
    first = inner.partition(".")[0]
    return first if top == "shisha_rt" and first in ORDER else None


def misordered(sources: Sources) -> list[str]:
    """Rule 6."""
    unknown = sorted({name.split(".")[1] for name in sources if name.count(".") > 1 and name.startswith("shisha_rt.")})
    faults = [f"{package} has no place in the order" for package in unknown if package not in ORDER]
    for module, source in sorted(sources.items()):
        own = package_of(module)
        if not module.startswith("shisha_rt") or module == ENTRY:
            continue
        for name in imports(source):
            package = package_of(name)
            is_later = package is not None and (own is None or ORDER.index(package) > ORDER.index(own))
            faults += [f"{module} imports {name}"] if is_later else []
    return faults


def papers_imported(sources: Sources) -> list[str]:
    """Rule 7, for both packages."""
    return [
        f"{module} imports {name}"
        for module, source in sorted(sources.items())
        if package_of(module) != PAPERS
        for name in imports(source)
        if package_of(name) == PAPERS
    ]


def pickled(sources: Sources) -> list[str]:
    """Rule 8."""
    return [
        f"{module} imports {name}"
        for module, source in sorted(sources.items())
        for name in imports(source)
        if name.split(".")[0] in PICKLERS
    ]


RULES: Final = [impurities, crossings, engine_imports, misshapen, twins, misordered, papers_imported, pickled]


@pytest.mark.parametrize("rule", RULES)
def test_the_project_keeps_the_rule(rule: Callable[[Sources], list[str]]) -> None:
    assert rule(project()) == []


def test_the_project_is_seen_at_all() -> None:
    sources = project()
    assert {"shisha_rt", "shisha_rt.plan.plan", "stages.engines"} <= set(sources)
    assert sum(is_pure(module, sources) for module in sources) > 100


def test_every_package_says_what_it_is() -> None:
    packages = {module_name(path) for package in PACKAGES for path in (ROOT / package).rglob("__init__.py")}
    assert [name for name in sorted(packages) if own_mark(project()[name]) is None] == []


def test_the_design_page_gives_the_order() -> None:
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    assert tuple(re.findall(r"^\| `(\w+)/` \|", text, re.MULTILINE)) == ORDER


def test_no_pure_package_has_other_shells_within_than_the_design_says() -> None:
    sources = project()
    within = {
        module
        for module, source in sources.items()
        if own_mark(source) == "Shell." and is_pure(module.rpartition(".")[0], sources)
    }
    assert within == SHELLS_WITHIN


@pytest.fixture(scope="module", autouse=True)
def _trees_let_go() -> Iterator[None]:
    """A million objects, which every later collection of garbage would look at."""
    yield
    parsed.cache_clear()


PURE_PACKAGE: Final = {"shisha_rt.plan": '"""Plans. Pure."""'}


class TestTheCheckerItself:
    """A checker that finds nothing is only worth as much as the faults it was shown."""

    @pytest.mark.parametrize(
        ("source", "use"),
        [
            ("import time", "imports time"),
            ("import os.path as p", "imports os.path"),
            ("from pathlib import Path", "imports pathlib.Path"),
            ("def f():\n    import socket", "imports socket"),
            ("import random\nrandom.shuffle([])", "uses random.shuffle"),
            ("import random as r\nr.seed(1)", "uses random.seed"),
            ("from random import choice", "uses random.choice"),
            ("import numpy as np\nnp.random.rand(3)", "uses numpy.random.rand"),
            ("from numpy import random\nrandom.default_rng()", "uses numpy.random.default_rng"),
            ("from numpy.random import seed", "uses numpy.random.seed"),
            ("def f():\n    return open('x')", "uses open"),
            ("print(1)", "uses print"),
            ("from typing import TYPE_CHECKING\nif not TYPE_CHECKING:\n    import time", "imports time"),
        ],
    )
    def test_a_pure_module_that_touches_the_world(self, source: str, use: str) -> None:
        assert f"shisha_rt.plan.x is pure but {use}" in impurities({**PURE_PACKAGE, "shisha_rt.plan.x": source})

    @pytest.mark.parametrize(
        "source",
        [
            "import random\ndef f(rng: random.Random): return rng.random()",
            "from random import Random",
            "import numpy as np\ndef f(rng: np.random.Generator): return rng.random()",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pathlib import Path",
            "class A:\n    def open(self): return self.open()",
        ],
    )
    def test_what_a_pure_module_may_do(self, source: str) -> None:
        assert impurities({**PURE_PACKAGE, "shisha_rt.plan.x": source}) == []

    def test_purity_by_proxy(self) -> None:
        sources = {
            "shisha_rt": '"""Everything. Shell."""',
            "shisha_rt.protocol": "import zmq",
            "shisha_rt.protocol.header": "",
            "shisha_rt.plan": '"""Plans. Pure."""',
            "shisha_rt.plan.x": "from shisha_rt.protocol.header import Header",
        }
        assert impurities(sources) == [says("shisha_rt.plan.x is pure … (through shisha_rt.protocol)")]

    @pytest.mark.parametrize(
        ("docstring", "pure"),
        [("Reads. Shell.", False), ("Counts. Pure.", True), ("Says nothing of it.", True), ("Pure, it claims", True)],
    )
    def test_a_module_differs_from_its_package_only_by_its_own_mark(self, docstring: str, pure: bool) -> None:
        sources = {**PURE_PACKAGE, "shisha_rt.plan.x": f'"""{docstring}"""\nimport os'}
        assert bool(impurities(sources)) is pure

    def test_crossings(self) -> None:
        sources = {
            "shisha_rt.errors": '"""Two. Pure."""',
            "shisha_rt.daemon": "",
            "shisha_rt.daemon.gateway": "def f():\n    import stages.worker",
            **PURE_PACKAGE,
            "shisha_rt.plan.plan": "",
            "shisha_rt.messages": "",
            "shisha_rt.process.arena": "",
            "stages.worker": "from shisha_rt.daemon import gateway\nfrom shisha_rt.process.arena import Arena\n"
            "from shisha_rt.plan.plan import Plan\nfrom shisha_rt import cache, errors",
        }
        assert crossings(sources) == [
            "shisha_rt.daemon.gateway imports stages.worker",
            "stages.worker imports shisha_rt.daemon.gateway",
            "stages.worker imports shisha_rt.cache",
        ]

    def test_engines(self) -> None:
        sources = {
            "stages.engines.ort": "import onnxruntime",
            "stages.worker": "from onnxruntime import InferenceSession",
        }
        assert engine_imports(sources) == ["stages.worker imports onnxruntime.InferenceSession"]

    def test_shape(self) -> None:
        sources = {"shisha_rt.plan.utils": "", "stages.worker": ""}
        assert misshapen(sources) == [says("shisha_rt.plan.utils is named after …")]

    def test_order(self) -> None:
        sources = {
            **PURE_PACKAGE,
            "shisha_rt.errors": "from shisha_rt.plan.plan import Plan",
            "shisha_rt.__main__": "from shisha_rt.cli.app import main",
            "shisha_rt.plan.plan": "from shisha_rt import errors\nfrom shisha_rt.model.graph import Graph",
            "shisha_rt.plan.x": "def f():\n    from shisha_rt.daemon import server",
            "shisha_rt.odds.ends": "",
        }
        assert misordered(sources) == [
            says("odds has no …"),
            "shisha_rt.errors imports shisha_rt.plan.plan.Plan",
            "shisha_rt.plan.x imports shisha_rt.daemon.server",
        ]

    def test_papers(self) -> None:
        sources = {
            "shisha_rt.cli.plan": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import shisha_rt.papers.gp",
            "shisha_rt.papers.gp.x": "from shisha_rt.papers.dcg import y",
            "stages.worker": "from shisha_rt.papers import gp",
        }
        assert papers_imported(sources) == ["stages.worker imports shisha_rt.papers.gp"]

    def test_pickles(self) -> None:
        sources = {"shisha_rt.plan.x": "from pickle import loads", "stages.worker": "import json"}
        assert pickled(sources) == ["shisha_rt.plan.x imports pickle.loads"]

    def test_twins(self) -> None:
        sources = {
            "shisha_rt.plan.plan": "class Stage: ...\ndef main(): ...\ndef _near(): ...",
            "stages.worker": "class Stage:\n    def plan(self): ...\ndef main(): ...\ndef _near(): ...",
            "stages.loop": "def plan(): ...",
        }
        assert twins(sources) == [says("… is defined in shisha_rt.plan.plan, stages.worker")]
