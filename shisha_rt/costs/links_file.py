"""`tensors` and `links` of COSTS.json: the tensors that pass between layers, and the speeds of links to other hosts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec

from shisha_rt.checked import shown
from shisha_rt.costs.link_speed import OneWay
from shisha_rt.costs.links import AS_INPUT, CostTensor, HostLink
from shisha_rt.errors import BadInput, Error

_MOST_BYTES: Final = 1 << 50
_Name = Annotated[str, msgspec.Meta(min_length=1)]


class TensorEntry(msgspec.Struct, forbid_unknown_fields=True):
    name: _Name
    size_bytes: Annotated[int, msgspec.Meta(ge=0, le=_MOST_BYTES)]
    made: Annotated[int, msgspec.Meta(ge=AS_INPUT)]
    readers: Annotated[list[int], msgspec.Meta(min_length=1)]

    @property
    def tensor(self) -> CostTensor:
        return CostTensor(self.name, self.size_bytes, self.made, tuple(sorted(self.readers)))


class WayEntry(msgspec.Struct, forbid_unknown_fields=True):
    latency_s: Annotated[float, msgspec.Meta(ge=0, le=1e6)]
    bytes_per_s: Annotated[float, msgspec.Meta(ge=1, le=1e18)]

    @property
    def way(self) -> OneWay:
        return OneWay(self.latency_s, self.bytes_per_s)


class LinkEntry(msgspec.Struct, forbid_unknown_fields=True):
    host: _Name
    there: WayEntry
    back: WayEntry

    @property
    def link(self) -> HostLink:
        return HostLink(self.host, self.there.way, self.back.way)


def check_tensors(tensors: Sequence[TensorEntry], layer_count: int, source: str) -> None:
    """Raise BadInput unless each tensor has its own name, is a layer's or an input, and is read by later layers."""
    seen: dict[str, int] = {}
    for i, tensor in enumerate(tensors):
        where = f"{source}: tensors[{i}]"
        other = seen.setdefault(tensor.name, i)
        if other != i:
            raise BadInput(
                f"{where}.name = {shown(tensor.name)} is that of tensors[{other}]: expected each once",
                Error.WRONG_VALUE,
            )
        if tensor.made >= layer_count:
            raise BadInput(
                f"{where}.made = {tensor.made}: expected a layer, 0-{layer_count - 1}, or {AS_INPUT} for an input",
                Error.WRONG_VALUE,
            )
        for reader in tensor.readers:
            if not tensor.made < reader <= layer_count:
                raise BadInput(
                    f"{where}.readers has {reader}: expected layers behind {tensor.made}, "
                    f"the one that makes it, or {layer_count} for an output",
                    Error.WRONG_VALUE,
                )
            if tensor.readers.count(reader) > 1:
                raise BadInput(f"{where}.readers has {reader} twice, expected it once", Error.WRONG_VALUE)


def check_links(
    links: Sequence[LinkEntry], hosts: Sequence[str | None], tensors: Sequence[TensorEntry], source: str
) -> None:
    """Raise BadInput for more than one link to a host, or one to a host without places."""
    known = list(dict.fromkeys(host for host in hosts if host is not None))
    seen: dict[str, int] = {}
    for i, link in enumerate(links):
        where = f"{source}: links[{i}].host = {shown(link.host)}"
        if link.host not in known:
            places = f"expected one of {', '.join(map(shown, known))}" if known else "expected places that have a host"
            raise BadInput(f"{where}: no place is on it, {places}", Error.WRONG_VALUE)
        other = seen.setdefault(link.host, i)
        if other != i:
            raise BadInput(f"{where} is that of links[{other}]: expected each host once", Error.WRONG_VALUE)
    if links and not tensors:
        raise BadInput(
            f"{source}: has `links` without `tensors`, expected what passes between layers, too", Error.WRONG_VALUE
        )


def links_object(tensors: Sequence[CostTensor], links: Sequence[HostLink]) -> dict[str, Any]:
    """Tensors and links in the form that `parse_costs` reads; empty if there are none."""
    as_object: dict[str, Any] = {}
    if tensors:
        as_object["tensors"] = [
            {"name": tensor.name, "size_bytes": tensor.size_bytes, "made": tensor.made, "readers": list(tensor.readers)}
            for tensor in tensors
        ]
    if links:
        as_object["links"] = [
            {"host": link.host, "there": _way_object(link.there), "back": _way_object(link.back)} for link in links
        ]
    return as_object


def _way_object(way: OneWay) -> dict[str, float]:
    return {"latency_s": way.latency_s, "bytes_per_s": way.bytes_per_s}
