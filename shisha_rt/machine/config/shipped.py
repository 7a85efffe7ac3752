"""The configuration files that come with the project, by name; nothing of them is read, so that it takes no time."""

from __future__ import annotations

from pathlib import Path


def shipped_configs(kind: str) -> dict[str, Path]:
    """The files of one folder of configs/ ("machines", ...) by the name under which they are asked for."""
    package = Path(__file__).resolve().parents[2]
    # In a wheel configs/ lies inside the package; in a checkout, beside it.
    folders = (package / "configs" / kind, package.parent / "configs" / kind)
    folder = next((folder for folder in folders if folder.is_dir()), None)
    return {} if folder is None else {path.stem: path for path in sorted(folder.glob("*.toml"))}
