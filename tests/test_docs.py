"""What the pages for strangers name is there: files, folders and the targets of links."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import typer

from benchmarks.report.readme import TABLES, with_results
from benchmarks.report.results import RESULTS
from shisha_rt.cli.app import command_line
from shisha_rt.core.event_log import ModelShadowed
from shisha_rt.daemon.metrics import BUCKETS_FRAMES, BUCKETS_S, COUNTERS, GAUGES, HISTOGRAMS
from shisha_rt.plan.rate import ANY_OBJECTIVES
from shisha_rt.planner.strategies import LIVE, SCHEMES
from shisha_rt.protocol.operations import OPERATIONS
from shisha_rt.repository.all_metrics import ModelsCollector

ROOT: Final = Path(__file__).parent.parent
PACKAGES: Final = (ROOT / "shisha_rt", ROOT / "stages")
PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))

EXAMPLE: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
QUOTED: Final = re.compile(r"`([^`\n]+)`")
NAME: Final = r"\w[\w.*-]+"  # one letter is a quantity, as in a quotient
PATH: Final = re.compile(rf"(?:{NAME}/)+(?:{NAME})?|{NAME}\.py")
LINK: Final = re.compile(r"\]\(([^)#\s]+)")
ANCHOR: Final = re.compile(r"\]\(([^)#\s]*)#([^)\s]+)\)")
HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)
METRIC: Final = re.compile(r"^\| `(shisha_\w+)` \| (counter|histogram|gauge)((?:, `\w+`)*) \|", re.MULTILINE)
OPTION: Final = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
COMMANDS: Final[dict[str, Any]] = typer.main.get_command(command_line()).commands  # type: ignore[attr-defined]


def page_of(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def all_commands(commands: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in commands.items():
        yield before + name, command
        yield from all_commands(getattr(command, "commands", {}), f"{before}{name} ")


def options_of(command: Any) -> set[str]:
    spelled = {opt for param in command.params for opt in (*param.opts, *param.secondary_opts)}
    return {opt for opt in spelled if opt.startswith("--")}


def paths(page: str) -> list[str]:
    """What stands in backticks and looks like a path of the project, outside of examples."""
    return [quoted for quoted in QUOTED.findall(EXAMPLE.sub("", page)) if PATH.fullmatch(quoted)]


def exists(path: str) -> bool:
    """From the root or a package; a single name anywhere in the packages. `*` as a shell has it."""
    wanted = path.rstrip("/")
    if any(next(base.glob(wanted), None) for base in (ROOT, *PACKAGES)):
        return True
    return "/" not in wanted and any(next(base.rglob(wanted), None) for base in PACKAGES)


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as a code host makes them: the second of one name ends in -1."""
    named: list[str] = []
    for heading in HEADING.findall(EXAMPLE.sub("", page.read_text(encoding="utf-8"))):
        anchor = re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        again = sum(anchor == re.sub(r"-\d+$", "", other) for other in named)
        named.append(f"{anchor}-{again}" if again else anchor)
    return set(named)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [path for path in paths(text) if not exists(path)] == []
    links = [link for link in LINK.findall(text) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_headings_find_them(page: Path) -> None:
    linked = [link for link in ANCHOR.findall(page.read_text(encoding="utf-8")) if "://" not in link[0]]
    assert [link for link in linked if link[1] not in anchors(page.parent / link[0] if link[0] else page)] == []


def test_the_index_has_every_page_under_a_heading() -> None:
    """As `docs/conf.py` makes the site's contents of them."""
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    linked = re.findall(r"^- \[.+?\]\((\w[\w-]*\.md)\)", index.partition("\n## ")[2], re.MULTILINE)
    assert sorted(["index.md", *linked]) == [page.name for page in PAGES[1:]]


def test_what_counts_as_a_path() -> None:
    page = (
        "`a1/`, `plan/verify.py`, `verify.py`, `ab*.py`; `1/t`, `--json`, `tcp://a/b`, `~/x`\n```\n`no/such.py`\n```\n"
    )
    assert paths(page) == ["a1/", "plan/verify.py", "verify.py", "ab*.py"]


@pytest.mark.parametrize("path", ["tests/", "plan/verify.py", "verify.py", "geometric/", "configs/machines/c*.toml"])
def test_what_is_there_is_found(path: str) -> None:
    assert exists(path)


@pytest.mark.parametrize("path", ["no_such/", "plan/no_such.py", "no_such.py", "no_such*.py"])
def test_what_is_not_there_is_missed(path: str) -> None:
    assert not exists(path)


def test_the_page_of_metrics_has_those_that_there_are() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    listed = {(name, kind, tuple(re.findall(r"\w+", labels))) for name, kind, labels in METRIC.findall(page)}
    of_models = ModelsCollector(dict, lambda: {"a": 1})
    exported = {
        *((f"{name}_total", "counter", labels) for name, _, labels in COUNTERS),
        *((name, "gauge", labels) for name, _, labels in GAUGES),
        *((name, "histogram", labels) for name, _, labels in HISTOGRAMS),
        *((metric.name, metric.type, tuple(metric.samples[0].labels)) for metric in of_models.collect()),
    }
    assert listed == exported
    assert "Not there yet" not in page


def test_the_page_of_metrics_has_the_buckets_of_each_histogram() -> None:
    (text,) = re.findall(r"^Buckets of .*?\n\n", page_of("metrics"), re.MULTILINE | re.DOTALL)
    seconds, frames = text.split("`shisha_run_frames`")
    in_ms = [float(number) for number in re.findall(r"[\d.]+\d|\d+", seconds)]
    longest = in_ms.index(500) + 1
    assert (*(ms / 1000 for ms in in_ms[:longest]), *in_ms[longest:]) == BUCKETS_S
    assert tuple(map(int, re.findall(r"\d+", frames))) == BUCKETS_FRAMES
    assert {name for name, *_ in HISTOGRAMS if not name.endswith("_seconds")} == {"shisha_run_frames"}


def test_the_page_of_commands_has_every_option_of_serve() -> None:
    """In the synopsis, and in the table below it."""
    section = page_of("cli").partition("\n## serve\n")[2].partition("\n### ")[0]
    synopsis, _, table = section.partition("\nStarts the daemon")
    options = {param.opts[0] for param in COMMANDS["serve"].params if param.opts[0].startswith("--")}
    options |= {"--no-replicate"}
    options -= {"--replicate"}
    elsewhere = {"--dim"}  # of all commands
    assert options - set(OPTION.findall(synopsis)) == set()
    assert options - set(OPTION.findall(table)) == elsewhere


def test_the_page_of_commands_has_every_option_of_each() -> None:
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", page_of("cli"), re.MULTILINE | re.DOTALL))
    of_all = {"--endpoint", "--key", "--server-key", "--model", "--json", "--dim", "--shape"}
    missing = {
        name: options
        for name, command in all_commands(COMMANDS)
        if (options := options_of(command) - of_all - {*OPTION.findall(sections[name.split()[0]])})
    }
    assert missing == {"serve": {"--replicate"}}  # the default


def test_the_page_of_commands_says_which_take_a_key() -> None:
    (text,) = re.findall(r"^(`submit`.*?) take `--key", page_of("cli"), re.MULTILINE | re.DOTALL)
    takers = {name for name, command in all_commands(COMMANDS) if "--key" in options_of(command)}
    assert set(QUOTED.findall(text.replace("\n", " "))) == takers


def test_the_page_of_the_wire_has_every_operation_and_what_the_tuner_takes() -> None:
    wire = page_of("wire")
    assert [op for op in OPERATIONS if f'{{"op":"{op}"' not in wire] == []
    (steers,) = re.findall(r'^\| `{"op":"tuner_set".*$', wire, re.MULTILINE)
    assert [word for word in (*LIVE, *SCHEMES, *ANY_OBJECTIVES) if f'`"{word}"`' not in steers] == []
    (shadowed,) = re.findall(r"^\| `model_shadowed` .*$", wire, re.MULTILINE)
    fields = [name for name in ModelShadowed.__struct_fields__ if name in ModelShadowed.__annotations__]
    assert [name for name in fields if f"`{name}`" not in shadowed] == []


@pytest.mark.parametrize("name", TABLES)
def test_pages_have_the_results_that_are_kept(name: str) -> None:
    """Else: python -m benchmarks readme."""
    assert with_results(name, RESULTS) == (ROOT / name).read_text(encoding="utf-8")


def test_the_readme_is_read_in_minutes() -> None:
    """A front page, not a lab notebook: what is beyond it has a page of its own."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(page.splitlines()) <= 150
    prose = re.sub(r"^(?: {4}|\||<!--).*$", "", EXAMPLE.sub("", page), flags=re.MULTILINE)
    assert len(re.sub(r"\]\([^)]*\)", "]", prose).split()) <= 1000
