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

from benchmarks.servers.network import SETTINGS, Network, settings


class Replica:
    def __init__(self, given: str) -> None:
        os.environ[SETTINGS] = given
        self._network = Network()
        self._most, delay_ms = settings()["batch"], settings()["delay_ms"]
        self._together.set_max_batch_size(self._most)
        self._together.set_batch_wait_timeout_s(delay_ms / 1e3)

    async def __call__(self, request: Request) -> Response:
        body = await request.body()
        answer = self._network.run(body) if self._most == 1 else await self._together(body)
        return Response(answer, media_type="application/octet-stream")

    @serve.batch  # type: ignore[untyped-decorator]
    async def _together(self, bodies: list[bytes]) -> list[bytes]:
        return self._network.run_together(bodies)

    async def run(self, body: bytes) -> bytes:
        """Answer a frame of Ray Serve's own handle."""
        return self._network.run(body)


def deploy(given: dict[str, Any], replicas: int, actor: dict[str, Any], **limits: int) -> Any:
    """Serve at `/inference`, and return the handle once it does. `given`: see `network.SETTINGS`."""
    deployment = serve.deployment(
        Replica,
        num_replicas=replicas,
        ray_actor_options=actor,
        logging_config=LoggingConfig(enable_access_log=False, log_level="WARNING"),
        **limits,
    )
    bound = deployment.bind(json.dumps(given))
    return serve.run(bound, route_prefix="/inference", logging_config={"enable_access_log": False})
