"""`place` from a problem and from a model: the object that it promises, table and drawings, and each refusal."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest

from shisha_rt.checked import NO_TEXT
from shisha_rt.costs.operator_costs import OperatorCosts
from shisha_rt.errors import Error
from shisha_rt.extras import pip_install
from shisha_rt.outcome import Outcome
from shisha_rt.placement.solution import PlacementSolution
from shisha_rt.placement.solver_names import SolverName
from tests.cli.conftest import Run
from tests.placement.figure_1 import figure_1_object
from tests.wording import says

SOLVERS = tuple(solver for solver in get_args(SolverName) if solver != "milp")


def problem() -> dict[str, Any]:
    """Nodes a -> b -> c on cpu and pim. All on cpu costs 9; b alone gains 5 on pim and pays 2 + 2; with c only 2."""
    return {
        "devices": ["cpu", "pim"],
        "nodes": [
            {"name": "a", "op": "Erf", "cost_s": {"cpu": 1}},
            {"name": "b", "op": "MatMul", "cost_s": {"cpu": 6, "pim": 1}},
            {"name": "c", "op": "Add", "cost_s": {"cpu": 2, "pim": 1.5}},
        ],
        "tensors": [
            {"name": "ab", "producer": "a", "consumers": ["b"], "transfer_s": {"cpu->pim": 2, "pim->cpu": 2}},
            {"name": "bc", "producer": "b", "consumers": ["c"], "transfer_s": {"cpu->pim": 2, "pim->cpu": 2}},
        ],
    }


@pytest.fixture
def problem_file(tmp_path: Path) -> Path:
    path = tmp_path / "PROBLEM.json"
    path.write_text(json.dumps(problem()))
    return path


@pytest.fixture
def board(tmp_path: Path) -> Path:
    path = tmp_path / "board.toml"
    path.write_text('[[place]]\nname = "board"\ncore_count = 4\ndevices = ["cpu_s", "cpu_p", "pim"]\n')
    return path


class TestTheObject:
    def test_exact(self, run: Run, problem_file: Path) -> None:
        ran = run("place", problem_file, "--json")
        assert (ran.status, ran.err) == (0, "")
        answer = ran.object
        assert answer.pop("solve_time_s") >= 0
        assert answer == {
            "assignment": {"a": "cpu", "b": "pim", "c": "pim"},
            "cost_s": 5.5,
            "node_cost_s": 3.5,
            "transfer_cost_s": 2.0,
            "lower_bound_s": pytest.approx(5.5),
            "outcome": "optimal",
            "reason": None,
        }

    @pytest.mark.parametrize("solver", SOLVERS)
    def test_every_solver_has_the_same_keys(self, run: Run, problem_file: Path, solver: str) -> None:
        answer = run("place", problem_file, "--solver", solver, "--json").object
        assert list(answer) == [
            "assignment",
            "cost_s",
            "node_cost_s",
            "transfer_cost_s",
            "lower_bound_s",
            "outcome",
            "reason",
            "solve_time_s",
            *(["makespan_s", "schedule", "any_order_bound_s"] if solver in ("partitiontuner", "forkjoin") else []),
        ]
        assert answer.get("any_order_bound_s", 0.0) <= answer.get("makespan_s", 0.0)
        assert answer["cost_s"] >= 5.5
        assert (answer["reason"] is None) == (answer["outcome"] == "optimal")

    @pytest.mark.parametrize("order", ["cpu,pim", " cpu, pim "])
    def test_priority(self, run: Run, problem_file: Path, order: str) -> None:
        answer = run("place", problem_file, "--solver", "priority", "--priority", order, "--json").object
        assert (answer["cost_s"], set(answer["assignment"].values()), answer["outcome"]) == (9.0, {"cpu"}, "feasible")

    def test_duet(self, run: Run, problem_file: Path) -> None:
        answer = run("place", problem_file, "--solver", "duet", "--duet-x", 0, "--json").object
        assert answer["assignment"] == {"a": "cpu", "b": "pim", "c": "pim"}

    def test_a_limit_prints_its_object_and_fails(
        self, run: Run, problem_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stopped = PlacementSolution(None, Outcome.LIMIT, lower_bound_s=1.0, reason="stopped by the time limit")
        monkeypatch.setattr("shisha_rt.placement.solvers.solve", lambda *_: stopped)
        ran = run("place", problem_file, "--solver", "brute", "--json")
        assert ran.status == 1
        assert ran.err == says("shisha-rt: limit: brute has … assignment: stopped by … time limit\n")
        assert ran.object["assignment"] is ran.object["cost_s"] is ran.object["transfer_cost_s"] is None
        assert (ran.object["lower_bound_s"], ran.object["outcome"]) == (1.0, "limit")
        assert ran.object["reason"] == says("stopped by the …")

    @pytest.mark.parametrize("solver", SOLVERS)
    def test_every_solver_takes_a_time_limit(self, run: Run, problem_file: Path, solver: str) -> None:
        """One that ends it at once: what needs no time answers, the rest has nothing; either says why."""
        ran = run("place", problem_file, "--solver", solver, "--time-limit", "1e-9", "--json")
        answer = ran.object
        if solver not in ("als", "als_literal", "brute"):
            assert (ran.status, answer["outcome"]) == (0, "feasible")
        else:
            assert (ran.status, answer["outcome"], answer["reason"]) == (1, "limit", says("stopped by the …"))
        if solver in ("exact", "partitiontuner", "forkjoin"):
            assert (answer["lower_bound_s"], answer["reason"]) == (pytest.approx(3.5), says("stopped by the …"))


class TestForPeople:
    def test_the_table(self, run: Run, problem_file: Path) -> None:
        ran = run("place", problem_file)
        assert (ran.status, ran.err) == (0, "")
        lines = [" ".join(line.split()) for line in ran.out.splitlines()]
        assert lines[0] == "PROBLEM.json"
        for line in (
            "cpu 1 1000 ms",
            "pim 2 2500 ms",
            "cpu -> pim 1 transfer 2000 ms",
            "… less than 5500 ms",
            "all on cpu: 9000 ms, 1.64 times as long",
            "… its fastest device: 5500 ms, 1 times as long",
        ):
            assert says(line) in lines
        assert "all on pim" not in ran.out

    def test_an_answer_that_is_not_proven_says_why(self, run: Run, problem_file: Path) -> None:
        words = " ".join(run("place", problem_file, "--time-limit", "1e-9").out.split())
        bound = "than 3500 ms, this one 57.1% more"
        assert f"{bound} (stopped by the" in words
        words = " ".join(run("place", problem_file, "--solver", "duet").out.split())
        assert "feasible: no lower bound" in words

    def test_costs_that_nobody_can_mean_and_those_too_small_to_matter(self, run: Run, problem_file: Path) -> None:
        problem_file.write_text(json.dumps(problem()).replace('"pim": 1.5', '"pim": 1e-320'))
        assert run("place", problem_file, "--json").object["outcome"] == "optimal"
        problem_file.write_text(json.dumps(problem()).replace('"pim": 1.5', '"pim": 1e308'))
        complaint = run("place", problem_file, "--json").complaint
        assert complaint.endswith("expected a number <= 1000000000000000.0")

    def test_groups_show_what_they_cost(self, run: Run, problem_file: Path, tmp_path: Path) -> None:
        """`c` cannot run on pim by itself."""
        with_group = problem() | {"groups": [{"nodes": ["b", "c"], "device": "pim", "cost_s": 2}]}
        with_group["nodes"][2]["cost_s"] = {"cpu": 2}
        problem_file.write_text(json.dumps(with_group))
        words = " ".join(run("place", problem_file, "--dot", tmp_path / "p.dot").out.split())
        assert "cpu 1 1000 ms pim 2 2000 ms in groups 2 2000 ms" in words
        assert "cost 5000 ms: operators 3000 ms, transfers 2000 ms" in words
        dot = (tmp_path / "p.dot").read_text()
        assert 'label="b\\nMatMul\\n2000 ms, group of 2"' in dot
        assert 'label="c\\nAdd\\nwith b"' in dot

    def test_a_model_says_that_its_times_are_modelled(self, run: Run, tiny_model: Path, board: Path) -> None:
        ran = run("place", tiny_model, "--machine", board, "--place", "board")
        assert ran.status == 0
        assert ran.out.startswith("tiny on board of board, modelled: times are those of device descriptions\n")

    def test_dot(self, run: Run, problem_file: Path, tmp_path: Path) -> None:
        named = problem()
        named["nodes"][1]["name"] = named["tensors"][0]["consumers"][0] = named["tensors"][1]["producer"] = 'b "\\'
        problem_file.write_text(json.dumps(named))
        assert run("place", problem_file, "--dot", tmp_path / "p.dot").status == 0
        lines = [line.strip() for line in (tmp_path / "p.dot").read_text().splitlines()]
        assert (lines[0], lines[-1]) == ("digraph placement {", "}")
        assert 'n1 [label="b \\"\\\\\\nMatMul\\n1000 ms", fillcolor="#fdd0a2"];' in lines
        assert 'n0 -> n1 [label="2000 ms", color="#c0392b", penwidth=2];' in lines
        assert "n1 -> n2;" in lines

    @pytest.mark.parametrize("name", ["red\x1b[31m.json", "\udcff.json"])
    def test_the_name_of_a_file_is_escaped(self, run: Run, problem_file: Path, tmp_path: Path, name: str) -> None:
        dot = tmp_path / "p.dot"
        ran = run("place", problem_file.rename(tmp_path / name), "--dot", dot)
        assert ran.status == 0
        assert not NO_TEXT.search((ran.out + dot.read_text()).replace("\n", ""))

    @pytest.mark.parametrize("count", [1, 60, 205])
    def test_png(self, run: Run, tmp_path: Path, count: int) -> None:
        pytest.importorskip("matplotlib")
        names = [f"n{i}" for i in range(count)]
        chain = {
            "devices": ["cpu", "pim"],
            "nodes": [{"name": n, "cost_s": {("cpu", "pim")[i % 3 == 0]: 1}} for i, n in enumerate(names)],
            "tensors": [
                {"name": f"t{i}", "producer": names[i], "consumers": names[i + 1 : i + 4 : 2]} for i in range(count - 1)
            ],
        }
        path = tmp_path / "chain.json"
        path.write_text(json.dumps(chain))
        assert run("place", path, "--png", tmp_path / "p.png").status == 0
        assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")

    def test_png_without_matplotlib(self, run: Run, problem_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        real: Callable[..., Any] = builtins.__import__

        def without(name: str, *rest: Any) -> Any:
            if name.startswith("matplotlib"):
                raise ImportError(name)
            return real(name, *rest)

        monkeypatch.setattr(builtins, "__import__", without)
        ran = run("place", problem_file, "--png", "p.png")
        assert (ran.status, ran.err) == (
            1,
            f"shisha-rt: --png: matplotlib is missing: {pip_install('plot')}\n",
        )


def node(index: int, **changes: Any) -> dict[str, Any]:
    nodes = [dict(entry) for entry in problem()["nodes"]]
    nodes[index] |= changes
    return {"nodes": nodes}


def tensor(index: int, **changes: Any) -> dict[str, Any]:
    tensors = [dict(entry) for entry in problem()["tensors"]]
    tensors[index] |= changes
    return {"tensors": tensors}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (node(1, cost_s={}), "nodes[1].cost_s has no cost: no device … run b"),
        (node(1, cost_s=None), "nodes[1].cost_s = null"),
        (node(1, cost_s={"cpu": -1}), "nodes[1].cost_s"),
        (node(1, cost_s={"cpu": 1e16}), "nodes[1].cost_s"),
        (node(1, cost_s={"npu": 1}), 'nodes[1].cost_s: "npu": no such device'),
        (tensor(0, producer="c"), 'tensors[0].consumers[0] = "b": does not … producer c'),
        (tensor(0, consumers=["a"]), 'tensors[0].consumers[0] = "a": does not come'),
        (tensor(0, transfer_s={"cpu->npu": 1}), 'tensors[0].transfer_s: "cpu->npu": expected DEVICE->DEVICE'),
        (tensor(0, transfer_s={"cpu->pim": -1}), "tensors[0].transfer_s"),
        (tensor(0, transfer_s={"cpu->pim": 1e308}), "tensors[0].transfer_s"),
        (
            {"groups": [{"nodes": ["a", "c"], "device": "cpu", "cost_s": 1}]},
            "groups[0].nodes: a and c are no chain",
        ),
        ({"groups": [{"nodes": ["a"], "device": "npu", "cost_s": 1}]}, 'groups[0].device = "npu": no such device'),
    ],
)
def test_bad_problems(run: Run, problem_file: Path, changes: dict[str, Any], expected: str) -> None:
    problem_file.write_text(json.dumps(problem() | changes))
    assert run("place", problem_file).complaint == says(f"shisha-rt: {problem_file}: {expected}…")


def test_an_infinite_cost(run: Run, problem_file: Path) -> None:
    problem_file.write_text(json.dumps(problem()).replace('"pim": 1.5', '"pim": 1e999'))
    assert str(problem_file) in run("place", problem_file).complaint


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--solver", "priority", "--priority", "cpu,npu"], '"npu": no such device'),
        (["--solver", "priority", "--priority", "cpu,cpu"], "expected each device once"),
        (["--solver", "duet", "--duet-x", "101"], "--duet-x 101"),
        (["--solver", "duet", "--duet-x", "-1"], "--duet-x -1"),
        (["--solver", "duet", "--duet-x", "nan"], "--duet-x nan"),
        (["--solver", "milp", "--time-limit", "0"], "--time-limit 0"),
        (["--solver", "guess"], "--solver"),
        (["--accelerator", "pim"], "--accelerator: not with --solver exact, expected --solver typeseq"),
        (
            ["--solver", "typeseq", "--accelerator", "npu"],
            'accelerator: "npu": no such device',
        ),
        (["--measured"], "--measured: not with PROBLEM.json, which states its"),
        (["--precision", "any"], "--precision: not with PROBLEM.json"),
        (["--group", "Conv+Relu"], "--group: not with PROBLEM.json, which states its"),
        (["--priority", "cpu"], "--priority: not with --solver exact, expected --solver priority"),
        (["--duet-x", "10"], "--duet-x: not with --solver exact, expected --solver duet"),
        (["--machine", "pim-board"], "--machine: not with PROBLEM.json, which states its"),
        (["--place", "board"], "--place: not with PROBLEM.json"),
        (["--dim", "N=1"], "--dim: not with PROBLEM.json"),
    ],
)
def test_bad_options(run: Run, problem_file: Path, options: list[str], expected: str) -> None:
    assert expected in run("place", problem_file, *options).complaint


class TestPartitionTuner:
    @pytest.fixture
    def paper(self, tmp_path: Path) -> Path:
        path = tmp_path / "figure_1.json"
        path.write_text(json.dumps(figure_1_object()))
        return path

    def test_the_schedule(self, run: Run, paper: Path) -> None:
        answer = run("place", paper, "--solver", "partitiontuner", "--json").object
        assert (answer["cost_s"], answer["lower_bound_s"], answer["outcome"]) == (14, 14, "optimal")
        assert answer["makespan_s"] == 12.5
        lanes = [section["lanes"] for section in answer["schedule"]]
        assert [len(section) for section in lanes] == [1, 2, 1]
        npu = {"device": "npu", "nodes": ["v3", "v4", "v5"], "start_s": 3, "end_s": 7.5}
        assert lanes[1] == [[npu], [{"device": "cpu", "nodes": ["v6", "v7"], "start_s": 3, "end_s": 4.5}]]
        assert (answer["schedule"][1]["start_s"], answer["schedule"][1]["end_s"]) == (3, 7.5)

    def test_in_words(self, run: Run, paper: Path) -> None:
        lines = run("place", paper, "--solver", "partitiontuner").out.splitlines()
        assert says("makespan 12500 ms: 4 partitions, 2 branches run …") in lines

    def test_a_makespan_that_is_proven(self, run: Run, paper: Path) -> None:
        answer = run("place", paper, "--solver", "forkjoin", "--json").object
        assert (answer["makespan_s"], answer["lower_bound_s"], answer["outcome"]) == (12.5, 12.5, "optimal")
        lines = run("place", paper, "--solver", "forkjoin").out.splitlines()
        assert says("optimal: … less than 12500 ms") in lines

    @pytest.mark.parametrize(("solver", "cost_s"), [("baseline", 30), ("typeseq", 23.5), ("opseq", 14.5)])
    def test_its_rivals(self, run: Run, paper: Path, solver: str, cost_s: float) -> None:
        answer = run("place", paper, "--solver", solver, "--json").object
        assert answer["cost_s"] == cost_s
        assert "schedule" not in answer

    def test_no_device_for_all(self, run: Run, paper: Path) -> None:
        short = figure_1_object()
        short["nodes"][0]["cost_s"] = {"npu": 1}
        paper.write_text(json.dumps(short))
        ran = run("place", paper, "--solver", "baseline", "--json")
        assert ran.status == 1
        assert ran.object["outcome"] == "infeasible"
        assert "assignment: no device can" in ran.err


def test_no_such_problem(run: Run, tmp_path: Path) -> None:
    complaint = run("place", tmp_path / "none.json").complaint
    assert "none.json: cannot be read" in complaint


def test_a_dot_that_cannot_be_written(run: Run, problem_file: Path, tmp_path: Path) -> None:
    """Nor a picture."""
    for option in "--dot", "--png":
        complaint = run("place", problem_file, option, tmp_path / "none" / "p").complaint_of(Error.UNWRITABLE_FILE)
        assert f"{option} {tmp_path / 'none' / 'p'}" in complaint


@pytest.fixture
def engines(tmp_path: Path) -> Path:
    """Two engines of this host on one core, and beside it a place of described devices."""
    path = tmp_path / "engines.toml"
    path.write_text(
        '[[place]]\nname = "core"\ncores = [0]\ndevices = ["ort_serial", "ort_parallel"]\n'
        '[[place]]\nname = "board"\ncore_count = 4\ndevices = ["cpu_s", "pim"]\n'
        '[[place]]\nname = "linked"\ncore_count = 4\ndevices = ["ort_serial", "pim"]\n'
    )
    return path


@pytest.fixture
def profiled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Nothing is measured: the last device takes 1 s for an operator, all others 2 s. The devices asked for."""
    asked: list[tuple[str, ...]] = []

    def profile_devices(compiled: Any, machine: Any, place: Any, devices: Any, on_progress: Any = None) -> Any:
        asked.append(tuple(device.name for device in devices))
        time_s = np.full((len(compiled.model.graph.operators), len(devices)), 2.0)
        time_s[:, -1] = 1.0
        return SimpleNamespace(costs=OperatorCosts(devices, time_s), node_runs=2, edge_runs=1, seconds=3.456)

    monkeypatch.setattr("shisha_rt.measure.device_profile.profile_devices", profile_devices)
    return asked


