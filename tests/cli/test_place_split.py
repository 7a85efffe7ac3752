"""`place --split` on paper: the object that it promises, the table, and each refusal."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from shisha_rt.errors import Error
from shisha_rt.planner.strategies import SplitMethod
from tests.cli.conftest import Run
from tests.wording import says

HOST = """
engine = "onnxruntime"
memory = "host"
precision = "fp32"
call_s = 0
power_w = 2
[[family]]
ops = ["*"]
cost = [{ seconds = 1e-6, elements_out = 1 }]
"""
FAR = """
engine = "onnxruntime"
memory = "far"
precision = "fp32"
call_s = 0
power_w = 3
transfer_power_w = 5
[[family]]
ops = ["Conv"]
cost = [{ seconds = 2.5e-7, elements_out = 1 }]
[[resource]]
name = "LAB"
limit = LIMIT
use = [{ amount = 1, columns = 1 }]
[transfer_in]
latency_s = 1e-6
bandwidth_bytes_per_s = 1e12
[transfer_out]
latency_s = 1e-6
bandwidth_bytes_per_s = 1e12
"""


def machine(folder: Path, *, far_limit: float = 1e6, apart: bool = True) -> Path:
    """A slow device beside the host's memory, and one of four times its speed behind a link; at one place or at two."""
    (folder / "host.toml").write_text(HOST)
    (folder / "far.toml").write_text(FAR.replace("LIMIT", str(far_limit)))
    path = folder / "board.toml"
    places = (
        '[[place]]\nname = "a"\ncore_count = 1\ndevices = ["./host.toml"]\n'
        '[[place]]\nname = "b"\ncore_count = 1\ndevices = ["./far.toml"]\n'
        if apart
        else '[[place]]\nname = "a"\ncore_count = 1\ndevices = ["./host.toml", "./far.toml"]\n'
    )
    path.write_text(places)
    return path


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """Conv of 80 filters on 8 x 8, Relu, Conv of 16 groups, and a Gemm of 40 columns."""
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], name="wide", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c0"], ["r0"], name="relu"),
        helper.make_node("Conv", ["r0", "w1"], ["c1"], name="grouped", group=16),
        helper.make_node("Flatten", ["c1"], ["f"], name="flat"),
        helper.make_node("Gemm", ["f", "w2"], ["y"], name="product"),
    ]
    shapes = {"w0": (80, 4, 3, 3), "w1": (80, 5, 1, 1), "w2": (80 * 64, 40)}
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 40])],
        [numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in shapes.items()],
    )
    path = tmp_path / "network.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def _three_convolutions(folder: Path) -> Path:
    """Of 32 filters on 8 x 8."""
    names = ("x", "c0", "c1", "y")
    nodes = [
        helper.make_node("Conv", [source, f"w{i}"], [target], name=f"conv{i}", pads=[1, 1, 1, 1])
        for i, (source, target) in enumerate(pairwise(names))
    ]
    graph = helper.make_graph(
        nodes,
        "three",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 32, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 32, 8, 8])],
        [numpy_helper.from_array(np.full((32, 32, 3, 3), i + 1, np.float32), f"w{i}") for i in range(3)],
    )
    path = folder / "three.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


