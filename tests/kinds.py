"""The kind of a test: what it needs besides an interpreter. Derived from the fixtures that it has and the modules that
its file imports, directly or through modules of `tests`: who needs a process, say, imports what starts one.

Tests of the kind `unit` start no process, and are held to that.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
UNIT: Final = "unit"
_TABLES: Final = Path(__file__).parent / "benchmarks"
NEEDS: Final[Mapping[str, str]] = {
    "browser": "Chromium",
    "cluster": "Ray, or hosts in network namespaces",
    "engine": "an inference engine, in this process or its children",
    "process": "children of this process: workers, jobs, whole daemons",
    UNIT: "nothing but this process",
}
_FIXTURES: Final = {
    "one_node": "cluster",
    "slow_links": "cluster",
    "three_raylets": "cluster",
    "daemon": "process",
    "run": "process",
}
_IMPORTS: Final = {  # the first kind whose patterns fit
    "browser": ("tests.http.page.browser",),
    "engine": ("onnxruntime*", "openvino*", "stages*"),
    "process": (
        "multiprocessing",
        "subprocess",
        "benchmarks.report.facts*",
        "benchmarks.rigs*",
        "benchmarks.robust*",
        "benchmarks.splits.networks*",
        "shisha_rt.daemon.prepare*",
        "shisha_rt.measure.compile*",
        "shisha_rt.model.reader*",
        "shisha_rt.model.zoo*",
        "shisha_rt.process.child*",
        "shisha_rt.process.job*",
        "shisha_rt.show.*figure*",  # matplotlib has a child list the fonts, where its cache is empty
    ),
}


def kind_of(item: pytest.Item) -> str:
    kinds = {_FIXTURES[name] for name in getattr(item, "fixturenames", ()) if name in _FIXTURES}
    kinds.add(_kind_of_file(item.path))
    return next(kind for kind in NEEDS if kind in kinds)


def is_of_tables(item: pytest.Item) -> bool:
    """Whether it holds what benchmarks print: tables that change with the benchmarks alone."""
    return _TABLES in item.path.parents


@cache
def _kind_of_file(path: Path) -> str:
    names = _imports(path)
    for kind, patterns in _IMPORTS.items():
        if any(fnmatchcase(name, pattern) for name in names for pattern in patterns):
            return kind
    return UNIT


@cache
def _imports(path: Path) -> frozenset[str]:
    """Dotted names, those of the modules of `tests` that it imports among them."""
    names: set[str] = set()
    for node in _statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
            names.add(node.module)
    for name in [name for name in names if name.startswith("tests.")]:
        file = ROOT.joinpath(*name.split(".")).with_suffix(".py")
        if file.exists() and file != path:
            names |= _imports(file)
    return frozenset(names)


def _statements(block: ast.AST) -> Iterator[ast.AST]:
    """Those within a block, not what they are made of: a tenth of all nodes."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for node in getattr(block, field, ()):
            yield node
            yield from _statements(node)
