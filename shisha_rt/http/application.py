"""All routes of one listener: inference, which bypasses the web framework, and the rest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp

from shisha_rt.daemon.front.http_messages import Listener
from shisha_rt.http.app_state import AppState
from shisha_rt.http.asgi import answer_by
from shisha_rt.http.connection import Exchange
from shisha_rt.http.faults import CLIENT_CLOSED, OUR_FAULT, HttpFault, fault_answer, fault_of
from shisha_rt.http.guard import Guard
from shisha_rt.http.inference.body import HungUp
from shisha_rt.http.inference.infer import Infer
from shisha_rt.http.inference.routes import inference_routes
from shisha_rt.http.inference.served import Served
from shisha_rt.http.page.routes import page_routes
from shisha_rt.protocol.exceptions import ShishaError

_INFER: Final = re.compile(rb"/v2/models/([^/]+)(?:/versions/([^/]+))?/infer")


class HttpFront:
    """Answers each request at `listener`. Inference bypasses the framework, to leave more CPU time to the engines."""

    def __init__(self, app_state: AppState, served: Served, listener: Listener) -> None:
        self._guard = Guard(application(app_state, served), app_state, listener)
        self._infer = Infer(app_state, served.inferences, self._guard)

    async def __call__(self, exchange: Exchange) -> None:
        path = _infer_path(exchange) if exchange.method == "POST" else None
        if path is None:
            await answer_by(self._guard, exchange)
        else:
            await self._infer(exchange, path)


def _infer_path(exchange: Exchange) -> Mapping[str, str] | None:
    match = _INFER.fullmatch(exchange.raw_path)
    if match is None:
        return None
    model, version = match.groups()
    path = {"model": unquote(model.decode("ascii", "replace"))}
    return path if version is None else path | {"version": unquote(version.decode("ascii", "replace"))}


def application(app_state: AppState, served: Served) -> ASGIApp:
    """Build the web framework's application; routes find their shared state as `request.app.state.app_state`."""
    app = Starlette(
        routes=[*inference_routes(served), *page_routes(app_state)],
        exception_handlers={
            404: _no_route,
            405: _no_method,
            HttpFault: _fault,
            ShishaError: _fault,
            HungUp: _hung_up,
            ClientDisconnect: _hung_up,
            Exception: _our_fault,
        },
    )
    app.state.app_state = app_state
    return app


def _fault(_: Request, error: Exception) -> Response:
    return fault_answer(error if isinstance(error, HttpFault) else fault_of(error))  # type: ignore[arg-type]


def _our_fault(_: Request, __: Exception) -> Response:
    return fault_answer(HttpFault(500, OUR_FAULT))


def _hung_up(_: Request, __: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED)  # only counted


def _no_route(request: Request, _: Exception) -> Response:
    return fault_answer(HttpFault(404, f"there is nothing at {request.url.path!r}"))


def _no_method(request: Request, _: Exception) -> Response:
    return fault_answer(HttpFault(405, f"{request.method} is not for {request.url.path!r}"))
