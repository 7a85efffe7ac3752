"""Chromium without a window, as Debian has it, and pages in it that must not complain."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

CHROMIUM: Final = shutil.which("chromium")
NEEDS_CHROMIUM: Final = pytest.mark.skipif(CHROMIUM is None, reason="needs the Debian package chromium")
_ARGUMENTS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
)
_EXPECTED: Final = ("Failed to load resource", "Access to fetch")
"""What Chromium says of an answer that is an error, and of a daemon that is gone: the page tells both in words. And of
another site's page that may not read.
"""


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(_ARGUMENTS))
        yield browser
        browser.close()


@contextmanager
def a_page(browser: Browser, *, width: int = 1280, height: int = 900, dark: bool = False) -> Iterator[Page]:
    """Leaving the context asserts that no script failed, and nothing was refused that the page wants to load."""
    complaints: list[str] = []
    context: BrowserContext = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
        locale="en-GB",
    )
    page = context.new_page()
    page.set_default_timeout(60_000)

    def heard(message: Any) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(_EXPECTED):
            complaints.append(message.text)

    page.on("console", heard)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    try:
        yield page
    finally:
        context.close()
    assert complaints == [], complaints
