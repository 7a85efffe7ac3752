"""What the pages show to be typed: shell commands, and programs in Python.

A shell command is a line of a block in `sh`, or an indented line that begins with one of `PROGRAMS`; all else that is
indented is what programs print. A line that ends in a backslash goes on in the next one.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "benchmarks" / "results" / "README.md",
)
PROGRAMS: Final = frozenset(
    {
        *("shisha-rt", "python", "python3", "python3.11", "pip", "make", "git", "g++", "npm", "perf_analyzer", "ray"),
        *("cd", "cp", "export", "for", "head", "kill", "mkdir", "pgrep", "ps", "taskset", "curl", "openssl"),
        *("apt-get", "docker", "kubectl", "podman", "prometheus", "sudo", "systemctl", "tritonserver"),
    }
)
"""Whose names, as first words of indented lines, make these lines commands."""

_FENCE: Final = re.compile(r"^( *)```(\w*)")
_ASSIGNED: Final = re.compile(r"(?:[A-Za-z_]\w*=\S* )*")
_PLACEHOLDER: Final = re.compile(r"\[[^ ]|(?<![\w$./-])(?:[A-Z]{4,}|[A-Z]\.npz)")
_OPERATORS: Final = frozenset({"|", "||", "&&", ">", ">>", "<", ";", "&", "(", ")"})


@dataclass(frozen=True, slots=True)
class Shown:
    """A command or a program, and where it begins."""

    page: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}: {self.text.splitlines()[0]}"


@dataclass(frozen=True, slots=True)
class Command(Shown):
    """For a shell."""

    @property
    def is_synopsis(self) -> bool:
        """Whether it says what may be typed, with brackets, and words in capitals for what its reader puts there."""
        return self.words[:1] == ["shisha-rt"] and _PLACEHOLDER.search(" ".join(self.words)) is not None

    @property
    def words(self) -> list[str]:
        """Of its first program, up to a pipe or the like, without variables that are set for it."""
        lexer = shlex.shlex(self.text.replace("\\\n", " "), posix=True, punctuation_chars=True)
        lexer.wordchars += ":[]@%,+{}$^!"
        words: list[str] = []
        for word in lexer:
            if word in _OPERATORS:
                break
            if words or not re.fullmatch(r"[A-Za-z_]\w*=.*", word):
                words.append(word)
        return words


@dataclass(frozen=True, slots=True)
class Program(Shown):
    """In Python."""

    @property
    def saved_as(self) -> str | None:
        """The file that the reader makes of it, if its first line is a comment with that name alone."""
        named = re.match(r"# (\w+\.py)\n", self.text)
        return None if named is None else named[1]

    @property
    def imports(self) -> list[tuple[str, str | None]]:
        """Each module with a name that is taken of it, or with None."""
        imported: list[tuple[str, str | None]] = []
        for node in ast.walk(ast.parse(self.text)):
            if isinstance(node, ast.Import):
                imported += [(alias.name, None) for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported += [(node.module, alias.name) for alias in node.names]
        return imported


def shown_on(page: Path) -> list[Shown]:
    """In the order of the page."""
    return list(_shown(page, page.read_text(encoding="utf-8").splitlines()))


def first_words(page: Path) -> Iterator[str]:
    """Of each indented block that follows an empty line: a command's is a program."""
    lines = ["", *page.read_text(encoding="utf-8").splitlines()]
    fenced = False
    for before, line in pairwise(lines):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and not before.strip() and line.startswith("    "):
            yield line.split()[0]


def _shown(page: Path, lines: list[str]) -> Iterator[Shown]:
    language: str | None = None
    block: list[str] = []
    indent = number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if (fence := _FENCE.match(line)) is not None:
            if language == "python":
                yield Program(page, number - len(block), "\n".join(block) + "\n")
            language = fence[2] if language is None else None
            indent, block = len(fence[1]), []
        elif language == "sh" or (language is None and _is_command(line)):
            began, text = number, line.strip()
            while text.endswith("\\") and number < len(lines):
                text += "\n" + lines[number].strip()
                number += 1
            if text and not text.startswith("#"):
                yield Command(page, began, text)
        elif language is not None:
            block.append(line[indent:])


def _is_command(line: str) -> bool:
    if not line.startswith("    "):
        return False
    words = _ASSIGNED.sub("", line.strip(), count=1).split()
    return bool(words) and words[0].rpartition("/")[2] in PROGRAMS
