"""Frames from files and from nothing: what is taken, and what each refusal says."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from shisha_rt.array_file import Array, read_arrays
from shisha_rt.cli.drive.frames import frames_of, frames_of_any, model_inputs, model_shapes, random_frames
from shisha_rt.errors import BadInput, Error
from shisha_rt.model.graph import Tensor
from shisha_rt.tensors import NUMPY_OF
from tests.wording import raised

IMAGE = Tensor("image", (1, 3, 2), "FP32")
MASK = Tensor("mask", (4,), "BOOL")
FILE = Path("f.npz")


def floats(*shape: int) -> Array:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_inputs_as_the_wire_tells_them() -> None:
    metadata = {"inputs": [{"name": "image", "shape": [1, 3, 2], "datatype": "FP32"}]}
    assert model_inputs(metadata) == (IMAGE,)


class TestRandom:
    @pytest.mark.parametrize("datatype", NUMPY_OF)
    def test_fits_every_datatype(self, datatype: str) -> None:
        (frame,) = random_frames([Tensor("x", (50, 4), datatype)], 1, seed=0)
        array = frame["x"]
        assert (array.dtype, array.shape) == (NUMPY_OF[datatype], (50, 4))
        assert len(np.unique(array)) > 1
        if array.dtype.kind == "f":
            assert abs(array.astype(float)).max() < 10
        else:
            assert set(array.ravel()) == {0, 1}

    def test_a_number_without_which_the_network_does_not_run_is_that_number(self) -> None:
        metadata = {"inputs": [{"name": "rate", "shape": [], "datatype": "INT64", "made_up": 16000}]}
        assert [frame["rate"] for frame in random_frames(model_inputs(metadata), 2, seed=0)] == [16000, 16000]

    def test_each_frame_differs_and_a_seed_repeats(self) -> None:
        first, second = random_frames([IMAGE], 2, seed=5)
        assert not np.array_equal(first["image"], second["image"])
        assert np.array_equal(random_frames([IMAGE], 1, seed=5)[0]["image"], first["image"])


class TestFramesOf:
    @pytest.mark.parametrize(("shape", "count"), [((1, 3, 2), 1), ((5, 1, 3, 2), 5), ((1, 1, 3, 2), 1), ((5, 3, 2), 5)])
    def test_one_array(self, shape: tuple[int, ...], count: int) -> None:
        array = floats(*shape)
        frames = frames_of(FILE, array, [IMAGE])
        assert [frame["image"].shape for frame in frames] == [(1, 3, 2)] * count
        assert np.array_equal(np.concatenate([frame["image"] for frame in frames]), array.reshape(-1, 3, 2))

    def test_arrays_by_name(self) -> None:
        masks = np.array([[True] * 4, [False] * 4])
        frames = frames_of(FILE, {"mask": masks, "image": floats(2, 1, 3, 2)}, [IMAGE, MASK])
        assert [bool(frame["mask"].all()) for frame in frames] == [True, False]

    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            (floats(1, 3, 2), "one array without"),
            ({"image": floats(1, 3, 2)}, "arrays image"),
            ({}, "arrays none"),
            (
                {"image": floats(2, 1, 3, 2), "mask": np.ones(4, bool)},
                "different numbers of frames (image: 2, mask: 1)",
            ),
            (
                {"image": floats(1, 3, 2), "mask": np.ones(4, np.int8)},
                "mask: datatype INT8, expected BOOL (numpy bool)",
            ),
            (
                {"image": floats(1, 3, 2).astype(">f4"), "mask": np.ones(4, bool)},
                "image: datatype >f4, expected FP32 (numpy float32)",
            ),
            (
                {"image": floats(3, 2), "mask": np.ones(4, bool)},
                "image: shape [3, 2], expected [1, 3, 2], or n of them",
            ),
            ({"image": floats(0, 1, 3, 2), "mask": np.ones((0, 4), bool)}, "no frames"),
        ],
    )
    def test_refused(self, content: Array | dict[str, Array], expected: str) -> None:
        with raised(BadInput, Error.WRONG_FRAMES) as refusal:
            frames_of(FILE, content, [IMAGE, MASK])
        assert str(refusal.value).startswith(f"f.npz: {expected}")


def test_an_input_without_axes_is_an_array_all_the_same() -> None:
    """A sample rate beside a signal: of one frame, and of three."""
    inputs = [Tensor("x", (1, 4), "FP32"), Tensor("rate", (), "INT64")]
    for count, content in (
        (1, {"x": floats(1, 4), "rate": np.array(16000)}),
        (3, {"x": floats(3, 1, 4), "rate": np.array([8000, 16000, 8000])}),
    ):
        frames = frames_of(FILE, content, inputs)
        assert len(frames) == count
        assert [frame["rate"].shape for frame in frames] == [()] * count
        assert all(isinstance(frame["rate"], np.ndarray) for frame in frames)


class TestReadArrays:
    def test_npy(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", floats(2, 3))
        content = read_arrays(tmp_path / "a.npy")
        assert isinstance(content, np.ndarray)
        assert np.array_equal(content, floats(2, 3))

    def test_npz(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", x=floats(2), y=floats(3))
        content = read_arrays(tmp_path / "a.npz")
        assert isinstance(content, dict)
        assert {name: len(array) for name, array in content.items()} == {"x": 2, "y": 3}

    def test_missing(self, tmp_path: Path) -> None:
        with raised(BadInput, Error.UNREADABLE_FILE, match=r"none\.npy: cannot be .* such file.*\), .* \.npy"):
            read_arrays(tmp_path / "none.npy")

    def test_a_folder(self, tmp_path: Path) -> None:
        with raised(BadInput, Error.UNREADABLE_FILE, match="cannot be read"):
            read_arrays(tmp_path)

    def test_broken(self, tmp_path: Path) -> None:
        np.save(tmp_path / "whole.npy", floats(100))
        np.savez(tmp_path / "whole.npz", x=floats(100))
        np.save(tmp_path / "objects.npy", np.array([{}, []], object), allow_pickle=True)
        np.savez(tmp_path / "objects.npz", x=np.array([{}, []], object))
        broken = {
            "empty": b"",
            "text": b"hello",
            "short-npy": (tmp_path / "whole.npy").read_bytes()[:-9],
            "short-npz": (tmp_path / "whole.npz").read_bytes()[:-30],
            "objects-npy": (tmp_path / "objects.npy").read_bytes(),
            "objects-npz": (tmp_path / "objects.npz").read_bytes(),
        }
        for name, content in broken.items():
            (tmp_path / name).write_bytes(content)
            with raised(BadInput, Error.WRONG_FRAMES, match=rf"{name}: no arrays that .* .npy file"):
                read_arrays(tmp_path / name)

    @pytest.mark.parametrize(
        ("local", "central", "value"),
        [(6, 8, 1), (8, 10, 99), (8, 10, zipfile.ZIP_LZMA)],
        ids=["encrypted", "compressed as nobody knows", "not what its compression makes"],
    )
    def test_archives_that_cannot_be_unpacked(self, tmp_path: Path, local: int, central: int, value: int) -> None:
        """`local`, `central`: where both headers of a member have the 16 bits that become `value`."""
        path = tmp_path / "frames.npz"
        np.savez(path, x=floats(100))
        content = bytearray(path.read_bytes())
        for at in (local, content.index(b"PK\x01\x02") + central):
            content[at : at + 2] = value.to_bytes(2, "little")
        path.write_bytes(content)
        with raised(BadInput, Error.WRONG_FRAMES, match=r"frames\.npz: no arrays that"):
            read_arrays(path)

    def test_an_array_larger_than_any_memory(self, tmp_path: Path) -> None:
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"shape": (2**50,), "fortran_order": False, "descr": "<f4"})
        with zipfile.ZipFile(tmp_path / "vast.npz", "w") as archive:
            archive.writestr("x.npy", header.getvalue())
        with raised(BadInput, Error.WRONG_FRAMES, match=r"vast\.npz: no arrays that"):
            read_arrays(tmp_path / "vast.npz")


class TestSeveralShapes:
    SHAPES = ([Tensor("x", (1, 3), "FP32")], [Tensor("x", (4, 3), "FP32")], [Tensor("x", (1, 7), "FP32")])

    @pytest.mark.parametrize(
        ("shape", "count", "each"),
        [((1, 7), 1, (1, 7)), ((4, 3), 1, (4, 3)), ((5, 3), 5, (1, 3)), ((6, 4, 3), 6, (4, 3)), ((2, 7), 2, (1, 7))],
    )
    def test_a_file_has_frames_of_one_of_them(self, shape: tuple[int, ...], count: int, each: tuple[int, ...]) -> None:
        frames = frames_of_any(FILE, floats(*shape), self.SHAPES)
        assert [frame["x"].shape for frame in frames] == [each] * count

    def test_or_none(self) -> None:
        with raised(BadInput, Error.WRONG_FRAMES, match="x=2x8, expected one of x=1x3, x=4x3, x=1x7, or n of them"):
            frames_of_any(FILE, floats(2, 8), self.SHAPES)

    def test_the_shapes_are_those_that_the_daemon_tells(self) -> None:
        metadata = {
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
            "shapes": [{"x": [1, 3]}, {"x": [4, 3]}],
        }
        assert [inputs[0].shape for inputs in model_shapes(metadata)] == [(1, 3), (4, 3)]
