"""COSTS.json: the costs of every layer on every place, whoever measured them.

Pure: text in, `Costs` out, or one line (BadInput) that says where the file is wrong. The reader is strict: if it
ignored a misspelt key, plans would be made for costs that the writer did not mean.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence, Sized
from dataclasses import asdict
from typing import Annotated, Any, Final, TypeAlias

import msgspec
import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.checked import Count, Seconds, Title, Watts, WholeNumber, convert, decode_json, refuse, shown
from shisha_rt.costs.alike import kinds_of
from shisha_rt.costs.costs import CostBatch, CostLayer, CostPlace, Costs, CostTeam
from shisha_rt.costs.link_speed import OneWay
from shisha_rt.costs.links import AS_INPUT, CostTensor, HostLink
from shisha_rt.costs.split_costs import SHARD_S, PricedSplit, ShardTime, SplitCosts
from shisha_rt.errors import Error
from shisha_rt.model.spans import Span
from shisha_rt.model.split import Axis, Splittable
from shisha_rt.plan.plan import MOST_BATCH

_LEAST_S: Final = 1e-30
"""Smaller times count as 0: their inverses and squares would overflow or underflow."""
_MOST_UNITS: Final = 1_000_000_000
_MOST_BYTES: Final = 1 << 50

_Name = Annotated[Title, msgspec.Meta(min_length=1)]
_Row: TypeAlias = list[Seconds | None] | dict[str, Seconds | None]
"""(places,) seconds, None where a layer cannot run; a table by place names may leave such places out."""


class _Layer(msgspec.Struct, forbid_unknown_fields=True):
    name: Title
    weight: Annotated[float, msgspec.Meta(ge=0, le=1e30)]
    weight_bytes: WholeNumber = 0
    live_bytes: WholeNumber = 0


class _Place(msgspec.Struct, forbid_unknown_fields=True):
    name: _Name
    rank: Count
    memory_bytes: WholeNumber | None = None
    host: _Name | None = None
    power_w: Watts | None = None


class _Team(msgspec.Struct, forbid_unknown_fields=True):
    places: Annotated[list[str], msgspec.Meta(min_length=2)]
    time_s: list[Seconds | None]


class _Batch(msgspec.Struct, forbid_unknown_fields=True):
    frames: Annotated[int, msgspec.Meta(ge=2, le=MOST_BATCH)]
    time_s: list[_Row]


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
    def splittable(self) -> Splittable:
        return Splittable(
            self.first, self.last, self.axis, self.units, self.block, (), self.summed, self.joined, self.join_part
        )


class _Tensor(msgspec.Struct, forbid_unknown_fields=True):
    name: _Name
    size_bytes: Annotated[int, msgspec.Meta(ge=0, le=_MOST_BYTES)]
    made: Annotated[int, msgspec.Meta(ge=AS_INPUT)]
    readers: Annotated[list[int], msgspec.Meta(min_length=1)]


class _Way(msgspec.Struct, forbid_unknown_fields=True):
    latency_s: Annotated[float, msgspec.Meta(ge=0, le=1e6)]
    bytes_per_s: Annotated[float, msgspec.Meta(ge=1, le=1e18)]

    @property
    def way(self) -> OneWay:
        return OneWay(self.latency_s, self.bytes_per_s)


class _Link(msgspec.Struct, forbid_unknown_fields=True):
    host: _Name
    there: _Way
    back: _Way


class _File(msgspec.Struct, forbid_unknown_fields=True):
    layers: Annotated[list[_Layer], msgspec.Meta(min_length=1)]
    places: Annotated[list[_Place], msgspec.Meta(min_length=1)]
    time_s: list[_Row]
    transfer_s: list[Seconds | None] | None = None
    teams: list[_Team] = []
    mixed: bool = True
    splits: list[_Split] = []
    shard_s: Seconds = SHARD_S
    tensors: list[_Tensor] = []
    links: list[_Link] = []
    batches: list[_Batch] = []


def parse_costs(text: bytes | str, source: str) -> Costs:
    """The costs that JSON text states; `source` names it in messages. Raises BadInput."""
    file = convert(decode_json(text, source, "costs as JSON"), _File, source)
    refuse(_file_faults(file), source, Error.WRONG_VALUE)
    costs = Costs(
        layers=tuple(CostLayer(x.name, x.weight, x.weight_bytes, x.live_bytes) for x in file.layers),
        places=tuple(CostPlace(x.name, x.rank, x.memory_bytes, x.host, x.power_w) for x in file.places),
        time_s=_table(file.time_s, file.places),
        transfer_s=_floats([0.0] * (len(file.layers) - 1) if file.transfer_s is None else file.transfer_s),
        teams=tuple(CostTeam(tuple(x.places), _floats(x.time_s)) for x in file.teams),
        mixed=file.mixed,
        splits=SplitCosts(
            tuple(split.splittable for split in file.splits), file.shard_s, shard_times=_shard_times(file.splits)
        ),
        tensors=tuple(CostTensor(x.name, x.size_bytes, x.made, tuple(sorted(x.readers))) for x in file.tensors),
        links=tuple(HostLink(x.host, x.there.way, x.back.way) for x in file.links),
        batches=tuple(
            CostBatch(x.frames, _table(x.time_s, file.places))
            for x in sorted(file.batches, key=lambda batch: batch.frames)
        ),
    )
    refuse(_team_faults(costs), source, Error.WRONG_VALUE)
    refuse(_split_faults(costs), source, Error.WRONG_VALUE)
    return costs


def _file_faults(file: _File) -> Iterator[str]:
    """Yield what is listed twice, missing, or refers to nothing."""
    layer_count = len(file.layers)
    yield from _repeated("places", ((place.name, f".name = {shown(place.name)}") for place in file.places))
    yield from _table_faults(file, file.time_s, "time_s")
    if file.transfer_s is not None:
        yield from _length_fault(file.transfer_s, layer_count - 1, "transfer_s", "one fewer than layers")
    for i, team in enumerate(file.teams):
        yield from _length_fault(team.time_s, layer_count, f"teams[{i}].time_s", "one for each layer")
    yield from _tensor_faults(file.tensors, layer_count)
    yield from _link_faults(file)
    yield from _repeated("batches", ((batch.frames, f".frames = {batch.frames}") for batch in file.batches))
    for i, batch in enumerate(file.batches):
        yield from _table_faults(file, batch.time_s, f"batches[{i}].time_s")


def _repeated(table: str, entries: Iterable[tuple[Hashable, str]]) -> Iterator[str]:
    """Yield the entries whose key an earlier one has; `entries`: keys, and what to say of them."""
    seen: dict[Hashable, int] = {}
    for i, (key, said) in enumerate(entries):
        other = seen.setdefault(key, i)
        if other != i:
            yield f"{table}[{i}]{said}: used twice, first by {table}[{other}], expected each once"


def _table_faults(file: _File, table_s: Sequence[_Row], where: str) -> Iterator[str]:
    yield from _length_fault(table_s, len(file.layers), where, "one for each layer")
    names = [place.name for place in file.places]
    for i, row in enumerate(table_s):
        if isinstance(row, list):
            yield from _length_fault(row, len(names), f"{where}[{i}]", "one for each place")
            continue
        for name in row:
            if name not in names:
                known = shown(", ".join(names))[1:-1]
                yield f"{where}[{i}]: no such place as {shown(name)}, expected one of {known}"


def _length_fault(entries: Sized, expected: int, where: str, why: str) -> Iterator[str]:
    if len(entries) != expected:
        count = f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'}"
        yield f"{where} has {count}, expected {expected}: {why}"


def _tensor_faults(tensors: Sequence[_Tensor], layer_count: int) -> Iterator[str]:
    """Each tensor has its own name, is a layer's or an input, and is read by later layers."""
    yield from _repeated("tensors", ((tensor.name, f".name = {shown(tensor.name)}") for tensor in tensors))
    for i, tensor in enumerate(tensors):
        where = f"tensors[{i}]"
        if tensor.made >= layer_count:
            yield f"{where}.made = {tensor.made}: expected a layer, 0-{layer_count - 1}, or {AS_INPUT} for an input"
        for reader in tensor.readers:
            if not tensor.made < reader <= layer_count:
                expected = f"layers behind {tensor.made}, the one that makes it, or {layer_count} for an output"
                yield f"{where}.readers has {reader}: expected {expected}"
            if tensor.readers.count(reader) > 1:
                yield f"{where}.readers has {reader} twice, expected it once"


