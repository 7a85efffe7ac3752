"""Networks that are odd are served right, at every cut and however their layers are grouped, or refused in one line.

What is right is what ONNX Runtime makes of the file as it stands.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from shisha_rt.errors import BadInput, Error
from shisha_rt.machine.host.cores import usable_cores
from shisha_rt.measure.compiled import Compiled
from shisha_rt.model.batches import why_not_together
from shisha_rt.model.index import Form
from shisha_rt.model.input_sizes import InputSizes
from shisha_rt.model.layers import group_layers
from shisha_rt.model.reader.index_file import read_index
from shisha_rt.model.reader.onnx_reader import read_model
from shisha_rt.model.spans import Span, groups_of
from shisha_rt.process.arena import Arena
from shisha_rt.process.layout import layouts_of
from shisha_rt.tensors import NUMPY_OF, Tensor
from stages.engines.onnxruntime.compile import compile_into
from stages.engines.onnxruntime.segment import OptimisedModel
from stages.engines.onnxruntime.versions import newest_taken
from stages.engines.session import untimed
from stages.jobs.compile import try_out
from stages.jobs.neighbour import neighbours
from tests.stages.test_segments import random_stages
from tests.wild.odd_networks import (
    RATE,
    REFUSED,
    SERVED,
    Array,
    Build,
    attention,
    branch_of_another_size,
    channels_last,
    class_token,
    halves_alone,
    in_opset,
    loop_without_end,
    products_of_four_bits,
    recurrent_from_zeros,
    resized_to_sizes,
    signed_integers,
    spectrograms,
    thresholds_as_inputs,
    two_rates,
)
from tests.wording import raised

Arrays = dict[str, Array]

OLDEST_OPSET: Final = 7
NEWEST_OPSET: Final = newest_taken().opsets[""]
FRAMES: Final = 4


def saved(model: onnx.ModelProto, folder: Path, name: str) -> Path:
    path = folder / f"{name}.onnx"
    onnx.save(model, path)
    return path


def made_up(spec: Tensor, seed: int) -> Array:
    """Normal values, shifted by some so that what depends on the data differs; whole numbers are 0 or 1."""
    generator = np.random.default_rng(seed)
    dtype = NUMPY_OF[spec.datatype]
    if dtype.kind == "f":
        return np.asarray(generator.standard_normal(spec.shape) + seed - 1, dtype)
    return np.asarray(generator.integers(0, 2, spec.shape), dtype)


def plain(path: Path, frames: Sequence[Arrays]) -> list[Arrays]:
    """By name what ONNX Runtime answers."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return [dict(zip(names, session.run(names, frame), strict=True)) for frame in frames]


def in_stages(compiled: Compiled, frames: Sequence[Arrays], stages: Sequence[Sequence[Span]]) -> list[Arrays]:
    """One frame after the other through the same slot."""
    layouts = layouts_of([compiled.index.tensors])
    arena = Arena.create(layouts, slot_count=1, place_count=1)
    try:
        model = OptimisedModel(compiled.engine_folder, compiled.index)
        segments = [model.segment(work) for work in stages]
        answers = []
        for frame in frames:
            for name, value in frame.items():
                arena.view(0, arena.layout.regions[name])[...] = value
            for segment in segments:
                segment.on_slot(arena, 0)(untimed)
            regions = (arena.layout.regions[spec.name] for spec in compiled.index.outputs)
            answers.append({region.tensor.name: arena.view(0, region).copy() for region in regions})
        return answers
    finally:
        arena.close()


def plans(compiled: Compiled, rng: random.Random) -> list[list[list[Span]]]:
    """The whole, each cut by itself, all at once, and layers grouped at random; what comes out equal only once."""
    cuts = compiled.index.legal_cuts
    chains = [(), *((cut,) for cut in cuts), cuts]
    drawn = [[[run] for run in groups_of(len(compiled.layers), chain)] for chain in chains]
    groups = len(cuts) + 1
    drawn += [random_stages(compiled, rng.randint(1, groups), rng) for _ in range(3)]
    return list({str(stages): stages for stages in drawn}.values())


def compiled_here(path: Path, forms: Sequence[Form]) -> Iterator[Compiled]:
    """As `compile_model`, in this process: such a network is compiled sooner than another process starts."""
    model = read_model(path)
    model_folder = path.parent / "clean"
    model_folder.mkdir()
    model.save(model_folder)
    for form in forms:
        folder = path.parent / form
        folder.mkdir()
        compile_into(model_folder, folder, form)
        try_out(folder)
        yield Compiled(model, group_layers(model.graph), read_index(folder), model_folder, folder)