class TestMeasured:
    def test_the_object(self, run: Run, tiny_model: Path, engines: Path, profiled: list[tuple[str, ...]]) -> None:
        ran = run("place", tiny_model, "--machine", engines, "--place", "core", "--measured", "--json")
        assert (ran.status, ran.err) == (0, "")
        answer = ran.object
        assert set(answer["assignment"].values()) == {"ort_parallel"}
        assert answer["cost_s"] == answer["node_cost_s"] == len(answer["assignment"])
        assert answer["profile"] == {"node_runs": 2, "edge_runs": 1, "seconds": 3.456}
        assert profiled == [("ort_serial", "ort_parallel")]

    def test_for_real_and_only_once(self, run: Run, tiny_model: Path, engines: Path) -> None:
        command = "place", tiny_model, "--machine", engines, "--place", "core", "--measured", "--json"
        first, again = run(*command).object, run(*command).object
        assert 0 < first["cost_s"] < 1
        assert first["profile"]["node_runs"] == 2
        assert first["profile"]["seconds"] > 0 == again["profile"]["seconds"]
        assert first | {"profile": 0, "solve_time_s": 0} == again | {"profile": 0, "solve_time_s": 0}

    def test_partitions_for_real_and_only_once(self, run: Run, tiny_model: Path, engines: Path) -> None:
        command = "place", tiny_model, "--machine", engines, "--place", "core", "--measured", "--group", "Conv+Relu"
        first, again = run(*command, "--json").object, run(*command, "--json").object
        assert 0 < first["cost_s"] == first["node_cost_s"] < 1
        assert first["transfer_cost_s"] == 0
        assert first["profile"].keys() == {"partitions", "distinct", "measured", "seconds"}
        counts = [first["profile"][key] for key in ("partitions", "distinct", "measured")]
        assert counts[0] > len(first["assignment"])
        assert counts[0] >= counts[1] == counts[2]
        assert again["profile"] == first["profile"] | {"measured": 0, "seconds": 0}
        assert first | {"profile": 0, "solve_time_s": 0} == again | {"profile": 0, "solve_time_s": 0}
        title = f"tiny on core of engines, {counts[0]} partitions, {counts[1]} of them distinct, "
        assert run(*command).out.startswith(title)

    def test_the_title(self, run: Run, tiny_model: Path, engines: Path, profiled: list[tuple[str, ...]]) -> None:
        ran = run("place", tiny_model, "--machine", engines, "--place", "core", "--measured")
        assert ran.out.startswith("tiny on core of engines, measured in 3.46 s: 2 node runs and 1 edge run\n")

    def test_devices_that_change_results_have_to_be_permitted(
        self, run: Run, tiny_model: Path, engines: Path, profiled: list[tuple[str, ...]]
    ) -> None:
        command = "place", tiny_model, "--machine", engines, "--place", "linked", "--measured"
        run(*command)
        run(*command, "--precision", "exact")
        ran = run(*command, "--precision", "any")
        assert profiled == [("ort_serial",), ("ort_serial",), ("ort_serial", "pim")]
        assert "in 3.46 s: 2 node runs and 1 edge run; modelled: pim\n" in ran.out

    def test_an_operator_that_no_device_can_run(
        self, run: Run, tiny_model: Path, engines: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def profile_devices(compiled: Any, machine: Any, place: Any, devices: Any, on_progress: Any) -> Any:
            time_s = np.full((len(compiled.model.graph.operators), len(devices)), np.inf)
            return SimpleNamespace(costs=OperatorCosts(devices, time_s), node_runs=2, edge_runs=1, seconds=1.0)

        monkeypatch.setattr("shisha_rt.measure.device_profile.profile_devices", profile_devices)
        complaint = run("place", tiny_model, "--machine", engines, "--place", "core", "--measured").complaint
        assert "of ort_serial, ort_parallel" in complaint

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            (["--measured"], "engines.toml: has several places"),
            (["--place", "board", "--measured"], "described devices only (cpu_s)"),
            (["--place", "core"], "place core: the costs of ort_serial, ort_parallel are measured, expected --meas"),
            (["--place", "linked"], "place linked: the costs of ort_serial are measured, expected --measured"),
            (["--place", "core", "--precision", "any"], "--precision any: says what --measured may run"),
            (["--place", "core", "--measured", "--precision", "some"], "--precision"),
            (["--place", "board", "--group", "Conv+Relu"], "--group Conv+Relu: groups are measured"),
            (["--place", "core", "--measured", "--group", "Conv"], "--group Conv: one operator"),
            (["--place", "core", "--measured", "--group", "Conv+Rely"], "--group Conv+Rely: 'Rely': no operator of ON"),
        ],
    )
    def test_bad_options(self, run: Run, tiny_model: Path, engines: Path, options: list[str], expected: str) -> None:
        assert expected in run("place", tiny_model, "--machine", engines, *options).complaint

    def test_a_machine_without_devices(self, run: Run, tiny_model: Path, tmp_path: Path) -> None:
        bare = tmp_path / "bare.toml"
        bare.write_text('[[place]]\nname = "a"\ncores = [0]\n')
        complaint = run("place", tiny_model, "--machine", bare, "--measured").complaint
        assert complaint.endswith("= [...] in it")

    def test_no_machine(self, run: Run, tiny_model: Path) -> None:
        assert "place MODEL: --machine is missing" in run("place", tiny_model, "--measured").complaint


