"""The page's own files, read once: HTML, styles and scripts, as they are in the package."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

from starlette.responses import Response

FOLDER: Final = Path(__file__).parent / "static"
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Content-Security-Policy": POLICY,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
    }
)
"""Headers of every answer of the page: it loads nothing from other sites, and runs only its own files."""


@dataclass(frozen=True, slots=True)
class StaticFile:
    content: bytes
    kind: str
    tag: str

    def answer(self, known: str | None) -> Response:
        """`known`: the browser's cached ETags. It asks each time, and gets the content only if that has changed."""
        headers = {**HEADERS, "Cache-Control": "no-cache", "ETag": self.tag}
        if known is not None and self.tag in (tag.strip().removeprefix("W/") for tag in known.split(",")):
            return Response(status_code=304, headers=headers)
        return Response(self.content, headers=headers, media_type=self.kind)


@cache
def static_files() -> Mapping[str, StaticFile]:
    """Static files of the page, by name."""
    files_read = {}
    for path in sorted(FOLDER.iterdir()):
        if path.suffix in _TYPES:
            content = path.read_bytes()
            files_read[path.name] = StaticFile(
                content, _TYPES[path.suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            )
    return files_read
