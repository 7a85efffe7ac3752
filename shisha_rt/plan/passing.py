"""What passes between the stages of a plan."""

from __future__ import annotations

from shisha_rt.model.index import ModelIndex
from shisha_rt.plan.plan import Plan


def passing_tensors(index: ModelIndex, plan: Plan) -> set[str]:
    """Names of the tensors, inputs and outputs apart, that pass between stages of a plan."""
    of = plan.stages_of(index.layer_count)
    names = {
        entry.tensor.name for entry in index.crossing if any(of[entry.made] != of[layer] for layer in entry.readers)
    }
    known = {((way.first, way.last), way.axis): way for way in index.splits}
    for carriers in plan.splits:
        split = plan.stages[carriers[0]].split
        assert split is not None  # they are what carries it
        way = known[split.span, split.axis]
        names.update(room for name in way.makes for room in way.rooms(name, len(split.shares)))
    return names - {spec.name for spec in (*index.inputs, *index.outputs)}
