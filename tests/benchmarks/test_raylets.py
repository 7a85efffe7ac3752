"""Clusters that benchmarks run on: nodes where they are to be, which die at once, and nothing left at the end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from benchmarks.rigs.raylets import lacking_ray, raylets, start_patiently
from benchmarks.rigs.slow_link import lacking, slow_link

MISSING = lacking() or lacking_ray()

NODES = """
import json, sys, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="error")

@ray.remote(num_cpus=1, resources={"far": 1})
def where():
    return ray.util.get_node_ip_address()

print(json.dumps([ray.get(where.remote()), sum(node["Alive"] for node in ray.nodes())]))
"""


def nodes(address: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", NODES, address], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.mark.long
@pytest.mark.skipif(MISSING is not None, reason=f"needs {MISSING}")
def test_nodes_are_killed_and_added_and_all_is_gone_at_the_end() -> None:
    with slow_link(2) as link, raylets(link.address) as cluster:
        first, second = (cluster.add(host, resources={"far": 1}) for host in link.hosts)
        folder = cluster.head.folder
        assert {first.address, second.address} == {host.address for host in link.hosts}
        first.kill()
        keeper = psutil.Process(first.process.pid)
        assert not keeper.children(recursive=True)
        assert second.address in nodes(cluster.address)
        another = cluster.add(link.hosts[0], resources={"far": 1})
        assert another.node_id != first.node_id
        keepers = [raylet.process.pid for raylet in (cluster.head, first, second, another)]
        started = [child.pid for pid in keepers for child in psutil.Process(pid).children(recursive=True)]
        assert started
    assert not [pid for pid in (*keepers, *started) if psutil.pid_exists(pid)]
    assert not folder.exists()
    assert not list(Path("/dev/shm").glob("plasma*"))


def test_a_node_that_is_too_slow_for_ray_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[str] = []
    monkeypatch.setattr("benchmarks.rigs.raylets.kill_all", lambda: killed.append("all"))
    ends = iter([Exception("The current node timed out during startup."), None])

    def start() -> dict[str, str]:
        if (end := next(ends)) is not None:
            raise end
        return {"node_id": "the second"}

    assert start_patiently(start) == {"node_id": "the second"}
    assert killed == ["all"]