def check_together(compiled: Compiled, frames: Sequence[Arrays], work: Sequence[Span]) -> bool:
    """A run of all frames makes of each what one of it alone makes. False for layers that mix frames."""
    index = compiled.index
    if why_not_together(work, index.mixing, index.tied):
        return False
    segment = OptimisedModel(compiled.engine_folder, index).segment(work, axes=index.batch_axes)
    ends = segment.ends

    def run(inputs: Sequence[Arrays]) -> list[Arrays]:
        arrays = {}
        for spec in ends.both:
            shape = list(spec.shape)
            shape[index.batch_axes[spec.name]] *= len(inputs)
            arrays[spec.name] = np.zeros(shape, NUMPY_OF[spec.datatype])
        for spec in ends.inputs:
            for number, frame in enumerate(inputs):
                arrays[spec.name].reshape(len(inputs), -1)[number] = frame[spec.name].reshape(-1)
        segment.bind(arrays)(untimed)
        return [
            {spec.name: arrays[spec.name].reshape(len(inputs), -1)[number] for spec in ends.outputs}
            for number in range(len(inputs))
        ]

    given = [{spec.name: made_up(spec, seed) for spec in ends.inputs} for seed in range(len(frames))]
    for number, (together, sole) in enumerate(zip(run(given), given, strict=True)):
        for name, value in run([sole])[0].items():
            rounding = 1e-2 if value.dtype == np.float16 else 1e-5
            what = f"{name} of frame {number} under {work} of {index.form}"
            np.testing.assert_allclose(together[name], value, rtol=rounding, atol=rounding, err_msg=what)
    return True


def check_served(path: Path, *forms: Form) -> None:
    unread = {"unused": np.zeros(2, np.int64)} if "unused" in {v.name for v in onnx.load(path).graph.input} else {}
    for compiled in compiled_here(path, forms):
        frames = [{spec.name: made_up(spec, seed) for spec in compiled.index.inputs} for seed in range(FRAMES)]
        expected = plain(path, [frame | unread for frame in frames])
        assert compiled.legal_cuts
        assert [spec.name for spec in compiled.index.outputs] == list(expected[0])
        drawn = plans(compiled, random.Random(0))
        for work in {str(work): work for stages in drawn for work in stages}.values():
            check_together(compiled, frames, work)
        for stages in drawn:
            for number, (answer, right) in enumerate(zip(in_stages(compiled, frames, stages), expected, strict=True)):
                for name, value in right.items():
                    what = f"{name} of frame {number} under {stages} of {compiled.index.form}"
                    assert answer[name].dtype == value.dtype, what
                    assert answer[name].shape == value.shape, what
                    rounding = 1e-2 if value.dtype == np.float16 else 1e-4
                    np.testing.assert_allclose(answer[name], value, rtol=rounding, atol=rounding, err_msg=what)


@pytest.mark.parametrize("forms", [("prepacked", "as_is"), pytest.param(("external",), marks=pytest.mark.long)])
@pytest.mark.parametrize("name", SERVED)
def test_served_right(name: str, forms: tuple[Form, ...], tmp_path: Path) -> None:
    check_served(saved(SERVED[name](), tmp_path, name), *forms)


@pytest.mark.parametrize("form", ["prepacked", "external"])
def test_products_of_four_bits_are_those_of_the_engine(form: Form, tmp_path: Path) -> None:
    """It rounds what they multiply to eight bits, if it sees that they do nothing else: not in each cut of a model."""
    check_served(saved(products_of_four_bits(), tmp_path, "products"), form)


@pytest.mark.parametrize(
    "build", [recurrent_from_zeros, attention, products_of_four_bits, class_token, resized_to_sizes]
)
def test_all_layers_compute_several_frames_in_a_run(build: Build, tmp_path: Path) -> None:
    """Layers were kept apart by what exporters write for one frame (recurrent states, class tokens, sizes), Attention
    by its mask, Einsum and the engine's products of four bits by nothing.
    """
    compiled = next(compiled_here(saved(build(), tmp_path, "together"), ["prepacked"]))
    frames = [{spec.name: made_up(spec, seed) for spec in compiled.index.inputs} for seed in range(FRAMES)]
    assert check_together(compiled, frames, [(0, len(compiled.layers) - 1)])


@pytest.mark.parametrize("build", [channels_last, halves_alone, signed_integers])
def test_layers_whose_tensors_the_engine_names_anew_are_cut_all_the_same(build: Build, tmp_path: Path) -> None:
    """Up to all cuts were lost."""
    compiled = next(compiled_here(saved(build(), tmp_path, "named_anew"), ["prepacked"]))
    assert compiled.index.legal_cuts == tuple(range(3))


