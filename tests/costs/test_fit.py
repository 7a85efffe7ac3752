"""Groups, windows, and the fit of one to the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shisha_rt.costs.fit import fit_groups, spans_to_measure, tilings_of
from shisha_rt.model.spans import groups_of


@given(st.integers(1, 40), st.data())
def test_every_tiling_covers_the_model_with_whole_groups(layer_count: int, data: st.DataObject) -> None:
    cuts = data.draw(st.sets(st.integers(0, max(0, layer_count - 2)))) if layer_count > 1 else set()
    groups = groups_of(layer_count, cuts)
    firsts, lasts = zip(*groups, strict=True)
    assert tilings_of(groups)[0] == ((0, layer_count - 1),)
    for tiling in tilings_of(groups):
        assert [layer for first, last in tiling for layer in range(first, last + 1)] == list(range(layer_count))
        assert {first for first, _ in tiling} <= set(firsts)
        assert {last for _, last in tiling} <= set(lasts)
    spans = spans_to_measure(groups)
    assert len(set(spans)) == len(spans)
    assert spans[: len(groups)] == groups


@given(st.lists(st.floats(1e-6, 1e-1), min_size=1, max_size=40))
def test_times_that_agree_already_stay(times_s: list[float]) -> None:
    groups = groups_of(len(times_s), range(len(times_s) - 1))
    span_s = {(a, b): sum(times_s[a : b + 1]) for a, b in spans_to_measure(groups)}
    np.testing.assert_allclose(fit_groups(groups, span_s), times_s, rtol=1e-9)


@given(st.lists(st.floats(1e-5, 1e-2), min_size=12, max_size=40), st.floats(0.5, 2))
def test_one_factor_for_all_is_found(times_s: list[float], factor: float) -> None:
    """From 12 groups on every window holds several."""
    groups = groups_of(len(times_s), range(len(times_s) - 1))
    windows_s = {(a, b): factor * sum(times_s[a : b + 1]) for a, b in spans_to_measure(groups)}
    fitted_s = fit_groups(groups, windows_s | dict(zip(groups, times_s, strict=True)))
    np.testing.assert_allclose(fitted_s, factor * np.array(times_s), rtol=1e-6)


def test_each_half_gets_its_own_level() -> None:
    """Alone, all groups take 1; in longer runs those of the second half take three times those of the first."""
    groups = groups_of(12, range(11))
    real_s = np.array([1.0] * 6 + [3.0] * 6)
    span_s = {(a, b): float(real_s[a : b + 1].sum()) for a, b in spans_to_measure(groups)} | dict.fromkeys(groups, 1.0)
    fitted_s = fit_groups(groups, span_s)
    assert fitted_s.sum() == pytest.approx(real_s.sum(), rel=1e-3)
    np.testing.assert_allclose(fitted_s, real_s, rtol=0.02)


def test_windows_that_contradict_each_other_are_met_halfway() -> None:
    groups = groups_of(2, [0])
    fitted_s = fit_groups(groups, {(0, 0): 1.0, (1, 1): 1.0, (0, 1): 4.0})
    assert 2.0 < fitted_s.sum() < 4.0
    assert fitted_s[0] == pytest.approx(fitted_s[1])
