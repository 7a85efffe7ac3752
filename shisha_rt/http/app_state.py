"""What all routes of the HTTP process share: its two clients of the daemon, who may come, and what is counted."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass

from shisha_rt.client import AsyncClient
from shisha_rt.daemon.front.http_messages import HttpCounted, Keys, ServeHttp
from shisha_rt.http.page.sessions import Sessions
from shisha_rt.http.page.watching import Watching
from shisha_rt.protocol.access import AccessList, Permission
from shisha_rt.protocol.keys import KeyPair


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose request it is. `name` is "" and `uid` None where nobody asked who it is."""

    name: str
    permission: Permission
    uid: int | None = None


class AppState:
    """`ending` is set when the daemon has given its last answers: whatever goes on by itself is to end.

    `users_changed` is set, and another takes its place, when others may come than before.
    """

    def __init__(self, settings: ServeHttp) -> None:
        self.settings = settings
        self.client = _link(settings.endpoint, settings.client_keys)
        self.operator = _link(settings.endpoint, settings.operator_keys, share=False)
        self.users = None if settings.users is None else AccessList(settings.users)
        self.ending = asyncio.Event()
        self.users_changed = asyncio.Event()
        self.sessions = Sessions()
        self.watching = Watching(self.client)
        self._by_status: Counter[int] = Counter()
        self._refused: Counter[str] = Counter()

    def change_users(self, users: AccessList) -> None:
        self.users = users
        self.users_changed.set()
        self.users_changed = asyncio.Event()

    def count(self, status: int) -> None:
        self._by_status[status] += 1

    def refuse(self, reason: str) -> None:
        self._refused[reason] += 1

    def counted(self) -> HttpCounted | None:
        """Since the last call; None: nothing."""
        if not (self._by_status or self._refused):
            return None
        counted = HttpCounted(dict(self._by_status), dict(self._refused))
        self._by_status.clear()
        self._refused.clear()
        return counted

    async def close(self) -> None:
        await self.client.close()
        await self.operator.close()


def _link(endpoint: str, keys: Keys | None, *, share: bool = True) -> AsyncClient:
    if keys is None:
        return AsyncClient(endpoint, share=share)
    return AsyncClient(endpoint, share=share, secret_key=KeyPair(keys.public, keys.secret), server_key=keys.server)