def _link_faults(file: _File) -> Iterator[str]:
    known = dict.fromkeys(place.host for place in file.places if place.host is not None)
    for i, link in enumerate(file.links):
        if link.host not in known:
            places = f"expected one of {', '.join(map(shown, known))}" if known else "expected places that have a host"
            yield f"links[{i}].host = {shown(link.host)}: no place is on it, {places}"
    yield from _repeated("links", ((link.host, f".host = {shown(link.host)}") for link in file.links))
    if file.links and not file.tensors:
        yield "has `links` without `tensors`, expected what passes between layers, too"


def _team_faults(costs: Costs) -> Iterator[str]:
    """Each team has alike places of the file, each once."""
    kind_of = {costs.places[index].name: kind for kind, of in enumerate(kinds_of(costs)) for index in of}
    for i, team in enumerate(costs.teams):
        where = f"teams[{i}].places"
        for place in team.places:
            if place not in kind_of:
                yield f"{where} has {shown(place)}, expected one of {', '.join(kind_of)}"
            if team.places.count(place) > 1:
                yield f"{where} has {shown(place)} twice, expected it once"
        if len({kind_of[place] for place in team.places}) > 1:
            yield f"{where} = {', '.join(team.places)}: expected places of equal times and memory_bytes"
        for place in sorted(costs.far.intersection(team.places)):
            yield f"{where} has {shown(place)}, which is on another host: expected places of this one"
    yield from _repeated(
        "teams", ((frozenset(team.places), f".places = {', '.join(team.places)}") for team in costs.teams)
    )


