"""A model may suggest the size of a dimension that it leaves open; what the user says goes first."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx.helper import make_node

from shisha_rt.model.default_dims import default_dims, set_default_dims
from shisha_rt.model.input_sizes import InputSizes
from shisha_rt.model.reader.onnx_reader import read_model
from tests.model.networks import network, write


def relu() -> onnx.ModelProto:
    return network([make_node("Relu", ["x"], ["y"])], {"x": ("N", "width")}, {"y": ("N", "width")})


def test_a_suggestion_stands_in_for_the_user(tmp_path: Path) -> None:
    model = relu()
    set_default_dims(model, {"width": 7, "N": 2})
    path = write(model, tmp_path)
    assert read_model(path).graph.inputs[0].shape == (2, 7)
    assert read_model(path, InputSizes({"width": 3})).graph.inputs[0].shape == (2, 3)


def test_other_metadata_stays() -> None:
    model = relu()
    model.metadata_props.add(key="author", value="me")
    set_default_dims(model, {"width": 7})
    assert default_dims(model) == {"width": 7}
    assert len(model.metadata_props) == 2


@pytest.mark.parametrize("value", ["", "0", "-1", "7.0", "seven", "7\n", "1" * 10, "٣"])
def test_what_is_no_size_suggests_nothing(value: str) -> None:
    model = relu()
    model.metadata_props.add(key="shisha_rt.dim.width", value=value)
    assert default_dims(model) == {}
