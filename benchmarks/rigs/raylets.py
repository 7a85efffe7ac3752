"""A Ray cluster on one host: a head, and raylets on its host or behind slow links, which can be added and killed.

Every node is kept by a separate process (`raylet_process`), so that it can die as a host does, and nothing of it is
left at the end: processes, sockets, folders. `ray stop` cannot be used, as it ends all of Ray on a host.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from benchmarks.rigs.child_process import ChildProcess, child_process
from benchmarks.rigs.control_group import ShareGroup
from benchmarks.rigs.slow_link import FarHost

_STORE_BYTES: Final = 200 << 20
_ENVIRONMENT: Final = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_enable_metrics_collection": "0"}


@dataclass(frozen=True, slots=True)
class Raylet:
    """A raylet, running unless it was killed. `folder`: for caches of its host."""

    node_id: str
    address: str
    folder: Path
    process: ChildProcess

    def kill(self) -> None:
        """Kill it at once with all that runs on it; it is gone on return. The kernel closes its connections."""
        self.process.ask()


class Raylets:
    """`address`: of the cluster, for `ray.init` and `serve --ray`. `head`: has no remote workers."""

    def __init__(self, head: Raylet, address: str, closing: contextlib.ExitStack) -> None:
        self.head = head
        self.address = address
        self._closing = closing
        self._numbers = itertools.count(1)

    def add(
        self,
        host: FarHost | None = None,
        cpus: int = 1,
        resources: Mapping[str, float] | None = None,
        labels: Mapping[str, str] | None = None,
        cores: float | None = None,
    ) -> Raylet:
        """Add a raylet, on a simulated remote host or on the head's. `cores`: its share of cores, see `ShareGroup`."""
        number = next(self._numbers)
        group = None if cores is None else self._closing.enter_context(ShareGroup(cores)).members
        enter, node_address = (host.enter, host.address) if host else ((), self.head.address)
        folder = self.head.folder / str(number)
        has = {"num_cpus": cpus, "resources": dict(resources or {}), "labels": dict(labels or {})}
        raylet, _ = self._closing.enter_context(_raylet(self.address, node_address, folder, has, enter, group))
        return raylet


@contextlib.contextmanager
def raylets(
    address: str | None = None, cpus: int = 0, resources: Mapping[str, float] | None = None
) -> Iterator[Raylets]:
    """Context with a cluster of a head only, with `cpus` CPUs.

    `address`: of this host, for all nodes; None: the one that Ray finds. (A head at 127.0.0.1 announces another address
    than it listens at.)
    """
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    has = {"num_cpus": cpus, "resources": dict(resources or {}), "labels": {}}
    with _raylet(None, address, folder, has) as (head, cluster), contextlib.ExitStack() as closing:
        yield Raylets(head, cluster, closing)


@contextlib.contextmanager
def _raylet(
    cluster: str | None,
    address: str | None,
    folder: Path,
    has: Mapping[str, object],
    enter: Sequence[str] = (),
    group: Path | None = None,
) -> Iterator[tuple[Raylet, str]]:
    """Start a raylet; yield it with the cluster's address, which is that of its head."""
    with child_process(
        "benchmarks.rigs.raylet_process",
        enter=enter,
        address=cluster,
        node_address=address,
        folder=str(folder),
        group=None if group is None else str(group),
        store_bytes=_STORE_BYTES,
        environment={**_ENVIRONMENT, "XDG_CACHE_HOME": str(folder / "cache")},
        has=has,
    ) as process:
        told = process.ready
        yield Raylet(told["node_id"], told["node_address"], folder, process), told["address"]


def lacking_ray() -> str | None:
    """What this host lacks for a cluster; None: nothing."""
    return None if find_spec("ray") else "Ray: the extra `ray`"
