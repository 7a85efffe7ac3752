"""`shisha-rt cache`: what derived files take on the disk, and the removal of those that nobody uses any more."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from shisha_rt.cli.layers import short
from shisha_rt.cli.options import Json

_DAY_S: Final = 86_400.0
_LONG_DAYS: Final = 30
_MOST_DAYS: Final = 36_500
"""A hundred years: more is a mistake, and may be beyond what a float holds."""
_KINDS: Final = {
    "models": "models as they are cleaned",
    "engines": "models as engines load them",
    "zoo": "networks of the zoo",
}
"""Folders in the cache; what lies beside them are databases."""


def cache(
    prune: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=_MOST_DAYS,
            metavar="DAYS",
            help="Remove what has not been used for so many days and no daemon holds.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what the cache takes on the disk; with --prune, remove what nobody has used for long.

    Each version of a model, and of an engine, leaves files of its own there, with all weights. What a daemon serves
    from stays, however old it is. All that is removed is made again when it is needed.

    \b
    Examples:
      shisha-rt cache
      shisha-rt cache --prune 30
      shisha-rt cache --json | jq .bytes
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    from shisha_rt.cache import cache_folder, published, remove

    folder, removed = cache_folder(), 0
    if prune is not None:
        before_s = time.time() - prune * _DAY_S
        for path, used_s in [*published(folder)]:
            bytes_there = _size_bytes([path])
            if used_s < before_s and remove(path):
                removed += bytes_there
    kinds = [_kind(folder / name) for name in _KINDS]
    databases = _size_bytes(path for path in folder.glob("*") if path.name not in _KINDS)
    whole: dict[str, Any] = {
        "folder": str(folder),
        "bytes": sum(kind["bytes"] for kind in kinds) + databases,
        "kinds": kinds,
        "databases_bytes": databases,
        "removed_bytes": removed,
    }
    if as_json:
        print(json.dumps(whole))
        return
    print(f"{folder}: {short(whole['bytes'], 'B')}")
    for kind in kinds:
        unused = f", {short(kind['unused_bytes'], 'B')} unused for {_LONG_DAYS} days" if kind["unused_bytes"] else ""
        print(f"  {_KINDS[kind['name']]}: {kind['folders']}, {short(kind['bytes'], 'B')}{unused}")
    print(f"  what was measured, and plans: {short(databases, 'B')}")
    if prune is not None:
        print(f"removed: {short(removed, 'B')}")


def _kind(root: Path) -> dict[str, Any]:
    """What one of the `_KINDS` takes, and how much of it has long been unused."""
    from shisha_rt.cache import published

    every = [*published(root)]
    before_s = time.time() - _LONG_DAYS * _DAY_S
    return {
        "name": root.name,
        "folders": len(every),
        "bytes": _size_bytes(path for path, _ in every),
        "unused_bytes": _size_bytes(path for path, used_s in every if used_s < before_s),
    }


def _size_bytes(paths: Iterable[Path]) -> int:
    """Bytes that files and folders take on the disk; a file with several names counts once."""
    taken: dict[tuple[int, int], int] = {}
    pending = [*paths]
    while pending:
        path = pending.pop()
        try:
            status = path.lstat()
            taken[status.st_dev, status.st_ino] = 512 * status.st_blocks
            if path.is_dir() and not path.is_symlink():
                pending += path.iterdir()
        except OSError:  # somebody else removes it
            continue
    return sum(taken.values())
