"""Who may connect to a daemon, and what each may do. Pure."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from enum import StrEnum
from functools import reduce
from typing import Final

import msgspec

from shisha_rt.checked import convert, shown
from shisha_rt.errors import BadInput, Error
from shisha_rt.protocol.operations import CONTROL_OPS

_MOST_USERS: Final = 4096
_NAME_CHARACTERS: Final = 64
_Z85: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
"""Digits of base 85, by value (ZeroMQ RFC 32). Five of them stand for four bytes."""
_KEY_DIGITS: Final = 40
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class Permission(StrEnum):
    """A client may send frames and query state; an operator may also use the operations of `CONTROL_OPS`."""

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
    """All users. No two share a name, key, token or Unix user."""

    def __init__(self, users: Sequence[User]) -> None:
        self.users = tuple(users)
        self._of_key = {user.public_key: user for user in users if user.public_key is not None}

    def of_key(self, public_key: str) -> User | None:
        return self._of_key.get(public_key)

    def of_token(self, token: str) -> User | None:
        """Compare every hash, in constant time, so that the duration reveals nothing about the list."""
        digest = token_hash(token)
        of_token = None
        for user in self.users:
            if user.token_sha256 is not None and hmac.compare_digest(digest, user.token_sha256):
                of_token = user
        return of_token


def token_hash(token: str) -> str:
    """The hash of a token that the list stores. A token is 256 random bits, so the hash needs no salt or stretching."""
    return hashlib.sha256(token.encode()).hexdigest()


def is_curve_key(text: str) -> bool:
    """Whether the text is a CURVE key, public or secret, in Z85, of which libzmq can decode every group of digits."""
    if len(text) != _KEY_DIGITS or not set(text) <= set(_Z85):
        return False
    digits = [_Z85.index(digit) for digit in text]
    groups = (digits[start : start + 5] for start in range(0, _KEY_DIGITS, 5))
    return all(reduce(lambda number, digit: 85 * number + digit, group) < 2**32 for group in groups)


class _Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    user: tuple[User, ...] = ()


def access_list(raw: object, source: str) -> AccessList:
    """Check an allow-list that was decoded from TOML. Raises BadInput that names the `source`."""
    users = convert(raw, _Written, source).user
    if len(users) > _MOST_USERS:
        raise BadInput(f"{source}: {len(users)} users, expected at most {_MOST_USERS}", Error.WRONG_VALUE)
    for index, user in enumerate(users):
        _check(user, f"{source}: user[{index}]")
    _check_unlike(users, source)
    return AccessList(users)


def _check(user: User, where: str) -> None:
    if not (1 <= len(user.name) <= _NAME_CHARACTERS and user.name.isprintable()):
        expected = f"1 to {_NAME_CHARACTERS} characters that can be printed"
        raise BadInput(f"{where}.name = {shown(user.name)}: expected {expected}", Error.WRONG_VALUE)
    if user.public_key is not None and not is_curve_key(user.public_key):
        expected = "40 characters of Z85, as shisha-rt keys new prints it"
        raise BadInput(f"{where}.public_key = {shown(user.public_key)}: expected {expected}", Error.WRONG_VALUE)
    if user.token_sha256 is not None and not _SHA256.fullmatch(user.token_sha256):
        expected = "64 hexadecimal digits in lower case, as shisha-rt keys new --token prints it"
        raise BadInput(f"{where}.token_sha256 = {shown(user.token_sha256)}: expected {expected}", Error.WRONG_VALUE)
    if user.unix_user is not None and not (user.unix_user and user.unix_user.isprintable()):
        expected = "the name of a user of this host"
        raise BadInput(f"{where}.unix_user = {shown(user.unix_user)}: expected {expected}", Error.WRONG_VALUE)
    if (user.public_key, user.token_sha256, user.unix_user) == (None, None, None):
        raise BadInput(
            f"{where} {shown(user.name)}: nothing identifies this user; expected public_key, token_sha256 or unix_user",
            Error.WRONG_VALUE,
        )


def _check_unlike(users: Sequence[User], source: str) -> None:
    """Raises BadInput if two users share an identifier, which could not tell which of them a caller is."""
    for field in ("name", "public_key", "token_sha256", "unix_user"):
        first: dict[str, int] = {}
        for index, user in enumerate(users):
            value = getattr(user, field)
            if value is not None and first.setdefault(value, index) != index:
                where = f"{source}: user[{index}].{field} = {shown(value)}"
                raise BadInput(f"{where}: user[{first[value]}] has it, too; expected one of its own", Error.WRONG_VALUE)
