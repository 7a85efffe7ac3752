"""Large files of weights, written sparse: what is read of them, and what is refused before it is."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from shisha_rt.errors import BadInput
from shisha_rt.model.reader.onnx_reader import read_model
from tests.wild.odd_networks import FLOAT
from tests.wild.test_odd_networks import check_served

GIB: Final = 1 << 30
DATA: Final = "weights.data"


def products(folder: Path, sides: Sequence[int], offsets: Sequence[int]) -> Path:
    """A chain of products by square weights, of which the file has nothing but room."""
    nodes, weights = [], []
    for i, (side, offset) in enumerate(zip(sides, offsets, strict=True)):
        nodes.append(helper.make_node("MatMul", [f"t{i}", f"w{i}"], [f"t{i + 1}"]))
        weight = TensorProto(name=f"w{i}", data_type=FLOAT, dims=[side, side], data_location=TensorProto.EXTERNAL)
        for key, value in (("location", DATA), ("offset", offset), ("length", side * side * 4)):
            weight.external_data.add(key=key, value=str(value))
        weights.append(weight)
    with (folder / DATA).open("wb") as file:
        file.truncate(offsets[-1] + sides[-1] ** 2 * 4)
    ends = [helper.make_tensor_value_info(f"t{at}", FLOAT, [1, sides[0]]) for at in (0, len(sides))]
    graph = helper.make_graph(nodes, "large", ends[:1], ends[1:], weights)
    path = folder / "large.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_weights_behind_two_gibibytes_of_nothing(tmp_path: Path) -> None:
    offsets = [0, GIB, 2 * GIB + 4096]
    path = products(tmp_path, [32, 32, 32], offsets)
    with (tmp_path / DATA).open("r+b") as file:
        for seed, offset in enumerate(offsets):
            file.seek(offset)
            file.write(np.random.default_rng(seed).standard_normal((32, 32), np.float32).tobytes())
    check_served(path, "prepacked")


def test_a_weight_of_two_gibibytes_is_refused_unread(tmp_path: Path) -> None:
    path = products(tmp_path, [16384 + 8192], [0])
    with pytest.raises(BadInput, match=r"large\.onnx: weight 'w0' has 2415919104 bytes; expected at most 2146435072"):
        read_model(path)


@pytest.mark.long
def test_two_gibibytes_of_weights_are_read_in_memory_for_three_copies(tmp_path: Path) -> None:
    path = products(tmp_path, [8192] * 8, [i * GIB // 4 for i in range(8)])
    reads = "import sys; from pathlib import Path; from shisha_rt.model.reader.onnx_reader import read_model; "
    counts = "print(len(read_model(Path(sys.argv[1])).graph.constants))"
    ran = subprocess.run(
        [sys.executable, "-c", reads + counts, path],
        capture_output=True,
        check=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (6 * GIB, 6 * GIB)),
    )
    assert ran.stdout == "8\n"
