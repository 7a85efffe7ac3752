"""What is told of a model's splits when it is compiled."""

from __future__ import annotations

import pytest

from shisha_rt.model.shards import of_model
from shisha_rt.model.split import AXES
from tests.model.shards.test_rewrite import graph_of, operator

NETWORK = graph_of(
    [operator("Conv", "x,w", "a", kernel_shape=(1, 1)), operator("Conv", "a,v", "y", kernel_shape=(1, 1))],
    {"x": (1, 4, 6, 6)},
    dict.fromkeys("ay", (1, 4, 6, 6)),
    {"w": (4, 4, 1, 1), "v": (4, 4, 1, 1)},
)


def test_every_layer_and_every_pair_is_looked_at_along_every_axis() -> None:
    splits, kept = of_model.splits_of(NETWORK, (0, 1), (0,), (576, 576))
    ways = {(way.first, way.last, way.axis) for way in splits}
    assert {(layer, layer, axis) for layer in (0, 1) for axis in AXES} <= ways | {
        (way.first, way.last, way.axis) for way in kept
    }
    assert {(0, 1, "channels"), (0, 1, "rows")} <= ways
    assert all(0 < way.join_part < 1 for way in splits if way.summed)


def test_a_network_that_cannot_be_followed_is_kept_whole_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def stumbles(*_: object) -> str:
        raise IndexError("tuple index out of range")

    monkeypatch.setattr(of_model, "splittable", stumbles)
    splits, kept = of_model.splits_of(NETWORK, (0, 1), (0,), (576, 576))
    assert splits == ()
    assert {way.reason for way in kept} == {
        "its operators could not be followed (IndexError: tuple index out of range)"
    }
