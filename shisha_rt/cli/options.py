"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from shisha_rt.errors import BadInput
from shisha_rt.graph.input_sizes import InputSizes
from shisha_rt.graph.layer_kinds import LayerKind

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Dims = Annotated[
    list[str] | None, typer.Option("--dim", metavar="NAME=8", help="Set an unknown dimension of the model; repeatable.")
]
Shapes = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="INPUT=1x3x48x320", help="Set the whole shape of an input; repeatable."),
]
Endpoint = Annotated[
    str | None, typer.Option(metavar="URL", help="Where the daemon listens. Default: tcp://127.0.0.1:5555.")
]

Layers = Annotated[
    LayerKind,
    typer.Option("--layers", help="One for each heavy operator, or each operator (where places have devices)."),
]


def parse_sizes(dims: Iterable[str] | None, shapes: Iterable[str] | None) -> InputSizes:
    """What `--dim` and `--shape` say. Raises BadInput."""
    return InputSizes(parse_dims(dims), parse_shapes(shapes))


def parse_shapes(texts: Iterable[str] | None) -> dict[str, tuple[int, ...]]:
    """`["x=1x3x48x320"]` as `{"x": (1, 3, 48, 320)}`. Raises BadInput."""
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts or ():
        name, _, sizes = text.rpartition("=")
        parts = sizes.split("x")
        if not name or not all(part.isascii() and part.isdigit() and int(part) >= 1 for part in parts):
            raise BadInput(f"--shape {text}: expected INPUT=SIZExSIZE... with sizes of at least 1, as x=1x3x48x320")
        if name in shapes:
            raise BadInput(f"--shape {text}: {name} is set twice, expected once")
        shapes[name] = tuple(map(int, parts))
    return shapes


def parse_dims(texts: Iterable[str] | None) -> dict[str, int]:
    """`["batch=1"]` as `{"batch": 1}`. Raises BadInput."""
    dims: dict[str, int] = {}
    for text in texts or ():
        name, _, size = text.partition("=")
        if not name or not (size.isascii() and size.isdigit()) or int(size) < 1:
            raise BadInput(f"--dim {text}: expected NAME=SIZE with a whole size of at least 1, for instance N=1")
        if name in dims:
            raise BadInput(f"--dim {text}: {name} is set twice, expected once")
        dims[name] = int(size)
    return dims


def read_bytes(path: Path, what: str) -> bytes:
    """A file that the user named; `what` says what was expected in it. Raises BadInput."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror}), expected {what}") from None


def progress(message: str) -> None:
    """Tell someone who is waiting what is going on.

    Only at a terminal: elsewhere standard error holds the one line of an error, or nothing.
    """
    if sys.stderr.isatty():
        print(message, file=sys.stderr)
