"""The configuration files that come with the project, by name; listed without reading them."""

from __future__ import annotations

from pathlib import Path


def shipped_configs(kind: str) -> dict[str, Path]:
    """The files of the folder `kind` of configs/ ("machines", ...), by shipped name."""
    package = Path(__file__).resolve().parents[2]
    # In a wheel configs/ lies inside the package; in a checkout, beside it.
    folders = (package / "configs" / kind, package.parent / "configs" / kind)
    folder = next((folder for folder in folders if folder.is_dir()), None)
    return {} if folder is None else {path.stem: path for path in sorted(folder.glob("*.toml"))}
