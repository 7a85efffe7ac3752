"""Options that several commands share, and parsers of their values."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, get_type_hints

import typer

from shisha_rt.cli.completion import offer_machines, offer_models
from shisha_rt.errors import BadInput, Error
from shisha_rt.model.input_sizes import LARGEST_SIZE, InputSizes, shapes_in_words
from shisha_rt.model.layer_kinds import LayerKind

if TYPE_CHECKING:
    from shisha_rt.client import Client
    from shisha_rt.machine.machine import Machine, Place

PLANNING: Final = "Planning"
"""Group of options for users who plan themselves."""

Model = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="A path to an ONNX file, or zoo:NAME.", autocompletion=offer_models),
]
MachineFile = Annotated[
    str,
    typer.Option(metavar="FILE", help="A machine file or a shipped name, such as demo.", autocompletion=offer_machines),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
PrintsJson = Annotated[bool, typer.Option("--json", help="Print errors as JSON, too: the result is one object anyway.")]
"""The option of a command whose result is JSON anyway."""
Dims = Annotated[
    list[str] | None, typer.Option("--dim", metavar="NAME=8", help="Set an unknown dimension of the model; repeatable.")
]
Shapes = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="INPUT=1x3x48x320", help="Set the whole shape of an input; repeatable."),
]
ManyShapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="INPUT=1x3x48x320",
        help="Set the whole shape of an input; repeatable, also for one input: then all of its shapes are served.",
    ),
]
PlaceName = Annotated[
    str | None, typer.Option("--place", metavar="NAME", help="The place; needed if the machine has several.")
]
Endpoint = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Where the daemon listens. Default: $SHISHA_ENDPOINT, or tcp://127.0.0.1:5555."),
]
OfModel = Annotated[
    str | None, typer.Option("--model", metavar="NAME", help="Which model is meant, where an address serves several.")
]
Key = Annotated[
    Path | None,
    typer.Option("--key", metavar="FILE", help="Your secret key, for a daemon that asks for keys: NAME.key_secret."),
]
ServerKey = Annotated[
    str | None, typer.Option("--server-key", metavar="FILE|KEY", help="The public key of that daemon, or its file.")
]

Groups = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        metavar="OP+OP",
        help="Operators in a row to measure as one, as Conv+Relu; repeatable.",
        rich_help_panel=PLANNING,
    ),
]
Layers = Annotated[
    LayerKind,
    typer.Option("--layers", help="One for each heavy operator, or each operator (where places have devices)."),
]


@dataclass(frozen=True, slots=True)
class DaemonOptions:
    """Options that name a daemon and the user's key."""

    endpoint: Endpoint = None
    key: Key = None
    server_key: ServerKey = None
    model: OfModel = None

    @contextlib.contextmanager
    def client(self) -> Iterator[Client]:
        """A client of that daemon, with the time limit of commands (`REACH_S`); its errors become the command's own."""
        from shisha_rt.cli.drive.reach import REACH_S, plainly
        from shisha_rt.client import Client

        own, theirs = self.key, self.server_key
        with (
            plainly(),
            Client(self.endpoint, timeout_s=REACH_S, model=self.model, secret_key=own, server_key=theirs) as client,
        ):
            yield client


OptionsT = TypeVar("OptionsT")


def takes(options: type[OptionsT]) -> Callable[[Callable[[OptionsT], None]], Callable[..., None]]:
    """A command whose arguments and options are the fields of a dataclass, annotated as typer wants them."""
    hints = get_type_hints(options, include_extras=True)
    parameters = [
        keyword(field.name, hints[field.name], inspect.Parameter.empty if field.default is MISSING else field.default)
        for field in fields(options)  # type: ignore[arg-type]  # there is no type of dataclasses
    ]

    def command(function: Callable[[OptionsT], None]) -> Callable[..., None]:
        @functools.wraps(function)
        def called(**given: Any) -> None:
            function(options(**given))

        # typer reads parameters by `inspect`, which uses this attribute
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return called

    return command


def keyword(name: str, annotation: object, default: object = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def refuse_given(options: Mapping[str, object], why: str) -> None:
    """Raises BadInput for the first of these options that is given; `why`: what it cannot be combined with."""
    for option, value in options.items():
        if value is not None and value is not False and value != []:
            raise BadInput(f"{option}: {why}", Error.OPTIONS_CLASH)


def refuse_options(options: object, names: str, why: str) -> None:
    """`refuse_given` for options by the `names` of their fields, with spaces between."""
    refuse_given({f"--{name.strip('_').replace('_', '-')}": getattr(options, name) for name in names.split()}, why)


def check_writable(option: str, path: Path | None) -> None:
    """Check before the work that the file can be written. Raises BadInput."""
    if path is not None and (path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK)):
        raise BadInput(
            f"{option} {path}: cannot be written, expected a file in a folder to write to", Error.UNWRITABLE_FILE
        )


