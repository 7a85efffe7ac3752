"""`layers` on a real, tiny model."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import helper

from shisha_rt.cli.layers import short
from shisha_rt.measure.compile import compile_model
from tests.cli.conftest import Run
from tests.model.networks import network, write


def test_json(run: Run, tiny_model: Path) -> None:
    ran = run("layers", tiny_model, "--json")
    assert ran.status == 0
    assert ran.object["model"] == "tiny"
    layers = ran.object["layers"]
    assert [layer["index"] for layer in layers] == [0, 1, 2]
    assert layers[1] == {
        "index": 1,
        "name": "conv1",
        "op": "Conv",
        "weight": 8 * 8 * 4 * 3 * 3 * 4,
        "macs": 8 * 8 * 4 * 3 * 3 * 4,
        "weight_bytes": 4 * 4 * 3 * 3 * 4,
        "in_bytes": 4 * 8 * 8 * 4,
        "out_bytes": 4 * 8 * 8 * 4,
    }


def test_each_operator(run: Run, tiny_model: Path) -> None:
    layers = run("layers", tiny_model, "--layers", "operators", "--json").object["layers"]
    assert [layer["op"] for layer in layers] == ["Conv", "Relu"] * 3
    assert [layer["weight"] > 0 for layer in layers] == [True, False] * 3


@pytest.mark.usefixtures("tiny_model", "own_cache")
def test_the_form_once_it_is_known(run: Run, tiny_model: Path) -> None:
    assert "form" not in run("layers", tiny_model, "--json").object
    form = compile_model(tiny_model).index.form
    assert run("layers", tiny_model, "--json").object["form"] == form
    assert f"compiled form: {form} (weights " in run("layers", tiny_model).out


def test_dim_sets_the_batch(run: Run, tiny_model: Path) -> None:
    layers = run("layers", tiny_model, "--dim", "N=2", "--json").object["layers"]
    assert layers[0]["out_bytes"] == 2 * 4 * 8 * 8 * 4


def test_table(run: Run, tiny_model: Path) -> None:
    ran = run("layers", tiny_model)
    assert ran.status == 0
    for text in ("tiny: 3 layers", "conv0", "33.3% ███", "9.22 k", "576 B", "total", "27.6 k", "1.73 kB"):
        assert text in ran.out


def test_names_are_printed_as_they_are(run: Run, tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["x"], ["y"], name="a:x:[red]b:lock:")
    ran = run("layers", write(network([node], {"x": [1]}, {"y": [1]}), tmp_path))
    assert node.name in ran.out


@pytest.mark.parametrize("kind", ["heavy", "operators"])
@pytest.mark.parametrize("columns", [80, 100, 200])
def test_numbers_keep_their_places_in_a_narrow_terminal(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, columns: int
) -> None:
    """Names are paths in networks of some tools, and operators' names long: these give way."""
    nodes = [
        helper.make_node("GlobalAveragePool" if i % 2 else "Relu", [f"t{i}"], [f"t{i + 1}"], f"/model/backbone/{i}/act")
        for i in range(12)
    ]
    dims = [1, 1000, 64, 64], [1, 1000, 1, 1]
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = run("layers", write(network(nodes, {"t0": dims[0]}, {"t12": dims[1]}), tmp_path), "--layers", kind).out
    head, *rows = [line for line in lines.splitlines() if line.split()[:1] == ["#"] or "/model" in line]
    assert head.split() == ["#", "name", "op", "weight", "share", "macs", "params", "in", "out"]
    assert [row.split()[0] for row in rows] == [str(i) for i in range(12 if kind == "operators" else 1)]
    assert {" ".join(row.split()[-4:-2]) for row in rows[:1]} == {"16.4 MB"}
    assert all(len(line.rstrip()) <= columns for line in lines.splitlines())
    assert columns == 80 or "/model/backbone/0/act" in lines


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1 k"),
        (1234, "1.23 k"),
        (99_949, "99.9 k"),
        (99_999, "100 k"),
        (999_499, "999 k"),
        (999_500, "1 M"),
        (86_704_128, "86.7 M"),
        (5 * 10**16, "50000 T"),
    ],
)
def test_short(count: int, expected: str) -> None:
    assert short(count) == expected


@pytest.mark.parametrize("dim", ["N", "N=", "=1", "N=0", "N=-1", "N=1.5", "N=²"])
def test_bad_dim(run: Run, tiny_model: Path, dim: str) -> None:
    assert run("layers", tiny_model, "--dim", dim).complaint.startswith(f"shisha-rt: --dim {dim}: expected NAME=SIZE")


def test_dim_set_twice(run: Run, tiny_model: Path) -> None:
    assert "N is set twice" in run("layers", tiny_model, "--dim", "N=1", "--dim", "N=2").complaint


@pytest.mark.parametrize("model", ["no.onnx", "zoo:nope"])
def test_no_such_model(run: Run, model: str) -> None:
    assert model in run("layers", model, "--json").complaint
