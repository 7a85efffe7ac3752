"""What passes to a place on another host and back: several shapes, outputs whose shape depends on the data, changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper

from shisha_rt.measure.compiled import Compiled
from shisha_rt.measure.shapes import compile_shapes
from shisha_rt.messages import worker as messages
from shisha_rt.model.input_sizes import InputSizes
from shisha_rt.process.arena import Arena
from shisha_rt.process.lent import create_region
from tests.model.networks import network, weight
from tests.stages.far_places import arena_of, far_places
from tests.waiting import until

SIZE = 200
ROOM_BYTES = 1024  # of 64 positions


@pytest.fixture
def wide(tmp_path: Path) -> Compiled:
    """Two convolutions over an image of one of two widths."""
    nodes = [
        helper.make_node("Conv", ["x", "a_w"], ["a"], name="a", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "b_w"], ["y"], name="b"),
    ]
    weights = {"a_w": weight(8, 4, 3, 3, seed=1), "b_w": weight(3, 8, 1, 1, seed=2)}
    file = tmp_path / "wide.onnx"
    onnx.save(network(nodes, {"x": [1, 4, 6, "width"]}, {"y": [1, 3, 6, "width"]}, weights), file)
    return compile_shapes(file, [InputSizes(shapes={"x": (1, 4, 6, width)}) for width in (6, 40)])


@pytest.fixture
def open_ended(tmp_path: Path) -> Compiled:
    """`plain` is the input through a layer, `where` has the positions of what is not 0 in it."""
    nodes = [
        helper.make_node("MatMul", ["x", "unit"], ["plain"]),
        helper.make_node("NonZero", ["plain"], ["where"]),
    ]
    graph = helper.make_graph(
        nodes,
        "open",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, SIZE])],
        [
            helper.make_tensor_value_info("plain", TensorProto.FLOAT, [1, SIZE]),
            helper.make_tensor_value_info("where", TensorProto.INT64, [2, None]),
        ],
        [onnx.numpy_helper.from_array(np.eye(SIZE, dtype=np.float32), "unit")],
    )
    file = tmp_path / "open.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    return compile_shapes(file, [InputSizes()])


def view(arena: Arena, slot: int, name: str, layout: int = 0) -> npt.NDArray[np.generic]:
    return arena.view(slot, arena.layouts[layout].regions[name])


@pytest.mark.long
def test_frames_of_several_shapes(wide: Compiled) -> None:
    """Two stages on two hosts, against both on one."""
    with arena_of(wide, 3) as arena, far_places(wide, arena, 3) as (first, second, whole):
        for place in (first, second, whole):
            place.connect()
        first.prepare((0, 0))
        second.prepare((1, 1), stage=1)
        whole.prepare((0, 1), epoch=2)
        for frame, layout in enumerate((0, 1, 1, 0)):
            for slot in (0, 1):
                image = view(arena, slot, "x", layout)
                image[...] = np.random.default_rng(frame).standard_normal(image.shape).astype(np.float32)
            first.run(first.part(frame, 0), layout)
            second.run(second.part(frame, 0, stage=1), layout)
            whole.run(whole.part(frame, 1, epoch=2), layout)
            assert view(arena, 0, "y", layout).any()
            assert np.array_equal(view(arena, 0, "y", layout), view(arena, 1, "y", layout))
        first.tell(messages.Run(first.part(9, 0), 2))
        failed = first.said()
        assert isinstance(failed, messages.Failed)
        assert "not prepared" in failed.reason


def test_outputs_have_the_shape_of_their_frame(open_ended: Compiled) -> None:
    with (
        arena_of(open_ended, output_bytes=ROOM_BYTES) as arena,
        far_places(open_ended, arena) as (place,),
    ):
        place.connect()
        place.prepare((0, len(open_ended.layers) - 1))
        for number, count in enumerate((3, 0, 64, 17)):
            image = np.zeros((1, SIZE), np.float32)
            image[0, np.random.default_rng(number).choice(SIZE, count, replace=False)] = 1
            view(arena, 0, "x")[...] = image
            place.run(place.part(number, 0))
            assert np.array_equal(view(arena, 0, "where"), np.array(np.nonzero(image)))
            assert np.array_equal(view(arena, 0, "plain"), image)
        view(arena, 1, "x")[...] = 1
        place.tell(messages.Run(place.part(9, 1), 0))
        failed = place.said()
        assert isinstance(failed, messages.Failed)
        assert "output 'where': 3200 bytes (shape [2, 200]); expected at most 1024" in failed.reason
        place.run(place.part(10, 0))


def test_orders_that_every_worker_gets_may_come_before_there_is_a_far_end(wide: Compiled) -> None:
    """And a place's speed is the one that it has then."""
    with arena_of(wide) as arena, far_places(wide, arena) as (place,):
        region = create_region(4096)
        place.tell(messages.Lend(1), region)
        place.tell(messages.TakeBack(1))
        arena.set_speed(0, 1e-5)
        place.tell(messages.Repace(at_once=False))
        place.connect()
        place.prepare((0, 1))
        place.tell(messages.Run(place.part(0, 0), 0))
        until(lambda: arena.sign(0).paced_until_ns > 0)
        assert arena.sign(0).frame == 0
        arena.set_speed(0, 1.0)
        place.tell(messages.Repace(at_once=True))
        assert isinstance(place.said(), messages.Done)
        assert arena.sign(0).frame is None


def test_what_is_retired_is_not_run(wide: Compiled) -> None:
    with arena_of(wide) as arena, far_places(wide, arena) as (place,):
        place.connect()
        place.prepare((0, 1))
        place.prepare((0, 0), epoch=2)
        place.tell(messages.Retire(1))
        place.tell(messages.Run(place.part(0, 0), 0))
        failed = place.said()
        assert isinstance(failed, messages.Failed)
        assert "not prepared" in failed.reason
        place.run(place.part(1, 0, epoch=2))
