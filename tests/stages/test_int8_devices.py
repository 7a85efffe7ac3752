"""Devices of int8: bit for bit what numpy makes of the integers, however the operators are parted."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from shisha_rt.cache import fault_in
from shisha_rt.errors import BadInput, Error
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.machine.device import Device
from shisha_rt.measure.compile import compile_model
from shisha_rt.measure.compiled import Compiled
from shisha_rt.measure.make_ready import make_ready
from shisha_rt.measure.scales import make_scales
from shisha_rt.messages.scales import read_scales, scales_file, write_scales
from shisha_rt.model.indexing import plain_index
from shisha_rt.model.layers import group_layers
from shisha_rt.model.scales import exponent, never_negative, scaled_tensors, tensor_exponents
from shisha_rt.model.spans import groups_of
from shisha_rt.model.split import Split
from shisha_rt.model.zoo import zoo_path
from shisha_rt.placement.segments import segment
from stages.built.clean_model import CleanModel
from stages.built.split_model import SplitStageModel
from stages.engines.device_session import build_session
from stages.engines.int8 import in_integers
from stages.engines.onnxruntime.magnitudes import largest_magnitudes
from stages.engines.session import untimed
from stages.jobs.find_scales import find_scales
from tests.model.networks import Array, graph_of, network, odd_network, weight, write
from tests.stages.capable import capable
from tests.stages.clean_models import Arrays, empty_outputs, evaluated, random_feeds, saved, whole
from tests.stages.int8_reference import computed_by_hand
from tests.stages.test_placed import arena_for, inputs_of, model_of, outputs_in, put
from tests.wording import raised

NPU: Final = Device("npu", "test", "onnxruntime", "npu", "int8")
CPU: Final = Device("cpu", "test", "onnxruntime", "cpu", "fp32")


def run_whole(model: CleanModel, feeds: Arrays) -> Arrays:
    """The graph's outputs."""
    outputs = empty_outputs(model, whole(model))
    build_session(model, whole(model), NPU).bind(feeds | outputs)(untimed)
    return outputs


def assert_as_by_hand(model: CleanModel, answers: Arrays, feeds: Arrays) -> None:
    expected = computed_by_hand(model, feeds, [True] * len(model.graph.operators))
    for name, value in answers.items():
        assert value.tobytes() == expected[name].tobytes(), name


def scaled(model: onnx.ModelProto, folder: Path) -> CleanModel:
    cleaned = saved(model, folder)
    find_scales(folder)
    return cleaned


