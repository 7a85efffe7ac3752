"""COSTS.json: the costs of every layer on every place, from whoever measured them.

Pure: text in, `Costs` out, or one line (BadInput) that says where the file is wrong. A strict reader, since a
misspelt key would otherwise plan with costs that its writer did not mean.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Annotated, Any

import msgspec
import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.checked import convert, decode_json, shown
from shisha_rt.costs.costs import CostLayer, CostPlace, Costs
from shisha_rt.errors import BadInput

_Bytes = Annotated[int, msgspec.Meta(ge=0)]
_Seconds = Annotated[float, msgspec.Meta(ge=0)]


class _Layer(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    weight: Annotated[float, msgspec.Meta(ge=0)]
    weight_bytes: _Bytes = 0
    live_bytes: _Bytes = 0


class _Place(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    rank: Annotated[int, msgspec.Meta(ge=1)]
    memory_bytes: _Bytes | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    layers: Annotated[list[_Layer], msgspec.Meta(min_length=1)]
    places: Annotated[list[_Place], msgspec.Meta(min_length=1)]
    time_s: list[list[_Seconds | None]]
    transfer_s: list[_Seconds | None] | None = None


def parse_costs(text: bytes | str, source: str) -> Costs:
    """The costs that JSON text states; `source` names it in messages. Raises BadInput."""
    raw = decode_json(text, source, "costs as JSON")
    file = convert(raw, _File, source)
    _check_names(file.places, source)
    _check_sizes(file, source)
    return Costs(
        layers=tuple(CostLayer(x.name, x.weight, x.weight_bytes, x.live_bytes) for x in file.layers),
        places=tuple(CostPlace(x.name, x.rank, x.memory_bytes) for x in file.places),
        time_s=_floats(file.time_s),
        transfer_s=_floats([0.0] * (len(file.layers) - 1) if file.transfer_s is None else file.transfer_s),
    )


def _check_names(places: list[_Place], source: str) -> None:
    seen: set[str] = set()
    for i, place in enumerate(places):
        if place.name in seen:
            raise BadInput(f"{source}: places[{i}].name = {shown(place.name)}: used twice, expected one of its own")
        seen.add(place.name)


def _check_sizes(file: _File, source: str) -> None:
    layer_count, place_count = len(file.layers), len(file.places)
    _check_length(file.time_s, layer_count, "time_s", "one for each layer", source)
    for i, row in enumerate(file.time_s):
        _check_length(row, place_count, f"time_s[{i}]", "one for each place", source)
    if file.transfer_s is not None:
        _check_length(file.transfer_s, layer_count - 1, "transfer_s", "one fewer than layers", source)


def _check_length(entries: list[Any], expected: int, where: str, why: str, source: str) -> None:
    if len(entries) != expected:
        raise BadInput(f"{source}: {where} has {len(entries)} entries, expected {expected}: {why}")


def _floats(entries: list[Any]) -> Floats:
    """None becomes nan; read-only, as the record that holds it is frozen."""
    array = np.array(entries, dtype=np.float64)
    array.flags.writeable = False
    return array


def costs_object(costs: Costs) -> dict[str, Any]:
    """The costs as the JSON object that `parse_costs` reads."""
    return {
        "layers": [asdict(layer) for layer in costs.layers],
        "places": [asdict(place) for place in costs.places],
        "time_s": [_or_null(row) for row in costs.time_s],
        "transfer_s": _or_null(costs.transfer_s),
    }


def _or_null(seconds: Floats) -> list[float | None]:
    return [None if math.isnan(value) else value for value in seconds.tolist()]
