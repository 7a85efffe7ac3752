"""Ray Serve on a cluster: replicas of the whole model on its nodes, a proxy on the head, and a driver there as client.

A child process of the benchmark (see `rigs/child_process.py`). Settings: `address` of the cluster; `replicas`, each of
which requests one unit of the resource `whole`; `path`, `inputs` as in `network.py`; `port` of the proxy; `in_flight`;
`folder`, where replicas record their pids. It takes the orders of servers' clients (see `rigs/asking.py`): frames go
through Ray Serve's own handle, as bytes, which is its fastest interface: without a proxy, and with large objects in
shared memory.
"""

# No postponed annotations, as Ray Serve evaluates those of `__call__` itself.
import json
import os
import queue
import threading
from typing import Any, Final

import ray
from ray import serve
from ray.serve.schema import LoggingConfig
from starlette.requests import Request
from starlette.responses import Response

from benchmarks.rigs.asking import ANSWERED, Asking, Came, obeying, raw_frame
from benchmarks.rigs.child_process import Child, quiet_output
from benchmarks.servers.network import SETTINGS, Network

_NAME: Final = "network"


class Whole:
    def __init__(self, settings: str) -> None:
        os.environ[SETTINGS] = settings
        self._network = Network()

    async def __call__(self, request: Request) -> Response:
        return Response(self._network.run(await request.body()), media_type="application/octet-stream")

    async def run(self, body: bytes) -> bytes:
        return self._network.run(body)


class HandleAsker(Came):
    """Sends frames in one thread and waits in another, as the handle's answers are awaited one by one."""

    def __init__(self, handle: Any, frame: bytes, in_flight: int) -> None:
        super().__init__()
        self._handle = handle
        self._frame = frame
        self._asked: queue.SimpleQueue[int] = queue.SimpleQueue()
        for _ in range(in_flight):
            threading.Thread(target=self._ask, daemon=True).start()

    def _ask(self) -> None:
        while True:
            number = self._asked.get()
            try:
                self._handle.run.remote(self._frame).result()
                self._came.put((number, ANSWERED))
            except Exception as error:
                self._came.put((number, f"answered with {error}"))

    def send(self, number: int) -> None:
        self._asked.put(number)


def child(**its: Any) -> Child:
    with quiet_output():
        ray.init(address=its["address"], log_to_driver=False, logging_level="error")
        serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": its["port"]})
        deployment = serve.deployment(
            Whole,
            num_replicas=its["replicas"],
            ray_actor_options={"num_cpus": 0, "resources": {"whole": 1}},
            max_ongoing_requests=its["in_flight"],
            logging_config=LoggingConfig(enable_access_log=False, log_level="WARNING"),
        )
        settings = {"path": its["path"], "inputs": its["inputs"], "folder": its["folder"]}
        bound = deployment.bind(json.dumps(settings))
        handle = serve.run(bound, name=_NAME, route_prefix="/inference", logging_config={"enable_access_log": False})
    try:
        yield from obeying(Asking(HandleAsker(handle, raw_frame(its["inputs"]), its["in_flight"])), its["in_flight"])
    finally:
        with quiet_output():
            serve.shutdown()
