"""A node of a Ray cluster with all its processes, kept by a process of ours: it can be killed at once.

Settings: `address` of the cluster, or null for its head; `node_address`, its own, or null for the one that Ray finds;
`folder`, of its host, in the head's; what it `has`, as `num_cpus`, `resources`, `labels`; `store_bytes`; `environment`
of all that runs on it; `group`, the file of a control group that the node joins once it is up, or null. A line kills
the node, with all that runs on it, as if its host had died; the end of input ends it.

The node is as one of `ray start`, except for the dashboard, the autoscaler and output to a driver's terminal.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from benchmarks.rigs.child_process import Child, quiet_output
from benchmarks.rigs.descendants import keep_descendants, kill_all


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
    for one in psutil.Process().children(recursive=True):
        with contextlib.suppress(OSError):  # it has ended
            group.write_text(str(one.pid))