class TestBadModels:
    def test_no_machine(self, run: Run, tiny_model: Path) -> None:
        assert "place MODEL: --machine is missing" in run("place", tiny_model).complaint
        assert "name ends in .json" in run("place", "p.txt").complaint

    def test_a_machine_without_devices(self, run: Run, tiny_model: Path, tmp_path: Path) -> None:
        bare = tmp_path / "bare.toml"
        bare.write_text('[[place]]\nname = "a"\ncores = [0]\n')
        complaint = run("place", tiny_model, "--machine", bare).complaint
        assert complaint.endswith("= [...] in it")

    def test_several_places(self, run: Run, tiny_model: Path, board: Path) -> None:
        board.write_text(board.read_text() + '[[place]]\nname = "other"\ncore_count = 1\n')
        complaint = run("place", tiny_model, "--machine", board).complaint
        assert complaint.endswith("board.toml: has several places, expected --place with one of board, other")
        assert run("place", tiny_model, "--machine", board, "--place", "board").status == 0

    def test_no_such_place(self, run: Run, tiny_model: Path, board: Path) -> None:
        complaint = run("place", tiny_model, "--machine", board, "--place", "x").complaint
        assert "--place x: " in complaint
        assert complaint.endswith("has no such place, expected one of board")

    def test_an_operator_that_no_device_can_run(self, run: Run, tiny_model: Path, board: Path) -> None:
        board.write_text(board.read_text().replace('"cpu_s", "cpu_p", ', ""))
        complaint = run("place", tiny_model, "--machine", board).complaint
        assert "tiny: operator Conv ('conv0'): no device can" in complaint
