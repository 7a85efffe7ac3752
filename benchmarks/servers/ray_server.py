"""Ray Serve: a proxy, and a replica for each worker; Ray's own daemons run, too."""

# No postponed annotations, as Ray Serve evaluates those of `__call__` itself.
import os
import signal

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
from ray import serve
from ray.serve.schema import LoggingConfig
from starlette.requests import Request
from starlette.responses import Response

from benchmarks.servers.network import Network, settings


class Runner:
    def __init__(self) -> None:
        self._network = Network()

    async def __call__(self, request: Request) -> Response:
        return Response(self._network.run(await request.body()), media_type="application/octet-stream")


def main() -> None:
    its = settings()
    # Stopped by a signal in the main thread only; the rest of it ends with this process.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    ray.init(num_cpus=its["workers"], include_dashboard=False, log_to_driver=False, object_store_memory=1 << 27)
    serve.start(http_options={"host": "127.0.0.1", "port": its["ports"][0]})
    deployment = serve.deployment(
        Runner,
        num_replicas=its["workers"],
        ray_actor_options={"num_cpus": 1},
        max_queued_requests=-1 if its["waiting"] is None else its["waiting"],
        logging_config=LoggingConfig(enable_access_log=False, log_level="WARNING"),
    )
    serve.run(deployment.bind(), route_prefix="/inference", logging_config={"enable_access_log": False})
    signal.pause()


if __name__ == "__main__":
    main()
