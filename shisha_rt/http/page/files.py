"""The page's own files, read once: HTML, styles and scripts, as they are in the package."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from shisha_rt.http.exchange import Header
from shisha_rt.http.routing import HttpReply

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
HEADERS: Final[Sequence[Header]] = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
"""Headers of every answer of the page: it loads nothing from other sites, and runs only its own files."""


@dataclass(frozen=True, slots=True)
class StaticFile:
    content: bytes
    kind: str
    tag: bytes

    def answer(self, known: bytes) -> HttpReply:
        """The content, or 304 if its ETag is among `known`, those of the browser's cache, which asks each time."""
        headers = [*HEADERS, (b"cache-control", b"no-cache"), (b"etag", self.tag)]
        if self.tag in (tag.strip().removeprefix(b"W/") for tag in known.split(b",")):
            return HttpReply(304, headers, b"")
        return HttpReply(200, [*headers, (b"content-type", self.kind.encode())], self.content)


@cache
def static_files() -> Mapping[str, StaticFile]:
    files_read = {}
    for path in sorted(FOLDER.iterdir()):
        if path.suffix in _TYPES:
            content = path.read_bytes()
            tag = b'"%b"' % hashlib.sha256(content).hexdigest()[:32].encode()
            files_read[path.name] = StaticFile(content, _TYPES[path.suffix], tag)
    return files_read
