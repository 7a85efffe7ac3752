"""Clusters on this host, and what they are skipped without."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.rigs.raylets import Raylets, lacking_ray, raylets
from benchmarks.rigs.slow_link import SlowLink, lacking, slow_link


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
def three_raylets(slow_links: SlowLink) -> Iterator[Raylets]:
    """One beside the head, and two behind slow links; each has a CPU and the resource `host1`, `host2` or `host3`."""
    _skip_without(lacking_ray())
    with raylets(slow_links.address) as cluster:
        for number, host in enumerate((None, *slow_links.hosts), start=1):
            cluster.add(host, resources={f"host{number}": 1})
        yield cluster


def _skip_without(lacking: str | None) -> None:
    if lacking is not None:
        pytest.skip(f"needs {lacking}")
