"""All routes, as one ASGI application."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from shisha_rt.http.app_state import AppState
from shisha_rt.http.faults import HttpFault, fault_answer, fault_of
from shisha_rt.http.inference.infer import Infer
from shisha_rt.http.inference.routes import inference_routes
from shisha_rt.http.inference.served import Served
from shisha_rt.http.page.routes import page_routes
from shisha_rt.protocol.exceptions import ShishaError


def application(app_state: AppState, served: Served) -> ASGIApp:
    """Build the application; routes find their shared state as `request.app.state.app_state`.

    Frames bypass the middleware of the other routes: they are many, and their CPU time is taken from the engines.
    """
    routes = [*inference_routes(app_state, served), *page_routes(app_state)]
    straight = [route for route in routes if isinstance(route, Route) and isinstance(route.app, Infer)]
    rest = Starlette(
        routes=routes,
        exception_handlers={404: _no_route, 405: _no_method, HttpFault: _fault, ShishaError: _fault},
    )
    rest.state.app_state = app_state

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for route in straight:
            match, child_scope = route.matches(scope)
            if match is Match.FULL:
                scope.update(child_scope)
                await route.app(scope, receive, send)
                return
        await rest(scope, receive, send)

    return app


def _fault(_: Request, error: Exception) -> Response:
    return fault_answer(error if isinstance(error, HttpFault) else fault_of(error))  # type: ignore[arg-type]


def _no_route(request: Request, _: Exception) -> Response:
    return fault_answer(HttpFault(404, f"there is nothing at {request.url.path!r}"))


def _no_method(request: Request, _: Exception) -> Response:
    return fault_answer(HttpFault(405, f"{request.method} is not for {request.url.path!r}"))
