"""TOML files as records or dictionaries, with one line (BadInput) for whatever is wrong with a file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, TypeVar

from shisha_rt.checked import NO_TEXT, convert
from shisha_rt.errors import BadInput, Error

T = TypeVar("T")


def read_text(path: Path, what: str) -> str:
    """`what`: the kind of file that was expected, such as 'machine file'. Raises BadInput.

    What a file describes is called like the file, in messages and on screens: the file's name must be text.
    """
    if NO_TEXT.search(path.stem):
        raise BadInput(f"{path}: its name is not printable, expected a {what} whose name is", Error.UNREADABLE_FILE)
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise BadInput(f"{path}: not UTF-8 text, expected a TOML {what}", Error.MALFORMED_FILE) from None
    except OSError as error:
        raise BadInput(
            f"{path}: cannot be read ({error.strerror}), expected a TOML {what}", Error.UNREADABLE_FILE
        ) from None


def toml_table(content: str, source: str, what: str) -> dict[str, Any]:
    """TOML text as a dictionary; `source` and `what` (see `read_text`) are for messages. Raises BadInput."""
    try:
        return tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{source}: not TOML: {error}", Error.MALFORMED_FILE) from None
    except RecursionError:
        raise BadInput(f"{source}: nested too deeply, expected a TOML {what}", Error.MALFORMED_FILE) from None


def parse_toml(content: str, record: type[T], source: str, what: str) -> T:
    """TOML text as a `record` (a msgspec.Struct); else as `toml_table`. Raises BadInput."""
    return convert(toml_table(content, source, what), record, source)
