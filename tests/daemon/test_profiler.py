"""The profiler's process on a small network: what it says, in which order, and if it cannot start again."""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Never, cast

import pytest

from shisha_rt.core import event_log
from shisha_rt.core.tuning import events as ev
from shisha_rt.core.tuning import profiler_messages as fm
from shisha_rt.core.tuning.best import BestPlans
from shisha_rt.core.tuning.choice import Choice
from shisha_rt.daemon.children.children import Children
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.daemon.prepared import Planning, PreparedModel
from shisha_rt.daemon.settings import Settings
from shisha_rt.machine.machine import Machine
from shisha_rt.measure.compile import compile_model
from shisha_rt.measure.compiled import Compiled
from shisha_rt.measure.engines import known_engines
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.measure.sitting import ALONE, turn
from shisha_rt.process import child
from shisha_rt.process.channel import Channel
from shisha_rt.process.child import start_child
from tests.stages.test_calibrate import paper_machine
from tests.stages.test_segments import residual

_LAST = fm.ModelProfiled | fm.NotProfiled


def said(compiled: Compiled, machine: Machine, *, engines: bool) -> Iterator[fm.FromProfiler | fm.AnotherMeasures]:
    """All that it says until it has profiled the model, or has failed to."""
    channel, theirs = Channel.pair()
    with theirs:
        arguments = str(theirs.fileno()), str(os.getpid())
        child = start_child("shisha_rt.daemon.children.profiler", *arguments, pass_fds=[theirs.fileno()])
    try:
        asked = fm.ProfileModel(
            compiled.model.name,
            ((str(compiled.model_folder), str(compiled.engine_folder)),),
            False,
            True,
            machine,
            engines=engines,
        )
        channel.send(fm.TO_PROFILER.encode(asked))
        message: fm.FromProfiler | fm.AnotherMeasures | None = None
        while not isinstance(message, _LAST):
            while (data := channel.take()) is None:
                assert channel.open
                select.select([channel], [], [])
            message = fm.FROM_PROFILER.decode(data)
            yield message
            if isinstance(message, fm.EnginesCompared):
                channel.send(fm.TO_PROFILER.encode(fm.MeasureLayers()))
    finally:
        child.end()
        channel.close()


def test_engines_are_tried_first_if_that_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    compiled, machine = compile_model(residual(tmp_path)), paper_machine(1.0)
    compared, profiled = said(compiled, machine, engines=True)
    assert isinstance(compared, fm.EnginesCompared)
    assert compared.tried.engines[0].times
    assert compared.tried == known_engines(compiled, machine)
    assert isinstance(profiled, fm.ModelProfiled)
    (again,) = said(compiled, machine, engines=False)
    assert isinstance(again, fm.ModelProfiled)
    assert again.costs == profiled.costs


def test_it_says_that_another_process_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For as long as that took, nothing was to be seen of a daemon but that it was profiling."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    compiled, machine = compile_model(residual(tmp_path)), paper_machine(1.0)
    waits = said(compiled, machine, engines=False)
    with turn(ALONE):
        assert next(waits) == fm.AnotherMeasures(None)
    goes_on, profiled = waits
    assert isinstance(goes_on, fm.AnotherMeasures)
    assert goes_on.seconds is not None
    assert isinstance(profiled, fm.ModelProfiled)


def test_a_status_has_how_long_the_profiler_has_waited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    ready = ModelOnMachine(compile_model(residual(tmp_path)), paper_machine(1.0), {})
    poller = Poller()
    planning = Planning(Settings("", strategy="seed"), fresh=True)
    children = Children(poller, PreparedModel(ready, planning), cast(Any, None))  # no frame is compared
    try:
        assert children.profiler_waits_s is None
        assert children._profiler_said(fm.AnotherMeasures(None)) == event_log.ProfilerWaits(seconds=None)
        assert children.profiler_waits_s is not None
        assert children._profiler_said(fm.AnotherMeasures(2.5)) == event_log.ProfilerWaits(seconds=2.5)
        assert children.profiler_waits_s is None
        children._profiler_said(fm.AnotherMeasures(None))
        children._profiler_died("it was killed")
        assert children.profiler_waits_s is None
    finally:
        children.close()
        poller.close()


def test_the_cause_is_kept_if_a_file_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process died, three times, and all that was said of it was its exit status."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    compiled = replace(compile_model(residual(tmp_path)), model_folder=tmp_path / "emptied")
    (failed,) = said(compiled, paper_machine(1.0), engines=False)
    assert isinstance(failed, fm.NotProfiled)
    assert str(tmp_path / "emptied") in failed.reason


def test_a_profiler_that_cannot_be_started_again_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking after the closed one would have ended the daemon."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    ready = ModelOnMachine(compile_model(residual(tmp_path)), paper_machine(1.0), {})
    choice = Choice(ready.machine, ready.rules, [1.0] * ready.rules.layer_count, BestPlans({}))
    poller = Poller()
    planning = Planning(Settings("", strategy="seed"), fresh=True)
    children = Children(poller, PreparedModel(ready, planning), cast(Any, None))  # no frame is compared
    try:
        assert list(children.profile({}, (), choice)) == []
        monkeypatch.setattr(child, "begin_child", raising(BlockingIOError(errno.EAGAIN, "no more processes")))
        (said,) = children.profile({}, (), choice)
        assert isinstance(said, ev.ProfilerSaid)
        assert isinstance(said.message, fm.NotProfiled)
        assert "no more processes" in said.message.reason
        children.look()
        assert not children.profiling
        assert children.pids == []
    finally:
        children.close()
        poller.close()


def raising(error: Exception) -> Callable[..., Never]:
    def fail(*_: object, **__: object) -> Never:
        raise error

    return fail
