"""One frame and one proposal, followed through every process of a daemon: `python -m benchmarks walk`.

What somebody must read to follow them, counted in a daemon that really runs. Each of its processes notes the calls of
project functions while it is told to (`rigs/walk_hook.py`); the daemon is idle but for what is walked.

- **frame**: one `infer` on a plan of one stage, after others; no tuner.
- **proposal**: strategy shisha, one frame at a time. From the frame that completes a trial's measurement until the
  next plan is live.

What counts:

- A call is known by its chain: all project functions on its stack. Chains that an idle time has too are left
  out, for the proposal also those of frames that completed nothing. So the lifecycle counts where a frame comes through
  it, although ticks do too. Functions on the way to a call that counts do count, unless they are entered by an
  idle daemon as well: so a proposal begins with the reply that completes the measurement.
- hops: functions entered for the first time by such a call, in the order of time over all processes. Properties and
  lambdas are functions, comprehensions and what dataclasses generate are not. `main hops`: those of them that are
  entered from another file and lead on, to a further function or into another process; the rest are helpers and what
  a file does by itself. `calls`: not only first ones.
- files: those that these functions are in, of `shisha_rt/` and `stages/`.
- crossings: messages sent from process to process; for the proposal those beyond what its frame needs. Client and
  daemon are not counted.
- set later: attributes of living objects of the project's classes, in daemon and workers, that hold a function, a
  method or a `partial`, and that a source assigns outside of the constructor of the class: to another object than
  `self`, or to `self` in another method (of this class or of one above it). The former is told by the attribute's name
  alone. `on the path`: those whose function is among the hops. Handlers in a dictionary are not seen.

The frame is the shortest of several, as a tick may fall into one.
"""

from __future__ import annotations

import ast
import contextlib
import json
import mmap
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Annotated, Any, Final

import typer

from benchmarks.report.facts import facts
from benchmarks.report.results import Row, save_csv, show
from benchmarks.rigs import walk_hook
from benchmarks.rigs.journal import events_since
from shisha_rt.cli.drive.frames import model_inputs, random_frames
from shisha_rt.client import Client
from shisha_rt.errors import BadInput

MODEL: Final = "zoo:squeezenet"
_OWN: Final = Path(__file__).parents[2]
_PATIENCE_S: Final = 120.0
_WARM_UP_FRAMES: Final = 20
_WALKED_FRAMES: Final = 5
_WINDOW_S: Final = 1.0
_IDLE_S: Final = 5.0  # whatever an idle daemon looks at comes within it
_AFTER_FRAME_S: Final = 0.1
_START_S: Final = 3.0  # once a daemon is ready: what its start still brings is over
_SETTLE_S: Final = 0.5  # after an answer: what it causes has happened, a plan being built included
_CONSTRUCTORS: Final = frozenset({"__init__", "__post_init__", "__new__"})

Chain = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """A time in which something was done to the daemon, on CLOCK_MONOTONIC."""

    since_ns: int
    until_ns: int

    def __contains__(self, seen: Seen) -> bool:
        return self.since_ns <= seen.at_ns < self.until_ns


@dataclass(frozen=True, slots=True)
class Seen:
    """A call, or a message sent: the functions that were being executed, FILE:FUNCTION, the innermost last."""

    at_ns: int
    process: str
    kind: str
    chain: Chain


@dataclass(frozen=True, slots=True)
class Later:
    """A callable that an object was given after its construction, and the function that it is."""

    owner: str
    attribute: str
    target: str


@dataclass(frozen=True, slots=True)
class Walk:
    """What was walked: functions in the order of entry as (process, FILE:FUNCTION), and what else is counted."""

    hops: tuple[tuple[str, str], ...]
    main_hops: int
    calls: int
    crossings: int

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(_file(name) for _, name in self.hops))


