"""Access control: the allow-list (read at the start and on SIGHUP), and keys of the daemon and its HTTP process."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from shisha_rt.daemon.front.addresses import Addresses
from shisha_rt.daemon.front.http_messages import Keys
from shisha_rt.daemon.front.security import Security
from shisha_rt.errors import BadInput, Error
from shisha_rt.machine.config.toml_file import toml_table
from shisha_rt.protocol.access import AccessList, Permission, User, access_list
from shisha_rt.protocol.keys import new_pair, read_pair

_MOST_BYTES: Final = 1 << 20
_EXPECTED: Final = "expected an allow-list in TOML"


def read_access(path: Path) -> AccessList:
    """Read the allow-list. Raises BadInput, also if other users can write the file: they could let anyone in."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening a FIFO must not block the loop
        with os.fdopen(fd, "rb") as file:
            _check_owner(path, os.fstat(fd))
            text = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; {_EXPECTED}", Error.UNREADABLE_FILE) from None
    if len(text) > _MOST_BYTES:
        raise BadInput(f"{path}: larger than {_MOST_BYTES} bytes; {_EXPECTED}", Error.MALFORMED_FILE)
    try:
        content = text.decode()
    except UnicodeDecodeError:
        raise BadInput(f"{path}: not UTF-8 text; {_EXPECTED}", Error.MALFORMED_FILE) from None
    return access_list(toml_table(content, str(path), "allow-list"), str(path))


def _check_owner(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise BadInput(f"{path}: is not a regular file; {_EXPECTED}", Error.UNREADABLE_FILE)
    if status.st_uid not in (0, os.geteuid()):
        raise BadInput(
            f"{path}: is another user's; expected a file of the daemon's own user, or root's", Error.EXPOSED_FILE
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BadInput(
            f"{path}: others may write it; expected a file that only its owner writes: chmod go-w {path}",
            Error.EXPOSED_FILE,
        )


class AccessControl:
    """Who may connect. `users` None: everybody who can reach `addresses`. Raises BadInput for an invalid allow-list.

    `security`: access checks of the ZeroMQ endpoint; None unless the endpoint requires keys. `http_keys`: if it does,
    the keys of the HTTP process as a client and as an operator, which the daemon generates at its start.
    """

    def __init__(self, addresses: Addresses, refused: Callable[[str], None]) -> None:
        self.addresses = addresses
        access, secret_key = addresses.settings.access, addresses.settings.secret_key
        self.path = None if access is None else Path(access)
        self.users: AccessList | None = None if self.path is None else read_access(self.path)
        self.security: Security | None = None
        self.http_keys: tuple[Keys, Keys] | None = None
        if self.users is None or secret_key is None or not addresses.settings.endpoint.startswith("tcp://"):
            return
        own, client, operator = read_pair(Path(secret_key)), new_pair(), new_pair()
        inner = (
            User("(HTTP)", Permission.CLIENT, client.public),
            User("(HTTP, operators)", Permission.OPERATOR, operator.public),
        )
        self.security = Security(own, self.users, refused, inner)
        self.http_keys = (
            Keys(client.public, client.secret, own.public),
            Keys(operator.public, operator.secret, own.public),
        )

    def read_again(self) -> AccessList | None:
        """Read the allow-list again; None if there is none. If it raises BadInput, the old list stays in force."""
        if self.path is not None:
            self.users = read_access(self.path)
        return self.users
