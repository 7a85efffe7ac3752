"""A Ray cluster on one host: a head, and raylets on its host or behind slow links, which can be added and killed.

Every node is kept by a separate process, so that it can die as a host does, and nothing of it is left at the end:
processes, sockets, folders. `ray stop` cannot be used, as it ends all of Ray on a host. A node is as one of
`ray start`, except for the dashboard, the autoscaler and output to a driver's terminal.

Settings of the process: `address` of the cluster, or null for its head; `node_address`, its own, or null for the one
that Ray finds; `folder`, of its host, in the head's; what it `has`, as `num_cpus`, `resources`, `labels`;
`store_bytes`; `environment` of all that runs on it; `group`, the file of a control group that the node joins once it is
up, or null. A line kills the node, with all that runs on it, as if its host had died; the end of input ends it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.rigs.child_process import Child, ChildProcess, child_process, quiet_output
from benchmarks.rigs.control_group import ShareGroup
from benchmarks.rigs.descendants import keep_descendants, kill_all
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
        "benchmarks.rigs.raylets",
        enter=enter,
        address=cluster,
        node_address=address,
        folder=str(folder),
        group=None if group is None else str(group),
        store_bytes=_STORE_BYTES,
        environment={**_ENVIRONMENT, "XDG_CACHE_HOME": str(folder / "cache")},
        has=has,
    ) as process:
        ready = process.ready
        yield Raylet(ready["node_id"], ready["node_address"], folder, process), ready["address"]


def lacking_ray() -> str | None:
    """What this host lacks for a cluster; None: nothing."""
    return None if find_spec("ray") else "Ray: the extra `ray`"


# --- the process ------------------------------------------------------------------------------------------------------


def child(**settings: Any) -> Child:
    os.environ.update(settings["environment"])
    keep_descendants()
    try:
        with quiet_output():
            node = start_patiently(lambda: _start(settings))
            if settings["group"]:
                _join(Path(settings["group"]))
        yield node
        while True:
            kill_all()
            yield {"killed": True}
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        kill_all()
        shutil.rmtree(settings["folder"], ignore_errors=True)


def start_patiently(start: Callable[[], dict[str, str]], attempts: int = 4) -> dict[str, str]:
    """Start a node again if it fails: Ray gives it half a minute, whatever else the host does."""
    for _ in range(attempts - 1):
        try:
            return start()
        except Exception as error:  # of any class: a late node is a bare Exception
            print(f"a node is started again: {error}", file=sys.stderr)
            kill_all()
    return start()


def _start(settings: dict[str, Any]) -> dict[str, str]:
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    wanted = RayParams(
        gcs_address=settings["address"],
        node_ip_address=settings["node_address"],
        num_gpus=0,
        object_store_memory=settings["store_bytes"],
        temp_dir=settings["folder"],
        include_dashboard=False,
        include_log_monitor=False,
        no_monitor=True,
        min_worker_port=0,
        max_worker_port=0,
        node_manager_port=0,
        **settings["has"],
    )
    bare = type("Bare", (Node,), {"start_api_server": lambda _self, **_: None})
    node = bare(wanted, head=settings["address"] is None, shutdown_at_exit=False, spawn_reaper=False)
    return {"address": node.gcs_address, "node_address": node.node_ip_address, "node_id": node.node_id}


def _join(group: Path) -> None:
    """Move all child processes into the group; processes that these start are in it, too."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(OSError):  # it has ended
            group.write_text(str(process.pid))
