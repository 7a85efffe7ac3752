"""`plan --program`: programs that really run, what they answer, how they fail, and what is never overwritten."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
import pytest
from onnx import TensorProto, helper

from shisha_rt.errors import Error, Failure
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.measure.make_ready import make_ready
from shisha_rt.papers.partitiontuner.partition_profile import processor_costs
from shisha_rt.papers.partitiontuner.program import write_program
from shisha_rt.papers.partitiontuner.scheme_plans import scheme_plan
from shisha_rt.planner.strategies import SCHEMES
from shisha_rt.tensors import NUMPY_OF
from stages.engines.evaluate import evaluate
from tests.cli.conftest import Run
from tests.model.networks import network, weight, write
from tests.serving.daemon_process import DaemonProcess
from tests.serving.identity_model import frame_of, write_branching_identity_model
from tests.serving.placed import described, machine_of

_PATIENCE_S: Final = 120.0
KEPT: Final = ("first", "last", "layers", "places", "after")
"""Of what `plan` says of a stage, what `plan_set` takes."""


@pytest.fixture
def model(shared_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared_cache))
    return write_branching_identity_model(tmp_path)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The accelerator takes Convs alone, in half of the time."""
    general = described(tmp_path, "general", 1e-3, "*")
    special = described(tmp_path, "special", 0.5e-3, "Conv", linked=True)
    return machine_of(tmp_path, cpu=[general], npu=[special])


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def executed(path: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """As its user runs it."""
    command = [sys.executable, str(path), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)


def planned(run: Run, model: object, machine: object, path: Path, *more: object) -> Any:
    ran = run("plan", model, "--machine", machine, *more, "--program", path, "--json")
    assert (ran.status, ran.err) == (0, "")
    return ran.object


class TestADescribedMachine:
    def test_branches_side_by_side_frames_of_files_and_of_noise(
        self, run: Run, model: Path, machine: Path, tmp_path: Path
    ) -> None:
        path = tmp_path / "made" / "net.py"
        path.parent.mkdir()
        plan = planned(run, model, machine, path, "--strategy", "forkjoin")
        assert plan["schedule"]["parallel_partitions"] > 0
        assert {entry.name for entry in path.parent.iterdir()} == {"net.py", "net.parts"}
        infer = loaded(path).infer
        for number in range(3):
            assert (infer({"x": frame_of(number)})["y"] == frame_of(number)).all()

        frames = np.stack([frame_of(number) for number in range(5)])
        np.savez(tmp_path / "in.npz", x=frames)
        ran = executed(path, tmp_path / "in.npz", tmp_path / "out.npz")
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
        assert (np.load(tmp_path / "out.npz")["y"] == frames).all()

        ran = executed(path)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert "frame (median of 20)" in ran.stdout
        assert "emulated" in ran.stdout

    def test_what_fails_on_a_place_is_the_frame_s_error(
        self, run: Run, model: Path, machine: Path, tmp_path: Path
    ) -> None:
        """A partition that fails holds up neither those after it nor the next frame."""
        path = tmp_path / "net.py"
        planned(run, model, machine, path, "--strategy", "partitiontuner")
        text = path.read_text()
        waits = next(line for line in text.splitlines() if "(frame, after=[" in line)
        path.write_text(text.replace(waits, f'{waits.partition("after")[0]}after=["no such"])', 1))
        infer = loaded(path).infer
        for number in range(2):
            with pytest.raises(KeyError, match="no such"):
                infer({"x": frame_of(number)})
        with pytest.raises(ValueError, match="'x': expected float32 of the shape"):
            infer({"x": np.zeros(3)})
        ran = executed(path)
        assert ran.returncode == 1
        assert "KeyError: 'no such'" in ran.stderr

        part = next(path.with_suffix(".parts").iterdir())
        part.write_bytes(part.read_bytes()[:-9])
        ran = executed(path)
        assert ran.returncode == 1
        assert "onnxruntime" in ran.stderr


@pytest.mark.usefixtures("own_cache")
def test_real_cores_and_a_shape_that_depends_on_the_data(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "open.py"
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["middle"], name="first"),
        helper.make_node("NonZero", ["middle"], ["positions"]),
        helper.make_node("Cast", ["positions"], ["where"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["middle", "w"], ["y"], name="second"),
    ]
    weights = {"w": np.maximum(weight(9, 9), 0)}
    model = network(nodes, {"x": (1, 9)}, {"y": (1, 9), "where": (2, None)}, weights)
    planned(run, write(model, tmp_path), "shared-2", path, "--strategy", "typeseq")
    assert "shisha_rt.emulated" not in path.read_text()
    infer = loaded(path).infer
    for frame in (np.zeros((1, 9), np.float32), weight(1, 9, seed=1)):
        expected = evaluate(model.SerializeToString(), {"x": frame})
        for output, array in zip(infer({"x": frame}).values(), expected, strict=True):
            assert output.shape == array.shape
            np.testing.assert_allclose(output, array, rtol=1e-4, atol=1e-5)


class TestWhatIsRefused:
    def test_options_and_names(self, run: Run, tmp_path: Path) -> None:
        at = ("plan", "zoo:squeezenet", "--machine", "shared-2")
        complaint = run(*at, "--strategy", "seed", "--program", tmp_path / "a.py").complaint_of(Error.OPTIONS_CLASH)
        assert "--program: not with --strategy seed, expected --strategy baseline or typeseq" in complaint
        for name, expected in (("a.txt", ".py"), ("no/a.py", "No such file")):
            assert expected in run(*at, "--strategy", "opseq", "--program", tmp_path / name).complaint
        (tmp_path / "folder.py").mkdir()
        ran = run(*at, "--strategy", "opseq", "--program", tmp_path / "folder.py")
        assert "Is a directory" in ran.complaint_of(Error.UNREADABLE_FILE)

    def test_what_is_no_program_of_ours(self, run: Run, tmp_path: Path) -> None:
        at = ("plan", "zoo:squeezenet", "--machine", "shared-2", "--strategy", "opseq", "--program")
        (tmp_path / "mine.py").write_text("print('mine')\n")
        assert "no program of shisha-rt's" in run(*at, tmp_path / "mine.py").complaint_of(Error.WRONG_OPTION)
        assert (tmp_path / "mine.py").read_text() == "print('mine')\n"
        (tmp_path / "other.parts").mkdir()
        assert "other.parts exists without" in run(*at, tmp_path / "other.py").complaint_of(Error.WRONG_OPTION)

    @pytest.mark.parametrize(
        ("machine", "fault"),
        [
            ('timing = "modelled"\n[[place]]\nname = "a"\ncores = [0]', 'has timing = "modelled"'),
            (
                '[[memory]]\nname = "m"\nbandwidth_bytes_per_s = 1e9\n[[place]]\nname = "a"\ncores = [0]\nmemory = "m"',
                "has a memory",
            ),
            ('[[place]]\nname = "a"\ncore_count = 1', "has a place"),
        ],
        ids=["modelled", "bandwidth", "paper"],
    )
    def test_machines_that_a_program_does_not_emulate(self, run: Run, tmp_path: Path, machine: str, fault: str) -> None:
        (tmp_path / "m.toml").write_text(machine)
        at = ("plan", "zoo:squeezenet", "--machine", tmp_path / "m.toml", "--strategy", "baseline")
        assert fault in run(*at, "--program", tmp_path / "a.py").complaint_of(Error.WRONG_OPTION)
        assert not (tmp_path / "a.py").exists()


def test_another_program_replaces_one_whole_or_not_at_all(run: Run, model: Path, machine: Path, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    folder.mkdir()
    path = folder / "net.py"
    planned(run, model, machine, path, "--strategy", "opseq")
    before = {entry: entry.read_bytes() for entry in folder.rglob("*.*") if entry.is_file()}

    ready = make_ready(model, load_machine(str(machine)), kind="operators")
    plan = scheme_plan("baseline", processor_costs(ready).costs)
    assert plan is not None
    gone = replace(ready, compiled=replace(ready.compiled, model_folder=tmp_path / "gone"))
    with pytest.raises(Failure, match="the parts of"):
        write_program(path, gone, plan)
    assert {entry: entry.read_bytes() for entry in folder.rglob("*.*") if entry.is_file()} == before
    planned(run, model, machine, path, "--strategy", "baseline")
    assert [part.name for part in path.with_suffix(".parts").iterdir()] == ["p0.onnx"]
    assert len(list(folder.iterdir())) == 2


@pytest.mark.long
@pytest.mark.parametrize("name", ["squeezenet", "resnet18"])
def test_program_and_daemon_agree_bit_for_bit(run: Run, name: str, tmp_path: Path) -> None:
    general = described(tmp_path, "general", 1e-3, "*")
    special = described(tmp_path, "special", 0.5e-3, "Conv", linked=True)
    machine = machine_of(tmp_path, cpu=[general], npu=[special])
    machine.write_text("time_scale = 20\n" + machine.read_text())
    with DaemonProcess(tmp_path, f"zoo:{name}", "--machine", machine, "--strategy", "baseline") as daemon:
        client = daemon.control
        daemon.wait_for_workers()
        client.call("tuner_set", pause=True)
        (given,) = client.metadata()["model"]["inputs"]
        frame = np.random.default_rng(1).standard_normal(given["shape"]).astype(NUMPY_OF[given["datatype"]])
        for scheme in SCHEMES:
            path = tmp_path / f"{scheme}.py"
            plan = planned(run, f"zoo:{name}", machine, path, "--strategy", scheme)
            stages = [{key: stage[key] for key in KEPT if key in stage} for stage in plan["stages"]]
            assert client.set_plan(stages)["outcome"] == "live"
            answer = client.infer({given["name"]: frame}).outputs
            outputs = loaded(path).infer({given["name"]: frame})
            assert outputs.keys() == answer.keys()
            assert all((outputs[output] == array).all() for output, array in answer.items())
