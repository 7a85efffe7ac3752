"""Pictures of the live page for its docs: `python -m benchmarks screenshots`.

Real daemons on emulated and shared places of this host, under load, shown by a headless Chromium (Debian's package
chromium). Nothing is measured: figures in the pictures depend on this host.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from benchmarks.report.facts import ROOT
from benchmarks.report.results import few_colours
from shisha_rt.cli.drive.child_daemon import child_daemon
from shisha_rt.client import Client, Plan, Stage
from shisha_rt.errors import BadInput

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FOLDER: Final = ROOT / "docs" / "pictures"
_WIDE: Final = (1200, 1180)
_PHONE: Final = (390, 1460)
_PATIENCE_S: Final = 900.0  # enough for a busy host, too
_SETTLE_S: Final = 3.0  # for animations of the page to end
_ARGUMENTS: Final = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
_FORK: Final = Plan(
    (
        Stage(((0, 8),), (("fast0",), ("fast1",))),
        Stage(((10, 11),), (("slow0",),), (0,)),
        Stage(((12, 13),), (("slow1",),), (0,)),
        Stage(((9, 9), (14, 57)), (("fast0",), ("fast1",)), (0, 1, 2)),
    )
)
"""For inception_v1: two branches of its second module in parallel; all else on two copies."""


@dataclass(frozen=True, slots=True)
class Watched:
    url: str
    endpoint: str
    client: Client
    browser: Browser

    def until(self, true: Callable[[dict[str, Any]], object], what: str) -> None:
        """Wait for a status for which `true` holds."""
        end_s = time.monotonic() + _PATIENCE_S
        while not true(self.client.status()):
            if time.monotonic() > end_s:
                raise RuntimeError(f"not within {_PATIENCE_S:g} s: {what}")
            time.sleep(0.1)

    def picture(self, name: str, *, dark: bool = False, phone: bool = False) -> None:
        width, height = _PHONE if phone else _WIDE
        page = self.browser.new_page(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
            locale="en-GB",
        )
        page.goto(self.url)
        page.locator(".stage").first.wait_for()
        time.sleep(_SETTLE_S)
        path = FOLDER / f"{name}.png"
        path.write_bytes(few_colours(page.screenshot()))
        print(f"screenshots: {path.name}, {path.stat().st_size / 1024:.0f} kB", flush=True)
        page.close()


def screenshots(
    only: Annotated[str, typer.Option(help="One of: tuning, branches, devices. Default: all.")] = "",
) -> None:
    """Take the pictures in docs/pictures anew. Some five minutes."""
    sessions = {"tuning": _tuning, "branches": _branches, "devices": _devices}
    if only and only not in sessions:
        raise BadInput(f"--only {only}; expected one of {', '.join(sessions)}")
    FOLDER.mkdir(exist_ok=True)
    with _chromium() as browser:
        for name, session in sessions.items():
            if only in ("", name):
                print(f"screenshots: {name} ...", flush=True)
                session(browser)


def _tuning(browser: Browser) -> None:
    """From the seed to the tuned plan on two fast and two slow places, and the loss of one place."""
    options = ("zoo:squeezenet", "--machine", "demo", "--strategy", "shisha", "--no-replicate", "--fresh")
    with _watched(browser, *options) as watched, _load(watched, rate=55):
        watched.until(lambda status: status["bottleneck_s"], "times of all stages")
        watched.picture("seed")
        watched.until(lambda status: status["tuner"]["trials_total"] >= 5, "five trials")
        watched.picture("tuning")
        watched.until(lambda status: status["tuner"]["state"] == "watching", "the end of tuning")
        time.sleep(10)
        watched.picture("tuned")
        watched.picture("tuned_dark", dark=True)
        watched.picture("phone", phone=True)
        watched.picture("phone_dark", phone=True, dark=True)
        _lose(watched, "fast1")
        watched.until(lambda status: status["throughput_fps"], "a plan without it that is timed")
        time.sleep(5)
        watched.picture("lost")


def _branches(browser: Browser) -> None:
    with _watched(browser, "zoo:inception_v1", "--machine", "shared-4", "--strategy", "seed") as watched:
        watched.client.set_plan(_FORK)
        with _load(watched, rate=12):
            watched.until(lambda status: status["bottleneck_s"], "times of all stages")
            time.sleep(20)
            watched.picture("branches")


def _devices(browser: Browser) -> None:
    """A board whose stages run on several devices each."""
    options = ("zoo:squeezenet", "--machine", "pim-2", "--precision", "any", "--fresh")
    with _watched(browser, *options) as watched, _load(watched, rate=10):
        watched.until(lambda status: status["bottleneck_s"], "times of all stages")
        time.sleep(30)
        watched.picture("devices", dark=True)


def _lose(watched: Watched, name: str) -> None:
    """Kill the workers of a place until the daemon gives the place up."""

    def place(status: dict[str, Any]) -> dict[str, Any]:
        state: dict[str, Any] = next(place for place in status["places"] if place["name"] == name)
        return state

    while True:
        watched.until(lambda status: place(status)["state"] in ("up", "out"), f"a worker on {name}")
        now = place(watched.client.status())
        if now["state"] == "out":
            return
        if now["pid"] is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(now["pid"], signal.SIGKILL)
        time.sleep(0.2)


@contextlib.contextmanager
def _watched(browser: Browser, *options: str) -> Iterator[Watched]:
    with (
        child_daemon(*options, "--http", "127.0.0.1:0") as daemon,
        Client(daemon.endpoint, timeout_s=_PATIENCE_S) as client,
    ):
        yield Watched(daemon.http[0], daemon.endpoint, client, browser)


@contextlib.contextmanager
def _load(watched: Watched, rate: int) -> Iterator[None]:
    endpoint = ("--endpoint", watched.endpoint)
    client = subprocess.Popen(
        [sys.executable, "-m", "shisha_rt", "submit", *endpoint, "--frames", "1000000", "--rate", str(rate)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        client.terminate()
        client.wait()


@contextlib.contextmanager
def _chromium() -> Iterator[Browser]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise BadInput("screenshots: playwright is missing; expected the extra `test`") from None
    path = shutil.which("chromium")
    if path is None:
        raise BadInput("screenshots: chromium is missing; expected the Debian package of that name")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(_ARGUMENTS))
        yield browser
        browser.close()
