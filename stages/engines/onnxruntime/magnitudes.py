"""The largest magnitudes of a model's tensors on some frames, computed in fp32."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from onnx import helper

from shisha_rt.placement.segments import segment
from stages.built.clean_model import CleanModel
from stages.engines.onnxruntime.options import open_session, optimising_options
from stages.engines.session import Array


def largest_magnitudes(
    model: CleanModel, tensors: Sequence[str], frames: Iterable[Mapping[str, Array]]
) -> dict[str, float]:
    """Largest magnitudes of tensors over all `frames` (arrays by input).

    Infinite or NaN if a tensor has such values. The engine returns only the maxima: all tensors of a large model at
    once would need much memory.
    """
    whole = segment(model.graph, 0, len(model.graph.operators) - 1, device="")
    cut = model.cut(whole)
    del cut.graph.output[:]
    for name in tensors:
        output_name = f"{name}:largest"
        cut.graph.node.append(helper.make_node("Abs", [name], [f"{name}:magnitude"]))
        cut.graph.node.append(helper.make_node("ReduceMax", [f"{name}:magnitude"], [output_name], keepdims=0))
        cut.graph.output.append(helper.make_tensor_value_info(output_name, 1, ()))
    session = open_session(cut.SerializeToString(), optimising_options(str(model.folder)))
    largest = [session.run(None, {name: frame[name] for name in whole.inputs}) for frame in frames]
    # `max` would pass over a NaN that is not the first.
    return {name: float(np.max(sizes)) for name, sizes in zip(tensors, zip(*largest, strict=True), strict=True)}
