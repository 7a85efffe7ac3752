"""Tensors that pass between a model's layers, in the form that costs need; from the index of its cuts."""

from __future__ import annotations

from shisha_rt.costs.links import AS_INPUT, CostTensor
from shisha_rt.model.index import NO_LAYER, ModelIndex


def cost_tensors(index: ModelIndex) -> tuple[CostTensor, ...]:
    """Inputs, then tensors that other layers read, then outputs that no layer reads; none without a reader."""
    makers = dict(zip((spec.name for spec in index.outputs), index.output_makers, strict=True))
    crossing = {entry.tensor.name: entry for entry in index.crossing}
    told_tensors = [
        CostTensor(spec.name, spec.size_bytes, AS_INPUT, readers)
        for spec, readers in zip(index.inputs, index.input_readers, strict=True)
    ]
    for name, entry in crossing.items():
        out = (index.layer_count,) if name in makers else ()
        told_tensors.append(CostTensor(name, entry.tensor.size_bytes, entry.made, entry.readers + out))
    told_tensors += [
        CostTensor(spec.name, spec.size_bytes, makers[spec.name], (index.layer_count,))
        for spec in index.outputs
        if spec.name not in crossing and makers[spec.name] != NO_LAYER
    ]
    return tuple(tensor for tensor in told_tensors if tensor.readers)
