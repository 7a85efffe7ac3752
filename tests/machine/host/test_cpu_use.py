"""CPU time of others: on a written /proc, and of a real process that does nothing but compute."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from shisha_rt.machine.host.cpu_use import CpuReading, family, read_cpu_use
from tests.waiting import until

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def write_stat(proc: Path, *ticks: tuple[int, ...]) -> None:
    lines = [f"cpu{core} " + " ".join(map(str, fields)) for core, fields in enumerate(ticks)]
    (proc / "stat").write_text("\n".join(["cpu  9 9 9 9 9 9 9 9 9 9", *lines, "intr 7", ""]))


def write_process(proc: Path, pid: int, ticks: tuple[int, int, int, int], name: str = "python") -> None:
    (proc / str(pid)).mkdir(exist_ok=True)
    fields = " ".join(map(str, ticks))
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) S 1 2 3 4 5 6 7 8 9 10 {fields} 20 0")


def test_idle_and_guest_time_are_not_busy_and_stolen_time_is(tmp_path: Path) -> None:
    write_stat(tmp_path, (100, 10, 20, 9999, 9999, 1, 2, 30, 55, 66), (500, 0, 0, 0, 0, 0, 0, 0, 0, 0))
    assert read_cpu_use([0], [], 0.0, tmp_path).busy_s == 163 / TICKS_PER_S
    assert read_cpu_use([0, 1], [], 0.0, tmp_path).busy_s == 663 / TICKS_PER_S


def test_children_that_ended_count_for_who_waited_for_them(tmp_path: Path) -> None:
    write_stat(tmp_path)
    write_process(tmp_path, 7, (100, 20, 3, 4), name="odd) name (x")
    write_process(tmp_path, 8, (1000, 0, 0, 0))
    assert read_cpu_use([], [7, 8, 9], 0.0, tmp_path).own_s == 1127 / TICKS_PER_S  # 9 has ended


def test_what_is_left_was_others() -> None:
    before = CpuReading(10.0, 2, busy_s=5.0, own_s=3.0)
    after = CpuReading(12.0, 2, busy_s=8.0, own_s=5.0)
    assert after.others_s(before) == 1.0
    assert after.others_ratio(before) == 0.25
    of_client = CpuReading(12.0, 2, 8.0, 5.0, {7: 30.5, 8: 99.0})
    assert of_client.others_s(CpuReading(10.0, 2, 5.0, 3.0, {7: 30.0, 9: 50.0})) == 0.5  # 8 has just come
    elsewhere = CpuReading(12.0, 2, busy_s=6.0, own_s=5.0)  # ours ran on other cores
    assert (elsewhere.others_s(before), elsewhere.others_ratio(before)) == (0.0, 0.0)
    assert before.others_ratio(before) == 0.0


def test_a_family_has_grandchildren(tmp_path: Path) -> None:
    for pid, children in ((1, "2 3 "), (2, "4"), (3, ""), (4, "")):
        folder = tmp_path / str(pid) / "task" / str(pid)
        folder.mkdir(parents=True)
        (folder / "children").write_text(children)
    assert list(family(1, tmp_path)) == [1, 2, 4, 3]


def test_a_stranger_who_computes_is_seen_and_a_child_is_not() -> None:
    core = min(os.sched_getaffinity(0))
    code = f"import os\nos.sched_setaffinity(0, [{core}])\nprint(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as busy:
        assert busy.stdout is not None
        busy.stdout.readline()
        assert busy.pid in family(os.getpid())
        # Those without it first and last: however long the host pauses between two readings, they see no less.
        before_without, before = (read_cpu_use([core], pids, time.monotonic()) for pids in ([], [busy.pid]))
        until(lambda: read_cpu_use([core], [busy.pid], 0.0).own_s >= before.own_s + 0.2)
        after, after_without = (read_cpu_use([core], pids, time.monotonic()) for pids in ([busy.pid], []))
        busy.kill()
    ran_s = after.own_s - before.own_s
    assert after_without.others_s(before_without) >= after.others_s(before) + 0.5 * ran_s