class TestTheObject:
    @pytest.mark.parametrize("apart", [True, False], ids=["a device at each place", "both at one place"])
    def test_integer_side_by_side(self, run: Run, network: Path, tmp_path: Path, apart: bool) -> None:
        board = machine(tmp_path, apart=apart)
        ran = run("place", network, "--machine", board, "--split", "integer", "--parallel", "--json")
        assert (ran.status, ran.err) == (0, "")
        answer = ran.object
        assert (answer["model"], answer["split"], answer["objective"], answer["execution"], answer["outcome"]) == (
            "network",
            "integer",
            "latency",
            "parallel",
            "optimal",
        )
        wide, grouped, product = answer["layers"]
        assert (wide["index"], wide["name"], wide["units"], wide["variable"]) == (0, "wide", 80, "N")
        assert wide["shares"] == {"host": 16, "far": 64}
        assert wide["compute_s"] == pytest.approx({"host": 16 * 64e-6, "far": 64 * 16e-6})
        moved = 2e-6 + 4 * (4 * 64 + 64 * 64) / 1e12
        assert wide["transfer_s"] == pytest.approx({"host": 0, "far": moved})
        assert wide["cost_s"] == pytest.approx(64 * 16e-6 + moved)
        assert wide["energy_j"] == pytest.approx(2 * 16 * 64e-6 + 3 * 64 * 16e-6 + 5 * moved)
        assert (grouped["units"], grouped["variable"], grouped["reason"]) == (16, "G", None)
        assert grouped["shares"] == {"host": 0, "far": 16}  # 5 channels a group: blocks of 16 are all of them
        assert grouped["cost_s"] == pytest.approx(80 * 16e-6 + 2e-6 + 4 * 2 * 80 * 64 / 1e12)
        assert product["shares"] == {"host": 8, "far": 32}
        assert answer["cost_s"] == pytest.approx(wide["cost_s"] + grouped["cost_s"] + product["cost_s"])
        assert answer["energy_j"] == pytest.approx(wide["energy_j"] + grouped["energy_j"] + product["energy_j"])
        assert answer["alone"]["host"] == pytest.approx((2 * 80 * 64 + 40) * 1e-6)
        assert answer["solve_time_s"] > 0
        assert answer["reason"] is None

    @pytest.mark.parametrize("method", get_args(SplitMethod))
    @pytest.mark.parametrize("variable", ["N", "C", "H"])
    def test_every_way_has_the_same_keys_and_whole_layers(
        self, run: Run, network: Path, tmp_path: Path, method: str, variable: str
    ) -> None:
        options = ("--split", method, "--variable", variable, "--objective", "energy", "--json")
        answer = run("place", network, "--machine", machine(tmp_path), *options).object
        keys = {"index", "name", "units", "variable", "shares", "fused", "cost_s", "compute_s", "transfer_s"}
        for layer in answer["layers"]:
            assert set(layer) == {*keys, "energy_j", "reason"}
            assert layer["reason"] or sum(layer["shares"].values()) == layer["units"]
        assert answer["outcome"] == ("optimal" if method in ("integer", "fused") else "feasible")
        assert math.isfinite(answer["energy_j"])

    def test_limits_of_all_layers_together(self, run: Run, network: Path, tmp_path: Path) -> None:
        """The device behind the link takes one LAB a filter or column: 80 and 40 fit one by one, not both."""
        board = machine(tmp_path, far_limit=90)
        for method in ("integer", "geometric"):
            each, all_of_them = (
                run("place", network, "--machine", board, "--split", method, "--json", *options).object["layers"]
                for options in ((), ("--one-for-all",))
            )
            far = [[layer["shares"]["far"] for layer in layers] for layers in (each, all_of_them)]
            wide, grouped, product = far[1]
            assert wide + 5 * bool(grouped) + product <= 90
        assert sum(far[0]) > 0

    def test_a_device_of_ordinary_convolutions_has_no_groups(self, run: Run, network: Path, tmp_path: Path) -> None:
        board = machine(tmp_path)
        far = tmp_path / "far.toml"
        far.write_text(far.read_text().replace('ops = ["Conv"]', 'ops = ["Conv"]\nwhere = { group = 1 }'))
        for method in get_args(SplitMethod):
            options = ("--split", method, "--json")
            answer = run("place", network, "--machine", board, *options).object
            assert answer["layers"][1]["shares"]["far"] == 0
            assert answer["layers"][0]["shares"]["far"] > 0 or method == "communication"  # it fuses both
            assert answer["alone"]["far"] is None
        by_channels = run(
            "place", network, "--machine", board, "--split", "integer", "--variable", "C", "--json"
        ).object
        assert by_channels["layers"][1]["reason"] == says("Conv of 16 groups: … expected N or H")

    def test_k_is_of_the_geometric_program(self, run: Run, network: Path, tmp_path: Path) -> None:
        """What moves costs a hundred times what it computes: only with a k is a share of it worth having."""
        board = machine(tmp_path)
        far = tmp_path / "far.toml"
        far.write_text(far.read_text().replace("bandwidth_bytes_per_s = 1e12", "bandwidth_bytes_per_s = 1e5"))
        plain, weighed = (
            run("place", network, "--machine", board, "--split", "geometric", "--json", *options).object
            for options in ((), ("--k", "100"))
        )
        shares = [answer["layers"][0]["shares"]["far"] for answer in (plain, weighed)]
        assert shares[1] > shares[0]
        for answer in (plain, weighed):  # in full, whatever the program thought
            assert answer["cost_s"] == pytest.approx(sum(layer["cost_s"] or 0 for layer in answer["layers"]))
        assert run("place", network, "--machine", board, "--split", "integer", "--k", "100").status == 2

    def test_condensing_again_is_no_worse(self, run: Run, network: Path, tmp_path: Path) -> None:
        board = machine(tmp_path)
        once, again = (
            run("place", network, "--machine", board, "--split", "geometric", "--json", *options).object["cost_s"]
            for options in ((), ("--again",))
        )
        assert again < once  # in sequence the best is a corner, which condensing once does not reach

    def test_fused_layers_add_up(self, run: Run, tmp_path: Path) -> None:
        """Three convolutions in tiles of rows: moved once in and once out."""
        options = ("--split", "communication", "--parallel", "--json")
        answer = run("place", _three_convolutions(tmp_path), "--machine", machine(tmp_path), *options).object
        assert [layer["fused"] for layer in answer["layers"]] == [[0, 2]] * 3
        assert [layer["variable"] for layer in answer["layers"]] == ["H"] * 3
        assert [layer["transfer_s"]["far"] > 0 for layer in answer["layers"]] == [True, False, True]
        assert answer["cost_s"] == pytest.approx(sum(layer["cost_s"] for layer in answer["layers"]))
        slow = [layer["compute_s"]["host"] for layer in answer["layers"]]
        assert answer["cost_s"] == pytest.approx(sum(slow))

    def test_devices_of_one_name_are_called_after_their_places(self, run: Run, network: Path, tmp_path: Path) -> None:
        path = machine(tmp_path)
        path.write_text(path.read_text().replace("far.toml", "host.toml"))
        answer = run("place", network, "--machine", path, "--split", "balanced", "--json").object
        assert answer["layers"][0]["shares"] == {"a": 48, "b": 32}

    def test_a_limit_that_cannot_be_kept(self, run: Run, network: Path, tmp_path: Path) -> None:
        options = ("--place", "b", "--split", "integer", "--json")
        ran = run("place", network, "--machine", machine(tmp_path, far_limit=40), *options)
        assert ran.status == 1
        reason = "layer wide: far has … for 32 (LAB) of 80 in blocks of 16"
        assert ran.err == says(f"shisha-rt: infeasible: integer has … split: {reason}\n")
        answer = ran.object
        assert (answer["outcome"], answer["reason"]) == ("infeasible", says(reason))
        assert (answer["cost_s"], answer["energy_j"]) == (None, None)
        assert [layer["shares"] for layer in answer["layers"]] == [None] * 3
        assert answer["alone"] == {"far": None}

    def test_a_device_without_room_for_a_unit_is_left_out_by_every_way(
        self, run: Run, network: Path, tmp_path: Path
    ) -> None:
        """Its weights take the room, however few rows it computes."""
        for method in ("integer", "geometric"):
            options = ("--split", method, "--variable", "H", "--json")
            answer = run("place", network, "--machine", machine(tmp_path, far_limit=40), *options).object
            assert answer["layers"][0]["shares"]["far"] == 0

    def test_fused_layers_go_straight_from_device_to_device(self, run: Run, tmp_path: Path) -> None:
        """Two devices behind slow ways, neither with room for three layers: over their link a map moves once."""
        network, board = _three_convolutions(tmp_path), machine(tmp_path)
        far = FAR.replace("1e12", "1e9").replace("LIMIT", "70")
        (tmp_path / "far.toml").write_text(far)
        (tmp_path / "near.toml").write_text(far.replace('"far"', '"near"').replace("2.5e-7", "1e-8"))
        board.write_text(board.read_text().replace("host.toml", "near.toml"))
        options = ("--split", "fused", "--one-for-all", "--json")
        star = run("place", network, "--machine", board, *options).object
        with (tmp_path / "far.toml").open("a") as file:
            file.write('[[link]]\nmemory = "near"\nlatency_s = 0\nbandwidth_bytes_per_s = 1e10\n')
        linked = run("place", network, "--machine", board, *options).object
        assert star["outcome"] == linked["outcome"] == "optimal"
        assert [layer["fused"] for layer in linked["layers"]] == [[0, 2]] * 3
        map_bytes = 4 * 32 * 8 * 8
        once_s = map_bytes / 1e10
        moved_s = [sum(layer["transfer_s"].values()) for layer in linked["layers"]]
        assert moved_s == pytest.approx([1e-6 + map_bytes / 1e9, once_s, 1e-6 + map_bytes / 1e9])
        assert linked["cost_s"] == pytest.approx(sum(layer["cost_s"] for layer in linked["layers"]))
        assert star["cost_s"] - linked["cost_s"] == pytest.approx(2e-6 + 2 * map_bytes / 1e9 - once_s)


