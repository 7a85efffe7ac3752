"""Ray Serve on a cluster: replicas of the whole model on its nodes, a proxy on the head, and a driver there as client.

A child process of the benchmark (see `rigs/child_process.py`). Settings: `address` of the cluster; `replicas`, each of
which requests one unit of the resource `whole`; `path`, `inputs` as in `network.py`; `port` of the proxy; `in_flight`;
`folder`, where replicas record their pids. It takes the orders of servers' clients (see `rigs/asking.py`): frames go
through Ray Serve's own handle, as bytes, which is its fastest interface: without a proxy, and with large objects in
shared memory.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
from ray import serve

from benchmarks.rigs.asking import ANSWERED, Asking, Came, obeying, raw_frame
from benchmarks.rigs.child_process import Child, quiet_output
from benchmarks.servers.ray_network import deploy


class HandleAsker(Came):
    """Threads that each send a frame and await its answer, as the handle's answers are awaited one by one."""

    def __init__(self, handle: Any, frame: bytes, in_flight: int) -> None:
        super().__init__()
        self._handle = handle
        self._frame = frame
        self._threads = ThreadPoolExecutor(in_flight)

    def send(self, number: int) -> None:
        self._threads.submit(self._ask, number)

    def _ask(self, number: int) -> None:
        try:
            self._handle.run.remote(self._frame).result()
            self._came.put((number, ANSWERED))
        except Exception as error:
            self._came.put((number, f"answered with {error}"))


def child(**options: Any) -> Child:
    with quiet_output():
        ray.init(address=options["address"], log_to_driver=False, logging_level="error")
        serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": options["port"]})
        settings = {"path": options["path"], "inputs": options["inputs"], "folder": options["folder"]}
        actor = {"num_cpus": 0, "resources": {"whole": 1}}
        handle = deploy(settings, options["replicas"], actor, max_ongoing_requests=options["in_flight"])
    try:
        yield from obeying(
            Asking(HandleAsker(handle, raw_frame(options["inputs"]), options["in_flight"])), options["in_flight"]
        )
    finally:
        with quiet_output():
            serve.shutdown()
