"""A real Prometheus server with the project's own configuration, but with more frequent scrapes."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.report.dashboard import CONFIGS
from benchmarks.rigs.servers import free_ports

MISSING: Final = [name for name in ("prometheus", "promtool") if shutil.which(name) is None]
HINT: Final = f"{' and '.join(MISSING)} not found: apt-get install prometheus has both"
_PATIENCE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Series:
    """`points`: (time, value); times are seconds since 1970."""

    labels: dict[str, str]
    points: list[tuple[float, float]]


class Prometheus:
    """A running server. `instance`: its name of the daemon that it scrapes."""

    def __init__(self, port: int, instance: str) -> None:
        self.instance = instance
        self.began_s = time.time()
        self._address = f"http://127.0.0.1:{port}/api/v1/"

    def now(self, query: str) -> list[Series]:
        results = self._get("query", query=query)["result"]
        return [Series(series["metric"], [(series["value"][0], float(series["value"][1]))]) for series in results]

    def over(self, query: str, start_s: float, end_s: float, step_s: float = 1.0) -> list[Series]:
        results = self._get("query_range", query=query, start=start_s, end=end_s, step=step_s)["result"]
        return [Series(series["metric"], [(at, float(value)) for at, value in series["values"]]) for series in results]

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, what: str, **arguments: object) -> dict[str, Any]:
        """Send a request. Raises RuntimeError, with the server's message, for an invalid query."""
        address = f"{self._address}{what}?{urllib.parse.urlencode(arguments)}"
        try:
            with urllib.request.urlopen(address, timeout=_PATIENCE_S) as answer:
                data: dict[str, Any] = json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{arguments}: {error.read().decode()}") from None
        return data


@contextlib.contextmanager
def prometheus(target: str, folder: Path, scrape: str = "500ms") -> Iterator[Prometheus]:
    """Context with a server that scrapes HOST:PORT at an interval. The first scrape comes after 5 s."""
    text = (CONFIGS / "prometheus" / "prometheus.yml").read_text(encoding="utf-8")
    for old, new in (
        ("scrape_interval: 5s", f"scrape_interval: {scrape}"),
        ("evaluation_interval: 15s", "evaluation_interval: 1s"),
        ('      - targets: ["127.0.0.1:9464"]', f'      - targets: ["{target}"]'),
    ):
        if text.count(old) != 1:
            raise RuntimeError(f"prometheus.yml: expected {old!r} once")
        text = text.replace(old, new)
    shutil.copytree(CONFIGS / "prometheus", folder / "prometheus")
    config = folder / "prometheus" / "prometheus.yml"
    config.write_text(text, encoding="utf-8")
    (port,) = free_ports(1)
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
    said = folder / "prometheus.log"
    with said.open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder)
    try:
        _await_ready(f"http://127.0.0.1:{port}/-/ready", process, said)
        yield Prometheus(port, target)
    finally:
        process.terminate()
        process.wait(_PATIENCE_S)


def _await_ready(address: str, process: subprocess.Popen[bytes], said: Path) -> None:
    end_s = time.monotonic() + _PATIENCE_S
    while process.poll() is None and time.monotonic() < end_s:
        with contextlib.suppress(urllib.error.URLError, ConnectionError), urllib.request.urlopen(address, timeout=5):
            return
        time.sleep(0.1)
    raise RuntimeError(f"Prometheus is not ready: {said.read_text()}")
