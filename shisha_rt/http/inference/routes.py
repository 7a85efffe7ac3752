"""Every route of the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.routing import BaseRoute, Route

from shisha_rt.http.inference.about_routes import AboutRoutes
from shisha_rt.http.inference.regions import SharedMemoryRoutes
from shisha_rt.http.inference.served import Served

_MODEL: Final = "/v2/models/{model}"
_VERSION: Final = _MODEL + "/versions/{version}"
_SYSTEM: Final = "/v2/systemsharedmemory"
_CUDA: Final = "/v2/cudasharedmemory"


def inference_routes(served: Served) -> Sequence[BaseRoute]:
    """All routes except POST of inference, which bypasses the web framework."""
    about = AboutRoutes(served.about)
    regions = SharedMemoryRoutes(served.files)
    return [
        *(Route(f"{model}/infer", about.never, methods=["POST"]) for model in (_MODEL, _VERSION)),
        Route("/v2/health/live", about.live),
        Route("/v2/health/ready", about.ready),
        Route("/v2/models/stats", about.statistics),
        *(Route(f"{model}/ready", about.model_ready) for model in (_MODEL, _VERSION)),
        *(Route(f"{model}/config", about.config) for model in (_MODEL, _VERSION)),
        *(Route(f"{model}/stats", about.statistics) for model in (_MODEL, _VERSION)),
        *(Route(model, about.model) for model in (_MODEL, _VERSION)),
        Route("/v2", about.server),
        Route("/v2/repository/index", about.index, methods=["POST"]),
        Route("/v2/repository/models/{model}/load", about.load, methods=["POST"]),
        Route("/v2/repository/models/{model}/unload", about.unload, methods=["POST"]),
        Route(f"{_SYSTEM}/status", regions.status),
        Route(f"{_SYSTEM}/region/{{region}}/status", regions.status),
        Route(f"{_SYSTEM}/region/{{region}}/register", regions.register, methods=["POST"]),
        Route(f"{_SYSTEM}/region/{{region}}/unregister", regions.unregister, methods=["POST"]),
        Route(f"{_SYSTEM}/unregister", regions.unregister, methods=["POST"]),
        Route(f"{_CUDA}/status", regions.no_cuda_status),
        Route(f"{_CUDA}/region/{{region}}/status", regions.no_cuda_status),
        Route(f"{_CUDA}/region/{{region}}/register", regions.no_cuda_register, methods=["POST"]),
        Route(f"{_CUDA}/region/{{region}}/unregister", regions.no_cuda_unregister, methods=["POST"]),
        Route(f"{_CUDA}/unregister", regions.no_cuda_unregister, methods=["POST"]),
        Route("/v2/trace/setting", about.no_tracing, methods=["GET", "POST"]),
        Route(f"{_MODEL}/trace/setting", about.no_tracing, methods=["GET", "POST"]),
        Route("/v2/logging", about.no_logging, methods=["GET", "POST"]),
    ]
