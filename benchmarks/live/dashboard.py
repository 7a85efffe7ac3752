"""The dashboard over a daemon that tunes itself: `python -m benchmarks dashboard`.

A real daemon on an emulated machine and a real Prometheus server, which scrapes it every second. The daemon waits for
frames; then they come, and it is tuned by Shisha's walk, then by `guided`; a place becomes three times slower, and as
fast as before; a worker is killed. All the while its page is requested over HTTP, and from another site's origin. Then
all queries of Grafana's dashboard are sent for that time, and its panels are drawn from the answers:
`docs/pictures/dashboard.png`.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Annotated, Final

import typer

from benchmarks.report.dashboard import filled_in, load_dashboard, marks, panel_queries
from benchmarks.report.facts import ROOT, facts
from benchmarks.report.results import few_colours
from benchmarks.rigs.control import is_watching
from benchmarks.rigs.daemons import Rig
from benchmarks.rigs.prometheus import HINT, MISSING, Prometheus, prometheus
from benchmarks.rigs.steady_load import SteadyLoad
from shisha_rt.cli.drive.child_daemon import ChildDaemon
from shisha_rt.client import Client
from shisha_rt.errors import BadInput

MODEL: Final = "squeezenet"
MACHINE: Final = "demo"
PICTURE: Final = ROOT / "docs" / "pictures" / "dashboard.png"
_RATE_S: Final = 4
_PATIENCE_S: Final = 120.0


def dashboard(
    model: Annotated[str, typer.Option(help="Of the zoo.")] = MODEL,
    seconds: Annotated[float, typer.Option(min=1.0, help="How long each quiet stretch between two changes is.")] = 8.0,
    picture: Annotated[Path, typer.Option(help="Where it goes.")] = PICTURE,
) -> None:
    """Grafana's dashboard, drawn from its own queries over a real run."""
    if MISSING:
        raise BadInput(HINT)
    about = facts()
    with Rig() as rig:
        options = ("--machine", MACHINE, "--strategy", "guided", "--fresh", "--http", "127.0.0.1:0")
        daemon, control = rig.daemon(f"zoo:{model}", *options)
        target = urllib.parse.urlsplit(daemon.metrics).netloc
        asked = rig.enter_context(prometheus(target, rig.folder(), scrape="1s"))
        while not asked.now("up == 1"):
            time.sleep(0.2)
        start_s = time.time()
        Story(daemon, control, seconds).run()
        drawn = _drawn(asked, start_s, time.time(), about)
    picture.parent.mkdir(parents=True, exist_ok=True)
    picture.write_bytes(drawn)
    print(f"written: {picture}, {len(drawn) / 1000:.0f} kB")


class Story:
    def __init__(self, daemon: ChildDaemon, control: Client, seconds: float) -> None:
        self._daemon = daemon
        self._control = control
        self._seconds = seconds
        self._looks = 0

    def run(self) -> None:
        self._control.call("tuner_set", pause=True)
        self._rest(self._seconds / 2)
        with SteadyLoad(self._daemon.endpoint, in_flight=12) as load:
            for strategy in ("shisha", "guided"):
                self._rest(self._seconds / 2)
                self._control.call("tuner_set", strategy=strategy, restart=True)
                self._until_tuned()
            place, fast = self._fastest()
            self._control.call("place_set", place=place, speed=round(fast / 3, 3))
            self._until_tuned()
            self._control.call("place_set", place=place, speed=fast)
            self._until_tuned()
            worker = next(status for status in self._control.status()["places"] if status["pid"] is not None)
            os.kill(worker["pid"], signal.SIGKILL)
            self._rest(self._seconds)
            load.check()

    def _fastest(self) -> tuple[str, float]:
        place = max(self._control.status()["places"], key=lambda status: status["speed"])
        return place["name"], place["speed"]

    def _until_tuned(self) -> None:
        """Wait until a search has begun and ended, and the daemon has been quiet for a while."""
        end_s = time.monotonic() + _PATIENCE_S
        self._rest(2.0)
        while not is_watching(self._control) and time.monotonic() < end_s:
            self._rest(0.5)
        self._rest(self._seconds)

    def _rest(self, seconds: float) -> None:
        """Wait; meanwhile the page is requested, also from another site's origin."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self._looks += 1
            headers = {} if self._looks % 8 else {"Origin": "http://elsewhere.example"}
            with contextlib.suppress(urllib.error.HTTPError):
                request = urllib.request.Request(self._daemon.http[0], headers=headers)
                urllib.request.urlopen(request, timeout=10).close()
            time.sleep(min(0.5, max(0.0, end_s - time.monotonic())))


def _drawn(asked: Prometheus, start_s: float, end_s: float, about: dict[str, str]) -> bytes:
    """The panels as a PNG of few colours, as it is kept in the repository."""
    from benchmarks.report.panels import Found, Marks, draw, stretches

    board = load_dashboard()

    def expr(query: str) -> str:
        return filled_in(query, asked.instance, step_s=1, rate_s=_RATE_S)

    by_panel = {}
    for panel in board["panels"]:
        answers = []
        for query in panel_queries(panel):
            text = expr(query.expr)
            answers.append((query.legend, asked.now(text) if query.instant else asked.over(text, start_s, end_s)))
        by_panel[panel["id"]] = Found(answers)
    colours = {annotation["name"]: annotation["iconColor"] for annotation in board["annotations"]["list"]}
    moments = [
        Marks(
            colours[mark.where],
            [
                at
                for series in asked.over(expr(mark.expr), start_s, end_s)
                for at in stretches([at for at, _ in series.points], step_s=1)
            ],
        )
        for mark in marks(board)
    ]
    figure = draw(board, by_panel, moments, (start_s, end_s))
    said = (
        f"{about['cpu']}, {about['cores']} cores, machine {MACHINE} (emulated), {about['date']}; not drawn by Grafana"
    )
    figure.text(0.992, 0.9885, said, fontsize=7, color="0.4", ha="right", va="center")
    raw = io.BytesIO()
    figure.savefig(raw, format="png", dpi=100)
    return few_colours(raw.getvalue())