@pytest.mark.parametrize("form", ["prepacked", "as_is"])
def test_an_input_that_has_to_be_a_number_of_the_networks(form: Form, tmp_path: Path) -> None:
    """It runs at no other rate, so that nothing made up may have another."""
    path = saved(two_rates(), tmp_path, "two_rates")
    compiled = next(compiled_here(path, [form]))
    assert {spec.name: spec.made_up for spec in compiled.index.inputs} == {"x": 0, "rate": RATE}
    x = np.random.default_rng(0).standard_normal((1, 64), np.float32)
    frame = {"x": x, "rate": np.array(RATE)}
    for stages in plans(compiled, random.Random(0)):
        for work in stages:
            OptimisedModel(compiled.engine_folder, compiled.index).segment(work).apart()(untimed)
        (answer,) = in_stages(compiled, [frame], stages)
        np.testing.assert_allclose(answer["y"], plain(path, [frame])[0]["y"], rtol=1e-4, atol=1e-4)
    with neighbours(str(compiled.engine_folder), usable_cores()[:1]):  # raises if one cannot run the network
        pass


def test_a_network_that_fails_on_most_made_up_values(tmp_path: Path) -> None:
    """It was refused: the engine was said to run it in no form."""
    path = saved(thresholds_as_inputs(), tmp_path, "thresholds_as_inputs")
    compiled = next(compiled_here(path, ["prepacked"]))
    limits: Arrays = {
        "overlap": np.array([0.5], np.float32),
        "least": np.array([0.6], np.float32),
        "rows": np.array([8]),
    }
    frames = [limits | {"x": made_up(compiled.index.inputs[0], seed)} for seed in range(FRAMES)]
    for stages in plans(compiled, random.Random(0)):
        for answers, right in zip(in_stages(compiled, frames, stages), plain(path, frames), strict=True):
            np.testing.assert_array_equal(answers["row"], right["row"])
    with neighbours(str(compiled.engine_folder), usable_cores()[:1]):  # raises if one cannot run the network
        pass


@pytest.mark.parametrize("form", ["prepacked", "external"])
def test_a_branch_that_is_not_taken_need_not_fit_the_inputs(form: Form, tmp_path: Path) -> None:
    """Such a network was run unoptimised, at twice the time."""
    compiled = next(compiled_here(saved(branch_of_another_size(64), tmp_path, "sized"), [form]))
    frame = {"x": np.random.default_rng(0).standard_normal((1, 64), np.float32), "rate": np.array(RATE)}
    (expected,) = plain(saved(branch_of_another_size("samples"), tmp_path, "open"), [frame])
    for stages in plans(compiled, random.Random(0)):
        (answers,) = in_stages(compiled, [frame], stages)
        np.testing.assert_allclose(answers["y"], expected["y"], rtol=1e-4, atol=1e-4)


def test_a_length_that_is_said_to_run_does(tmp_path: Path) -> None:
    """The engine ran it, and ONNX's inference of STFT's shape then refused it."""
    model = spectrograms()
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "N"
    path = saved(model, tmp_path, "any_length")
    with raised(BadInput, Error.UNKNOWN_SIZES, match="--shape x=1x16 "):
        read_model(path)
    (output,) = read_model(path, InputSizes({}, {"x": (1, 16)})).graph.outputs
    assert output.shape == (1, 1, 3)


@pytest.mark.parametrize(
    "opset",
    [
        pytest.param(opset, marks=[] if opset in (OLDEST_OPSET, 9, 13, NEWEST_OPSET) else [pytest.mark.long])
        for opset in range(OLDEST_OPSET, NEWEST_OPSET + 1)
    ],
)
def test_every_opset(opset: int, tmp_path: Path) -> None:
    check_served(saved(in_opset(opset), tmp_path, "opset"), "prepacked", "as_is")


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_a_line(name: str, tmp_path: Path) -> None:
    build, what = REFUSED[name]
    path = saved(build(), tmp_path, name)
    with pytest.raises(BadInput) as raised:
        read_model(path)
    message = str(raised.value)
    assert message.startswith(str(path))
    assert what in message
    assert len(message.splitlines()) == 1


def test_a_loop_without_end_is_refused_when_it_has_run_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shisha_rt.model.reader.one_run.RUN_LIMIT_S", 2.0)
    with raised(BadInput, Error.ENGINE_REFUSES, match=r"endless\.onnx: the engine .* it: it came to"):
        read_model(saved(loop_without_end(), tmp_path, "endless"))
