"""A real Prometheus server scrapes a daemon that tunes itself, and is asked what it has seen."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.serving.daemon_process import PATIENCE_S, DaemonProcess, until
from tests.serving.load import Load, assert_kept
from tests.serving.tuned import await_state, await_trials, events, tuned, tuner, verdicts

_MISSING = [name for name in ("prometheus", "promtool") if shutil.which(name) is None]
pytestmark = pytest.mark.skipif(
    bool(_MISSING), reason=f"{' and '.join(_MISSING)} not found: apt-get install prometheus has both"
)

Ask = Callable[[str], dict[str, float]]
"""A query in PromQL -> the values that it gives now, by their only label but `instance` and `job` (or '')."""


@pytest.fixture
def daemon(identity: Path, tmp_path: Path) -> Iterator[DaemonProcess]:
    with tuned(identity, tmp_path, "--fresh") as process:
        yield process


def test_what_it_scrapes_is_what_happened(daemon: DaemonProcess, tmp_path: Path) -> None:
    client = daemon.control
    with prometheus(daemon.metrics, tmp_path) as ask:
        with Load(daemon.endpoint) as load:
            await_trials(client, 1, load)
            until(lambda: ask("shisha_tuner_trials_total"), "a scrape in the middle of it", every_s=0.1)
            await_state(client, "watching")
            client.call("tuner_set", pause=True)
        assert_kept(load)

        def comes_to(query: str, expected: dict[str, float]) -> None:
            until(lambda: ask(query) == expected, f"{query} = {expected}", every_s=0.1)

        comes_to("up", {"": 1})
        comes_to("shisha_frames_total", {"OK": load.sent})
        comes_to("shisha_frame_latency_seconds_count", {"": load.sent})
        comes_to("shisha_frames_in_flight", {"": 0})
        comes_to("shisha_plan_epoch", {"": client.plan()["epoch"]})
        trials = events(client, "trial")
        comes_to("shisha_tuner_trials_total", dict(verdicts(trials)))
        comes_to("sum(shisha_tuner_trials_total)", {"": tuner(client)["trials_total"]})
        comes_to("shisha_tuner_moves_total", {"": tuner(client)["moves_total"]})
        comes_to("shisha_tuner_state == 1", {"paused": 1})
        comes_to("shisha_plan_proposals_total", {"live": len(events(client, "plan_live"))})
        comes_to("max by (place) (shisha_place_speed_ratio)", {"fast0": 0.45, "slow0": 0.05})


def test_promtool_finds_nothing_to_say_about_the_page(daemon: DaemonProcess) -> None:
    with Load(daemon.endpoint) as load:
        await_trials(daemon.control, 2, load)
    with urllib.request.urlopen(daemon.metrics, timeout=PATIENCE_S) as answer:
        page = answer.read()
    assert b"shisha_tuner_trials_total{" in page
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_rules_and_the_scrape_that_the_documents_show_are_valid(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    scrape, rules = (block.split("```")[0] for block in text.split("```yaml\n")[1:])
    for name, content, check in (("scrape.yml", scrape, "config"), ("rules.yml", rules, "rules")):
        (tmp_path / name).write_text(content)
        done = subprocess.run(
            ["promtool", "check", check, str(tmp_path / name)], capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode == 0, done.stderr


@contextmanager
def prometheus(page: str, folder: Path) -> Iterator[Ask]:
    """A server of our own that scrapes `page` twice a second; ended at the end of the block."""
    target = urllib.parse.urlsplit(page).netloc
    config = folder / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 500ms, scrape_timeout: 500ms}\n"
        f'scrape_configs: [{{job_name: shisha, static_configs: [{{targets: ["{target}"]}}]}}]\n'
    )
    port = _free_port()
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
    said = folder / "prometheus.log"
    with said.open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder)

    def ready() -> bool:
        assert process.poll() is None, said.read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=PATIENCE_S):
                return True
        except (urllib.error.URLError, ConnectionError):
            return False

    try:
        until(ready, "a Prometheus server that is ready", every_s=0.1)
        yield lambda query: _values(f"http://127.0.0.1:{port}/api/v1/query", query)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def _values(address: str, query: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{address}?{urllib.parse.urlencode({'query': query})}", timeout=PATIENCE_S) as answer:
        found: dict[str, Any] = json.load(answer)
    assert found["status"] == "success"
    values = {}
    for series in found["data"]["result"]:
        labels = {name: v for name, v in series["metric"].items() if name not in ("__name__", "instance", "job")}
        (label,) = labels.values() or [""]
        values[label] = float(series["value"][1])
    return values


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
