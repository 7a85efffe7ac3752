"""Ray Serve as `ray_server`, with a network that is replaced while it serves, by one deployment after the other.

A child process of the benchmark (see `rigs/child_process.py`). Settings: `replicas`; `port` of the proxy; `path` and
`inputs` of the first network as in `network.py`; `folder`, where replicas record their pids. A line with another `path`
is answered once `serve.run` reports that it serves. There is room for the replicas of both networks.
"""

# No postponed annotations, as Ray Serve evaluates those of `__call__` itself.
import json
import logging
import os
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
from ray import serve
from ray.serve.schema import LoggingConfig
from starlette.requests import Request
from starlette.responses import Response

from benchmarks.rigs.child_process import Child, quiet_output
from benchmarks.servers.network import SETTINGS, Network


class Replaced:
    def __init__(self, settings: str) -> None:
        os.environ[SETTINGS] = settings
        self._network = Network()

    async def __call__(self, request: Request) -> Response:
        return Response(self._network.run(await request.body()), media_type="application/octet-stream")


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
    deployment = serve.deployment(
        Replaced,
        num_replicas=replicas,
        ray_actor_options={"num_cpus": 1},
        logging_config=LoggingConfig(enable_access_log=False, log_level="WARNING"),
    )
    try:
        while True:
            settings = {"path": path, "inputs": inputs, "folder": folder}
            with quiet_output():
                bound = deployment.bind(json.dumps(settings))
                serve.run(bound, route_prefix="/inference", logging_config={"enable_access_log": False})
            path = (yield {"serves": path})["path"]
    finally:
        with quiet_output():
            serve.shutdown()
            ray.shutdown()
