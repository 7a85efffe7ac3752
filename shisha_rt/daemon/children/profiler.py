"""`python -m shisha_rt.daemon.children.profiler CHANNEL PARENT`: measures what layers cost, while the daemon serves.

If asked to, it tries engines first, reports the results at once, and waits for the order to go on.

It yields to the workers: at niceness 10 the scheduler gives it a tenth of a core that a worker keeps busy (weight 110
of 110 + 1024; at niceness 5 a quarter), and all of an idle core. So frames lose a tenth of the core that is measured;
the processes that load the other cores meanwhile take less than 2% of these. Measured: five rounds of SqueezeNet's
layers took 20 s beside busy cores; without load, 36 rounds take 9 s.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from shisha_rt.core.tuning import profiler_messages as fm
from shisha_rt.core.tuning.tuner_messages import StoredCosts
from shisha_rt.costs.costs_file import costs_object
from shisha_rt.costs.engine_trials import WORTH_A_BATCH
from shisha_rt.costs.layer_costs import LayerCosts
from shisha_rt.costs.links import Links
from shisha_rt.errors import BadInput, Failure
from shisha_rt.measure.compile import read_compiled
from shisha_rt.measure.compiled import Compiled
from shisha_rt.measure.costs_of_model import cost_tensors, plans_by_costs, told_costs
from shisha_rt.measure.engines import engines_tried
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.measure.profile import MEASURED_BATCHES, profile_model, teams_to_measure
from shisha_rt.measure.shapes import as_one
from shisha_rt.measure.sitting import Sitting
from shisha_rt.planner.goal import Goal
from shisha_rt.process.parent import line_to_parent

STARTS_CHILDREN: Final = True
"""A process of this module has a fork server of its own: see `process/fork_server.py`."""
_NICENESS: Final = 10


def main(arguments: list[str]) -> int:
    channel = line_to_parent(arguments)
    os.nice(_NICENESS)
    asked = fm.TO_PROFILER.decode(channel.wait())
    assert isinstance(asked, fm.ProfileModel)  # the greeting
    try:
        compiled = as_one([read_compiled(asked.name, *map(Path, folders)) for folders in asked.folders])
        sitting = Sitting(
            _tell,
            os.getppid(),
            asked.renew,
            lambda seconds: channel.send(fm.FROM_PROFILER.encode(fm.AnotherMeasures(seconds))),
        )
        batches: tuple[int, ...] = ()
        if asked.engines:
            tried = engines_tried(compiled, asked.machine, sitting, precision=asked.precision)
            channel.send(fm.FROM_PROFILER.encode(fm.EnginesCompared(tried)))
            channel.wait()  # for `MeasureLayers`: until then plans are compared live, which measuring would disturb
            trial = tried.of("onnxruntime")
            if trial is not None and trial.gain_of_batches >= WORTH_A_BATCH:
                batches = tuple(frames for frames in MEASURED_BATCHES if frames <= asked.most_batch)
        answer: fm.FromProfiler = _profiled(asked, compiled, sitting, batches)
    except (BadInput, Failure, OSError) as error:  # OSError: for instance, there is no room for temporary files
        answer = fm.NotProfiled(" ".join(str(error).split()))
    channel.send(fm.FROM_PROFILER.encode(answer))
    channel.wait()  # the daemon ends this process when it has the answer
    return 0


def _profiled(asked: fm.ProfileModel, compiled: Compiled, sitting: Sitting, batches: Sequence[int]) -> fm.ModelProfiled:
    """Raises as `profile_model` does."""
    started_s = time.monotonic()
    machine = asked.machine
    ready = ModelOnMachine(compiled, machine, teams=asked.teams, remote=asked.remote)
    raw = profile_model(ready, sitting, batches)
    splits = compiled.index.splits if len(asked.folders) == 1 else ()
    links = Links(cost_tensors(compiled.index), asked.far) if asked.far else None
    stored = LayerCosts(raw, machine, links)
    costs = told_costs(stored, machine.time_scale, splits)
    with_batches = replace(costs, batches=stored.costs().batches) if machine.time_scale == 1 else costs
    goal = Goal(asked.replicate, run_s=asked.run_s, latency_s=asked.latency_s)
    plans = plans_by_costs(with_batches, machine, goal)
    return fm.ModelProfiled(
        StoredCosts(msgspec.json.encode(costs_object(costs)), compiled.needs),
        tuple(plans.items()),
        time.monotonic() - started_s,
        len(teams_to_measure(machine)) - len(raw.teams) if asked.teams else 0,
        raw.others_ratio,
    )


def _tell(message: str) -> None:
    """Print progress if the daemon runs in a terminal, as at its start."""
    if sys.stderr.isatty():
        print(message, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