def _split_faults(costs: Costs) -> Iterator[str]:
    """Splits are of layers between legal cuts, and listed once along each axis."""
    last_layer = len(costs.layers) - 1
    cuts = costs.legal_cuts | {-1, last_layer}
    names = {place.name for place in costs.places}
    for i, splittable in enumerate(costs.splits.splittables):
        where, layers = f"splits[{i}]", f"layers {splittable.first}-{splittable.last}"
        if not splittable.first <= splittable.last <= last_layer:
            yield f"{where}: {layers}, expected a run of layers 0-{last_layer}"
        if splittable.first - 1 not in cuts or splittable.last not in cuts:
            yield f"{where}: {layers} cannot be cut out: expected legal cuts at both ends"
        if splittable.block >= splittable.units:
            yield f"{where}.block = {splittable.block}: expected less than units = {splittable.units}"
        for span, axis, place in costs.splits.shard_times:
            if (span, axis) == splittable.along and place not in names:
                yield f"{where}.told: {place!r}, expected places of the file"
    yield from _repeated(
        "splits",
        (
            (splittable.along, f" = {splittable.axis} of {splittable.first}-{splittable.last}")
            for splittable in costs.splits.splittables
        ),
    )


def _shard_times(splits: Iterable[_Split]) -> dict[PricedSplit, ShardTime]:
    return {
        ((split.first, split.last), split.axis, place): ShardTime(
            shares.base_s, shares.unit_s, shares.most, math.inf if shares.join_s is None else shares.join_s
        )
        for split in splits
        for place, shares in split.shard_times.items()
    }


def _table(table_s: Sequence[_Row], places: Sequence[_Place]) -> Floats:
    """(layers, places) seconds."""
    return _floats([[row.get(x.name) for x in places] if isinstance(row, dict) else row for row in table_s])


def _floats(entries: Sequence[object]) -> Floats:
    """Return a read-only array: None becomes nan, and numbers too small for a float 0."""
    array = np.array(entries, dtype=np.float64)
    array[array < _LEAST_S] = 0.0
    array.flags.writeable = False
    return array


def costs_object(costs: Costs) -> dict[str, Any]:
    """The costs as the JSON object that `parse_costs` reads."""
    teams = [{"places": list(team.places), "time_s": _or_null(team.time_s)} for team in costs.teams]
    batches = [{"frames": batch.frames, "time_s": _or_null(batch.time_s)} for batch in costs.batches]
    optional = {
        "teams": teams,
        **(_splits_object(costs.splits) if costs.splits.splittables else {}),
        "tensors": [asdict(tensor) | {"readers": list(tensor.readers)} for tensor in costs.tensors],
        "links": [asdict(link) for link in costs.links],
        "batches": batches,
    }
    return {
        "layers": [asdict(layer) for layer in costs.layers],
        "places": [_place_object(place) for place in costs.places],
        "time_s": _or_null(costs.time_s),
        "transfer_s": _or_null(costs.transfer_s),
        **({} if costs.mixed else {"mixed": False}),
        **{key: value for key, value in optional.items() if value != []},
    }


def _place_object(place: CostPlace) -> dict[str, Any]:
    return {key: value for key, value in asdict(place).items() if value is not None or key == "memory_bytes"}


def _splits_object(splits: SplitCosts) -> dict[str, Any]:
    keys = ("first", "last", "axis", "units", "block", "summed", "joined", "join_part")
    by_split: dict[tuple[Span, Axis], dict[str, object]] = {}
    for (span, axis, place), shares in splits.shard_times.items():
        join_s = shares.join_s if math.isfinite(shares.join_s) else None
        by_split.setdefault((span, axis), {})[place] = asdict(shares) | {"join_s": join_s}
    objects = [
        {key: getattr(splittable, key) for key in keys}
        | ({"told": places} if (places := by_split.get(splittable.along)) else {})
        for splittable in splits.splittables
    ]
    return {"splits": objects, "shard_s": splits.overhead_s}


def _or_null(seconds: Floats) -> list[Any]:
    """Seconds of an array of any shape, null where it has nan."""
    values = seconds.astype(object)
    values[np.isnan(seconds)] = None
    listed: list[Any] = values.tolist()
    return listed
