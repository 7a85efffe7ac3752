"""`costs` on a real, tiny model: what it prints, that `plan` reads it, and what it refuses."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from shisha_rt.costs.profiles import DISTURBED
from shisha_rt.machine.host.cores import usable_cores
from shisha_rt.measure.profile_store import FILE_NAME
from tests.cli.conftest import Run


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    path = tmp_path / "pair.toml"
    path.write_text(
        '[[place]]\nname = "fast"\ncore_count = 1\nmemory_bytes = 1000000\n'
        '[[place]]\nname = "slow"\ncore_count = 1\nspeed = 0.25\nrank = 2\n'
        '[[place]]\nname = "slow2"\ncore_count = 1\nspeed = 0.25\nrank = 2\n'
    )
    return path


def test_json_is_a_costs_file(run: Run, tiny_model: Path, machine: Path, tmp_path: Path) -> None:
    ran = run("costs", tiny_model, "--machine", machine, "--json")
    assert ran.status == 0
    assert all(line.startswith("others had ") for line in ran.err.splitlines())
    costs = ran.object
    assert [layer["name"] for layer in costs["layers"]] == ["conv0", "conv1", "conv2"]
    assert costs["layers"][0] == {"name": "conv0", "weight": 9216, "weight_bytes": 576, "live_bytes": 1024}
    assert costs["places"][:2] == [
        {"name": "fast", "rank": 1, "memory_bytes": 1000000},
        {"name": "slow", "rank": 2, "memory_bytes": None},
    ]
    assert len(costs["transfer_s"]) == 2
    assert set(costs["transfer_s"]) <= {0, None}
    for fast_s, slow_s, slow2_s in costs["time_s"]:
        assert 0 < fast_s < slow_s == slow2_s
        assert slow_s == pytest.approx(4 * fast_s)
    file = tmp_path / "COSTS.json"
    file.write_text(ran.out)
    planned = run("plan", "--costs", file, "--json")
    assert planned.status == 0
    assert planned.object["bottleneck_s"] > 0


def test_a_second_time_prints_the_same(run: Run, tiny_model: Path, machine: Path) -> None:
    first = run("costs", tiny_model, "--machine", machine, "--json")
    assert run("costs", tiny_model, "--machine", machine, "--json").out == first.out


def test_frames_that_share_a_run(run: Run, tiny_model: Path, machine: Path, tmp_path: Path) -> None:
    ran = run("costs", tiny_model, "--machine", machine, "--batches", "--json")
    assert ran.status == 0
    assert [batch["frames"] for batch in ran.object["batches"]] == [4, 8]
    for batch in ran.object["batches"]:
        assert all(0 < fast_s < slow_s == slow2_s for fast_s, slow_s, slow2_s in batch["time_s"])
    file = tmp_path / "COSTS.json"
    file.write_text(ran.out)
    planned = run("plan", "--costs", file, "--strategy", "exact", "--json").object
    assert planned["outcome"] == "optimal"
    assert {stage.get("batch", 1) for stage in planned["stages"]} <= {1, 4, 8}
    table = run("costs", tiny_model, "--machine", machine, "--batches").out
    assert "4 a run" in table
    assert "8 a run" in table


@pytest.mark.skipif(len(usable_cores()) < 2, reason="needs two cores")
def test_teams_only_if_asked_for(run: Run, tiny_model: Path, tmp_path: Path) -> None:
    machine = tmp_path / "alike.toml"
    machine.write_text("".join(f'[[place]]\nname = "{name}"\ncore_count = 1\n' for name in ("one", "other")))
    assert "teams" not in run("costs", tiny_model, "--machine", machine, "--json").object
    (team,) = run("costs", tiny_model, "--machine", machine, "--teams", "--json").object["teams"]
    assert team["places"] == ["one", "other"]
    assert len(team["time_s"]) == 3
    assert min(team["time_s"]) > 0
    assert "+other" in run("costs", tiny_model, "--machine", machine, "--teams").out


def test_dim(run: Run, tiny_model: Path) -> None:
    costs = run("costs", tiny_model, "--dim", "N=2", "--json").object
    assert costs["layers"][0]["live_bytes"] == 2 * 1024


def test_table(run: Run, tiny_model: Path, machine: Path) -> None:
    ran = run("costs", tiny_model, "--machine", machine)
    assert ran.status == 0
    # Equal places share a column; a star marks what is slower than this host.
    for text in ("tiny on pair: 3 layers", "fast", "slow*", "slow2*", "ms", "conv2", "2.62 kB", "total", "* emulated"):
        assert text in ran.out
    assert "fast*" not in ran.out


def test_table_without_emulation(run: Run, tiny_model: Path) -> None:
    ran = run("costs", tiny_model)
    assert ran.status == 0
    assert "tiny on this-machine" in ran.out
    assert "emulated" not in ran.out


def test_table_with_a_fastest_place_that_cannot_run_a_layer(run: Run, tiny_model: Path, tmp_path: Path) -> None:
    head = 'engine = "onnxruntime"\nprecision = "fp32"\nmemory = "ram"\ncall_s = 1e-6\n'
    machine = ""
    for rank, (place, ops) in enumerate({"npu": "Conv", "cpu": "*"}.items(), start=1):
        (tmp_path / f"{place}.toml").write_text(f'{head}[[family]]\nops = ["{ops}"]\ncost = []\n')
        machine += f'[[place]]\nname = "{place}"\ncore_count = 1\nrank = {rank}\ndevices = ["./{place}.toml"]\n'
    (tmp_path / "board.toml").write_text(machine)
    ran = run("costs", tiny_model, "--machine", tmp_path / "board.toml")
    assert ran.status == 0
    assert "conv2" in ran.out
    assert "nan" not in ran.out


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('[[place]]\nname = "p"\ncore_count = 1\nspeed = 0\n', "speed"),
        ('[[place]]\nname = "p"\ncore_count = 4096\n', "threads = 4096: cannot be measured"),
    ],
)
def test_bad_machines(run: Run, tiny_model: Path, tmp_path: Path, content: str, expected: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(content)
    assert expected in run("costs", tiny_model, "--machine", path, "--json").complaint


def test_a_damaged_store_is_begun_anew_with_one_line(
    run: Run, tiny_model: Path, own_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = own_cache / "shisha-rt" / "profiles.sqlite"
    store.parent.mkdir(parents=True, exist_ok=True)
    store.write_bytes(b"damaged " * 1000)
    first = run("costs", tiny_model, "--json")
    assert first.status == 0
    (line,) = caplog.messages
    assert line.startswith(f"{store}: damaged (")
    assert run("costs", tiny_model, "--json").object == first.object
    assert len(caplog.messages) == 1


def test_costs_that_were_measured_beside_others_say_so(
    run: Run, tiny_model: Path, machine: Path, own_cache: Path
) -> None:
    def said_of(others_ratio: float) -> str:
        with closing(sqlite3.connect(own_cache / "shisha-rt" / FILE_NAME)) as store, store:
            store.execute("UPDATE profile SET others_ratio = ?", (others_ratio,))
        return run("costs", tiny_model, "--machine", machine).err

    assert run("costs", tiny_model, "--machine", machine).status == 0
    assert said_of(0.34).startswith("others had 34% of the")
    assert said_of(DISTURBED) == ""
