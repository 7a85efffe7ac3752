"""All that one listener answers: inference, which bypasses the web framework, and the rest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from starlette.exceptions import HTTPException
from starlette.routing import Router

from shisha_rt.daemon.front.http_messages import Listener
from shisha_rt.http.app_state import AppState, Caller
from shisha_rt.http.asgi import answer_by
from shisha_rt.http.connection import Exchange
from shisha_rt.http.faults import HttpFault
from shisha_rt.http.front import GuardedFront
from shisha_rt.http.inference.infer import Infer
from shisha_rt.http.inference.inferences import Inferences
from shisha_rt.http.inference.routes import inference_routes
from shisha_rt.http.page.routes import page_routes

_INFER: Final = re.compile(rb"/v2/models/([^/]+)(?:/versions/([^/]+))?/infer")


class HttpFront(GuardedFront):
    """The protocol and the page. Inference bypasses the framework, to leave more CPU time to the engines."""

    def __init__(self, app_state: AppState, inferences: Inferences, listener: Listener) -> None:
        super().__init__(app_state, listener)
        self._router = Router([*inference_routes(app_state, inferences.files), *page_routes(app_state)])
        self._infer = Infer(app_state, inferences)

    async def answer(self, exchange: Exchange, caller: Caller | None) -> None:
        path = _infer_path(exchange) if exchange.method == "POST" else None
        if path is not None:
            assert caller is not None  # only routes of the page are open to unknown callers
            await self._infer(exchange, path, caller)
            return
        try:
            await answer_by(self._router, exchange, caller)
        except HTTPException as error:
            where = repr(exchange.path)
            if error.status_code == 405:
                raise HttpFault(405, f"{exchange.method} is not for {where}") from None
            raise HttpFault(404, f"there is nothing at {where}") from None


def _infer_path(exchange: Exchange) -> Mapping[str, str] | None:
    match = _INFER.fullmatch(exchange.raw_path)
    if match is None:
        return None
    model, version = match.groups()
    path = {"model": unquote(model.decode("ascii", "replace"))}
    return path if version is None else path | {"version": unquote(version.decode("ascii", "replace"))}
