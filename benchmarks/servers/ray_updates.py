"""Ray Serve as `ray_server`, with a network that is replaced while it serves, by one deployment after the other.

A child process of the benchmark (see `rigs/child_process.py`). Settings: `replicas`; `port` of the proxy; `path` and
`inputs` of the first network as in `network.py`; `folder`, where replicas record their pids. A line with another `path`
is answered once `serve.run` reports that it serves. There is room for the replicas of both networks.
"""

from __future__ import annotations

import logging
from typing import Any

import ray
from ray import serve

from benchmarks.rigs.child_process import Child, quiet_output
from benchmarks.servers.ray_network import deploy


def child(path: str, inputs: list[Any], port: int, replicas: int, folder: str) -> Child:
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    with quiet_output():
        ray.init(
            num_cpus=2 * replicas,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="error",
            object_store_memory=1 << 27,
        )
        serve.start(http_options={"host": "127.0.0.1", "port": port})
    try:
        while True:
            with quiet_output():
                deploy({"path": path, "inputs": inputs, "folder": folder}, replicas, {"num_cpus": 1})
            path = (yield {"serves": path})["path"]
    finally:
        with quiet_output():
            serve.shutdown()
            ray.shutdown()
