"""A compiled model is run before it is kept; one that the engine dies of is brought into another form."""

from __future__ import annotations

import itertools
import logging
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import pytest
from onnx import helper

from shisha_rt.cache import LIST_FILE, cache_folder, fault_in
from shisha_rt.errors import Failure
from shisha_rt.measure import compile as compile_module
from shisha_rt.measure.compile import compile_model, compiled_form
from shisha_rt.measure.compiled import Compiled
from shisha_rt.model.index import Form, ModelIndex
from shisha_rt.model.reader.index_file import read_index
from shisha_rt.model.reader.onnx_reader import Model, read_model, read_saved
from shisha_rt.model.spans import Span
from shisha_rt.plan.plan import Plan, Stage
from shisha_rt.plan.verify import PlanRules
from shisha_rt.process.arena import Arena
from shisha_rt.process.job import JobFailed, run_job
from shisha_rt.process.layout import layouts_of
from stages.engines.onnxruntime.optimised_graph import MODEL_FILE
from stages.engines.onnxruntime.segment import OptimisedModel
from stages.engines.session import untimed
from tests.model.networks import Array, network, weight, write
from tests.stages.test_segments import branches
from tests.wording import says

FORMS: tuple[Form, ...] = get_args(Form)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def misaligned(folder: Path) -> Path:
    """Three products, of weights whose 4,356 bytes are no multiple of 64: see `engines.onnxruntime.align`."""
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"], name="m0"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w1"], ["c"], name="m1"),
        helper.make_node("MatMul", ["c", "w2"], ["y"], name="m2"),
    ]
    weights = {f"w{i}": weight(33, 33, seed=i) for i in range(3)}
    return write(network(nodes, {"x": [8, 33]}, {"y": [8, 33]}, weights), folder)


def open_output(folder: Path) -> Path:
    """Where a number is not 0: how many there are depends on the data."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("NonZero", ["a"], ["where"]),
        helper.make_node("Cast", ["where"], ["y"], to=onnx.TensorProto.FLOAT),
    ]
    return write(network(nodes, {"x": [2, 4]}, {"y": [2, "count"]}, {"w": weight(4, 4)}), folder)


def refused(folder: Path) -> Path:
    """A clipping whose bounds the engine wants as single numbers: well-formed for the checker, and run in no form."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Clip", ["a", "least"], ["y"])]
    weights = {"w": weight(4, 4), "least": np.zeros(3, np.float32)}
    return write(network(nodes, {"x": [2, 4]}, {"y": [2, 4]}, weights), folder)


def constant_output(folder: Path) -> Path:
    """Two products, and an output that follows from a weight alone, which the engine's optimiser works out."""
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"]),
        helper.make_node("MatMul", ["a", "w1"], ["y"]),
        helper.make_node("Relu", ["w1"], ["k"]),
    ]
    weights = {f"w{i}": weight(8, 8, seed=i) for i in range(2)}
    return write(network(nodes, {"x": [8, 8]}, {"y": [8, 8], "k": [8, 8]}, weights), folder)


def check_nothing_is_kept() -> None:
    assert [file for file in cache_folder().rglob("*") if not file.is_dir()] == []


def brought_into(form: Form, path: Path, folder: Path) -> Path:
    """The folder that the job fills."""
    clean, target = folder / "clean", folder / form
    for made in (clean, target):
        made.mkdir(exist_ok=True)
    read_model(path).save(clean)
    run_job("stages.jobs.compile", str(clean), str(target), form, failed="it failed")
    return target


def check_gate(index: ModelIndex, works: Sequence[Sequence[Span]]) -> None:
    """The stages may run, in this order, as the daemon's gate has it."""
    stage_of = {layer: i for i, work in enumerate(works) for first, last in work for layer in range(first, last + 1)}
    needed: list[set[int]] = [set() for _ in works]
    for layer, needs in enumerate(index.needs):
        needed[stage_of[layer]] |= {stage_of[other] for other in needs}
    after = [tuple(sorted(stages - {i})) for i, stages in enumerate(needed)]
    plan = Plan(tuple(Stage(tuple(work), (("p",),), before) for work, before in zip(works, after, strict=True)))
    rules = PlanRules(index.layer_count, ("p",), frozenset(index.legal_cuts), needs=index.needs)
    assert rules.problems(plan) == []


