"""Zoo networks answer differently to different inputs, and the same wherever they are built."""

from __future__ import annotations

import errno
import os
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest

from shisha_rt.errors import BadInput, Error, Failure
from shisha_rt.model import zoo
from shisha_rt.model.input_sizes import InputSizes
from shisha_rt.model.reader.onnx_reader import read_model
from shisha_rt.model.zoo import NAMES, TRAINED, resolve_model, zoo_path
from shisha_rt.process.job import JobFailed
from stages.jobs.zoo_weights import LOGITS_STD
from tests.model.networks import Array, run, weight
from tests.real import REAL
from tests.wording import raised


def logits(path: Path, frame: Array) -> Array:
    """What feeds the final Softmax."""
    model = onnx.load(path)
    softmax = model.graph.node.pop()
    assert softmax.op_type == "Softmax"
    model.graph.output[0].name = softmax.input[0]
    (value,) = run(model, {model.graph.input[0].name: frame})
    return value


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_answers_depend_on_the_input(name: str) -> None:
    noise = [logits(zoo_path(name), weight(1, 3, 224, 224, seed=seed)) for seed in (1, 2)]
    uniform = [
        logits(zoo_path(name), np.random.default_rng(seed).random((1, 3, 224, 224), np.float32)) for seed in (1, 2)
    ]
    for first, other in (noise, uniform):
        tolerance = 1e-5 + 1e-4 * np.maximum(np.abs(first), np.abs(other))
        assert np.median(np.abs(first - other) / tolerance) > 100
        assert len(np.unique(first)) > first.size // 2
        assert LOGITS_STD / 2 < first.std() < LOGITS_STD * 3


def tokens(seed: int, sequence: int = 16) -> dict[str, Array]:
    """A frame for BERT, of words from its whole vocabulary."""
    rng = np.random.default_rng(seed)
    shape = (1, sequence)
    words, types = rng.integers(0, 30522, shape), rng.integers(0, 2, shape)
    return {"input_ids": words, "attention_mask": np.ones(shape, np.int64), "token_type_ids": types}


def test_answers_depend_on_the_tokens() -> None:
    model = onnx.load(zoo_path("bert"))
    assert len(model.graph.output) == 1
    answers = np.concatenate(run(model, *map(tokens, range(8))))
    assert LOGITS_STD / 2 < answers.std() < LOGITS_STD * 3
    for first, other in pairwise(answers):
        assert np.abs(first - other).max() > 100 * (1e-5 + 1e-4 * np.abs(answers).max())


def test_a_network_of_tokens_is_16_long_unless_told() -> None:
    sizes = InputSizes(), InputSizes({"sequence": 8})
    lengths = [read_model(zoo_path("bert"), given).graph.inputs[0].shape for given in sizes]
    assert lengths == [(1, 16), (1, 8)]


def test_cleaned_tokens_network_computes_the_same() -> None:
    model = read_model(zoo_path("bert"), InputSizes({"sequence": 24})).proto
    (cleaned,), (whole,) = run(model, tokens(0, 24)), run(onnx.load(zoo_path("bert")), tokens(0, 24))
    np.testing.assert_allclose(cleaned, whole, rtol=1e-4, atol=1e-5)


def test_the_same_name_gives_the_same_weights(tmp_path: Path) -> None:
    again = tmp_path / "squeezenet.onnx"
    zoo._build(zoo._topology("squeezenet"), again)
    assert again.read_bytes() == zoo_path("squeezenet").read_bytes()


def test_another_name_gives_other_weights(tmp_path: Path) -> None:
    other = tmp_path / "other.onnx"
    zoo._build(zoo._topology("squeezenet"), other)
    assert other.read_bytes() != zoo_path("squeezenet").read_bytes()


def test_progress_is_told_only_when_something_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(zoo, "_build", lambda topology, target: target.write_bytes(topology))
    said: list[str] = []
    for _ in range(2):
        path = zoo_path("alexnet", said.append)
    assert path == tmp_path / "shisha-rt" / "zoo" / "v1" / "alexnet" / "alexnet.onnx"
    assert said == ["building zoo:alexnet (once)"]


@pytest.mark.parametrize("name", NAMES)
def test_every_name_has_a_topology(name: str) -> None:
    assert onnx.load_model_from_string(zoo._topology(name)).graph.node


def test_model_argument_is_a_path_or_a_name(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.touch()
    assert resolve_model(str(file)) == file
    with pytest.raises(BadInput, match="no such file"):
        resolve_model("some/model.onnx")
    assert resolve_model("zoo:squeezenet") == zoo_path("squeezenet")
    with pytest.raises(BadInput, match=r"zoo:lenet: no such network; .*zfnet512"):
        resolve_model("zoo:lenet")


@REAL
@pytest.mark.parametrize(
    ("name", "shape", "narrow"),
    [
        ("text_classifier", (1, 3, 48, 192), (1, 3, 48, 64)),
        ("text_detector", (1, 3, 320, 320), (1, 3, 320, 64)),
        ("text_recogniser", (1, 3, 48, 320), (1, 3, 48, 64)),
    ],
)
def test_trained_networks_have_sizes_of_their_own_and_take_others(
    name: str, shape: tuple[int, ...], narrow: tuple[int, ...]
) -> None:
    default, other = read_model(zoo_path(name)), read_model(zoo_path(name), InputSizes({"width": 64}))
    assert [default.graph.inputs[0].shape, other.graph.inputs[0].shape] == [shape, narrow]
    assert default.key != other.key


@REAL
def test_the_recogniser_carries_its_characters() -> None:
    said = {entry.key: entry.value for entry in onnx.load(zoo_path("text_recogniser")).metadata_props}
    assert {*"abyz09+:"} <= {*said["character"].splitlines()}


@pytest.mark.parametrize("name", sorted(TRAINED))
def test_a_trained_network_without_its_package(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])  # where nothing is installed
    with pytest.raises(BadInput, match=rf"^zoo:{name}: .*expected the extra 'real': pip install .*\[real\]'$"):
        zoo_path(name)
    another = tmp_path / "rapidocr-0.1.dist-info"
    another.mkdir()
    (another / "METADATA").write_text("Metadata-Version: 2.1\nName: rapidocr\nVersion: 0.1\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])  # where another version is, without these files
    with pytest.raises(BadInput, match=rf"^zoo:{name}: rapidocr 0\.1 has no .*\.onnx,"):
        zoo_path(name)


def test_failure_says_what_the_child_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(zoo, "_topology", lambda name: b"no network")
    with pytest.raises(Failure, match=r"zoo:vgg19: could not .* built: .*Error parsing message"):
        zoo_path("vgg19")
    monkeypatch.setattr(sys, "executable", "/bin/false")
    monkeypatch.setenv("PYTHONHASHSEED", "1")  # the fork server was started with another
    with pytest.raises(Failure, match="exit status 1"):
        zoo_path("vgg19")
    assert not (tmp_path / "shisha-rt" / "zoo" / "v1" / "vgg19").exists()


def test_a_full_disk_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def fails(*_: object, failed: str, **__: object) -> None:
        raise JobFailed(failed, 1, f"OSError: [Errno {errno.ENOSPC}] {os.strerror(errno.ENOSPC)}")

    monkeypatch.setattr(zoo, "run_job", fails)
    with raised(Failure, Error.CACHE_UNUSABLE, match=f"{tmp_path}.*{os.strerror(errno.ENOSPC)}"):
        zoo_path("squeezenet")
