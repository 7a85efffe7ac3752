"""Every route of the protocol."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import BaseRoute, Route

from shisha_rt.http.house import House
from shisha_rt.http.inference.infer import Infer
from shisha_rt.http.inference.shared_memory import SharedFiles


def inference_routes(house: House) -> Sequence[BaseRoute]:
    files = SharedFiles() if house.settings.shared_memory else None
    infer = Infer(house, files)
    return [
        Route("/v2/models/{model}/infer", infer, methods=["POST"]),
        Route("/v2/models/{model}/versions/{version}/infer", infer, methods=["POST"]),
    ]