def answer(folder: Path, works: list[list[Span]], x: Array) -> dict[str, Array]:
    index = read_index(folder)
    check_gate(index, works)
    model, layouts = OptimisedModel(folder, index), layouts_of([index.tensors])
    arena = Arena.create(layouts, slot_count=1, place_count=1)
    try:
        arena.view(0, arena.layout.regions[index.inputs[0].name])[...] = x
        for work in works:
            model.segment(work).on_slot(arena, 0)(untimed)
        return {spec.name: arena.view(0, arena.layout.regions[spec.name]).copy() for spec in index.outputs}
    finally:
        arena.close()


def test_a_model_is_cleaned_once(tmp_path: Path) -> None:
    """Also under another name, and with a shape that only a run can tell."""
    folders = [tmp_path / name for name in ("first", "again")]
    for folder in folders:
        folder.mkdir()
    cleaned, again = (compile_model(open_output(folder).rename(folder / f"{folder.name}.onnx")) for folder in folders)
    assert [isinstance(model, Model) and model.is_saved for model in (cleaned.model, again.model)] == [False, True]
    assert (again.model.name, again.model.graph.name) == ("again", "again")
    assert again.model.graph == replace(cleaned.model.graph, name="again")
    assert again.model.graph.outputs[0].open_axes == (1,)
    assert (again.layers, again.engine_folder) == (cleaned.layers, cleaned.engine_folder)


def test_what_was_saved_and_is_gone_since_is_made_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = misaligned(tmp_path)
    before = compile_model(path)
    files = {file.name: file.read_bytes() for file in before.model_folder.iterdir() if file.name != LIST_FILE}
    real = read_saved

    def read_and_lose(name: str, folder: Path) -> Model:
        model = real(name, folder)
        shutil.rmtree(folder)
        return model

    monkeypatch.setattr(compile_module, "read_saved", read_and_lose)
    again = compile_model(path)
    assert {file.name: file.read_bytes() for file in again.model_folder.iterdir() if file.name != LIST_FILE} == files


def test_weights_that_the_engine_would_die_of_are_put_where_it_can_read_them(tmp_path: Path) -> None:
    compiled = compile_model(misaligned(tmp_path))
    assert compiled.index.form == "prepacked" == compiled_form(compiled.model)
    graph = onnx.load(compiled.engine_folder / MODEL_FILE, load_external_data=False).graph
    entries = {entry.key: entry.value for tensor in graph.initializer for entry in tensor.external_data}
    assert any(key.startswith("prepacked") for key in entries)  # else nothing was tried
    check_products(compiled)


_PRIVATE = """
import contextlib, ctypes, sys
from pathlib import Path
from shisha_rt.model.reader.index_file import read_index
from stages.engines.onnxruntime.segment import OptimisedModel

def private_kib():
    with contextlib.suppress(AttributeError):  # of another C library
        ctypes.CDLL(None).malloc_trim(0)  # what is free, and kept for later
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Anonymous:")).split()[1])

folder = Path(sys.argv[1])
index = read_index(folder)
model, before = OptimisedModel(folder, index), private_kib()
segment = model.segment(((0, index.layer_count - 1),))
print(private_kib() - before)
"""


