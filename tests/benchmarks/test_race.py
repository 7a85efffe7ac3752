"""What the race makes of its rounds, and how clients of servers count frames."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.live.race import Raced, wanted_sides
from benchmarks.report.readme import race_table, rivals_table
from benchmarks.report.results import Spread, save_csv
from benchmarks.rigs.asking import ANSWERED, REFUSED, Asking
from benchmarks.rigs.contest import SIDES, Reading
from benchmarks.rigs.engine_process import PLAIN
from benchmarks.rigs.http_process import length
from benchmarks.rigs.servers import pythons
from shisha_rt.errors import BadInput
from tests.wording import says

CPU = {"workers": 0.003, "client": 0.0005}


def read(**sides: float) -> dict[str, Reading]:
    return {side: Reading(frame_s, CPU, 0.01) for side, frame_s in sides.items()}


RACED = Raced(
    "squeezenet",
    (
        read(daemon_shared=0.004, ort_copies=0.004, openvino_copies=0.001, mosec=0.005, litserve=0.02),
        read(daemon_shared=0.010, ort_copies=0.008, openvino_copies=0.001, mosec=0.015, litserve=0.02),
        read(daemon_shared=0.005, ort_copies=0.004, openvino_copies=0.001, mosec=0.006, litserve=0.02),
    ),
    2,
    {"daemon_shared": "core0, core1: 0-25"},
)


def test_the_daemon_is_held_against_the_best_of_all_engines() -> None:
    """Also one that it does not use by itself."""
    row = RACED.row("daemon_shared")
    assert (row["best engine"], row["best server"]) == ("openvino_copies", "mosec")
    assert row["best engine / it"] == Spread.of([0.001 / 0.004, 0.001 / 0.010, 0.001 / 0.005])
    assert row["plan"] == "core0, core1: 0-25"
    assert row["best server / it"] == Spread(1.225, 1.25, 1.375)
    assert RACED.row("mosec")["best engine / it"] is None
    assert "daemon_tcp" not in RACED.sides


@pytest.mark.parametrize("engine", PLAIN)
def test_no_engine_is_left_out(engine: str) -> None:
    others = {name: 0.004 for name in PLAIN if name != engine}
    raced = Raced("squeezenet", (read(daemon_shared=0.004, **others, **{engine: 0.001}),), 2, {})
    assert raced.row("daemon_shared")["best engine"] == engine
    assert raced.over("daemon_shared", PLAIN) == Spread.of([0.25])


def test_a_server_that_batches_is_a_rival() -> None:
    raced = Raced("squeezenet", (read(daemon_shared=0.004, mosec=0.005, ray_serve_batches=0.002),), 2, {})
    assert raced.row("daemon_shared")["best server"] == "ray_serve_batches"


def test_the_cores_time_is_what_is_spent_and_what_waits() -> None:
    row = RACED.cpu_row("daemon_shared")
    waiting = row["waiting µs"]
    assert isinstance(waiting, Spread)
    assert waiting.median == pytest.approx(2 * 5000 - 3500)
    assert row["front µs"] is None
    assert row["best engine's CPU / it"] == Spread.of([1.0])  # they spend the same


def test_the_readme_has_the_race_that_is_kept(tmp_path: Path) -> None:
    made_by = {"commit": "c", "date": "2026-01-02 03:04 UTC", "cpu": "A"}
    save_csv("race", [RACED.row(side) for side in RACED.sides], made_by, tmp_path)
    head, _, row, _, source = race_table(tmp_path).splitlines()
    assert head == says("| ms a frame | daemon | best engine, … | OpenVINO, … | best server | …")
    assert row.startswith(
        "| SqueezeNet | 5.00 | **1.00**, OpenVINO, two copies | - | 6.00, Mosec | 0.20 (0.15 to 0.23) |"
    )
    assert row.endswith("| 1.25 (1.23 to 1.38) | - |")
    assert "commit c, A." in source


def test_the_front_page_has_the_best_rival_of_any_kind(tmp_path: Path) -> None:
    made_by = {"commit": "c", "date": "2026-01-02 03:04 UTC", "cpu": "A", "cores": "2 usable of 2"}
    save_csv("race", [RACED.row(side) for side in RACED.sides], made_by, tmp_path)
    _, _, row, _, summary, source = rivals_table(tmp_path).splitlines()
    assert row == "| SqueezeNet | 5.00 ms | **1.00 ms**, OpenVINO, two copies | 0.20 (0.15 to 0.23) |"
    assert summary == says("… every rival on 0 of 1 networks; geometric mean of the rates: 0.20; …")
    assert source.endswith("commit c, A, 2 usable of 2 cores.")


def test_sides_are_chosen_by_name_and_by_kind() -> None:
    assert wanted_sides("daemon,engines,servers,batching") == list(SIDES)
    assert wanted_sides("mosec,daemon_ipc") == ["daemon_ipc", "mosec"]
    with pytest.raises(BadInput, match="triton is none,"):
        wanted_sides("triton")


def test_one_servers_interpreter_stands_above_that_of_all(tmp_path: Path) -> None:
    interpreter = tmp_path / "python"
    interpreter.touch()
    interpreters = pythons([f"mosec={interpreter}", sys.executable])
    assert interpreters["mosec"] == str(interpreter)
    assert interpreters["ray_serve"] == sys.executable
    with pytest.raises(BadInput, match="no such server"):
        pythons([f"triton={interpreter}"])
    with pytest.raises(BadInput, match="is no file"):
        pythons([str(tmp_path / "none")])


class Answering:
    """Answers what is sent at once, by turns as `outcomes` says; `most`: the most frames that were out."""

    def __init__(self, *outcomes: str) -> None:
        self._outcomes = outcomes
        self._out: list[int] = []
        self.most = 0

    def send(self, number: int) -> None:
        self._out.append(number)
        self.most = max(self.most, len(self._out))

    def wait(self, timeout_s: float) -> list[tuple[int, str]]:
        came = [(number, self._outcomes[number % len(self._outcomes)]) for number in self._out]
        self._out = []
        return came


def test_a_burst_keeps_so_many_in_flight_and_counts_all() -> None:
    server = Answering(ANSWERED)
    results = Asking(server).burst(0.0, 8)
    assert server.most == 8
    assert results["total_frames"] == 25  # the warm-up, and one to measure
    with pytest.raises(RuntimeError, match="refused"):
        Asking(Answering(REFUSED)).burst(0.0, 8)


def test_every_arrival_is_accounted_for() -> None:
    results = Asking(Answering(ANSWERED, ANSWERED, REFUSED, "cut off")).arrivals([0.0] * 8)
    latencies = results["latencies_s"]
    assert isinstance(latencies, list)
    assert len(latencies) == 4
    assert (results["refused"], results["failed"], results["lost"]) == (2, 2, 0)
    later = Asking(Answering(ANSWERED, ANSWERED, REFUSED, "cut off")).arrivals([0.0] * 8, count_from_s=1.0)
    assert (later["latencies_s"], later["refused"], later["failed"]) == ([], 0, 2)


def test_an_answers_length_is_in_its_head() -> None:
    assert length(b"HTTP/1.1 200 OK\r\nContent-Length: 4000\r\nVary: x") == 4000
    with pytest.raises(RuntimeError, match="no told length"):
        length(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked")
