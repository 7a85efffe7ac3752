"""What every request at a listener passes: its caller is checked, and an error made an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from shisha_rt.daemon.front.http_messages import Listener
from shisha_rt.http.app_state import AppState
from shisha_rt.http.exchange import Exchange
from shisha_rt.http.faults import CLIENT_CLOSED, HttpFault, fault_of
from shisha_rt.http.guard import Guard
from shisha_rt.http.inference.body import HungUp
from shisha_rt.http.inference.inferences import Inferences
from shisha_rt.http.inference.routes import inference_routes
from shisha_rt.http.page.routes import page_routes
from shisha_rt.http.routing import HttpRoute, answer_by
from shisha_rt.protocol.exceptions import ShishaError

_LEFT: Final = HttpFault(503, "the daemon has ended with the request under way; it may have been run")


class HttpFront:
    """Called with each request at `listener`, for which `routes` have the answers."""

    def __init__(self, app_state: AppState, listener: Listener, routes: Sequence[HttpRoute]) -> None:
        self._app_state = app_state
        self._guard = Guard(app_state, listener)
        self._routes = routes

    async def __call__(self, exchange: Exchange) -> None:
        try:
            await answer_by(self._routes, exchange, self._guard.admit(exchange))
        except HungUp:
            if not exchange.begun:
                self._app_state.count(CLIENT_CLOSED)
        except (HttpFault, ShishaError) as error:
            await exchange.refuse(error if isinstance(error, HttpFault) else fault_of(error))
        except asyncio.CancelledError:  # by `serve_connections`, if the daemon ends
            if exchange.begun or not self._app_state.ending.is_set():
                raise
            await exchange.refuse(_LEFT)
        except Exception:  # answered by `HttpConnections`
            if exchange.gone and not exchange.begun:
                self._app_state.count(CLIENT_CLOSED)
            raise


def http_routes(app_state: AppState, inferences: Inferences) -> Sequence[HttpRoute]:
    return [*inference_routes(app_state, inferences), *page_routes(app_state)]
