"""COSTS.json: the costs of every layer on every place, whoever measured them.

Pure: text in, `Costs` out, or one line (BadInput) that says where the file is wrong. The reader is strict: if it
ignored a misspelt key, plans would be made for costs that the writer did not mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.checked import Count, Seconds, WholeNumber, convert, decode_json, shown
from shisha_rt.costs.alike import kinds_of
from shisha_rt.costs.costs import CostBatch, CostLayer, CostPlace, Costs, CostTeam
from shisha_rt.costs.links_file import LinkEntry, TensorEntry, check_links, check_tensors, links_object
from shisha_rt.costs.split_costs import SHARD_S, PricedSplit, ShardTime, SplitCosts
from shisha_rt.errors import BadInput, Error
from shisha_rt.model.spans import Span
from shisha_rt.model.split import Axis, Splittable
from shisha_rt.plan.plan import MOST_BATCH

_LEAST_S: Final = 1e-30
"""Smaller times count as 0: their inverses and squares would overflow or underflow."""
_MOST_UNITS: Final = 1_000_000_000


class _Layer(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    weight: Annotated[float, msgspec.Meta(ge=0, le=1e30)]
    weight_bytes: WholeNumber = 0
    live_bytes: WholeNumber = 0


class _Place(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    rank: Count
    memory_bytes: WholeNumber | None = None
    host: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    power_w: Annotated[float, msgspec.Meta(gt=0, le=1e6)] | None = None


class _Team(msgspec.Struct, forbid_unknown_fields=True):
    places: Annotated[list[str], msgspec.Meta(min_length=2)]
    time_s: list[Seconds | None]


class _Batch(msgspec.Struct, forbid_unknown_fields=True):
    frames: Annotated[int, msgspec.Meta(ge=2, le=MOST_BATCH)]
    time_s: list[list[Seconds | None] | dict[str, Seconds | None]]


class _ShardTime(msgspec.Struct, forbid_unknown_fields=True):
    base_s: Seconds
    unit_s: Seconds
    most: Annotated[int, msgspec.Meta(ge=0, le=_MOST_UNITS)] = _MOST_UNITS
    join_s: Seconds | None = 0.0


class _Split(msgspec.Struct, forbid_unknown_fields=True):
    first: WholeNumber
    last: WholeNumber
    axis: Axis
    units: Annotated[int, msgspec.Meta(ge=2, le=_MOST_UNITS)]
    block: Count = 1
    summed: bool = False
    joined: bool = False
    join_part: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    shard_times: dict[str, _ShardTime] = msgspec.field(name="told", default_factory=dict)

    @property
    def way(self) -> Splittable:
        return Splittable(
            self.first, self.last, self.axis, self.units, self.block, (), self.summed, self.joined, self.join_part
        )


class _File(msgspec.Struct, forbid_unknown_fields=True):
    layers: Annotated[list[_Layer], msgspec.Meta(min_length=1)]
    places: Annotated[list[_Place], msgspec.Meta(min_length=1)]
    time_s: list[list[Seconds | None] | dict[str, Seconds | None]]
    transfer_s: list[Seconds | None] | None = None
    teams: list[_Team] = []
    mixed: bool = True
    splits: list[_Split] = []
    shard_s: Seconds = SHARD_S
    tensors: list[TensorEntry] = []
    links: list[LinkEntry] = []
    batches: list[_Batch] = []


def parse_costs(text: bytes | str, source: str) -> Costs:
    """The costs that JSON text states; `source` names it in messages. Raises BadInput."""
    raw = decode_json(text, source, "costs as JSON")
    file = convert(raw, _File, source)
    _check_names(file.places, source)
    rows_s = _rows(file, file.time_s, "time_s", source)
    _check_sizes(file, rows_s, source)
    check_tensors(file.tensors, len(file.layers), source)
    check_links(file.links, [place.host for place in file.places], file.tensors, source)
    costs = Costs(
        layers=tuple(CostLayer(x.name, x.weight, x.weight_bytes, x.live_bytes) for x in file.layers),
        places=tuple(CostPlace(x.name, x.rank, x.memory_bytes, x.host, x.power_w) for x in file.places),
        time_s=_floats(rows_s),
        transfer_s=_floats([0.0] * (len(file.layers) - 1) if file.transfer_s is None else file.transfer_s),
        teams=tuple(CostTeam(tuple(x.places), _floats(x.time_s)) for x in file.teams),
        mixed=file.mixed,
        splits=SplitCosts(
            tuple(split.way for split in file.splits), file.shard_s, shard_times=_shard_times(file.splits)
        ),
        tensors=tuple(x.tensor for x in file.tensors),
        links=tuple(x.link for x in file.links),
        batches=_batches(file, source),
    )
    _check_teams(costs, source)
    _check_splits(costs, source)
    return costs


def _check_names(places: list[_Place], source: str) -> None:
    seen: set[str] = set()
    for i, place in enumerate(places):
        if place.name in seen:
            raise BadInput(
                f"{source}: places[{i}].name = {shown(place.name)}: used twice, expected one of its own",
                Error.WRONG_VALUE,
            )
        seen.add(place.name)


def _rows(
    file: _File, table_s: list[list[float | None] | dict[str, float | None]], where: str, source: str
) -> list[list[float | None]]:
    """(layers, places): seconds, None where a layer cannot run. A row of the file may also be a table by place names,
    in which a missing name means None.
    """
    names = [place.name for place in file.places]
    rows_s = []
    for i, row in enumerate(table_s):
        if isinstance(row, dict):
            for name in row:
                if name not in names:
                    known = shown(", ".join(names))[1:-1]
                    raise BadInput(
                        f"{source}: {where}[{i}]: no such place as {shown(name)}, expected one of {known}",
                        Error.WRONG_VALUE,
                    )
            row = [row.get(name) for name in names]
        rows_s.append(row)
    return rows_s


def _batches(file: _File, source: str) -> tuple[CostBatch, ...]:
    """Batches, the smallest first. Raises BadInput if a batch size is listed twice, or a table has a wrong size."""
    batches: dict[int, CostBatch] = {}
    for i, batch in enumerate(file.batches):
        where = f"batches[{i}].time_s"
        rows_s = _rows(file, batch.time_s, where, source)
        _check_table(file, rows_s, where, source)
        if batch.frames in batches:
            raise BadInput(
                f"{source}: batches[{i}].frames = {batch.frames}: listed twice, expected each number once",
                Error.WRONG_VALUE,
            )
        batches[batch.frames] = CostBatch(batch.frames, _floats(rows_s))
    return tuple(batches[frames] for frames in sorted(batches))


def _check_sizes(file: _File, rows_s: list[list[float | None]], source: str) -> None:
    layer_count = len(file.layers)
    _check_table(file, rows_s, "time_s", source)
    if file.transfer_s is not None:
        _check_length(file.transfer_s, layer_count - 1, "transfer_s", "one fewer than layers", source)
    for i, team in enumerate(file.teams):
        _check_length(team.time_s, layer_count, f"teams[{i}].time_s", "one for each layer", source)


def _check_table(file: _File, rows_s: list[list[float | None]], where: str, source: str) -> None:
    _check_length(rows_s, len(file.layers), where, "one for each layer", source)
    for i, row in enumerate(rows_s):
        _check_length(row, len(file.places), f"{where}[{i}]", "one for each place", source)


def _check_teams(costs: Costs, source: str) -> None:
    """Raise BadInput unless each team has alike places of the file, each once, and no team is listed twice."""
    kind_of = {costs.places[index].name: kind for kind, of in enumerate(kinds_of(costs)) for index in of}
    seen: dict[frozenset[str], int] = {}
    for i, team in enumerate(costs.teams):
        where = f"{source}: teams[{i}].places"
        for place in team.places:
            if place not in kind_of:
                raise BadInput(f"{where} has {shown(place)}, expected one of {', '.join(kind_of)}", Error.WRONG_VALUE)
            if team.places.count(place) > 1:
                raise BadInput(f"{where} has {shown(place)} twice, expected it once", Error.WRONG_VALUE)
        if len({kind_of[place] for place in team.places}) > 1:
            raise BadInput(
                f"{where} = {', '.join(team.places)}: expected places of equal times and memory_bytes",
                Error.WRONG_VALUE,
            )
        far = sorted(costs.far.intersection(team.places))
        if far:
            raise BadInput(
                f"{where} has {shown(far[0])}, which is on another host: expected places of this one", Error.WRONG_VALUE
            )
        other = seen.setdefault(frozenset(team.places), i)
        if other != i:
            raise BadInput(f"{where} are those of teams[{other}]: expected each team once", Error.WRONG_VALUE)


def _shard_times(splits: Iterable[_Split]) -> dict[PricedSplit, ShardTime]:
    return {
        ((split.first, split.last), split.axis, place): ShardTime(
            shares.base_s, shares.unit_s, shares.most, math.inf if shares.join_s is None else shares.join_s
        )
        for split in splits
        for place, shares in split.shard_times.items()
    }


def _check_splits(costs: Costs, source: str) -> None:
    """Raise BadInput for splits of layers that are not between legal cuts, or are listed twice along one axis."""
    last_layer = len(costs.layers) - 1
    cuts = costs.legal_cuts | {-1, last_layer}
    seen: dict[tuple[int, int, Axis], int] = {}
    for i, way in enumerate(costs.splits.ways):
        where = f"{source}: splits[{i}]"
        if not way.first <= way.last <= last_layer:
            raise BadInput(
                f"{where}: layers {way.first}-{way.last}, expected a run of layers 0-{last_layer}", Error.WRONG_VALUE
            )
        if way.first - 1 not in cuts or way.last not in cuts:
            raise BadInput(
                f"{where}: layers {way.first}-{way.last} cannot be cut out: expected legal cuts at both ends",
                Error.WRONG_VALUE,
            )
        if way.block >= way.units:
            raise BadInput(f"{where}.block = {way.block}: expected less than units = {way.units}", Error.WRONG_VALUE)
        for _, _, place in [key for key in costs.splits.shard_times if key[:2] == ((way.first, way.last), way.axis)]:
            if all(place != known.name for known in costs.places):
                raise BadInput(f"{where}.told: {place!r}, expected places of the file", Error.WRONG_VALUE)
        other = seen.setdefault((way.first, way.last, way.axis), i)
        if other != i:
            raise BadInput(f"{where} is splits[{other}] again, expected each run and axis once", Error.WRONG_VALUE)


def _check_length(entries: list[Any], expected: int, where: str, why: str, source: str) -> None:
    if len(entries) != expected:
        count = f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'}"
        raise BadInput(f"{source}: {where} has {count}, expected {expected}: {why}", Error.WRONG_VALUE)


def _floats(entries: list[Any]) -> Floats:
    """Return a read-only array: None becomes nan, and numbers too small for a float 0."""
    array = np.array(entries, dtype=np.float64)
    array[array < _LEAST_S] = 0.0
    array.flags.writeable = False
    return array


def costs_object(costs: Costs) -> dict[str, Any]:
    """The costs as the JSON object that `parse_costs` reads."""
    return {
        "layers": [asdict(layer) for layer in costs.layers],
        "places": [_place_object(place) for place in costs.places],
        "time_s": [_or_null(row) for row in costs.time_s],
        "transfer_s": _or_null(costs.transfer_s),
        **({"teams": [_team_object(team) for team in costs.teams]} if costs.teams else {}),
        **({} if costs.mixed else {"mixed": False}),
        **(_splits_object(costs.splits) if costs.splits.ways else {}),
        **links_object(costs.tensors, costs.links),
        **({"batches": [_batch_object(batch) for batch in costs.batches]} if costs.batches else {}),
    }


def _place_object(place: CostPlace) -> dict[str, Any]:
    return {key: value for key, value in asdict(place).items() if value is not None or key == "memory_bytes"}


def _splits_object(splits: SplitCosts) -> dict[str, Any]:
    keys = ("first", "last", "axis", "units", "block", "summed", "joined", "join_part")
    by_way: dict[tuple[Span, Axis], dict[str, object]] = {}
    for (span, axis, place), shares in splits.shard_times.items():
        join_s = shares.join_s if math.isfinite(shares.join_s) else None
        by_way.setdefault((span, axis), {})[place] = asdict(shares) | {"join_s": join_s}
    ways = [
        {key: getattr(way, key) for key in keys}
        | ({"told": places} if (places := by_way.get(((way.first, way.last), way.axis))) else {})
        for way in splits.ways
    ]
    return {"splits": ways, "shard_s": splits.overhead_s}


def _batch_object(batch: CostBatch) -> dict[str, Any]:
    return {"frames": batch.frames, "time_s": [_or_null(row) for row in batch.time_s]}


def _team_object(team: CostTeam) -> dict[str, Any]:
    return {"places": list(team.places), "time_s": _or_null(team.time_s)}


def _or_null(seconds: Floats) -> list[float | None]:
    return [None if math.isnan(value) else value for value in seconds.tolist()]
