"""`plan` with the strategies that search all plans, or prove the best: the rivals, `exact` and `guided`."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from shisha_rt.planner.strategies import RIVALS
from tests.cli.conftest import Run, rewritten
from tests.wording import says


class TestRivals:
    @pytest.mark.parametrize("strategy", RIVALS)
    def test_the_object(self, run: Run, costs_file: Path, strategy: str) -> None:
        ran = run("plan", "--costs", costs_file, "--strategy", strategy, "--json")
        assert (ran.status, ran.err) == (0, "")
        answer = ran.object
        assert answer["bottleneck_s"] == max(stage["service_s"] for stage in answer["stages"])
        assert answer["trial_time_s"] >= answer["trials"] * answer["bottleneck_s"]
        assert (answer["space_size"], answer["explored_fraction"]) == ("21", answer["trials"] / 3)
        assert (answer["lower_bound_s"], answer["outcome"]) == (None, "feasible")

    def test_exhaustive_tries_the_whole_space(self, run: Run, costs_file: Path) -> None:
        exhaustive = run("plan", "--costs", costs_file, "--strategy", "exhaustive", "--json").object
        assert exhaustive["trials"] == 21
        for strategy in RIVALS:
            answer = run("plan", "--costs", costs_file, "--strategy", strategy, "--json").object
            assert exhaustive["bottleneck_s"] <= answer["bottleneck_s"]

    def test_a_search_repeats_with_its_seed(self, run: Run, costs_file: Path) -> None:
        def walked(seed: int) -> str:
            return run("plan", "--costs", costs_file, "--strategy", "annealing", "--seed", seed).out

        assert walked(4) == walked(4)
        assert len({walked(seed) for seed in range(5)}) > 1

    def test_the_time_limit_is_one_of_trial_time(self, run: Run, costs_file: Path) -> None:
        ran = run("plan", "--costs", costs_file, "--strategy", "random_walk", "--time-limit", 50)
        assert "the limit of 50 s of trials is" in ran.out
        answer = run("plan", "--costs", costs_file, "--strategy", "random_walk", "--time-limit", 50, "--json").object
        assert 50 <= answer["trial_time_s"] < 100

    def test_pipe_search_pays_for_trials_only(self, run: Run, costs_file: Path) -> None:
        answer = run("plan", "--costs", costs_file, "--strategy", "pipe_search", "--json").object
        assert answer["trials"] == 1 + 2 + 1  # the cuts of one, two and three stages


class TestExact:
    def test_the_object(self, run: Run, costs_file: Path) -> None:
        # q takes 0.5 s a layer, p 1 s, r 3 s. Cut 0 is illegal; entries cost 0.5 s at cut 1 and 0.25 s at cut 2. Layers
        # 0 to 2 on q take 1.5 s, as do layers 2 and 3 there; the rest on p takes 1.25 s or 2 s.
        ran = run("plan", "--costs", costs_file, "--strategy", "exact", "--json")
        assert (ran.status, ran.err) == (0, "")
        assert ran.object == {
            "stages": [
                {"first": 0, "last": 2, "places": ["q"], "service_s": 1.5},
                {"first": 3, "last": 3, "places": ["p"], "service_s": 1.25},
            ],
            "unused": ["r"],
            "bottleneck_s": 1.5,
            "throughput_fps": 1 / 1.5,
            "latency_s": 2.75,
            "latency_proven": True,
            "energy_j": None,
            "objective": "throughput",
            "space": says("chains of stages, …"),
            "trials": 0,
            "trial_time_s": 0.0,
            "space_size": "21",
            "log10_space_size": pytest.approx(math.log10(21)),
            "explored_fraction": 0.0,
            "lower_bound_s": 1.5,
            "lower_bound_j": None,
            "link": None,
            "outcome": "optimal",
            "reason": None,
            "order": "file",
            "order_gain": None,
            "order_gain_most": None,
            "order_reason": says("… layer reads what (`tensors`)"),
        }

    def test_no_more_stages_than_asked_for(self, run: Run, costs_file: Path) -> None:
        answer = run("plan", "--costs", costs_file, "--strategy", "exact", "--stages", 1, "--json").object
        assert [(s["first"], s["last"], s["places"]) for s in answer["stages"]] == [(0, 3, ["q"])]
        assert (answer["lower_bound_s"], answer["space_size"]) == (2.0, "3")

    def test_it_is_what_exhaustive_finds(self, run: Run, costs_file: Path) -> None:
        exact, exhaustive = (
            run("plan", "--costs", costs_file, "--strategy", strategy, "--json").object
            for strategy in ("exact", "exhaustive")
        )
        assert exact["bottleneck_s"] == exhaustive["bottleneck_s"]

    def test_in_words(self, run: Run, costs_file: Path) -> None:
        lines = run("plan", "--costs", costs_file, "--strategy", "exact").out.splitlines()
        assert lines[-3:-1] == ["unused: r", "predicted 0.6667 frames/s, latency 2750 ms"]
        among = "among chains of …"
        least = "… a lower latency (--replicate looks at copies …"
        assert lines[-1] == says(f"proven: no plan {among} {least}")

    def test_infeasible_says_which_layer(self, run: Run, costs_file: Path) -> None:
        rewritten(costs_file, time_s=[[1, 1, 1], [1, 1, 1], [None, None, None], [1, 1, 1]])
        ran = run("plan", "--costs", costs_file, "--strategy", "exact", "--json")
        reason = "… can run layer 2: p cannot run layer 2 (c)"
        assert (ran.status, ran.err) == (1, says(f"shisha-rt: infeasible: {reason}\n"))
        assert (ran.object["outcome"], ran.object["reason"], ran.object["stages"]) == ("infeasible", says(reason), [])
        assert (ran.object["unused"], ran.object["bottleneck_s"]) == (["p", "q", "r"], None)
        assert run("plan", "--costs", costs_file, "--strategy", "exact").out == "no plan\n"

    def test_a_time_limit_too_short_for_a_plan(self, run: Run, costs_file: Path) -> None:
        ran = run("plan", "--costs", costs_file, "--strategy", "exact", "--time-limit", 1e-9, "--json")
        reason = "stopped before the …"
        assert (ran.status, ran.err) == (1, says(f"shisha-rt: limit: {reason}\n"))
        assert (ran.object["outcome"], ran.object["reason"], ran.object["stages"]) == ("limit", says(reason), [])
        assert 0 < ran.object["lower_bound_s"] <= 1.5

    def test_a_time_limit_that_is_not_reached(self, run: Run, costs_file: Path) -> None:
        ran = run("plan", "--costs", costs_file, "--strategy", "exact", "--time-limit", 1e6, "--json")
        assert (ran.status, ran.object["outcome"]) == (0, "optimal")

    def test_what_is_not_proven(self, run: Run, costs_file: Path) -> None:
        count = 40
        rewritten(
            costs_file,
            layers=[{"name": str(i), "weight": 1} for i in range(count)],
            places=[{"name": f"p{i}", "rank": 1} for i in range(count)],
            time_s=[[1 + i / 100 for i in range(count)]] * count,
            transfer_s=[0] * (count - 1),
        )
        ran = run("plan", "--costs", costs_file, "--strategy", "exact", "--json")
        assert (ran.status, ran.object["outcome"], ran.object["reason"]) == (0, "feasible", None)
        assert 1 < ran.object["lower_bound_s"] < ran.object["bottleneck_s"] < 5
        words = run("plan", "--costs", costs_file, "--strategy", "exact").out.splitlines()
        assert words[-1].startswith("not proven: only that no")

    def test_from_the_profile_store(self, run: Run, tiny_model: Path) -> None:
        answer = run("plan", tiny_model, "--machine", "shared-2", "--strategy", "exact", "--json").object
        assert answer["bottleneck_s"] == answer["lower_bound_s"] > 0
        shisha = run("plan", tiny_model, "--machine", "shared-2", "--strategy", "shisha", "--json").object
        assert answer["bottleneck_s"] <= shisha["bottleneck_s"]


class TestGuided:
    def test_on_paper_the_exact_plan_is_confirmed(self, run: Run, costs_file: Path) -> None:
        ran = run("plan", "--costs", costs_file, "--strategy", "guided", "--json")
        exact = run("plan", "--costs", costs_file, "--strategy", "exact", "--json").object
        assert (ran.status, ran.err) == (0, "")
        answer = ran.object
        assert answer["bottleneck_s"] == exact["bottleneck_s"]
        assert 1 <= answer["trials"] <= 5
        assert answer["trial_time_s"] >= answer["trials"] * answer["bottleneck_s"]
        assert (answer["lower_bound_s"], answer["outcome"], answer["reason"]) == (None, "feasible", None)

    def test_no_more_stages_than_asked_for(self, run: Run, costs_file: Path) -> None:
        answer = run("plan", "--costs", costs_file, "--strategy", "guided", "--stages", 1, "--json").object
        assert [stage["places"] for stage in answer["stages"]] == [["q"]]

    def test_in_words(self, run: Run, costs_file: Path) -> None:
        out = run("plan", "--costs", costs_file, "--strategy", "guided").out
        assert out.startswith("start q: 0-2 | p: 3-3: 0.6667 frames/s\n")
        assert "promises to be 1% faster" in out

    def test_infeasible_says_which_layer(self, run: Run, costs_file: Path) -> None:
        rewritten(costs_file, time_s=[[1, 1, 1], [1, 1, 1], [None, None, None], [1, 1, 1]])
        ran = run("plan", "--costs", costs_file, "--strategy", "guided", "--json")
        assert (ran.status, ran.object["outcome"], ran.object["stages"]) == (1, "infeasible", [])
        assert ran.object["reason"] == says("… can run layer 2: p cannot run layer 2 (c)")


class TestCopiesAndTeams:
    @pytest.fixture
    def costs(self, tmp_path: Path) -> Path:
        """Layers of 2 s, 8 s and 2 s on any of four places; two together take half as long, but for layer 1: 5 s."""
        path = tmp_path / "teams.json"
        path.write_text(
            json.dumps(
                {
                    "layers": [{"name": name, "weight": weight} for name, weight in zip("abc", (1, 4, 1), strict=True)],
                    "places": [{"name": f"core{i}", "rank": 1} for i in range(4)],
                    "time_s": [[2] * 4, [8] * 4, [2] * 4],
                    "teams": [{"places": ["core1", "core0"], "time_s": [1, 5, 1]}],
                }
            )
        )
        return path

    def test_copies(self, run: Run, costs: Path) -> None:
        # 12 s over four places: 3 s a frame, if all take turns at the whole network.
        ran = run("plan", "--costs", costs, "--strategy", "exact", "--replicate", "--json")
        assert (ran.status, ran.err) == (0, "")
        assert ran.object["stages"] == [
            {"first": 0, "last": 2, "places": ["core0", "core1", "core2", "core3"], "service_s": 12.0}
        ]
        values = {key: ran.object[key] for key in ("bottleneck_s", "latency_s", "lower_bound_s", "space_size", "space")}
        assert values == {
            "bottleneck_s": 3.0,
            "latency_s": 12.0,
            "lower_bound_s": 3.0,
            "space_size": None,
            "space": says("chains of stages, …"),
        }
        assert ran.object["log10_space_size"] is ran.object["explored_fraction"] is None

    def test_a_team(self, run: Run, costs: Path) -> None:
        # 1 + 5 + 1 s in a team of two. A second team is slower than two places by themselves: 6 s a frame.
        ran = run("plan", "--costs", costs, "--strategy", "exact", "--replicate", "--objective", "latency", "--json")
        (stage,) = ran.object["stages"]
        assert stage["places"] == [["core0", "core1"], ["core2"], ["core3"]]
        values = [ran.object[key] for key in ("objective", "latency_s", "latency_proven", "lower_bound_s")]
        assert values == ["latency", 7.0, True, 7.0]
        assert ran.object["bottleneck_s"] == pytest.approx(1 / (1 / 7 + 1 / 6))
        assert stage["service_s"] == pytest.approx(3 * ran.object["bottleneck_s"])

    def test_no_copies_unless_asked_for(self, run: Run, costs: Path) -> None:
        plain = run("plan", "--costs", costs, "--strategy", "exact", "--no-replicate", "--json").object
        assert [stage["places"] for stage in plain["stages"]] == [["core0"], ["core1"], ["core2"]]
        alone = run("plan", "--costs", costs, "--strategy", "exact", "--objective", "latency", "--json").object
        assert (alone["latency_s"], alone["bottleneck_s"], alone["space_size"]) == (12.0, 8.0, plain["space_size"])

    @pytest.mark.parametrize("objective", ["throughput", "latency"])
    def test_guided_confirms_it(self, run: Run, costs: Path, objective: str) -> None:
        options = ("--costs", costs, "--replicate", "--objective", objective)
        answer = run("plan", *options, "--strategy", "guided", "--json").object
        exact = run("plan", *options, "--strategy", "exact", "--json").object
        assert (answer["stages"], answer["space"]) == (exact["stages"], exact["space"])
        assert (answer["objective"], answer["outcome"]) == (objective, "feasible")

    def test_the_picture(self, run: Run, costs: Path) -> None:
        options = ("plan", "--costs", costs, "--strategy", "exact", "--replicate")
        fast = run(*options).out
        assert "4 copies: core0, core" in fast
        assert "12000 ms / 4 ██" in fast
        assert fast.endswith("has a lower latency\n")
        quick = run(*options, "--objective", "latency").out
        assert "3 copies: core0+core1" in quick
        assert "proven: no plan among" in quick


class TestEnergy:
    @pytest.fixture
    def board(self, tmp_path: Path) -> Path:
        """Layer a takes 1 J on p and 2 J on q, layer b 4 J and 2 J; both on p take 5 s, both on q 8 s."""
        path = tmp_path / "board.json"
        places = [{"name": "p", "rank": 1, "power_w": 1.0}, {"name": "q", "rank": 2, "power_w": 0.5}]
        layers = [{"name": name, "weight": 1} for name in "ab"]
        path.write_text(json.dumps({"layers": layers, "places": places, "time_s": [[1, 4], [4, 4]]}))
        return path

    def test_the_fewest_joules_within_a_target(self, run: Run, board: Path) -> None:
        options = ("plan", "--costs", board, "--strategy", "exact", "--objective", "energy", "--json")
        frugal = run(*options).object
        assert (frugal["energy_j"], frugal["latency_s"], frugal["outcome"]) == (3.0, 5.0, "optimal")
        assert frugal["lower_bound_j"] == pytest.approx(3.0)
        assert (frugal["lower_bound_s"], frugal["objective"]) == (None, "energy")
        infeasible = run(*options, "--target-ms", "4999")
        assert (infeasible.status, infeasible.object["outcome"]) == (1, "infeasible")
        assert "4999 ms" in infeasible.object["reason"]
        words = run(*options[:-1], "--target-ms", "5000").out
        assert "3000 mJ a frame" in words

    def test_every_plan_says_its_energy(self, run: Run, board: Path) -> None:
        fast = run("plan", "--costs", board, "--strategy", "exact", "--json").object
        assert (fast["bottleneck_s"], fast["energy_j"], fast["lower_bound_j"]) == (4.0, 3.0, None)

    def test_trials_look_for_it_too(self, run: Run, board: Path) -> None:
        options = ("plan", "--costs", board, "--strategy", "guided", "--objective", "energy")
        assert run(*options, "--json").object["energy_j"] == 3.0
        assert "3000 mJ after" in run(*options).out

    def test_what_it_takes(self, run: Run, board: Path, costs_file: Path) -> None:
        options = ("plan", "--strategy", "exact", "--objective", "energy", "--costs")
        assert "place p: power_w is missing" in run(*options, costs_file).complaint
        assert "--strategy seed" in run("plan", "--costs", board, "--objective", "energy").complaint
        assert "--target-ms" in run("plan", "--costs", board, "--target-ms", 5).complaint
        assert "--target-ms -1" in run(*options, board, "--target-ms", -1).complaint
        assert "--split" in run(*options, board, "--split").complaint
