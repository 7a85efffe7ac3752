"""Who may come to this daemon: the allow-list, the daemon's own keys, and those of its HTTP process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from shisha_rt.daemon.front.access_file import read_access
from shisha_rt.daemon.front.addresses import Addresses
from shisha_rt.daemon.front.http_messages import Keys
from shisha_rt.daemon.front.security import Access, Security
from shisha_rt.protocol.access import AccessList, Permission, User
from shisha_rt.protocol.keys import new_pair, read_pair


class AccessControl:
    """Raises BadInput for a file that is not as it should be. `users` None: everybody who can connect.

    `security`: of the ZeroMQ endpoint, if it asks for keys. `http_keys`: with which the HTTP process comes then, as a
    client and as an operator; made anew for each daemon, and known to nobody else.
    """

    def __init__(self, addresses: Addresses, refused: Callable[[str], None]) -> None:
        self.path: Path | None = addresses.access
        self.users: AccessList | None = None if self.path is None else read_access(self.path)
        self.security: Security | None = None
        self.http_keys: tuple[Keys, Keys] | None = None
        if self.users is None or addresses.secret_key is None or not addresses.endpoint.startswith("tcp://"):
            return
        own, client, operator = read_pair(addresses.secret_key), new_pair(), new_pair()
        inner = (
            User("(HTTP)", Permission.CLIENT, client.public),
            User("(HTTP, operators)", Permission.OPERATOR, operator.public),
        )
        self.security = Security(own, Access(self.users, inner), refused)
        self.http_keys = (
            Keys(client.public, client.secret, own.public),
            Keys(operator.public, operator.secret, own.public),
        )

    def read_again(self) -> AccessList | None:
        """The allow-list as it is now; None: there is none. Raises BadInput, and then all stays as it was."""
        if self.path is not None:
            self.users = read_access(self.path)
        return self.users