def place_named(machine: Machine, name: str | None) -> Place | None:
    """The place of `--place`, or the machine's only one; None if there are several. Raises BadInput."""
    names = [place.name for place in machine.places]
    if name is not None and name not in names:
        raise BadInput(
            f"--place {name}: {machine.source} has no such place, expected one of {', '.join(names)}",
            Error.UNKNOWN_PLACE,
        )
    return machine.place(name or names[0]) if name is not None or len(names) == 1 else None


def parse_sizes(dims: Iterable[str] | None, shapes: Iterable[str] | None) -> InputSizes:
    """The sizes of `--dim` and `--shape`, for commands that take one shape. Raises BadInput."""
    shapes_given = parse_shapes(shapes)
    if len(shapes_given) > 1:
        raise BadInput(
            f"--shape: {len(shapes_given)} shapes, expected one here (serve takes several)", Error.WRONG_SIZES
        )
    return InputSizes(parse_dims(dims), shapes_given[0])


def size_words(dims: Iterable[str] | None, shapes: Iterable[str] | None) -> list[str]:
    options = [("--dim", dim) for dim in dims or ()] + [("--shape", shape) for shape in shapes or ()]
    return [word for option in options for word in option]


def parse_shapes(texts: Iterable[str] | None) -> list[dict[str, tuple[int, ...]]]:
    """`["x=1x3x48x320"]` as `[{"x": (1, 3, 48, 320)}]`: one item for each shape, at least one.

    If inputs have several shapes, the k-th of one input goes with the k-th of the others; the only shape of an input
    goes with all. Raises BadInput.
    """
    shapes: dict[str, list[tuple[int, ...]]] = {}
    for text in texts or ():
        name, _, sizes = text.rpartition("=")
        parts = sizes.split("x")
        if not name or not all(map(_is_size, parts)):
            expected = f"INPUT=SIZExSIZE... with sizes of 1 to {LARGEST_SIZE}, as x=1x3x48x320"
            raise BadInput(f"--shape {text}: expected {expected}", Error.WRONG_SIZES)
        shapes.setdefault(name, []).append(tuple(map(int, parts)))
    count = max(map(len, shapes.values()), default=1)
    uneven = [name for name, shape in shapes.items() if len(shape) not in (1, count)]
    if uneven:
        most = next(name for name, shape in shapes.items() if len(shape) == count)
        counts = f"{count} shapes of {most} and {len(shapes[uneven[0]])} of {uneven[0]}"
        raise BadInput(f"--shape: {counts}, expected as many of each input, or one", Error.WRONG_SIZES)
    listed = [{name: shape[k % len(shape)] for name, shape in shapes.items()} for k in range(count)]
    again = next((shape for k, shape in enumerate(listed) if shape in listed[:k]), None)
    if again is not None:
        raise BadInput(f"--shape {shapes_in_words(again)}: is set twice, expected once", Error.WRONG_SIZES)
    return listed


def parse_dims(texts: Iterable[str] | None) -> dict[str, int]:
    """`["batch=1"]` as `{"batch": 1}`. Raises BadInput."""
    dims: dict[str, int] = {}
    for text in texts or ():
        name, _, size = text.rpartition("=")
        if not name or not _is_size(size):
            raise BadInput(
                f"--dim {text}: expected NAME=SIZE with a whole size of 1 to {LARGEST_SIZE}, as N=1", Error.WRONG_SIZES
            )
        if name in dims:
            raise BadInput(f"--dim {text}: {name} is set twice, expected once", Error.WRONG_SIZES)
        dims[name] = int(size)
    return dims


def _is_size(text: str) -> bool:
    is_whole = text.isascii() and text.isdigit() and len(text) <= len(str(LARGEST_SIZE))
    return is_whole and 1 <= int(text) <= LARGEST_SIZE


def read_bytes(path: Path, what: str) -> bytes:
    """The content of a file that the user named; `what`: its expected content, for messages. Raises BadInput."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror}), expected {what}", Error.UNREADABLE_FILE) from None
