"""The network in Ray Serve, on any cluster: its replicas, and the deployment that starts or replaces them."""

# No postponed annotations, as Ray Serve evaluates those of `__call__` itself.
import json
import os
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

from ray import serve
from ray.serve.schema import LoggingConfig
from starlette.requests import Request
from starlette.responses import Response

from benchmarks.servers.network import SETTINGS, Network


class Replica:
    def __init__(self, settings: str) -> None:
        os.environ[SETTINGS] = settings
        self._network = Network()

    async def __call__(self, request: Request) -> Response:
        return Response(self._network.run(await request.body()), media_type="application/octet-stream")

    async def run(self, body: bytes) -> bytes:
        """Answer a frame of Ray Serve's own handle."""
        return self._network.run(body)


def deploy(settings: dict[str, Any], replicas: int, actor: dict[str, Any], **limits: int) -> Any:
    """Serve at `/inference`, and return the handle once it does. `settings`: see `network.SETTINGS`."""
    deployment = serve.deployment(
        Replica,
        num_replicas=replicas,
        ray_actor_options=actor,
        logging_config=LoggingConfig(enable_access_log=False, log_level="WARNING"),
        **limits,
    )
    bound = deployment.bind(json.dumps(settings))
    return serve.run(bound, route_prefix="/inference", logging_config={"enable_access_log": False})
