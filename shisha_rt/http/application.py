"""All that one listener answers: the protocol and the page."""

from __future__ import annotations

from shisha_rt.daemon.front.http_messages import Listener
from shisha_rt.http.app_state import AppState, Caller
from shisha_rt.http.connection import Exchange
from shisha_rt.http.front import GuardedFront
from shisha_rt.http.inference.inferences import Inferences
from shisha_rt.http.inference.routes import inference_routes
from shisha_rt.http.page.routes import page_routes
from shisha_rt.http.routing import answer_by


class HttpFront(GuardedFront):
    def __init__(self, app_state: AppState, inferences: Inferences, listener: Listener) -> None:
        super().__init__(app_state, listener)
        self._routes = [*inference_routes(app_state, inferences), *page_routes(app_state)]

    async def answer(self, exchange: Exchange, caller: Caller | None) -> None:
        await answer_by(self._routes, exchange, caller)
