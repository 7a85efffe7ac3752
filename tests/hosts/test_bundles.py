"""What places ask of a cluster, and what is said when it has not that."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from shisha_rt.hosts.bundles import ClusterNode, bundle_of, infeasible, selector_of, why_lacking
from shisha_rt.machine.machine import Remote
from tests.wording import says

ID = "0123456789abcdef" * 3 + "01234567"
OTHER_ID = ID[::-1]
PLAIN = Remote(2)
NPU = Remote(1, (("npu", 1), ("disk", 0.5)))
ADDRESSED = Remote(node="10.0.0.2")
BY_ID = Remote(node=ID)
IN_ZONE = Remote(labels=(("zone", "b"),))


def node(
    address: str,
    cpus: float,
    free: float | None = None,
    custom: Mapping[str, float] | None = None,
    labels: Mapping[str, str] | None = None,
    node_id: str = OTHER_ID,
) -> ClusterNode:
    """As Ray has it: with an amount of its address, and of what every node has."""
    own = {f"node:{address}": 1.0, "node:__internal_head__": 1.0, "memory": 1e9, "object_store_memory": 1e8}
    has = {**own, **(custom or {})}
    free_cpus = cpus if free is None else free
    its_labels = {"ray.io/node-id": node_id, **(labels or {})}
    return ClusterNode(node_id, address, {**has, "CPU": cpus}, {**has, "CPU": free_cpus}, its_labels)


ONE = node("10.0.0.1", 4)
TWO = node("10.0.0.2", 1, custom={"npu": 2.0, "disk": 1.0}, labels={"zone": "b"}, node_id=ID)


@pytest.mark.parametrize(
    ("asked", "bundle", "selector"),
    [
        (PLAIN, {"CPU": 2.0}, {}),
        (NPU, {"CPU": 1.0, "npu": 1, "disk": 0.5}, {}),
        (ADDRESSED, {"CPU": 1.0, "node:10.0.0.2": 0.001}, {}),
        (BY_ID, {"CPU": 1.0}, {"ray.io/node-id": ID}),
        (IN_ZONE, {"CPU": 1.0}, {"zone": "b"}),
        (
            Remote(3, (("npu", 1),), ID, (("zone", "b"),)),
            {"CPU": 3.0, "npu": 1},
            {"zone": "b", "ray.io/node-id": ID},
        ),
    ],
)
def test_what_is_asked_in_rays_terms(asked: Remote, bundle: dict[str, float], selector: dict[str, str]) -> None:
    assert bundle_of(asked) == bundle
    assert selector_of(asked) == selector


@pytest.mark.parametrize("address", ["a" * 55, "a" * 57, "g" * 56, "A" * 56, "2001:db8::1", "far.example"])
def test_what_is_no_id_is_an_address(address: str) -> None:
    asked = Remote(node=address)
    assert f"node:{address}" in bundle_of(asked)
    assert selector_of(asked) == {}


@pytest.mark.parametrize("asked", [PLAIN, NPU, ADDRESSED, BY_ID, IN_ZONE])
def test_what_some_node_has_is_feasible(asked: Remote) -> None:
    assert not infeasible({"far": asked}, [ONE, TWO])
    assert not infeasible({"far": asked}, [TWO, ONE])
    assert infeasible({"far": asked}, []) == "far"


def test_it_is_feasible_even_where_none_of_it_is_free() -> None:
    busy = node("10.0.0.1", 2, free=0)
    assert not infeasible({"far": PLAIN}, [busy])
    assert not infeasible({"far": PLAIN, "more": PLAIN}, [busy])
    assert why_lacking({"far": PLAIN}, [busy]) == says("… at once (far: 2 cpus); free: node 10.0.0.1: 0 cpus")


HAVE = "node 10.0.0.1: 4 cpus; node 10.0.0.2: 1 cpus, disk = 1, npu = 2, label zone = b"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (Remote(5), "… far asks for 5 cpus"),
        (Remote(1, (("npu", 3),)), "… far asks for 1 cpus, npu = 3"),
        (Remote(2, (("npu", 1),)), "… far asks for 2 cpus, npu = 1"),
        (Remote(1, (("tpu", 0.25),)), "… far asks for 1 cpus, tpu = 0.25"),
        (Remote(node="10.0.0.3"), "… far asks for 1 cpus, node 10.0.0.3"),
        (Remote(2, node="10.0.0.2"), "… far asks for 2 cpus, node 10.0.0.2"),
        (Remote(node="f" * 56), f"… far asks for 1 cpus, node {'f' * 56}"),
        (Remote(2, node=ID), f"… far asks for 2 cpus, node {ID}"),
        (Remote(labels=(("zone", "c"),)), "… far asks for 1 cpus, label zone = c"),
        (Remote(2, labels=(("zone", "b"),)), "… far asks for 2 cpus, label zone = b"),
        (Remote(labels=(("rack", "b"),)), "… far asks for 1 cpus, label rack = b"),
    ],
)
def test_what_no_node_has_is_said_with_what_there_is(asked: Remote, said: str) -> None:
    """No two nodes together are one that has it."""
    for places in ({"far": asked}, {"plain": PLAIN, "far": asked, "worse": Remote(99)}):
        assert infeasible(places, [ONE, TWO])
        assert why_lacking(places, [ONE, TWO]) == says(f"{said}, which no … has; {HAVE}")


def test_a_cluster_without_nodes() -> None:
    assert why_lacking({"far": PLAIN}, []) == says("… far asks for 2 cpus, which … has; the cluster has …")


def test_all_that_is_asked_at_once_is_said_with_what_is_free() -> None:
    places = {"far": PLAIN, "zone": IN_ZONE, "more": Remote(3)}
    nodes = [node("10.0.0.1", 4, free=3.5), TWO]
    assert not infeasible(places, nodes)
    assert why_lacking(places, nodes) == says(
        "… at once (far: 2 cpus; zone: 1 cpus, label zone = b; more: 3 cpus); "
        "free: node 10.0.0.1: 3.5 cpus; node 10.0.0.2: 1 cpus, disk = 1, npu = 2, label zone = b"
    )