def drawn_conv(rng: random.Random) -> onnx.ModelProto:
    """One Conv of 1 to 3 dimensions, with whatever attributes ONNX knows, on one that may have a Relu behind it."""
    rank = rng.choice([1, 2, 2, 2, 3])
    group = rng.choice([1, 1, 2, 4])
    channels, filters = group * rng.randint(1, 9), group * rng.randint(1, 9)
    size = [rng.randint(7, 12) for _ in range(rank)]
    kernel = [rng.randint(1, 3) for _ in range(rank)]
    attributes: dict[str, Any] = {"strides": [rng.randint(1, 3) for _ in range(rank)]}
    padding = rng.choice(["pads", "pads", "none", "SAME_UPPER", "SAME_LOWER", "VALID"])
    if padding == "pads":
        attributes["pads"] = [rng.randint(0, 2) for _ in range(2 * rank)]
    elif padding != "none":
        attributes["auto_pad"] = padding
    if not padding.startswith("SAME"):  # the engine has no dilations there
        attributes["dilations"] = [rng.randint(1, 2) for _ in range(rank)]
    seed = rng.randrange(1000)
    weights = {"w": weight(filters, channels // group, *kernel, seed=seed) * np.float32(rng.choice([1e-3, 1, 30]))}
    inputs = ["x", "w"]
    if rng.random() < 0.7:
        weights["b"] = weight(filters, seed=seed + 1) * np.float32(rng.choice([1e-3, 1, 30]))
        inputs.append("b")
    nodes = [helper.make_node("Conv", inputs, ["a"], group=group, **attributes)]
    if rng.random() < 0.5:
        nodes.append(helper.make_node("Relu", ["a"], ["r"]))
    made = nodes[-1].output[0]
    opset = rng.choice([11, 17])
    return network(
        nodes, {"x": (rng.randint(1, 2), channels, *size)}, {made: [None] * (rank + 2)}, weights, opset=opset
    )


class TestAConv:
    @pytest.mark.parametrize("seeds", [range(n, n + 10) for n in range(0, 40, 10)], ids=str)
    def test_of_any_kind(self, seeds: Sequence[int], tmp_path: Path) -> None:
        differing = 0
        for seed in seeds:
            folder = tmp_path / str(seed)
            folder.mkdir()
            model = scaled(drawn_conv(random.Random(seed)), folder)
            feeds = random_feeds(model, whole(model), seed)
            answers = run_whole(model, feeds)
            assert_as_by_hand(model, answers, feeds)
            differing += all(value.std() > 0 for value in answers.values())
        assert differing >= len(seeds) - 2  # a large bias may be all there is

    @pytest.mark.parametrize("shift", [0, 7, 16, 17, 18, 20, 24])
    @pytest.mark.parametrize("channels", [16, 512, 2048])
    def test_sums_are_exact_whatever_the_weights(self, channels: int, shift: int, tmp_path: Path) -> None:
        """Of the largest integers there are, and of pairs that 16 bits do not hold; ties a single unit apart."""
        rng = np.random.default_rng(channels + shift)
        kernel = rng.choice([-127, 127], (8, channels, 3, 3)).astype(np.float32)
        kernel[0], kernel[1] = 127, -127
        image = rng.choice([-127, -126, 126, 127], (1, channels, 4, 4)).astype(np.float32)
        image[..., 0] = 127
        bias = (rng.integers(-2, 3, 8) + 2**shift // 2).astype(np.float32)
        conv = helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[1, 1, 1, 1])
        model = saved(network([conv], {"x": image.shape}, {"y": (1, 8, 4, 4)}, {"w": kernel, "b": bias}), tmp_path)
        write_scales({"x": 0, "y": shift}, tmp_path, scales_file())
        assert_as_by_hand(model, run_whole(model, {"x": image}), {"x": image})

    @pytest.mark.parametrize("shift", [8, 16, 17, 18, 20, 23])
    def test_ties_of_sums_that_a_float32_does_not_hold(self, shift: int, tmp_path: Path) -> None:
        """Each step's tie and its neighbours on both sides; the last 7 bits are a product's, the others the bias's."""
        steps = np.arange(-128, 128)
        sums = ((steps * 2 + 1) * 2 ** (shift - 1)).repeat(3) + np.tile([-1, 0, 1], len(steps))
        low = (sums + 64) % 128 - 64
        kernel = np.stack([low, np.full_like(low, 127)], axis=1)  # the second, read by 0, gives a filter a scale of 1
        weights = {"w": kernel[..., None, None].astype(np.float32), "b": (sums - low).astype(np.float32)}
        conv = helper.make_node("Conv", ["x", "w", "b"], ["y"])
        model = saved(network([conv], {"x": (1, 2, 1, 1)}, {"y": (1, len(sums), 1, 1)}, weights), tmp_path)
        write_scales({"x": 0, "y": shift}, tmp_path, scales_file())
        feeds: Arrays = {"x": np.array([1, 0], np.float32).reshape(1, 2, 1, 1)}
        answers = run_whole(model, feeds)
        assert_as_by_hand(model, answers, feeds)
        assert len(np.unique(answers["y"])) == 255

    def test_a_large_bias_beside_small_weights(self, tmp_path: Path) -> None:
        """It is kept, at the cost of the weights; a sum cannot wrap round."""
        weights = {"w": np.full((4, 64, 1, 1), 127e-6, np.float32), "b": np.array([3e38, -3e38, 4.1e3, -4.1e3], "f")}
        conv = helper.make_node("Conv", ["x", "w", "b"], ["y"])
        model = saved(network([conv], {"x": (1, 64, 3, 3)}, {"y": (1, 4, 3, 3)}, weights), tmp_path)
        write_scales({"x": 0, "y": 10}, tmp_path, scales_file())
        for image in (127, -127):
            feeds: Arrays = {"x": np.full((1, 64, 3, 3), image, np.float32)}
            answers = run_whole(model, feeds)
            assert_as_by_hand(model, answers, feeds)
            np.testing.assert_array_equal(answers["y"][0, :, 0, 0] / 2**10, [127, -127, 4, -4])

    def test_filters_have_scales_of_their_own(self, tmp_path: Path) -> None:
        """As where a normalisation was folded into them: the smallest is near fp32, too."""
        kernel = weight(8, 16, 3, 3) * np.logspace(-9, 1, 8, dtype=np.float32).reshape(-1, 1, 1, 1)
        conv = helper.make_node("Conv", ["x", "w"], ["y"])
        model = saved(network([conv], {"x": (1, 16, 6, 6)}, {"y": (1, 8, 4, 4)}, {"w": kernel}), tmp_path)
        feeds = random_feeds(model, whole(model))
        smallest = evaluated(model, whole(model), feeds)["y"][:, 0]
        largest = np.abs(smallest).max()
        write_scales({"x": -5, "y": exponent(float(largest))}, tmp_path, scales_file())
        answers = run_whole(model, feeds)
        assert_as_by_hand(model, answers, feeds)
        assert np.abs(answers["y"][:, 0] - smallest).max() < 0.03 * largest

    def test_sums_to_be_added_to_others_are_handed_on_unrounded(self, tmp_path: Path) -> None:
        """As shards of input channels make them: one may be far beyond the range of what they come to together."""
        rng = np.random.default_rng(0)
        kernel = rng.integers(-127, 128, (8, 32, 3, 3)).astype(np.float32)
        bias = rng.integers(-100, 100, 8).astype(np.float32)
        kernel[0, :16], kernel[0, 16:] = 127, -127
        image = rng.integers(0, 128, (1, 32, 6, 6)).astype(np.float32)
        conv = helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[1, 1, 1, 1])
        weights = {"w": kernel, "b": bias}
        model = saved(network([conv], {"x": image.shape}, {"y": (1, 8, 6, 6)}, weights), tmp_path)
        write_scales({"x": 0}, tmp_path, scales_file())
        exact = evaluated(model, whole(model), {"x": image})["y"]
        index = plain_index(model.graph, group_layers(model.graph))
        total = np.zeros_like(exact)
        for part in range(2):
            split = Split((0, 0), "inputs", (16, 16), part)
            shard = SplitStageModel(model, index, split, [split.span], block=0).model
            sums = run_whole(shard, {"x": image[:, 16 * part : 16 * part + 16]})[f"y#{part}"]
            assert np.abs(sums).max() > 100 * 127
            total += sums
        np.testing.assert_array_equal(total, exact)

    def test_values_at_and_beyond_the_ends(self, tmp_path: Path) -> None:
        model = saved(network([helper.make_node("Relu", ["x"], ["y"])], {"x": (9,)}, {"y": (9,)}), tmp_path)
        write_scales({"x": -1, "y": -1}, tmp_path, scales_file())
        values = [0.25, 0.75, 1.25, 63.4, 63.75, 1e30, np.inf, -np.inf, -0.0]
        answer = run_whole(model, {"x": np.array(values, np.float32)})["y"]
        np.testing.assert_array_equal(answer, np.array([0, 1, 1, 63.5, 63.5, 63.5, 63.5, 0, 0], np.float32))
        assert not np.signbit(answer).any()


def forked() -> onnx.ModelProto:
    """A Conv that a Relu alone reads, one that a Relu and a Conv read, one whose result is handed out and read on."""
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["c"]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Conv", ["c", "w3", "b3"], ["early"], strides=[2, 2]),
        helper.make_node("Relu", ["early"], ["e"]),
        helper.make_node("Conv", ["e", "w4"], ["late"]),
        helper.make_node("Conv", ["d", "w2"], ["y"]),
    ]
    weights = {
        "w1": weight(16, 3, 3, 3, seed=1),
        "b1": weight(16, seed=2),
        "w2": weight(16, 16, 1, 1, seed=3),
        "w3": weight(8, 16, 3, 3, seed=4),
        "b3": weight(8, seed=5),
        "w4": weight(4, 8, 1, 1, seed=6),
    }
    outputs = {"early": (1, 8, 4, 4), "late": (1, 4, 4, 4), "y": (1, 16, 9, 9)}
    return network(nodes, {"x": (1, 3, 9, 9)}, outputs, weights)