@dataclass(slots=True)
class Walked:
    """A daemon of a tree whose processes note what they call while `noting`."""

    client: Client
    folder: Path
    switch: mmap.mmap
    frame: Mapping[str, Any] = field(default_factory=dict)

    def infer(self, count: int = 1) -> None:
        if not self.frame:
            (self.frame,) = random_frames(model_inputs(self.client.metadata()["model"]), 1, seed=0)
        for _ in range(count):
            self.client.infer(self.frame)

    def note(self, seconds: float, *, frame: bool = False) -> Span:
        """Have calls noted for as long as that, or with `frame` for that much longer than a frame takes."""
        since_ns = time.monotonic_ns()
        self.switch[0] = walk_hook.NOTE
        if frame:
            self.infer()
        time.sleep(seconds)
        self.switch[0] = walk_hook.OFF
        return Span(since_ns, time.monotonic_ns())

    def census(self) -> None:
        """Have every process write down which callables its objects hold."""
        self.switch[0] = walk_hook.CENSUS
        end_s = time.monotonic() + _PATIENCE_S
        while any(b'"census"' not in path.read_bytes() for path in self.folder.glob("*.jsonl") if _lives(path)):
            if time.monotonic() > end_s:
                raise RuntimeError("a process does not take the census")
            self.infer()
            time.sleep(_SETTLE_S)

    def seen(self) -> list[Seen]:
        """All calls noted so far, in the order of time."""
        found = [
            Seen(at_ns, process, kind, tuple(chain))
            for process, lines in self._lines()
            for at_ns, kind, chain in lines
            if kind in ("call", "send")
        ]
        return sorted(found, key=lambda one: one.at_ns)

    def events(self) -> list[str]:
        return [event["kind"] for event in events_since(self.client)]

    def callables(self) -> list[Later]:
        return [Later(*fields) for _, lines in self._lines() for _, kind, fields in lines if kind == "callable"]

    def _lines(self) -> Iterator[tuple[str, list[list[Any]]]]:
        for path in sorted(self.folder.glob("*.jsonl")):
            first, *rest = map(json.loads, path.read_text().splitlines())
            yield _role(first), rest


def _role(command: Sequence[str]) -> str:
    """The module that a process runs."""
    return command[command.index("-m") + 1] if "-m" in command else command[-1]


def _lives(path: Path) -> bool:
    return Path(f"/proc/{path.stem}").exists()


def _file(name: str) -> str:
    return name.partition(":")[0]


