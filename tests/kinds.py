"""The kind of a test: what it needs besides an interpreter. Derived from the fixtures that it has and the modules that
its file imports, directly or through modules of `tests`: who needs a process, say, imports what starts one.

Tests of the kind `unit` start no process, and are held to that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
UNIT: Final = "unit"
TABLES: Final = Path(__file__).parent / "benchmarks"
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


# Looked for, not parsed: that takes each pytest process seconds.
_IMPORT: Final = re.compile(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+)?import[ \t]+(\([^)]*\)|[^(\n]+)", re.MULTILINE)
_NAME: Final = re.compile(r"(?:^|[(,])\s*(?:#.*\s*)*([\w.]+)")


def kind_of(item: pytest.Item) -> str:
    kinds = {_FIXTURES[name] for name in getattr(item, "fixturenames", ()) if name in _FIXTURES}
    kinds.add(_kind_of_file(item.path))
    return next(kind for kind in NEEDS if kind in kinds)


def is_of_tables(item: pytest.Item) -> bool:
    """Whether it holds what benchmarks print: tables that change with the benchmarks alone."""
    return item.path.is_relative_to(TABLES)


@cache
def _kind_of_file(path: Path) -> str:
    names = imports_of(path)
    for kind, patterns in _IMPORTS.items():
        if any(fnmatchcase(name, pattern) for name in names for pattern in patterns):
            return kind
    return UNIT


@cache
def imports_of(path: Path) -> frozenset[str]:
    """Dotted names, with those of the modules of `tests` that it imports, and of programs in its texts."""
    names: set[str] = set()
    for module, what in _IMPORT.findall(path.read_text(encoding="utf-8")):
        for name in _NAME.findall(what):
            names.update((module, f"{module}.{name}") if module else (name,))
    for name in [name for name in names if name.startswith("tests.")]:
        file = ROOT.joinpath(*name.split(".")).with_suffix(".py")
        if file.exists() and file != path:
            names |= imports_of(file)
    return frozenset(names)
