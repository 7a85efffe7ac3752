"""`check` on small models: what it says of an everyday one, and of what is odd."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

from shisha_rt.daemon.settings import Settings, read_settings
from shisha_rt.errors import Error
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.machine.host.processor import has_bfloat16
from shisha_rt.measure.check import Checked, check_model, oddities, weight_bytes_within
from shisha_rt.measure.engines import engines_tried
from shisha_rt.measure.installed import installed_engines
from shisha_rt.measure.make_ready import make_ready
from shisha_rt.measure.sitting import ALONE
from shisha_rt.model.input_sizes import InputSizes
from shisha_rt.model.reader.onnx_reader import Model
from shisha_rt.plan.engine import is_exact
from tests.cli.conftest import Run
from tests.measure.test_compile import refused
from tests.model.networks import network, odd_network, weight, write
from tests.wild.odd_networks import SERVED, in_opset
from tests.wild.test_odd_networks import compiled_here, saved
from tests.wording import says


def tried(path: Path, machine: str, *sizes: InputSizes) -> None:
    """What engines take is known then, after few runs of each: no test goes by it."""
    on = load_machine(machine)
    engines_tried(make_ready(path, on, sizes=sizes).compiled, on, ALONE, budget_s=0.1, precision="any")


def test_an_everyday_network(run: Run, tiny_model: Path) -> None:
    tried(tiny_model, "shared-2", InputSizes({"N": 2}))
    ran = run("check", tiny_model, "--dim", "N=2", "--machine", "shared-2", "--json")
    assert (ran.status, ran.err) == (0, "")
    report = ran.object
    first, *others = report.pop("engines")
    assert first["engine"] == "onnxruntime"
    assert [first["engine"], *(other["engine"] for other in others)] == list(installed_engines("any"))
    exact = [other for other in others if is_exact(other["engine"])]
    assert all(other["difference"] < 1e-5 and other["over_rounding"] < 1 for other in exact)
    assert not any(other["why_not"] for other in others)
    assert {time["threads"] for tried in (first, *others) for time in tried["times"]} == {1}
    image = {"datatype": "FP32", "shape": [2, 4, 8, 8]}
    assert report.pop("engine").startswith("onnxruntime ")
    assert [layer["share"] for layer in report.pop("heaviest")] == [pytest.approx(1 / 3)] * 3
    serve = f"shisha-rt serve {tiny_model} --dim N=2 --machine shared-2"
    host = report.pop("host")
    assert host["usable_cores"] == len(os.sched_getaffinity(0)) == len(host["cores"])
    assert host.keys() == {"usable_cores", "quota_cores", "memory_limit_bytes", "cores"}
    cuts = report.pop("cuts")
    assert (cuts["legal"], cuts["all"], cuts["least"]["cut"], cuts["least"]["tensors"]) == (2, 2, 0, 1)
    assert cuts["least"]["bytes"] >= 2 * 4 * 8 * 8 * 4  # a blocked format may have more channels
    assert report == {
        "model": "tiny",
        "served": True,
        "inputs": [{"name": "x", **image}],
        "outputs": [{"name": "r2", **image}],
        "shapes": [{"x": [2, 4, 8, 8]}],
        "weight_bytes": 3 * 4 * 4 * 9 * 4,
        "operators": 6,
        "layers": 3,
        "machine": "shared-2",
        "places": ["fast0", "slow0"],
        "devices": [],
        "form": "prepacked",
        "batches": {"one_frame_at_a_time": []},
        "odd": [],
        "next": [
            says(f"{serve}  # the least time …"),
            says(f"{serve} --objective throughput  # the most frames …"),
        ],
    }


def test_sizes_are_kept_in_a_daemon_file(run: Run, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tiny_model.parent)
    tried(tiny_model, "shared-2", InputSizes({"N": 2}))
    asked = ("check", tiny_model.name, "--dim", "N=2", "--machine", "shared-2", "--write", "kept.toml", "--json")
    assert run(*asked).object["next"][0].startswith("shisha-rt serve kept.toml  #")
    kept = read_settings(tiny_model.parent / "kept.toml")
    assert kept == Settings(str(tiny_model), machine="shared-2", shape=({"x": (2, 4, 8, 8)},))
    before = (tiny_model.parent / "kept.toml").read_text()
    assert run(*asked[:-1]).kind == Error.UNWRITABLE_FILE
    assert (tiny_model.parent / "kept.toml").read_text() == before


def test_a_daemon_file_that_another_makes_meanwhile_is_there_already(
    run: Run, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kept.toml"

    def as_another_writes(*asked: Any) -> Checked:
        file.write_text("precious")
        return check_model(*asked)

    monkeypatch.setattr("shisha_rt.measure.check.check_model", as_another_writes)
    ran = run("check", tiny_model, "--dim", "N=2", "--machine", "shared-2", "--write", file)
    assert (ran.status, ran.kind) == (2, Error.UNWRITABLE_FILE)
    assert file.read_text() == "precious"


def test_several_shapes_and_a_machine_file_are_kept(run: Run, tmp_path: Path) -> None:
    model = write(
        network([helper.make_node("Relu", ["x"], ["y"])], {"x": (1, 2, "width")}, {"y": (1, 2, "width")}), tmp_path
    )
    board, folder = tmp_path / "board.toml", tmp_path / "configured"
    board.write_text('[[place]]\nname = "a"\ncores = [0]\n')
    folder.mkdir()
    shapes: tuple[dict[str, tuple[int, ...]], ...] = {"x": (1, 2, 3)}, {"x": (1, 2, 5)}
    tried(model, str(board), *(InputSizes(shapes=shape) for shape in shapes))
    file = folder / "kept.toml"
    ran = run("check", model, "--machine", board, "--shape", "x=1x2x3", "--shape", "x=1x2x5", "--write", file)
    assert ran.status == 0
    assert read_settings(file) == Settings(str(model), machine=str(board), shape=shapes)


@pytest.mark.parametrize("folder", ["\udcff", "a\x7fb"])
def test_a_path_that_no_daemon_file_can_have_is_not_written(
    run: Run, tiny_model: Path, tmp_path: Path, folder: str
) -> None:
    (tmp_path / folder).mkdir()
    model, file = tiny_model.rename(tmp_path / folder / tiny_model.name), tmp_path / "configured" / "kept.toml"
    file.parent.mkdir()
    tried(model, "shared-2", InputSizes({"N": 2}))
    ran = run("check", model, "--dim", "N=2", "--machine", "shared-2", "--write", file)
    assert (ran.kind, list(file.parent.iterdir())) == (Error.WRONG_OPTION, [])


def test_a_daemon_file_has_its_ending(run: Run, tiny_model: Path, tmp_path: Path) -> None:
    assert run("check", tiny_model, "--write", tmp_path / "kept").kind == Error.WRONG_OPTION


def test_one_screen(run: Run, tiny_model: Path) -> None:
    """For several shapes at once."""
    tried(tiny_model, "this-machine", *(InputSizes(shapes={"x": (many, 4, 8, 8)}) for many in (1, 3)))
    ran = run("check", tiny_model, "--shape", "x=1x4x8x8", "--shape", "x=3x4x8x8")
    assert ran.status == 0
    heads = [line.split("  ")[0] for line in ran.out.splitlines() if line[:1].strip()]
    assert heads == [
        *(
            "model",
            "inputs 0",
            "inputs 1",
            "outputs",
            "weights",
            "machine",
            "host",
            "engine",
            "cuts",
            "batches",
            "engines",
            "next",
        )
    ]
    for text in (
        "x FP32 3x4x8x8",
        "6 operators in 3 layers",
        "2 of 2 legal; 1 tensor of ",
        "form: prepacked (weights ",
    ):
        assert text in ran.out
    assert f"serve {tiny_model} --shape x=1x4x8x8 --shape x=3x4x8x8" in ran.out
    assert len(ran.out.splitlines()) <= 24 + 2 * has_bfloat16()
    assert ("only with --precision any" in " ".join(ran.out.split())) is ("openvino_bf16" in installed_engines("any"))


@pytest.mark.usefixtures("own_cache")
def test_nothing_to_cut_and_an_engine_that_does_not_know_an_operator(run: Run, tmp_path: Path) -> None:
    report = run("check", write(odd_network(), tmp_path), "--machine", "shared-2", "--json").object
    assert report["odd"] == ["nothing to cut: no heavy operator"]
    assert report["cuts"] == {"legal": 0, "all": 0, "least": None, "most": None}
    assert report["heaviest"] == []
    assert [command.split("  # ")[1][:6] for command in report["next"]] == ["a copy", "places"]
    for other in report["engines"][1:]:
        assert other["runs"] is False
        assert "Det" in other["why_not"]


def odd(model: onnx.ModelProto, folder: Path) -> list[str]:
    """But for a layer of more than half of the weight, which networks of two layers have."""
    compiled = next(compiled_here(saved(model, folder, "odd"), ["as_is"]))
    assert isinstance(compiled.model, Model)
    return [line for line in oddities(compiled, compiled.model) if not line.startswith("layer ")]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("suppressed_boxes", ["as large as the data", "tensors inside", "tensors whose"]),
        ("if_in_if", ["control flow: 1 If"]),
        ("quantized", ["int8: "]),
        ("lstm_with_state", ["1 LSTM", "--dim batch=8"]),
        ("straight_through", ["input 'unused'"]),
        ("five_outputs", []),
    ],
)
def test_what_is_odd(name: str, expected: list[str], tmp_path: Path) -> None:
    lines = odd(SERVED[name](), tmp_path)
    assert len(lines) == len(expected)
    assert all(words in line for line, words in zip(lines, expected, strict=True))


@pytest.mark.parametrize(("opset", "expected"), [(9, "old"), (17, None), (22, "new")])
def test_an_opset_that_is_old_or_new(opset: int, expected: str | None, tmp_path: Path) -> None:
    lines = odd(in_opset(opset), tmp_path)
    assert [line.split()[:4] for line in lines] == ([["opset", str(opset), "is", f"{expected}:"]] if expected else [])


def test_a_layer_heavier_than_all_others_and_a_suggested_size(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["a"]), helper.make_node("MatMul", ["a", "w1"], ["y"])]
    weights = {"w0": weight(4, 32), "w1": weight(32, 4 * 3)}
    model = network(nodes, {"x": ["of many", "rows", 4]}, {"y": [None, "rows", 12]}, weights)
    onnx.helper.set_model_props(model, {"shisha_rt.dim.rows": "5"})
    compiled = next(compiled_here(saved(model, tmp_path, "two"), ["as_is"]))
    assert isinstance(compiled.model, Model)
    batch, suggested, heavy = oddities(compiled, compiled.model)
    assert batch.endswith("--dim 'of many=8'")
    assert suggested.startswith("dimension 'rows' is 5, as the model")
    assert heavy == says("layer 1 (MatMul_1) has 75% of the weight: by cuts … most 1.3 times…")


def test_weights_inside_operators_are_counted() -> None:
    model = SERVED["weights_in_branches"]()
    inside = 2 * 33 * (35 + 64)
    assert weight_bytes_within(model.graph) == 4 * (2 * 33 * 33 + inside + 1)


def test_weights_of_four_bits_are_counted_two_in_a_byte() -> None:
    """135 and 225 of them by channels, 448 by blocks, and zero points: an odd number has half a byte too much."""
    model = SERVED["narrow_weights"]()
    packed = 68 + 113 + 2 * 3 + 224 + 14
    assert weight_bytes_within(model.graph) == packed + 4 * (2 * 5 + 28 + 1) + 42 + 2 * 6 + 8 * 3


def test_bad_input(run: Run, tiny_model: Path) -> None:
    assert "no.onnx: no such file" in run("check", "no.onnx").complaint_of(Error.MODEL_UNREADABLE)
    assert "no unknown dimension" in run("check", tiny_model, "--dim", "M=2", "--json").complaint_of(Error.WRONG_SIZES)
    two = ("--shape", "x=1x4x8x8", "--shape", "x=2x4x8x8")
    assert "expected one" in run("check", tiny_model, "--machine", "two-engines", *two).complaint_of(Error.WRONG_SIZES)


@pytest.mark.long
@pytest.mark.usefixtures("own_cache")
def test_an_engine_that_fails(run: Run, tmp_path: Path) -> None:
    ran = run("check", refused(tmp_path), "--json")
    assert (ran.status, ran.kind) == (1, "engine_refuses")
    assert "prepacked" in ran.only_error, "it names the forms that were tried"