def test_large_weights_are_mapped_and_not_copied(tmp_path: Path) -> None:
    """Behind a small one, prepacked weights came to lie where the engine did not take them from the file."""
    count, size, small = 12, 1024, 272
    weights = {"small": weight(1, small, seed=count), "w0": weight(size, small, seed=0)}
    weights |= {f"w{number}": weight(size, size, seed=number) for number in range(1, count)}
    nodes = [helper.make_node("Add", ["x", "small"], ["x0"])]
    nodes += [helper.make_node("Gemm", [f"x{at}", f"w{at}"], [f"x{at + 1}"], transB=1) for at in range(count)]
    model = network(nodes, {"x": [1, small]}, {f"x{count}": [1, size]}, weights)
    compiled = compile_model(write(model, tmp_path))
    assert compiled.index.form == "prepacked"
    command = [sys.executable, "-c", _PRIVATE, str(compiled.engine_folder)]
    private_kib = int(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    assert private_kib << 10 < count * 4 * size**2 / 2


@pytest.mark.parametrize("survives", FORMS[1:])
def test_a_form_that_the_job_dies_of_is_not_kept_and_the_next_one_is_tried(
    survives: Form, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It dies for real, with half of its files written."""
    (tmp_path / "dying.py").write_text(
        "import os, pathlib, sys\n(pathlib.Path(sys.argv[2]) / 'half.bin').write_bytes(b'half')\nos.abort()"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))

    def run_some(module: str, *arguments: str, **options: Any) -> None:
        run_job(module if arguments[-1] in FORMS[FORMS.index(survives) :] else "dying", *arguments, **options)

    monkeypatch.setattr(compile_module, "run_job", run_some)
    with caplog.at_level(logging.WARNING):
        compiled = compile_model(misaligned(tmp_path))
    assert compiled.index.form == survives == compiled_form(compiled.model)
    assert not (compiled.engine_folder / "half.bin").exists()
    (line,) = caplog.messages
    assert line == says("tiny: not prepacked … (SIGABRT)…")
    assert f"; taken: {survives} (each stage copies" in line
    check_products(compiled)


def test_a_job_that_is_killed_from_outside_says_nothing_about_the_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "killed.py").write_text("import os\nos.kill(os.getpid(), 9)")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    monkeypatch.setattr(compile_module, "run_job", lambda _, *rest, **options: run_job("killed", *rest, **options))
    with pytest.raises(JobFailed, match="SIGKILL"):
        compile_model(misaligned(tmp_path))
    check_nothing_is_kept()


def test_a_form_in_which_the_engine_hangs_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "hanging.py").write_text("import time\ntime.sleep(600)")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))

    def run_some(module: str, *arguments: str, failed: str, limit_s: float) -> None:
        hangs = arguments[-1] == "prepacked"
        run_job("hanging" if hangs else module, *arguments, failed=failed, limit_s=0.3 if hangs else limit_s)

    monkeypatch.setattr(compile_module, "run_job", run_some)
    with caplog.at_level(logging.WARNING):
        assert compile_model(misaligned(tmp_path)).index.form == "external"
    assert caplog.messages[0] == says("tiny: not prepacked … no end); taken: external…")


def test_a_disk_that_fills_up_says_nothing_about_the_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the model would be kept, for good, in a form that takes no room: a slower one."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    tried: list[str] = []

    def run_out(module: str, *arguments: str, failed: str, **_: float) -> None:
        tried.append(arguments[-1])
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))  # it stands for what a disk has left
        raise JobFailed(failed, 1, "the engine has lost its thread")

    monkeypatch.setattr(compile_module, "run_job", run_out)
    try:
        with pytest.raises(Failure, match=r"made \(File too large\),"):
            compile_model(misaligned(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert tried == ["prepacked"]
    check_nothing_is_kept()


@pytest.mark.parametrize("name", ["weights.bin", "clean.onnx"])
def test_a_damaged_file_is_noticed_and_made_anew(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = misaligned(tmp_path)
    compiled = compile_model(path)
    (file,) = (folder / name for folder in (compiled.model_folder, compiled.engine_folder) if (folder / name).exists())
    whole = file.read_bytes()
    os.truncate(file, len(whole) // 2)
    if file.parent == compiled.engine_folder:
        assert compiled_form(compiled.model) is None
    with caplog.at_level(logging.WARNING):
        check_products(compile_model(path))
    (line,) = caplog.messages
    assert f"{name} has {len(whole) // 2} bytes" in line
    assert file.read_bytes() == whole
    assert compiled_form(compiled.model) == "prepacked"


def check_products(compiled: Compiled) -> None:
    assert compiled.legal_cuts == {0, 1}
    x = weight(8, 33, seed=9)
    whole = answer(compiled.engine_folder, [[(0, 2)]], x)["y"]
    expected = np.maximum(x @ weight(33, 33, seed=0), 0) @ weight(33, 33, seed=1) @ weight(33, 33, seed=2)
    np.testing.assert_allclose(whole, expected, rtol=1e-3, atol=1e-3)
    for cut in (0, 1):
        cut_in_two = answer(compiled.engine_folder, [[(0, cut)], [(cut + 1, 2)]], x)["y"]
        np.testing.assert_allclose(cut_in_two, whole, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_each_form_answers_the_same_wherever_it_is_cut(form: Form, tmp_path: Path) -> None:
    """With 16 channels the input is blocked on every processor that has blocked formats, with 8 on some."""
    path = branches(tmp_path, channels=16)
    folder = brought_into(form, path, tmp_path)
    index = read_index(folder)
    assert index.form == form
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 16, 12, 12)).astype(np.float32)
    last = index.layer_count - 1
    whole = answer(folder, [[(0, last)]], x)
    plans = [[[(0, cut)], [(cut + 1, last)]] for cut in index.legal_cuts]
    layers = itertools.pairwise([-1, *index.legal_cuts, last])
    plans.append([[(cut + 1, end)] for cut, end in layers])
    plans.append([[(3, 5)], [(0, 2), (6, 8)], [(9, last)]])  # the joining is in layer 8
    for works in plans:
        answers = answer(folder, works, x)
        assert answers.keys() == whole.keys()
        for name, value in whole.items():
            # A cut that is optimised by itself may round differently.
            tolerance = 1e-4 if form == "as_is" else 0
            np.testing.assert_allclose(
                answers[name], value, rtol=tolerance, atol=tolerance, err_msg=f"{name} of {works}"
            )
    forms_alike = answer(brought_into("prepacked", path, tmp_path), [[(0, last)]], x)
    for name, value in whole.items():
        np.testing.assert_allclose(value, forms_alike[name], rtol=1e-4, atol=1e-4)


def test_an_output_that_the_engine_makes_a_constant_is_answered_all_the_same(tmp_path: Path) -> None:
    compiled = compile_model(constant_output(tmp_path))
    assert compiled.index.form == "prepacked"
    for works in ([[(0, 1)]], [[(0, 0)], [(1, 1)]]):
        answers = answer(compiled.engine_folder, works, weight(8, 8, seed=9))
        np.testing.assert_array_equal(answers["k"], np.maximum(weight(8, 8, seed=1), 0))


def test_a_model_that_runs_in_no_form_is_refused_in_one_line_and_not_kept(tmp_path: Path) -> None:
    with pytest.raises(Failure) as failure:
        compile_model(refused(tmp_path))
    said = str(failure.value)
    assert said == says("tiny: the engine … form: prepacked (…")
    assert "external (" in said
    assert "as_is (" in said
    assert "\n" not in said
    check_nothing_is_kept()


@pytest.mark.parametrize("words", ["reading", "optimising"])
def test_who_empties_the_cache_meanwhile_costs_the_work_alone(words: str, tmp_path: Path) -> None:
    emptied: list[str] = []

    def empty_once(step: str) -> None:
        if step.startswith(words) and not emptied:
            shutil.rmtree(cache_folder(), ignore_errors=True)
            emptied.append(step)

    compiled = compile_model(misaligned(tmp_path), tell=empty_once)
    assert emptied
    assert {fault_in(folder) for folder in (compiled.model_folder, compiled.engine_folder)} == {None}


def test_the_index_may_go_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone: list[Path] = []

    def read_gone_once(folder: Path) -> ModelIndex:
        if not gone:
            gone.append(folder)
            shutil.rmtree(cache_folder())
        return read_index(folder)

    monkeypatch.setattr("shisha_rt.measure.compile.index_file.read_index", read_gone_once)
    assert compile_model(misaligned(tmp_path)).engine_folder == gone[0]
