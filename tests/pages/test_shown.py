"""What the pages show to be typed is there: commands with these options, programs with what they import."""

from __future__ import annotations

import importlib
import math
import re
import shlex
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest
import typer

from benchmarks.__main__ import app as benchmarks_app
from benchmarks.report.headers import header
from benchmarks.report.results import RESULTS
from shisha_rt.cli.app import command_line
from tests.pages.presumed import NOT_RUN, NOT_RUN_PROGRAMS, PRESUMED, reason_not_to_run
from tests.pages.shown import PAGES, PROGRAMS, ROOT, Command, Program, first_words, shown_on

SHOWN: Final = [shown for page in PAGES for shown in shown_on(page)]
COMMANDS: Final = [shown for shown in SHOWN if isinstance(shown, Command)]
INLINE: Final = re.compile(r"`((?:shisha-rt|python -m benchmarks) [^`\n]+)`")
OPTION: Final = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
SHISHA: Final[Any] = typer.main.get_command(command_line())
NO_TASK: Final = frozenset(
    {"design.md", "glossary.md", "processors.md", "scale.md", "stability.md", "wire.md"}
)  # read to know, or to write a program by
OPENING: Final = 15
"""Lines of a page within which its reader has typed something."""
BENCHMARKS: Final[Any] = typer.main.get_command(benchmarks_app)


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that is meant, and the words behind its name. Its name may be of two words."""
    if words[:3] == ["python", "-m", "benchmarks"]:
        group, rest = BENCHMARKS, words[3:]
    else:
        assert words[0] == "shisha-rt", words
        group, rest = SHISHA, words[1:]
    command: Any = group
    if " ".join(rest[:2]) in group.commands:
        return group.commands[" ".join(rest[:2])], rest[2:]
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        command, rest = command.commands[rest[0]], rest[1:]
    return command, rest


def options_of(command: Any) -> set[str]:
    taken = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
    if command is SHISHA.commands["service"]:  # which hands them on
        taken |= options_of(SHISHA.commands["serve"])
    return taken | {"--help", "--help-all"}


def parse(words: list[str]) -> None:
    """Raises, as the command line would."""
    command, rest = command_of(words)
    if command in (SHISHA, BENCHMARKS) or {"--help", "--help-all"} & set(rest):
        assert set(OPTION.findall(" ".join(rest))) <= options_of(command)
        return
    context = command.make_context(" ".join(words), list(rest))
    if command is SHISHA.commands["service"]:
        SHISHA.commands["serve"].make_context("serve", list(context.params["arguments"]))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_are_taken_as_they_are_shown(page: Path) -> None:
    for shown in COMMANDS:
        if shown.page != page:
            continue
        words = shown.words
        if shown.is_synopsis:
            command, _ = command_of(words)
            assert set(OPTION.findall(shown.text.partition(" #")[0])) <= options_of(command), shown
        elif words[0] == "shisha-rt" or words[:3] == ["python", "-m", "benchmarks"]:
            parse(words)
        elif words[0].startswith("python") and words[1].endswith(".py") and "/" in words[1]:
            assert (ROOT / words[1]).exists(), shown


@pytest.mark.parametrize(
    "page", [*PAGES, *sorted(set(RESULTS.glob("*.md")) - set(PAGES))], ids=lambda page: str(page.relative_to(ROOT))
)
def test_commands_within_a_line_have_these_options(page: Path) -> None:
    wrong = []
    for text in INLINE.findall(page.read_text(encoding="utf-8")):
        command, _ = command_of(text.split())
        wrong += [f"{text}: {option}" for option in set(OPTION.findall(text)) - options_of(command)]
    assert wrong == []


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.csv")), ids=lambda path: path.name)
def test_the_command_that_takes_a_result_again_is_taken(path: Path) -> None:
    """It is what `python -m benchmarks stale` says to type."""
    parse(shlex.split(header(path)["repeat"]))


@pytest.mark.parametrize("program", [shown for shown in SHOWN if isinstance(shown, Program)], ids=str)
def test_programs_compile_and_what_they_import_is_there(program: Program) -> None:
    compile(program.text, str(program), "exec")
    saved = {shown.saved_as for shown in shown_on(program.page) if isinstance(shown, Program)}
    for module, name in program.imports:
        if f"{module}.py" in saved:
            continue
        if find_spec(module.partition(".")[0]) is None:
            assert module.startswith("tritonclient"), f"{module} is in no extra"
            continue
        imported = importlib.import_module(module)
        assert name is None or hasattr(imported, name) or find_spec(f"{module}.{name}"), f"{module}.{name}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name == "docs" and page.name not in NO_TASK])
def test_a_page_begins_with_what_can_be_typed(page: Path) -> None:
    assert min((shown.line for shown in shown_on(page)), default=math.inf) <= OPENING


def test_extras_are_added_to_what_is_installed_by_its_name() -> None:
    """The only way that a checkout and a wheel have in common; `--upgrade` would take another project from an index."""
    texts = [shown.text for shown in COMMANDS if re.match(r"pip install .*(?:\.|shisha-rt)\[", shown.text)]
    later = [text for text in texts if not text.startswith("pip install '.[openvino,real]'")]  # the README's first one
    assert later
    by_name = re.compile(r"""pip install (['"])shisha-rt\[[a-z,]+\]\1(?: +#.*)?""")
    assert [text for text in later if not by_name.fullmatch(text)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_could_be_typed_counts_as_a_command(page: Path) -> None:
    """Else it would be taken for what a program prints, and held by no test: say its program in PROGRAMS."""
    typed = {word for word in first_words(page) if shutil.which(word)}
    assert typed <= PROGRAMS | {"as"}  # the first word of a line of output


def test_the_tables_of_what_is_not_run_and_what_is_presumed_are_used() -> None:
    """An entry that fits nothing any more hides what it will fit next."""
    reasons = {reason_not_to_run(shown) for shown in SHOWN}
    assert {*NOT_RUN.values(), *NOT_RUN_PROGRAMS.values()} <= reasons
    assert set(PRESUMED) <= {page.name for page in PAGES}


@pytest.mark.parametrize(
    "text",
    [
        "shisha-rt check model.onnx --no-such",
        "shisha-rt chekc model.onnx",
        "shisha-rt submit --frames many",
        "shisha-rt plan set",
        "shisha-rt service model.onnx --no-such",
        "shisha-rt --no-such",
        "python -m benchmarks scale --no-such",
    ],
)
def test_what_is_not_taken_is_found_out(text: str) -> None:
    with pytest.raises((AssertionError, KeyError, typer.TyperException)):
        parse(Command(ROOT / "README.md", 1, text).words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("curl -s 'http://a/b c' | grep x", ["curl", "-s", "http://a/b c"]),
        ("A=1 shisha-rt status > out  # once", ["shisha-rt", "status"]),
        ("shisha-rt serve m --dim x:3=320 && true", ["shisha-rt", "serve", "m", "--dim", "x:3=320"]),
        ("pip install '.[a,b]'", ["pip", "install", ".[a,b]"]),
    ],
)
def test_the_words_of_a_command(text: str, words: list[str]) -> None:
    assert Command(ROOT / "README.md", 1, text).words == words


def test_blocks_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Text:\n\n    shisha-rt status \\\n        --json    # here\n    printed: 1\n\n"
        "1. List\n\n       make it\n\n```sh\n# no command\nfirst\n\nvenv/bin/second\n```\n"
        "\n  ```python\n  if x:\n      y\n  ```\n"
    )
    assert [(type(shown), shown.line, shown.text) for shown in shown_on(page)] == [
        (Command, 3, "shisha-rt status \\\n--json    # here"),
        (Command, 9, "make it"),
        (Command, 13, "first"),
        (Command, 15, "venv/bin/second"),
        (Program, 19, "if x:\n    y\n"),
    ]