class TestForPeople:
    def test_the_table(self, run: Run, network: Path, tmp_path: Path) -> None:
        ran = run("place", network, "--machine", machine(tmp_path), "--split", "integer")
        assert (ran.status, ran.err) == (0, "")
        lines = [" ".join(line.split()) for line in ran.out.splitlines()]
        assert lines[0] == says("… of board, modelled: times are those …")
        assert "0 wide 80 N - 80 1.28 ms 3.85 mJ" in lines
        assert any(line.startswith("all on host: 10.3 ms, 20.6 mJ, 3.99 times") for line in lines)
        assert any(says("1 grouped 16 G - 16 …") == line for line in lines)
        ran = run("place", network, "--machine", machine(tmp_path), "--split", "integer", "--variable", "C")
        assert says("… layer 1: Conv of 16 groups: …") in [" ".join(line.split()) for line in ran.out.splitlines()]

    def test_without_power_there_is_no_energy(self, run: Run, network: Path, tmp_path: Path) -> None:
        path = machine(tmp_path)
        (tmp_path / "host.toml").write_text(HOST.replace("power_w = 2\n", ""))
        answer = run("place", network, "--machine", path, "--split", "integer", "--json").object
        assert (answer["energy_j"], answer["layers"][0]["energy_j"]) == (None, None)
        assert " mJ" not in run("place", network, "--machine", path, "--split", "integer").out
        ran = run("place", network, "--machine", path, "--split", "integer", "--objective", "energy")
        assert "host.toml: power_w is missing" in ran.complaint_of(Error.DEVICE_UNFIT)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--split", "guess"], "not one of 'integer', 'geometric', 'greedy',"),
        (["--split", "integer", "--solver", "als"], "--solver: not with --split, which is on"),
        (["--split", "integer", "--measured"], "--measured: not with --split"),
        (["--split", "integer", "--dot", "x"], "--dot: not with --split"),
        (["--split", "integer", "--time-limit", "3"], "--time-limit: not with --split"),
        (["--split", "integer", "--place", "c"], "has no such"),
        (["--split", "integer", "--variable", "W"], "--variable"),
        (["--parallel"], "--parallel: says how to"),
        (["--objective", "energy"], "--objective: says how to"),
        (["--variable", "C"], "--variable: says how to"),
    ],
)
def test_bad_options(run: Run, network: Path, tmp_path: Path, options: list[str], expected: str) -> None:
    assert expected in run("place", network, "--machine", machine(tmp_path), *options).complaint


def test_other_bad_input(run: Run, network: Path, tmp_path: Path) -> None:
    def complaint(*argv: Any) -> str:
        return run("place", *argv, "--split", "integer").complaint

    assert "which has no" in complaint(tmp_path / "p.json")
    assert "--machine is missing" in complaint(network)
    assert "place core0 has several devices" in complaint(network, "--machine", "two-engines")
    assert "device ort_serial is measured" in complaint(network, "--machine", "two-engines", "--place", "core0")


def test_a_network_without_a_layer_to_split(run: Run, tmp_path: Path) -> None:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "light",
        [value("x", TensorProto.FLOAT, [1, 4])],
        [value("y", TensorProto.FLOAT, [1, 4])],
    )
    path = tmp_path / "light.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    for method in ("integer", "communication", "fused"):
        ran = run("place", path, "--machine", machine(tmp_path), "--split", method)
        assert ran.status == 1
        assert "infeasible: " in ran.err
        assert ran.err.endswith("that can be split\n")
