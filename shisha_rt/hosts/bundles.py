"""What places ask of a cluster, as Ray's bundles and labels, and what is missing if it cannot be granted. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from shisha_rt.machine.machine import Remote

_NODE_ID: Final = "ray.io/node-id"
_NODE_ID_DIGITS: Final = 56
_A_LITTLE: Final = 0.001  # of the resource named after the node's address, which each node has 1 of


class ClusterNode(NamedTuple):
    """A node that is alive. `total`, `free`: amounts of its resources by name."""

    node_id: str
    address: str
    total: Mapping[str, float]
    free: Mapping[str, float]
    labels: Mapping[str, str]


def bundle_of(asked: Remote) -> dict[str, float]:
    """The resources of a placement group's bundle."""
    bundle = {"CPU": float(asked.cpus), **dict(asked.resources)}
    if asked.node is not None and not _is_id(asked.node):
        bundle[f"node:{asked.node}"] = _A_LITTLE
    return bundle


def selector_of(asked: Remote) -> dict[str, str]:
    """The labels that a node must have for this place's bundle."""
    by_id = {_NODE_ID: asked.node} if asked.node is not None and _is_id(asked.node) else {}
    return {**dict(asked.labels), **by_id}


def why_lacking(places: Mapping[str, Remote], nodes: Sequence[ClusterNode]) -> str:
    """Name the first request that no node can meet, or say that all cannot be met at once; list what nodes have."""
    place = infeasible(places, nodes)
    if place is not None:
        total = _nodes_in_words(nodes, attrgetter("total"))
        return f"place {place} asks for {_request_in_words(places[place])}, which no node has; {total}"
    listed = "; ".join(f"{place}: {_request_in_words(asked)}" for place, asked in places.items())
    return f"not all places can be had at once ({listed}); free: {_nodes_in_words(nodes, attrgetter('free'))}"


def infeasible(places: Mapping[str, Remote], nodes: Sequence[ClusterNode]) -> str | None:
    """The first place whose request no node could meet even if it were idle; None if there is none."""
    unmet = (place for place, asked in places.items() if not any(_could_meet(node, asked) for node in nodes))
    return next(unmet, None)


def _could_meet(node: ClusterNode, asked: Remote) -> bool:
    has_labels = selector_of(asked).items() <= {**node.labels, _NODE_ID: node.node_id}.items()
    return has_labels and all(node.total.get(name, 0.0) >= amount for name, amount in bundle_of(asked).items())


def _is_id(node: str) -> bool:
    return len(node) == _NODE_ID_DIGITS and set(node) <= set("0123456789abcdef")


def _request_in_words(asked: Remote) -> str:
    parts = [f"{asked.cpus} cpus"]
    parts += [f"{name} = {amount:g}" for name, amount in asked.resources]
    parts += [f"node {asked.node}"] if asked.node is not None else []
    parts += [f"label {name} = {value}" for name, value in asked.labels]
    return ", ".join(parts)


def _nodes_in_words(nodes: Sequence[ClusterNode], of: Callable[[ClusterNode], Mapping[str, float]]) -> str:
    listed = "; ".join(f"node {node.address}: {_node_in_words(of(node), node.labels)}" for node in nodes)
    return listed or "the cluster has no node"


def _node_in_words(resources: Mapping[str, float], labels: Mapping[str, str]) -> str:
    custom = {name: amount for name, amount in sorted(resources.items()) if ":" not in name and name not in _RAYS_OWN}
    parts = [f"{resources.get('CPU', 0):g} cpus", *(f"{name} = {amount:g}" for name, amount in custom.items())]
    parts += [f"label {name} = {value}" for name, value in labels.items() if not name.startswith("ray.io/")]
    return ", ".join(parts)


_RAYS_OWN: Final = ("CPU", "memory", "object_store_memory")
