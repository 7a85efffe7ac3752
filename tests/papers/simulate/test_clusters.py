"""Clusters on paper: drawn alike from a seed, and with the costs that their hosts and links have."""

from __future__ import annotations

from shisha_rt.costs.alike import kinds_of
from shisha_rt.costs.links import AS_INPUT
from shisha_rt.model.layers import group_layers
from shisha_rt.papers.simulate.clusters import GENERATIONS, HOST_KINDS, cluster, cluster_costs, machine_of, tensors_of
from shisha_rt.papers.simulate.roofline import roofline_costs
from tests.costs.networks import chain


def test_a_smaller_cluster_is_the_beginning_of_a_larger_one() -> None:
    hosts = cluster(300, seed=7)
    assert cluster(20, seed=7) == hosts[:20]
    assert cluster(20, seed=8) != hosts[:20]
    assert {host.kind for host in hosts} == set(HOST_KINDS)
    assert {host.generation for host in hosts} == set(GENERATIONS)
    assert len({place for host in hosts for place in host.places}) == sum(host.kind.places for host in hosts)


def test_costs_are_those_of_a_roofline_over_the_whole_machine() -> None:
    graph = chain([3, 8, 16, 4])
    layers, hosts = group_layers(graph), cluster(12)
    costs = cluster_costs(graph, layers, hosts)
    whole = roofline_costs(graph, layers, machine_of(hosts))
    assert (costs.time_s == whole.time_s).all()
    assert [place.host for place in costs.places] == [host.name for host in hosts for _ in host.places]
    assert [link.host for link in costs.links] == [host.name for host in hosts]
    assert len(kinds_of(costs)) > 2


def test_what_passes_between_layers() -> None:
    graph = chain([3, 8, 16, 4])
    layers = group_layers(graph)
    tensors = tensors_of(graph, layers)
    assert [tensor.made for tensor in tensors] == [AS_INPUT, *range(len(layers))]
    assert [tensor.readers for tensor in tensors] == [(layer,) for layer in range(len(layers) + 1)]
    # A chain's cut has one tensor.
    assert [tensor.size_bytes for tensor in tensors[:-1]] == [layer.in_bytes for layer in layers]
