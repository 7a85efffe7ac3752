"""What is fitted: the costs of the board's devices, which are known on paper."""

from __future__ import annotations

from benchmarks.splits.convolutions import convolutions
from benchmarks.splits.fit import on_paper


def test_the_board_has_a_value_for_each_convolution() -> None:
    drawn = convolutions(5, seed=1)
    found = dict(on_paper(drawn))
    assert {"tx2-cpu", "tx2-gpu", "cyclone10gx", "cyclone10gx, transfers"} <= found.keys()
    for samples in found.values():
        assert [sample.features for sample in samples] == drawn
        assert all(sample.value > 0 for sample in samples)
