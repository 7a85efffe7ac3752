"""`plan` from costs and from a model: the object that it promises, the picture, and each refusal."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tests.cli.conftest import Run, rewritten
from tests.wording import says


def test_the_object_from_costs(run: Run, costs_file: Path) -> None:
    ran = run("plan", "--costs", costs_file, "--strategy", "seed", "--json")
    assert (ran.status, ran.err) == (0, "")
    assert ran.object == {
        "stages": [
            {"first": 0, "last": 1, "places": ["q"], "service_s": 1.0},
            {"first": 2, "last": 2, "places": ["p"], "service_s": 1.5},
            {"first": 3, "last": 3, "places": ["r"], "service_s": 3.25},
        ],
        "unused": [],
        "bottleneck_s": 3.25,
        "throughput_fps": 1 / 3.25,
        "latency_s": 5.75,
        "latency_proven": False,
        "energy_j": None,
        "objective": "throughput",
        "space": says("chains of stages, …"),
        "trials": 1,
        "trial_time_s": 3.25,
        "space_size": "21",  # one stage: 3; two: 2 cuts x 6; three: 1 x 6
        "log10_space_size": pytest.approx(math.log10(21)),
        "explored_fraction": 1 / 3,
        "lower_bound_s": None,
        "lower_bound_j": None,
        "link": None,
        "outcome": "feasible",
        "reason": None,
        "order": "file",
        "order_gain": None,
        "order_gain_most": None,
        "order_reason": says("… looked for with --strategy seed"),
    }


def test_stages_and_assignment(run: Run, costs_file: Path) -> None:
    answer = run("plan", "--costs", costs_file, "--stages", 2, "--assign", "layers", "--json").object
    assert [(s["first"], s["last"], s["places"]) for s in answer["stages"]] == [(0, 1, ["p"]), (2, 3, ["q"])]
    assert answer["unused"] == ["r"]


def test_random_assignment_repeats_with_its_seed(run: Run, costs_file: Path) -> None:
    def drawn(seed: int) -> str:
        return run("plan", "--costs", costs_file, "--assign", "random", "--seed", seed, "--json").out

    assert drawn(3) == drawn(3)
    assert len({drawn(seed) for seed in range(6)}) > 1


def test_infeasible_prints_its_object_and_fails(run: Run, costs_file: Path) -> None:
    costs = rewritten(costs_file, time_s=[[1, None, 1]] * 4)
    ran = run("plan", "--costs", costs, "--json")
    assert ran.status == 1
    assert (ran.object["outcome"], ran.object["reason"]) == ("infeasible", "q cannot run layer 0 (a)")
    assert ran.object["stages"][0]["service_s"] is None
    assert ran.object["bottleneck_s"] is ran.object["throughput_fps"] is ran.object["latency_s"] is None
    assert ran.err == "shisha-rt: infeasible: q cannot run layer 0 (a)\n"


def test_a_stage_beyond_its_place_s_memory_is_infeasible(run: Run, costs_file: Path) -> None:
    costs = rewritten(
        costs_file,
        layers=[{"name": name, "weight": 1, "weight_bytes": 10} for name in "abcd"],
        places=[{"name": "only", "rank": 1, "memory_bytes": 39}],
        time_s=[[1]] * 4,
    )
    ran = run("plan", "--costs", costs, "--json")
    assert (ran.status, ran.object["outcome"], ran.object["bottleneck_s"]) == (1, "infeasible", 4.0)


def test_costs_of_zero_have_no_throughput(run: Run, costs_file: Path) -> None:
    costs = rewritten(costs_file, time_s=[[0, 0, 0]] * 4, transfer_s=[0, 0, 0])
    answer = run("plan", "--costs", costs, "--json").object
    assert (answer["bottleneck_s"], answer["throughput_fps"]) == (0.0, None)


def test_a_space_beyond_what_python_prints(run: Run, costs_file: Path) -> None:
    count = 1560
    costs = rewritten(
        costs_file,
        layers=[{"name": str(i), "weight": 1} for i in range(count)],
        places=[{"name": f"p{i}", "rank": 1} for i in range(count)],
        time_s=[[1] * count] * count,
        transfer_s=[0] * (count - 1),
    )
    answer = run("plan", "--costs", costs, "--json").object
    assert len(answer["space_size"]) > 4300
    assert answer["log10_space_size"] == pytest.approx(len(answer["space_size"]), abs=1)


def test_frames_that_share_a_run(run: Run, costs_file: Path) -> None:
    """Layers 0 and 1 gain by it, 2 and 3 cannot."""
    of_two = [[0.5, 0.5, 0.5], [0.5, 0.5, 0.5], [None] * 3, [None] * 3]
    time_s, batches = [[4] * 3] * 2 + [[2] * 3] * 2, [{"frames": 2, "time_s": of_two}]
    costs = rewritten(costs_file, time_s=time_s, transfer_s=[0] * 3, batches=batches)
    ran = run("plan", "--costs", costs, "--strategy", "exact", "--stages", 2, "--json").object
    assert [(stage.get("batch", 1), stage["service_s"]) for stage in ran["stages"]] == [(2, 1), (1, 4)]
    assert (ran["bottleneck_s"], ran["latency_s"], ran["lower_bound_s"], ran["outcome"]) == (4, 12, 4, "optimal")
    picture = run("plan", "--costs", costs, "--strategy", "exact", "--stages", 2).out
    assert "layers 0-1 by 2 " in picture
    assert "1000 ms ██" in picture


def test_the_picture(run: Run, costs_file: Path) -> None:
    ran = run("plan", "--costs", costs_file, "--stages", 2)
    assert ran.status == 0
    for text in ("┌ q ─", "layers 0-1 ", "│ 1000 ms ███", "┏ p ━", " slowest ┓", "unused: r"):
        assert text in ran.out


class TestShisha:
    @pytest.fixture
    def costs(self, tmp_path: Path) -> Path:
        """Six layers of 1 s on `f`, 2 s on `g`, 3 s on `s`; but layer 5, the heaviest by weight, is a quick one."""
        path = tmp_path / "six.json"
        path.write_text(
            json.dumps(
                {
                    "layers": [
                        {"name": name, "weight": weight}
                        for name, weight in zip("abcdef", (1, 1, 1, 1, 1, 9), strict=True)
                    ],
                    "places": [{"name": "s", "rank": 2}, {"name": "f", "rank": 1}, {"name": "g", "rank": 1}],
                    "time_s": [[3, 1, 2]] * 5 + [[0.25] * 3],
                }
            )
        )
        return path

    def test_the_object(self, run: Run, costs: Path) -> None:
        # Seed: s 0-1 (6 s), g 2-4 (6 s), f 5-5 (0.25 s). s is first: f is the lightest fast place and two stages away,
        # so layer 1 goes to g and layer 4 to f (3, 6, 1.25); then g gives layer 3 (3, 4, 2.25) and layer 2 (3, 2,
        # 3.25) to f, which gives it back to g, a plan already measured.
        ran = run("plan", "--costs", costs, "--strategy", "shisha", "--json")
        assert (ran.status, ran.err) == (0, "")
        assert ran.object == {
            "stages": [
                {"first": 0, "last": 0, "places": ["s"], "service_s": 3.0},
                {"first": 1, "last": 1, "places": ["g"], "service_s": 2.0},
                {"first": 2, "last": 5, "places": ["f"], "service_s": 3.25},
            ],
            "unused": [],
            "bottleneck_s": 3.25,
            "throughput_fps": 1 / 3.25,
            "latency_s": 8.25,
            "latency_proven": False,
            "energy_j": None,
            "objective": "throughput",
            "space": says("chains of stages, …"),
            "trials": 4,
            "trial_time_s": 6 + 6 + 4 + 3.25,
            "space_size": "93",  # one stage: 3; two: 5 cuts x 6; three: 10 x 6
            "log10_space_size": pytest.approx(math.log10(93)),
            "explored_fraction": 4 / 10,
            "lower_bound_s": None,
            "lower_bound_j": None,
            "link": None,
            "outcome": "feasible",
            "reason": None,
            "order": "file",
            "order_gain": None,
            "order_gain_most": None,
            "order_reason": says("… looked for with --strategy shisha"),
        }

    def test_alpha_ends_it_sooner(self, run: Run, costs: Path) -> None:
        ran = run("plan", "--costs", costs, "--strategy", "shisha", "--alpha", 1, "--json")
        assert (ran.object["trials"], ran.object["bottleneck_s"]) == (2, 6.0)

    def test_balance_chooses_the_target(self, run: Run, costs: Path) -> None:
        ran = run("plan", "--costs", costs, "--strategy", "shisha", "--balance", "nfep")
        assert "layer 1 from stage 0 (s) to stage 1 (g): " in ran.out
        ran = run("plan", "--costs", costs, "--strategy", "shisha", "--balance", "nlfep")
        assert "layer 1 from stage 0 (s) towards stage 2 (f): " in ran.out

    def test_the_seed_is_assigned_as_asked(self, run: Run, costs: Path) -> None:
        ran = run("plan", "--costs", costs, "--strategy", "shisha", "--assign", "layers", "--stages", 2)
        assert ran.out.startswith("start g: 0-4 | f: 5-5: 0.1 frames/s\n")

    def test_a_stage_that_tuning_emptied_still_counts_in_the_space(self, run: Run, costs: Path) -> None:
        rewritten(costs, time_s=[[9, 1, 1]] * 6)
        answer = run("plan", "--costs", costs, "--strategy", "shisha", "--json").object
        assert ([stage["places"] for stage in answer["stages"]], answer["unused"]) == ([["g"], ["f"]], ["s"])
        assert (answer["space_size"], answer["explored_fraction"]) == ("93", answer["trials"] / 10)

    def test_in_words(self, run: Run, costs: Path) -> None:
        lines = run("plan", "--costs", costs, "--strategy", "shisha").out.splitlines()
        assert lines[:4] == [
            "start s: 0-1 | g: 2-4 | f: 5-5: 0.1667 frames/s",
            "   1  layer 1 from stage 0 (s) towards stage 2 (f): 0.1667 frames/s",
            says("   2  layer 3 from stage 1 (g) to stage 2 (f): 0.25 frames/s, best so …"),
            says("   3  layer 2 from stage 1 (g) to stage 2 (f): 0.3077 frames/s, best so …"),
        ]
        assert lines[-2:] == [
            says("kept: best of 4 plans; the walk is …"),
            "throughput: 0.1667 frames/s before, 0.3077 frames/s after, 1.85 times",
        ]

    def test_only_the_last_moves_are_shown(self, run: Run, costs: Path) -> None:
        count = 30
        rewritten(
            costs,
            layers=[{"name": str(i), "weight": 40 if i == 0 else 1} for i in range(count)],
            places=[{"name": "f", "rank": 1}, {"name": "s", "rank": 2}],
            time_s=[[1, 3]] * count,
        )
        lines = run("plan", "--costs", costs, "--strategy", "shisha").out.splitlines()
        assert lines[1:3] == [
            "      (12 earlier moves)",
            says("  13  layer 13 from stage 1 (s) to stage 0 (f): 0.02083 frames/s, best so …"),
        ]

    def test_infeasible_from_end_to_end(self, run: Run, costs: Path) -> None:
        rewritten(costs, time_s=[[None] * 3] * 6)
        ran = run("plan", "--costs", costs, "--strategy", "shisha", "--json")
        assert (ran.status, ran.object["outcome"], ran.object["trial_time_s"]) == (1, "infeasible", 0.0)
        assert ran.err == "shisha-rt: infeasible: s cannot run layer 0 (a)\n"
        ran = run("plan", "--costs", costs, "--strategy", "shisha")
        assert ran.out.startswith("start s: 0-1 | g: 2-4 | f: 5-5: cannot run\n")

    def test_a_place_that_cannot_run_a_layer_is_tuned_around(self, run: Run, costs: Path) -> None:
        rewritten(costs, time_s=[[None, 1, 2]] * 5 + [[0.25] * 3])
        ran = run("plan", "--costs", costs, "--strategy", "shisha")
        assert ran.status == 0
        assert ran.out.splitlines()[-1] == "throughput: 0 frames/s before, 0.25 frames/s after"

    def test_costs_of_zero(self, run: Run, costs: Path) -> None:
        rewritten(costs, time_s=[[0, 0, 0]] * 6)
        ran = run("plan", "--costs", costs, "--strategy", "shisha")
        assert ran.out.splitlines()[-1] == says("throughput: inf frames/s before, …")


@pytest.fixture
def larger_machine(tmp_path: Path) -> Path:
    """A place with more threads than any host has to measure with."""
    path = tmp_path / "larger.toml"
    path.write_text('[[place]]\nname = "a"\ncore_count = 4096\n[[place]]\nname = "b"\ncore_count = 4096\nrank = 2\n')
    return path


class TestModel:
    def test_times_come_from_the_profile_store(self, run: Run, tiny_model: Path) -> None:
        ran = run("plan", tiny_model, "--machine", "shared-2", "--strategy", "shisha", "--json")
        assert ran.status == 0
        assert all(stage["service_s"] > 0 for stage in ran.object["stages"])
        assert ran.object["bottleneck_s"] == max(stage["service_s"] for stage in ran.object["stages"])
        assert ran.object["trials"] >= 1
        again = run("plan", tiny_model, "--machine", "shared-2", "--strategy", "shisha", "--json")
        assert again.object == ran.object

    def test_times_are_unknown_where_they_cannot_be_measured(
        self, run: Run, tiny_model: Path, larger_machine: Path
    ) -> None:
        ran = run("plan", tiny_model, "--machine", larger_machine, "--json")
        assert ran.status == 0
        answer = ran.object
        assert [place for stage in answer["stages"] for place in stage["places"]] == ["a", "b"]
        assert [stage["service_s"] for stage in answer["stages"]] == [None, None]
        for key in ("bottleneck_s", "throughput_fps", "latency_s", "lower_bound_s"):
            assert answer[key] is None
        assert (answer["trials"], answer["trial_time_s"], answer["explored_fraction"]) == (0, 0.0, 0.0)
        assert answer["outcome"] == "feasible"

    def test_a_machine_on_paper(self, run: Run, tiny_model: Path, tmp_path: Path) -> None:
        machine = tmp_path / "paper.toml"
        machine.write_text(
            '[[place]]\nname = "a"\ncore_count = 8\n[[place]]\nname = "b"\ncore_count = 8\nspeed = 0.3\n'
        )
        assert len(run("plan", tiny_model, "--machine", machine, "--json").object["stages"]) == 2

    def test_tuning_needs_times(self, run: Run, tiny_model: Path, larger_machine: Path) -> None:
        ran = run("plan", tiny_model, "--machine", larger_machine, "--strategy", "shisha")
        assert ran.status == 2
        assert "4096" in ran.err

    def test_the_picture_without_times(self, run: Run, tiny_model: Path, larger_machine: Path) -> None:
        ran = run("plan", tiny_model, "--machine", larger_machine)
        assert "layers 0-1 " in ran.out
        assert "% of the weight █" in ran.out
        assert " ms" not in ran.out


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--alpha", 10, "--strategy", "guided"), "--alpha: not with --strategy guided"),
        (("--time-limit", 5), "--time-limit: not with --strategy seed"),
        (("--time-limit", 0, "--strategy", "exact"), "--time-limit 0: expected more than 0"),
        (("--alpha", 10, "--strategy", "exact"), "--alpha: not with --strategy exact"),
        (("--time-limit", 5, "--strategy", "shisha"), "--time-limit: not with --strategy shisha"),
        (("--time-limit", 0, "--strategy", "annealing"), "--time-limit 0: expected more than 0"),
        (("--time-limit", "nan", "--strategy", "annealing"), "--time-limit nan: expected more than 0"),
        (("--alpha", 10, "--strategy", "annealing"), "--alpha: not with --strategy annealing"),
        (("--stages", 0, "--strategy", "exhaustive"), "0 stages: expected at least 1"),
        (("--balance", "nfep"), "--balance: not with --strategy seed, expected --strategy shisha"),
        (("--alpha", 10), "--alpha: not with --strategy seed, expected --strategy shisha"),
        (("--strategy", "shisha", "--alpha", 0), "--alpha 0: expected at least 1"),
        (("--strategy", "shisha", "--alpha", -1), "--alpha -1: expected at least 1"),
        (("--replicate",), "--replicate: not with --strategy seed, expected --strategy exact or guided"),
        (("--replicate", "--strategy", "shisha"), "--replicate: not with --strategy shisha"),
        (("--objective", "latency", "--strategy", "annealing"), "--objective latency: not with --strategy annealing"),
        (("--split",), "--split: not with --strategy seed, expected --strategy exact or guided"),
        (("--objective", "energy", "--strategy", "exact"), "…: place p: power_w is missing"),
        (("--objective", "fps", "--strategy", "exact"), "--objective fps"),
        (("--stages", 0), "0 stages: expected at least 1"),
        (("--stages", 4), "4 stages"),
        (("--machine", "this-machine"), "--machine: not with --costs"),
        (("--dim", "N=1"), "--dim: not with --costs"),
        (("--layers", "operators"), "--layers: not with --costs"),
        (("model.onnx",), "plan: … MODEL and --costs"),
    ],
)
def test_refused_with_costs(run: Run, costs_file: Path, options: tuple[object, ...], expected: str) -> None:
    assert run("plan", "--costs", costs_file, *options).complaint == says(f"shisha-rt: {expected}…")


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ((), "plan: … MODEL and --costs COSTS.json"),
        (("m.onnx",), "m.onnx: no such file; expected an ONNX file, or zoo:NAME"),
        (("m.onnx", "--strategy", "opseq", "--layers", "heavy"), "--layers heavy: not with --strategy opseq"),
        (("m.onnx", "--strategy", "opseq", "--stages", 2), "--stages: not with --strategy opseq"),
        (("m.onnx", "--strategy", "opseq", "--replicate"), "--replicate: not with --strategy opseq"),
        (("m.onnx", "--strategy", "opseq", "--split"), "--split: not with --strategy opseq"),
        (
            ("m.onnx", "--strategy", "forkjoin", "--objective", "throughput"),
            "--objective throughput: not with --strategy forkjoin, which knows",
        ),
        (("m.onnx", "--group", "Conv+Relu"), "--group: not with --strategy seed, expected --strategy baseline"),
        (("m.onnx", "--precision", "some"), "--precision some"),
        (("c.json",), "plan c.json: no model has"),
        (("c.json", "--machine", "demo"), "plan c.json: no model has"),
        (("m.onnx", "--machine", "nope"), 'machine "nope": no such shipped'),
        (("no.onnx", "--machine", "this-machine"), "no.onnx"),
        (("zoo:nope", "--machine", "this-machine"), "zoo:nope"),
        (("--costs", "no.json"), "no.json: cannot be read"),
    ],
)
def test_refused(run: Run, argv: tuple[str, ...], expected: str) -> None:
    assert run("plan", *argv).complaint == says(f"shisha-rt: {expected}…")
