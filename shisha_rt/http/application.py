"""All routes, as one ASGI application."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from shisha_rt.http.faults import HttpFault, fault_answer, fault_of
from shisha_rt.http.house import House
from shisha_rt.http.inference.routes import inference_routes
from shisha_rt.http.page.routes import page_routes
from shisha_rt.wire.exceptions import ShishaError


def application(house: House) -> Starlette:
    """Each route finds what they share as `request.app.state.house`."""
    app = Starlette(
        routes=[*inference_routes(house), *page_routes(house)],
        exception_handlers={404: _no_route, 405: _no_method, HttpFault: _fault, ShishaError: _fault},
    )
    app.state.house = house
    return app


def _fault(_: Request, error: Exception) -> Response:
    return fault_answer(error if isinstance(error, HttpFault) else fault_of(error))  # type: ignore[arg-type]


def _no_route(request: Request, _: Exception) -> Response:
    return fault_answer(HttpFault(404, f"there is nothing at {request.url.path!r}"))


def _no_method(request: Request, _: Exception) -> Response:
    return fault_answer(HttpFault(405, f"{request.method} is not for {request.url.path!r}"))
