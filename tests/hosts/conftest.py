"""Clusters on this host, and what they are skipped without."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.rigs.raylets import Raylets, lacking_ray, raylets
from benchmarks.rigs.slow_link import SlowLink, lacking, slow_link
from tests.hosts.three_hosts import ThreeHosts


@pytest.fixture(scope="session")
def one_node() -> Iterator[Raylets]:
    """A head with two CPUs to give, for all tests: two seconds. Each is to leave it as it was."""
    _skip_without(lacking_ray())
    with raylets(cpus=2) as cluster:
        yield cluster


@pytest.fixture
def slow_links() -> Iterator[SlowLink]:
    """Two hosts, 1 Gbit/s and 1 ms away."""
    _skip_without(lacking())
    with slow_link(2) as link:
        yield link


@pytest.fixture
def three_raylets(slow_links: SlowLink) -> Iterator[ThreeHosts]:
    """Up, each on a host of its own."""
    _skip_without(lacking_ray())
    with raylets(slow_links.address) as cluster:
        hosts = ThreeHosts(slow_links, cluster)
        for number in (1, 2, 3):
            hosts.add(number)
        yield hosts


def _skip_without(lacking: str | None) -> None:
    if lacking is not None:
        pytest.skip(f"needs {lacking}")
