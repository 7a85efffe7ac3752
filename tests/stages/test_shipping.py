"""Tensors that come from a far place are what was expected, or break the line."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from shisha_rt.core.lifecycle.events import Descriptor
from shisha_rt.messages.worker import Prepare, Run
from shisha_rt.model.index import ModelIndex
from shisha_rt.process.arena import Arena
from shisha_rt.process.layout import layouts_of
from shisha_rt.tensors import Tensor
from stages.far.carrier import Carried, CarrierBroken
from stages.far.messages import TO_FAR, PrepareFar, RunFar, TensorBeside
from stages.far.shipping import Shipping

INDEX = ModelIndex(
    engine="test",
    form="as_is",
    layer_count=1,
    legal_cuts=(),
    node_layers=(0,),
    inputs=(Tensor("x", (4,), "FP32"),),
    outputs=(Tensor("any", (1, 3), "FP32", (0, 1)), Tensor("some", (1, 3), "FP32", (0,))),
    crossing=(),
)


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = Arena.create(layouts_of([INDEX.tensors], output_bytes=1024), slot_count=1, place_count=1)
    yield arena
    arena.close()


def came(arena: Arena, name: str, shape: tuple[int, ...]) -> None:
    shipping, part = Shipping(arena, sends="makes"), Descriptor(1, 1, 0, 0, 1, 0)
    shipping.prepare(PrepareFar(Prepare(1, 0, ((0, 0),)), reads=((name,),), makes=((),)))
    data = memoryview(np.ones(shape, np.float32).tobytes())
    shipping.receive(part, 0, RunFar(Run(part, 0), (TensorBeside(name, shape),)), Carried(b"", [data]))


@pytest.mark.parametrize("shape", [(), (1, 3), (2, 2, 2), (0,)])
def test_a_tensor_whose_axes_are_all_open_may_have_any_number_of_them(arena: Arena, shape: tuple[int, ...]) -> None:
    came(arena, "any", shape)
    assert arena.shape(0, arena.layout.regions["any"]) == shape


@pytest.mark.parametrize("shape", [(), (3,), (1, 3, 1)])
def test_another_one_has_as_many_as_it_should(arena: Arena, shape: tuple[int, ...]) -> None:
    came(arena, "some", (5, 3))
    with pytest.raises(CarrierBroken):
        came(arena, "some", shape)


def test_a_message_that_is_none() -> None:
    with pytest.raises(CarrierBroken, match="that is none"):
        Carried(b"noise", []).message(TO_FAR)
