"""The zoo's trained networks, cut anywhere: bit for bit the whole graph, which plain ONNX Runtime agrees with."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

import numpy as np
import onnx
import pytest

from shisha_rt.measure.compile import compile_model
from shisha_rt.measure.compiled import Compiled
from shisha_rt.model.input_sizes import InputSizes
from shisha_rt.model.zoo import TRAINED, zoo_path
from tests.model.networks import run
from tests.real import REAL, drawn_text
from tests.stages.test_segments import Arrays, chain, check_answers, random_stages, whole

pytestmark = REAL

SMALL: Final[Mapping[str, Mapping[str, int]]] = {
    "text_classifier": {"width": 96},
    "text_detector": {"height": 64, "width": 128},
    "text_recogniser": {"width": 96},
}


def text_in(compiled: Compiled) -> Arrays:
    """A frame with text in it: noise has none, and the detector answers zero everywhere, whatever is wrong in it."""
    (tensor,) = compiled.model.graph.inputs
    return {tensor.name: drawn_text(tensor.shape)}


def check_against_plain_onnx_runtime(name: str, compiled: Compiled, inputs: Arrays) -> None:
    plain = run(onnx.load(zoo_path(name)), inputs)
    for answer, expected in zip(whole(compiled, inputs).values(), plain, strict=True):
        assert expected.max() > 0.5  # it has seen something
        np.testing.assert_allclose(answer, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", sorted(TRAINED))
def test_a_few_cuts_and_groups_of_stages(name: str) -> None:
    compiled = compile_model(zoo_path(name), InputSizes(SMALL[name]))
    inputs = text_in(compiled)
    check_against_plain_onnx_runtime(name, compiled, inputs)
    rng = random.Random(1)
    cuts = sorted(rng.sample(sorted(compiled.legal_cuts), 3))
    check_answers(compiled, inputs, chain(compiled, cuts), random_stages(compiled, 4, rng))


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(TRAINED))
def test_every_cut_and_many_groups_of_stages(name: str) -> None:
    compiled = compile_model(zoo_path(name))
    assert compiled.legal_cuts == {*range(len(compiled.layers) - 1)}
    inputs = text_in(compiled)
    check_against_plain_onnx_runtime(name, compiled, inputs)
    legal, rng = sorted(compiled.legal_cuts), random.Random(2)
    check_answers(compiled, inputs, *(chain(compiled, [cut]) for cut in legal), chain(compiled, legal))
    check_answers(compiled, inputs, *(random_stages(compiled, rng.randint(2, 9), rng) for _ in range(30)))