def of_made_weights() -> onnx.ModelProto:
    conv = helper.make_node("Conv", ["x", "k"], ["y"])
    return network([conv], {"x": (1, 1, 4), "k": (1, 1, 3)}, {"y": (1, 1, 2)})


class TestSegments:
    def test_any_run_of_operators_makes_what_all_together_do(self, tmp_path: Path) -> None:
        """So a network may be parted in every way."""
        model = scaled(forked(), tmp_path)
        count = len(model.graph.operators)
        expected = computed_by_hand(model, random_feeds(model, whole(model)), [True] * count)
        for first in range(count):
            for last in range(first, count):
                part = segment(model.graph, first, last, NPU.name)
                made = empty_outputs(model, part)
                build_session(model, part, NPU).bind(expected | made)(untimed)
                for name, value in made.items():
                    assert value.tobytes() == expected[name].tobytes()
                    assert value.std() > 0

    def test_a_relu_elsewhere_is_all_the_same(self, tmp_path: Path) -> None:
        """Where it alone reads what a Conv makes: fused, by itself, or on a device of fp32."""
        nodes = [helper.make_node("Conv", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
        model = scaled(network(nodes, {"x": (1, 4, 9, 9)}, {"y": (1, 8, 9, 9)}, {"w": weight(8, 4, 1, 1)}), tmp_path)
        feeds = random_feeds(model, whole(model))
        conv, relu = segment(model.graph, 0, 0, "npu"), segment(model.graph, 1, 1, "cpu")
        made, answers = empty_outputs(model, conv), empty_outputs(model, relu)
        build_session(model, conv, NPU).bind(feeds | made)(untimed)
        build_session(model, relu, CPU).bind(made | answers)(untimed)
        assert answers["y"].tobytes() == run_whole(model, feeds)["y"].tobytes()
        assert (made["a"] < 0).any()

    def test_scales_are_not_the_frame_s(self, tmp_path: Path) -> None:
        """What is far out of the calibration frames' range is cut off at its end."""
        model = scaled(forked(), tmp_path)
        before = read_scales(tmp_path, scales_file())
        for factor in (1e-3, 1e3):
            feeds = {name: value * np.float32(factor) for name, value in random_feeds(model, whole(model)).items()}
            answers = run_whole(model, feeds)
            assert_as_by_hand(model, answers, feeds)
        assert read_scales(tmp_path, scales_file()) == before == scaled(forked(), tmp_path).scales
        assert np.abs(answers["y"]).max() <= 127 * 2.0 ** model.scales["y"]

    @pytest.mark.parametrize(
        ("model", "said"),
        [
            (odd_network(), r"operator 'Det_1' is Det: .* int8"),
            (of_made_weights(), r"reads 'k': .* float32 in int8"),
        ],
    )
    def test_what_is_not_computed_in_int8(self, model: onnx.ModelProto, said: str, tmp_path: Path) -> None:
        scaled_model = scaled(model, tmp_path)
        with pytest.raises(ValueError, match=said):
            build_session(scaled_model, whole(scaled_model), NPU)

    def test_a_model_whose_scales_have_not_been_found(self, tmp_path: Path) -> None:
        model = saved(forked(), tmp_path)
        with pytest.raises(ValueError, match="tensor 'x' has no scale"):
            build_session(model, whole(model), NPU)


class TestScales:
    def test_the_smallest_power_of_two_that_fits(self) -> None:
        rng = np.random.default_rng(0)
        at_ends = [127 * 2.0**n for n in range(-90, 100)]
        beyond = list(map(float, np.nextafter(np.array(at_ends, np.float32), np.float32(np.inf))))
        for largest in (*at_ends, *beyond, *(10.0 ** rng.uniform(-30, 30, 1000))):
            power = exponent(largest)
            assert largest <= 127 * 2.0**power
            assert largest > 127 * 2.0 ** (power - 1)
        assert [exponent(127.0), exponent(127.5), exponent(0.0)] == [0, 1, 0]

    def test_a_relu_has_one_scale(self, tmp_path: Path) -> None:
        graph = graph_of(forked(), tmp_path)
        assert set(scaled_tensors(graph)) == {"x", "a", "b", "c", "d", "early", "e", "late", "y"}
        largest: dict[str, float] = {"x": 1, "a": 1000, "b": 100, "c": 1000, "d": 100, "early": 1000, "e": 100}
        largest |= {"late": math.nan, "y": math.inf}
        exponents = tensor_exponents(graph, largest)
        assert exponents == {"x": -6, "a": 0, "b": 0, "c": 3, "d": 3, "early": 3, "e": 3}


@pytest.fixture(scope="module")
def squeezenet() -> Compiled:
    compiled = compile_model(zoo_path("squeezenet"), plain="operators")
    make_scales(compiled)
    return compiled


class TestPlaced:
    """SqueezeNet as stages of a place, its Convs of 16 channels and Relus in int8, all else in fp32."""

    def test_in_stages_what_numpy_makes_of_it(self, squeezenet: Compiled) -> None:
        graph, in_int8 = squeezenet.model.graph, capable(squeezenet.model.graph)
        placement = ["npu" if is_int8 else "cpu" for is_int8 in in_int8]
        placed = model_of(squeezenet, [CPU, NPU])
        inputs = inputs_of(squeezenet, seed=0)
        outputs = []
        for cuts in ([], [9, 30, 52]):
            with arena_for(squeezenet) as arena:
                put(arena, 0, inputs)
                for run in groups_of(len(graph.operators), cuts):
                    placed.stage((run,), placement[run[0] : run[1] + 1]).on_slot(arena, 0)(untimed)
                outputs.append(outputs_in(arena, 0, squeezenet))
        one_stage, in_stages = outputs
        model = CleanModel.read(squeezenet.model_folder)
        expected = computed_by_hand(model, inputs, in_int8)
        for name, value in one_stage.items():
            assert in_stages[name].tobytes() == value.tobytes()
            np.testing.assert_allclose(value, expected[name], rtol=1e-5)
            assert value.std() > 0

    def test_how_much_it_changes_is_found_in_the_range_of_its_scales(self, squeezenet: Compiled) -> None:
        """Of noise as large as elsewhere, most would be cut off in most stages, and fp32 be far from that."""
        placed = model_of(squeezenet, [CPU, NPU])
        in_int8 = capable(squeezenet.model.graph)
        differences = []
        for first in (i for i, is_int8 in enumerate(in_int8) if is_int8 and not in_int8[i - 1]):
            last = in_int8.index(False, first) - 1
            differences.append(placed.stage(((first, last),), ["npu"] * (last - first + 1)).difference)
        assert min(differences) > 0.01
        assert np.median(differences) < 0.1


def test_scales_are_found_once(tmp_path: Path) -> None:
    compiled = compile_model(write(forked(), tmp_path), plain="heavy")
    file = compiled.model_folder / scales_file()
    make_scales(compiled)
    made = file.stat()
    make_scales(compiled)
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (made.st_ino, made.st_mtime_ns)
    file.write_bytes(b'{"x": 0.5}')
    make_scales(compiled)
    assert read_scales(compiled.model_folder, scales_file()) == scaled(forked(), tmp_path).scales
    assert fault_in(compiled.model_folder) is None


def test_scales_that_are_being_written_are_not_among_the_files_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that starts opens all of these, and failed where one was gone again."""
    listed: list[list[Path]] = []
    replace = Path.replace

    def look(unfinished: Path, target: Path) -> Path:
        listed.append([*target.parent.iterdir()])
        return replace(unfinished, target)

    folder = tmp_path / "model"
    folder.mkdir()
    monkeypatch.setattr(Path, "replace", look)
    write_scales({"x": 1}, folder, scales_file())
    assert listed == [[]]
    assert [*folder.iterdir()] == [folder / scales_file()]
    assert [*tmp_path.iterdir()] == [folder]


DESCRIBED: Final = """
engine = "onnxruntime"
memory = "npu"
precision = "int8"
call_s = 1e-4
family = [{ ops = ["Conv"], cost = [] }]
"""


class TestFramesOfAUsers:
    @pytest.fixture
    def compiled(self, tmp_path: Path) -> Compiled:
        return compile_model(write(forked(), tmp_path), plain="heavy")

    def test_scales_are_found_on_them(self, compiled: Compiled, tmp_path: Path) -> None:
        frames = tmp_path / "frames.npz"
        np.savez(frames, x=100 * weight(3, 1, 3, 9, 9))
        usual, own = make_scales(compiled), make_scales(compiled, frames)
        scales = {name: CleanModel.read(compiled.model_folder, name).scales for name in (usual, own)}
        assert scales[own]["x"] == exponent(float(np.abs(100 * weight(3, 1, 3, 9, 9)).max()))
        assert all(5 <= scales[own][name] - scales[usual][name] <= 8 for name in scales[usual])

    @pytest.mark.parametrize(
        ("arrays", "said"),
        [
            ({"y": weight(3, 1, 3, 9, 9)}, r"has y: .* x"),
            ({}, r"has nothing: .* x"),
            ({"x": weight(1, 3, 9, 9)}, r"x is float32 of \(1, 3, 9, 9\): expected float32 of \(frames, 1, 3, 9, 9\)"),
            ({"x": weight(0, 1, 3, 9, 9)}, r"x is float32 of \(0, 1, 3, 9, 9\)"),
            ({"x": weight(2, 1, 3, 9, 9).astype(np.float64)}, "x is float64"),
            ({"x": np.full((1, 1, 3, 9, 9), np.nan, np.float32)}, r"x has values .* or NaN"),
        ],
    )
    def test_that_do_not_fit(self, compiled: Compiled, arrays: Arrays, said: str, tmp_path: Path) -> None:
        frames = tmp_path / "frames.npz"
        with frames.open("wb") as file:
            np.savez(file, **dict[str, Any](arrays))
        with raised(BadInput, Error.WRONG_FRAMES, match=said):
            make_scales(compiled, frames)

    @pytest.mark.parametrize("content", [b"", b"frames", b"PK\x03\x04"])
    def test_that_cannot_be_read(self, compiled: Compiled, content: bytes, tmp_path: Path) -> None:
        frames = tmp_path / "frames.npz"
        with raised(BadInput, Error.UNREADABLE_FILE, match=r"frames\.npz: cannot .* directory\)"):
            make_scales(compiled, frames)
        frames.write_bytes(content)
        with raised(BadInput, Error.WRONG_FRAMES, match=r"frames\.npz: no arrays that .* \.npz"):
            make_scales(compiled, frames)
        np.save(frames.with_suffix(".npy"), weight(3))
        frames.write_bytes(frames.with_suffix(".npy").read_bytes())
        with raised(BadInput, Error.WRONG_FRAMES, match=r"frames\.npz: has nothing: .* x"):
            make_scales(compiled, frames)

    def test_a_model_made_ready_has_its_own(self, compiled: Compiled, tmp_path: Path) -> None:
        frames, machine = tmp_path / "frames.npz", tmp_path / "board.toml"
        np.savez(frames, x=weight(3, 1, 3, 9, 9))
        (tmp_path / "npu.toml").write_text(DESCRIBED)
        (tmp_path / "cpu.toml").write_text(DESCRIBED.replace("int8", "fp32").replace("Conv", "*"))
        machine.write_text('[[place]]\nname = "npu"\ncores = [0]\ndevices = ["./npu.toml", "./cpu.toml"]')
        board, model = load_machine(str(machine)), write(forked(), tmp_path)
        assert make_ready(model, board, precision="any").scales == make_scales(compiled)
        assert make_ready(model, board, precision="any", calibration=frames).scales == make_scales(compiled, frames)

    @pytest.mark.parametrize(
        ("device", "said"),
        [
            (DESCRIBED.replace('"Conv"', '"MaxPool", "Conv"'), "ops: MaxPool:"),
            (DESCRIBED.replace("Conv", "*"), r"ops: \*:"),
            (DESCRIBED + '[[fused]]\nops = ["Conv", "Tanh"]', "ops: Tanh:"),
            pytest.param(
                DESCRIBED.replace("onnxruntime", "openvino"),
                'engine = "openvino": expected "onnxruntime"',
                marks=pytest.mark.skipif(find_spec("openvino") is None, reason="needs the extra openvino"),
            ),
            ('engine = "onnxruntime"\nprecision = "int8"', r"no \[\[family\]\]:"),
        ],
    )
    def test_a_device_that_cannot_be_of_int8(self, device: str, said: str, tmp_path: Path) -> None:
        (tmp_path / "npu.toml").write_text(device)
        (tmp_path / "cpu.toml").write_text(DESCRIBED.replace("int8", "fp32").replace("Conv", "*"))
        machine = tmp_path / "board.toml"
        machine.write_text('[[place]]\nname = "npu"\ncores = [0]\ndevices = ["./npu.toml", "./cpu.toml"]')
        with raised(BadInput, Error.DEVICE_UNFIT, match=said + ".* int8"):
            make_ready(write(forked(), tmp_path), load_machine(str(machine)), precision="any")

    def test_where_no_device_has_scales(self, tmp_path: Path) -> None:
        frames = tmp_path / "frames.npz"
        with raised(BadInput, Error.DEVICE_UNFIT, match="no device of int8 runs:"):
            make_ready(write(forked(), tmp_path), load_machine("this-machine"), calibration=frames)


def test_a_magnitude_that_is_nan_on_any_frame_is_nan(tmp_path: Path) -> None:
    nodes = [helper.make_node("Sqrt", ["x"], ["y"])]
    model = saved(network(nodes, {"x": [1, 4]}, {"y": [1, 4]}), tmp_path)
    frames = [{"x": np.full((1, 4), value, np.float32)} for value in (4.0, -1.0, 9.0)]
    (name,) = (tensor for tensor in model.graph.tensors if tensor != "x")
    assert largest_magnitudes(model, [name], frames[::2]) == {name: 3.0}
    assert math.isnan(largest_magnitudes(model, [name], frames)[name])


def in_int8(model: onnx.ModelProto, exponents: dict[str, int], feeds: Arrays) -> Array:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(in_integers(model, exponents).SerializeToString(), options)
    (output,) = session.run(None, feeds)
    return np.asarray(output)


def test_a_filter_whose_weights_are_all_0_keeps_its_bias() -> None:
    x = np.linspace(-100, 100, 32, dtype=np.float32).reshape(1, 2, 4, 4)
    weights = {"w": np.zeros((1, 2, 1, 1), np.float32), "b": np.array([0.3], np.float32)}
    model = network([helper.make_node("Conv", ["x", "w", "b"], ["y"])], {"x": [*x.shape]}, {"y": [1, 1, 4, 4]}, weights)
    exponents = {"x": exponent(100.0), "y": exponent(0.3)}
    assert in_int8(model, exponents, {"x": x}) == pytest.approx(0.3, abs=2.0 ** exponents["y"])


def test_a_relu_behind_a_relu_has_the_scale_of_both(tmp_path: Path) -> None:
    """The first one's input is read elsewhere, too, so that its output takes over a scale that the second one keeps."""
    nodes = [
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Neg", ["a"], ["d"]),
    ]
    graph = graph_of(network(nodes, {"a": [1, 4]}, {"c": [1, 4], "d": [1, 4]}, {}), tmp_path)
    exponents = tensor_exponents(graph, {"a": 100.0, "b": 2.0, "c": 2.0})
    assert exponents["a"] == exponents["b"] == exponents["c"]


def test_a_weight_beside_a_relu_may_be_negative(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["positive"]),
        helper.make_node("Concat", ["positive", "positive"], ["both"], axis=1),
        helper.make_node("Reshape", ["both", "shape"], ["flat"]),
        helper.make_node("Concat", ["flat", "w"], ["either"], axis=0),
    ]
    weights = {"w": np.full(2, -1, np.float32), "shape": np.array([8])}
    graph = graph_of(network(nodes, {"x": [1, 4]}, {"either": [10]}, weights), tmp_path)
    assert never_negative(graph) == {"positive", "both", "flat"}