@contextlib.contextmanager
def walked(tree: Path, model: str, machine: str, strategy: str) -> Iterator[Walked]:
    """Start a daemon of a tree, with a cache of its own: another version may have left other things in the user's."""
    with contextlib.ExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory()))
        hook, notes = folder / "hook", folder / "notes"
        for made in (hook, notes):
            made.mkdir()
        shutil.copy(walk_hook.__file__, hook / "sitecustomize.py")
        with (notes / walk_hook.SWITCH).open("w+b") as file:
            file.write(bytes([walk_hook.OFF]))
            file.flush()
            switch = closing.enter_context(mmap.mmap(file.fileno(), 1))
        options = ["--strategy", strategy, "--fresh", "--endpoint", "tcp://127.0.0.1:0", "--metrics", "127.0.0.1:0"]
        daemon = subprocess.Popen(
            [sys.executable, "-m", "shisha_rt", "serve", model, "--machine", machine, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            cwd=tree,
            env={
                **os.environ,
                "PYTHONPATH": f"{hook}{os.pathsep}{tree}",
                "XDG_CACHE_HOME": str(folder / "cache"),
                walk_hook.FOLDER: str(notes),
                walk_hook.TREE: str(tree),
            },
        )
        closing.callback(_end, daemon)
        assert daemon.stdout is not None
        ready = json.loads(_line(daemon.stdout))
        client = closing.enter_context(Client(ready["endpoint"], timeout_s=_PATIENCE_S))
        yield Walked(client, notes, switch)


def _line(stdout: IO[bytes]) -> bytes:
    with selectors.DefaultSelector() as selector:
        selector.register(stdout, selectors.EVENT_READ)
        line = stdout.readline() if selector.select(_PATIENCE_S) else b""
    if not line:
        raise RuntimeError("the daemon does not start (its own words are on stderr)")
    return line


def _end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    try:
        daemon.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()
    assert daemon.stdout is not None
    daemon.stdout.close()


# --- what was seen ------------------------------------------------------------------------------------------------


def walk_of(seen: Sequence[Seen], idle: Sequence[Seen], usual: Sequence[Seen] = (), usual_sends: int = 0) -> Walk:
    """The calls of `seen` that neither `idle` nor `usual` have, with those on the way to them."""
    never, known = _calls(idle), _calls(usual)
    entered = _calls(seen) - never
    own = [one for one in seen if one.kind == "call" and (one.process, one.chain) not in never | known]
    sent = [(one.process, one.chain[-1]) for one in seen if one.kind == "send"]
    hops: dict[tuple[str, str], None] = {}
    between: set[tuple[str, str]] = set()
    leading = set(sent)
    for one in own:
        for depth in range(1, len(one.chain) + 1):
            *above, name = one.chain[:depth]
            if (one.process, (*above, name)) not in entered:
                continue  # it has been running since before: a process's loop
            hops.setdefault((one.process, name))
            if above:
                leading.add((one.process, above[-1]))
                if _file(above[-1]) != _file(name):
                    between.add((one.process, name))
    main = [hop for hop in hops if hop in leading & between]
    return Walk(tuple(hops), len(main), len(own), len(sent) - usual_sends)


def _calls(seen: Sequence[Seen]) -> set[tuple[str, Chain]]:
    return {(one.process, one.chain) for one in seen if one.kind == "call"}


def within(span: Span, seen: Sequence[Seen]) -> list[Seen]:
    return [one for one in seen if one in span]


def set_later(tree: Path, callables: Sequence[Later]) -> list[Later]:
    """Those of the callables which the sources of a tree assign outside of a constructor, each once."""
    foreign: set[str] = set()
    own: set[tuple[str, str]] = set()
    parents: dict[str, set[str]] = {}
    for package in ("shisha_rt", "stages"):
        for path in (tree / package).rglob("*.py"):
            _assignments(ast.parse(path.read_text()), foreign, own, parents)

    def is_late(one: Later) -> bool:
        kind = one.owner.rpartition(".")[2]
        return one.attribute in foreign or any((name, one.attribute) in own for name in (kind, *parents.get(kind, ())))

    return list(dict.fromkeys(one for one in callables if is_late(one)))


def _assignments(tree: ast.Module, foreign: set[str], own: set[tuple[str, str]], parents: dict[str, set[str]]) -> None:
    """Adds attributes assigned to others than `self`, to `self` outside of a constructor, and the bases of classes."""

    def look(node: ast.AST, kind: str, method: str) -> None:
        if isinstance(node, ast.ClassDef):
            parents[node.name] = {base.id for base in node.bases if isinstance(base, ast.Name)}
            kind, method = node.name, ""
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not method:
            method = node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if not (isinstance(node.value, ast.Name) and node.value.id == "self"):
                foreign.add(node.attr)
            elif method not in _CONSTRUCTORS:
                own.add((kind, node.attr))
        for child in ast.iter_child_nodes(node):
            look(child, kind, method)

    look(tree, "", "")


# --- the two walks ------------------------------------------------------------------------------------------------


def walk_frame(tree: Path, model: str, machine: str) -> tuple[Walk, list[Later]]:
    with walked(tree, model, machine, "seed") as daemon:
        daemon.infer(_WARM_UP_FRAMES)
        time.sleep(_START_S)
        idle = daemon.note(_IDLE_S)
        spans = []
        for _ in range(_WALKED_FRAMES):
            daemon.infer()  # the first frame in a second is looked at closely, for traces
            time.sleep(_AFTER_FRAME_S)
            spans.append(daemon.note(_WINDOW_S, frame=True))
        daemon.census()
        seen = daemon.seen()
        walks = [walk_of(within(span, seen), within(idle, seen)) for span in spans]
        return min(walks, key=lambda walk: (len(walk.hops), walk.calls)), set_later(tree, daemon.callables())


def walk_proposal(tree: Path, model: str, machine: str) -> tuple[Walk, list[Later]]:
    """Raises RuntimeError if no trial is followed by another, live within the span of the frame that ended the one."""
    with walked(tree, model, machine, "shisha") as daemon:
        time.sleep(_START_S)
        idle = daemon.note(_IDLE_S)
        usual: list[Span] = []
        known = len(daemon.events())
        end_s = time.monotonic() + _PATIENCE_S
        while True:
            if time.monotonic() > end_s:
                raise RuntimeError(f"no proposal to walk in {_PATIENCE_S:g} s")
            span = daemon.note(_SETTLE_S, frame=True)
            new = daemon.events()[known:]
            known += len(new)
            if not new:
                usual.append(span)
            elif "trial" in new and "plan_live" in new[new.index("trial") :] and "tuning_ended" not in new:
                break
        daemon.census()
        seen = daemon.seen()
        often = [one for other in usual for one in within(other, seen)]
        sends = sum(one.kind == "send" for one in within(usual[-1], seen))
        walk = walk_of(within(span, seen), within(idle, seen), often, sends)
        return walk, set_later(tree, daemon.callables())


# --- what is reported ---------------------------------------------------------------------------------------------


def _summary(version: str, what: str, walk: Walk, later: Sequence[Later]) -> Row:
    entered = {name for _, name in walk.hops}
    return {
        "version": version,
        "walk": what,
        "files": len(walk.files),
        "hops": len(walk.hops),
        "main hops": walk.main_hops,
        "calls": walk.calls,
        "crossings": walk.crossings,
        "set later": len(later),
        "on the path": sum(one.target in entered for one in later),
    }


def _steps(version: str, what: str, walk: Walk, later: Sequence[Later]) -> list[Row]:
    """The functions in order, then the callables that were set later."""
    rows: list[Row] = [
        {"version": version, "walk": what, "step": step, "process": process, "file": _file(name), "what": _what(name)}
        for step, (process, name) in enumerate(walk.hops, 1)
    ]
    return rows + [
        {
            "version": version,
            "walk": what,
            "step": None,
            "process": "set later",
            "file": _file(one.target) if ":" in one.target else "",
            "what": f"{one.owner}.{one.attribute} = {_what(one.target)}",
        }
        for one in later
    ]


def _what(name: str) -> str:
    return name.partition(":")[2] or name


def _version(tree: Path) -> str:
    """The commit of a tree, marked where its files differ from it."""
    git = ["git", "-C", str(tree), "describe", "--always", "--dirty"]
    found = subprocess.run(git, capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else tree.name


@contextlib.contextmanager
def _machine(places: int) -> Iterator[str]:
    """Places that take turns on the cores that this process may use."""
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"shared-{places}.toml"
        path.write_text(
            "".join(
                f'[[place]]\nname = "place{i}"\ncores = [{cores[i % len(cores)]}]\nshared = true\n'
                for i in range(places)
            )
        )
        yield str(path)


def walk(
    tree: Annotated[
        list[Path] | None, typer.Option(help="A folder with another version of the project; may be repeated.")
    ] = None,
    model: Annotated[str, typer.Option(help="The network that is served.")] = MODEL,
    machine: Annotated[
        str | None, typer.Option(help="For the proposal: a machine file or a shipped name. Default: two places.")
    ] = None,
) -> None:
    """One frame and one proposal through every process: files, hops, crossings, callables set later."""
    trees = [found.resolve() for found in tree or [_OWN]]
    for one in trees:
        if not (one / "shisha_rt").is_dir():
            raise BadInput(f"{one}: no such version of the project, expected a folder with shisha_rt/ in it")
    options = "".join(f" --tree {one}" for one in tree or ()) + (f" --machine {machine}" if machine else "")
    about = facts(f"walk --model {model}{options}")
    summary: list[Row] = []
    steps: list[Row] = []
    for one in trees:
        version = _version(one)
        with _machine(1) as single, _machine(2) as pair:
            for what, follow, places in (
                ("frame", walk_frame, single),
                ("proposal", walk_proposal, machine or pair),
            ):
                print(f"walk: {what}, {version} ...", flush=True)
                found, later = follow(one, model, places)
                summary.append(_summary(version, what, found, later))
                steps += _steps(version, what, found, later)
                for number, (process, name) in enumerate(found.hops, 1):
                    print(f"{number:4} {process:32} {name}")
                for late in later:
                    print(f"     {late.owner}.{late.attribute} = {late.target}")
    show("One frame and one proposal, followed", summary, ["files, hops and callables: see the head of live/walk.py"])
    print(f"written to {save_csv('walk', summary, about)} and {save_csv('walk_steps', steps, about)}")


if __name__ == "__main__":
    typer.run(walk)
