"""One smallest possible run: stages driven on their own."""

from __future__ import annotations

import pytest

from benchmarks.live.live_change import Change, Run
from benchmarks.rigs.stage_rig import stage_rig
from benchmarks.shisha import bandwidth
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.measure.compile import compile_model
from shisha_rt.model.zoo import resolve_model

MODEL = "zoo:squeezenet"
MACHINE = "shared-2"


def test_stages_run_on_their_own() -> None:
    compiled = compile_model(resolve_model(MODEL))
    last = len(compiled.layers) - 1
    cut = min(compiled.legal_cuts)
    with stage_rig(compiled, load_machine(MACHINE), slot_count=3) as rig:
        stages = [rig.load(0, 0, cut), rig.load(1, cut + 1, last)]
        alone = [rig.alone(stage, 0.02) for stage in stages]
        both = rig.saturate(stages, [rate.service_s for rate in alone], 0.02)
    assert all(rate.service_s > 0 for rate in (*alone, *both))


def test_every_assignment_of_threads_to_emulated_memories_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bandwidth, "THREADS", (1, 2))
    measured, predicted = bandwidth.assignments(0.2)
    assert [assignment.name for assignment in measured] == [f"[{x}+{y}]" for x in (0, 1, 2) for y in (1, 2)]
    assert [assignment.name for assignment in predicted] == [assignment.name for assignment in measured]
    assert all(
        assignment.ddr_bytes_per_s > 0 and (assignment.hbm_bytes_per_s > 0) == (assignment.hbm_threads > 0)
        for assignment in measured
    )


def test_the_gaps_of_a_change_are_those_it_can_have_lengthened() -> None:
    answered = [float(i) for i in range(10)] + [12.0 + i for i in range(20)]
    run = Run("m", tuple(answered), (Change("one layer", 8.5, 9.5, ()),))
    first, last = run.during(run.changes[0])
    assert first == 8
    assert run.longest_gap_s(first, last) == 3
    assert run.longest_gap_s(0, first - 1) == run.median_gap_s == 1
    assert run.throughput_fps(0, first - 1) == pytest.approx(1)
