"""Who may come to a daemon, and what each may do. Pure."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from enum import StrEnum

import msgspec

from shisha_rt.wire.operations import CONTROL_OPS


class Permission(StrEnum):
    """A client sends frames and asks; an operator may change how they are served, too."""

    CLIENT = "client"
    OPERATOR = "operator"

    def may(self, op: str) -> bool:
        return self is Permission.OPERATOR or op not in CONTROL_OPS


class User(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`public_key`: Z85, for ZeroMQ. `token_sha256`: hexadecimal, of the token for HTTP. `unix_user`: of this host."""

    name: str
    permission: Permission = Permission.CLIENT
    public_key: str | None = None
    token_sha256: str | None = None
    unix_user: str | None = None


class AccessList:
    """All users. Names, keys and tokens are each one user's only."""

    def __init__(self, users: Sequence[User]) -> None:
        self.users = tuple(users)
        self._of_key = {user.public_key: user for user in users if user.public_key is not None}

    def of_key(self, public_key: str) -> User | None:
        return self._of_key.get(public_key)

    def of_token(self, token: str) -> User | None:
        """Every hash is compared, in constant time: how long it takes says nothing of what is in the list."""
        digest = hashlib.sha256(token.encode()).hexdigest()
        found = None
        for user in self.users:
            if user.token_sha256 is not None and hmac.compare_digest(digest, user.token_sha256):
                found = user
        return found
