"""Random placement problems and their DCGs, for hypothesis."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from shisha_rt.placement.dcg import BETWEEN, Dcg, TensorKind, device_mapped_graph
from shisha_rt.placement.problem import Problem
from tests.placement.random_problems import SHAPES, random_problem


def problems(*, max_nodes: int = 7, shapes: Sequence[str] = SHAPES) -> st.SearchStrategy[Problem]:
    """One to three devices, no groups."""
    return st.builds(
        random_problem,
        st.randoms(use_true_random=False),
        st.sampled_from(shapes),
        nodes=st.integers(1, max_nodes),
        devices=st.integers(1, 3),
    )


@st.composite
def dcgs(draw: st.DrawFn, *, max_nodes: int = 7) -> Dcg:
    problem = draw(problems(max_nodes=max_nodes))
    kind = st.sampled_from([TensorKind("FP32", size) for size in (4, 8, 12)])
    kinds = draw(st.lists(kind, min_size=len(problem.tensors), max_size=len(problem.tensors)))
    return device_mapped_graph(problem, kinds, draw(st.sampled_from(BETWEEN)))
