"""Small networks: what is drawn, what another order is worth by hand, and the row that tells of it."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.paper.order import KINDS, PLACES, drawn_costs, on_places, row_of, worth
from shisha_rt.costs.costs import CostLayer, CostPlace, Costs
from shisha_rt.costs.links import AS_INPUT, CostTensor

# From 0 to 1 and 2, and to 3, and from both to 4.
READERS = ((1, 3), (2,), (4,), (4,), (5,))


def fork(*layer_s: float) -> Costs:
    return Costs(
        layers=tuple(CostLayer(str(i), 1.0, 0, 0) for i in range(5)),
        places=(CostPlace("p", 1, None),),
        time_s=np.array(layer_s)[:, None],
        transfer_s=np.zeros(4),
        tensors=(
            CostTensor("in", 1, AS_INPUT, (0,)),
            *(CostTensor(str(made), 1, made, consumers) for made, consumers in enumerate(READERS)),
        ),
    )


def test_the_other_branch_first_is_worth_a_quarter() -> None:
    """In the file's order one place takes 5 of 8 seconds: 1 + 1 + 1 | 3 + 2. Half is 1 + 3 | 1 + 1 + 2."""
    result = worth(on_places(fork(1, 1, 1, 3, 2), 2, "alike"))
    assert result.is_proven
    assert (result.gain, result.most) == pytest.approx((1.25, 1.25))


def test_places_are_as_they_are_called() -> None:
    costs = {kind: on_places(fork(1, 1, 1, 3, 2), 3, kind) for kind in KINDS}
    assert {kind: of_kind.time_s[3].tolist() for kind, of_kind in costs.items()} == {
        "alike": [3, 3, 3],
        "unlike": [3, 6, 3],
        "links": [3, 3, 3],
    }
    assert {kind: len(of_kind.links) for kind, of_kind in costs.items()} == {"alike": 0, "unlike": 0, "links": 3}


def test_what_is_drawn_repeats_and_has_long_skips() -> None:
    costs = drawn_costs(50, 0)
    assert costs.tensors == drawn_costs(50, 0).tensors != drawn_costs(50, 1).tensors
    assert max(tensor.readers[-1] - tensor.made for tensor in costs.tensors if tensor.readers[-1] < 50) > 10
    assert all(tensor.made < reader for tensor in costs.tensors for reader in tensor.readers)
    assert set(range(50)) == {reader for tensor in costs.tensors for reader in tensor.readers if reader < 50}


def test_a_row() -> None:
    row = row_of("small", [drawn_costs(8, number) for number in range(2)], "alike")
    assert (row["layers"], row["plans"], row["proven"]) == (8, 2 * len(PLACES), 2 * len(PLACES))
    assert row_of("one long layer", [fork(1, 1, 1, 1, 9)], "alike")["another order is better"] == 0
