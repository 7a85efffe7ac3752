"""CURVE keys: generate pairs, write them to files and read them, in the form of pyzmq's and CZMQ's certificates.

NAME.key has the public key, NAME.key_secret both; keys are written in Z85, 40 characters each. Shell.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final, TypeAlias

import zmq
from msgspec import Struct

from shisha_rt.errors import BadInput, Error
from shisha_rt.protocol.access import is_curve_key

_MOST_BYTES: Final = 64 << 10
_LINE: Final = re.compile(r'^\s*(public|secret)-key\s*=\s*["\']?([^"\'\s]*)["\']?\s*$', re.MULTILINE)
_MADE_BY: Final = "expected a file that shisha-rt keys new has made"
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO

SECRET_SUFFIX: Final = ".key_secret"
PUBLIC_SUFFIX: Final = ".key"


class KeyPair(Struct, frozen=True):
    """Both in Z85."""

    public: str
    secret: str

    def __repr__(self) -> str:
        return f"KeyPair({self.public!r}, ...)"  # no secret, as it may be logged


SecretKey: TypeAlias = str | os.PathLike[str] | KeyPair
"""A file, or its content."""
ServerKey: TypeAlias = str | os.PathLike[str]
"""A file, or the key itself."""


class ClientKeys(Struct, frozen=True):
    """A client's own pair, and the public key of its daemon."""

    own: KeyPair
    server: str


def new_pair() -> KeyPair:
    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode(), secret.decode())


def client_keys(secret_key: SecretKey | None, server_key: ServerKey | None) -> ClientKeys | None:
    """Keys of a client; None if neither key is given. Raises BadInput."""
    if secret_key is None and server_key is None:
        return None
    if secret_key is None or server_key is None:
        given, left_out = ("server_key", "secret_key") if secret_key is None else ("secret_key", "server_key")
        raise BadInput(
            f"{given} without {left_out}: expected both, one's own secret key and the daemon's public one",
            Error.KEYS_UNUSABLE,
        )
    own = secret_key if isinstance(secret_key, KeyPair) else read_pair(Path(secret_key))
    server = server_key if isinstance(server_key, str) and is_curve_key(server_key) else read_public(Path(server_key))
    return ClientKeys(own, server)


def is_kept_secret(mode: int, owner_uid: int, own_uid: int) -> bool:
    """Whether a file of this mode and owner is secret enough for a process of the user `own_uid`.

    Only its owner may have any permission. One exception: if the owner is root and the process is not, the group may
    read it; administrators hand out secrets that way, and Kubernetes mounts them so.
    """
    handed_out = owner_uid == 0 != own_uid
    return not mode & (_OTHERS & ~stat.S_IRGRP if handed_out else _OTHERS)


def read_pair(path: Path) -> KeyPair:
    """Read a secret file. Raises BadInput, also if other users may read it."""
    keys, status = _read(path)
    if "secret" not in keys:
        raise BadInput(f"{path}: no secret key in it; {_MADE_BY}: NAME{SECRET_SUFFIX}", Error.KEYS_UNUSABLE)
    if not is_kept_secret(status.st_mode, status.st_uid, os.geteuid()):
        raise BadInput(
            f"{path}: others may read it; expected a file of one's own: chmod 600 {path}", Error.EXPOSED_FILE
        )
    if zmq.curve_public(keys["secret"].encode()).decode() != keys["public"]:
        raise BadInput(f"{path}: the public key is not that of the secret one; {_MADE_BY}", Error.KEYS_UNUSABLE)
    return KeyPair(keys["public"], keys["secret"])


def read_public(path: Path) -> str:
    """Read the public key of a public or a secret file. Raises BadInput."""
    return _read(path)[0]["public"]


def _read(path: Path) -> tuple[dict[str, str], os.stat_result]:
    """The keys in a file, "public" and perhaps "secret", and the file's status. Raises BadInput."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())  # of the opened file, even if the path has been replaced
            text = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; {_MADE_BY}", Error.KEYS_UNUSABLE) from None
    keys = dict(_LINE.findall(text.decode(errors="replace"))) if len(text) <= _MOST_BYTES else {}
    if "public" not in keys or not all(map(is_curve_key, keys.values())):
        raise BadInput(f"{path}: no keys in it; {_MADE_BY}", Error.KEYS_UNUSABLE)
    return keys, status


def write_pair(folder: Path, name: str, pair: KeyPair) -> tuple[Path, Path]:
    """Write the public and the secret file. Raises BadInput if either exists already: nothing is ever overwritten."""
    public, secret = folder / f"{name}{PUBLIC_SUFFIX}", folder / f"{name}{SECRET_SUFFIX}"
    lines = f'metadata\ncurve\n    public-key = "{pair.public}"\n'
    _write(secret, f'# CURVE secret key of {name}: for nobody else.\n{lines}    secret-key = "{pair.secret}"\n', 0o600)
    try:
        _write(public, f"# CURVE public key of {name}.\n{lines}", 0o644)
    except BadInput:
        secret.unlink()
        raise
    return public, secret


def _write(path: Path, text: str, mode: int) -> None:
    """Write a new file, and leave none behind that is not complete. Raises BadInput."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        try:
            with os.fdopen(fd, "w") as file:
                file.write(text)
        except OSError:
            path.unlink(missing_ok=True)
            raise
    except FileExistsError:
        raise BadInput(f"{path}: is there already; expected a name that has no keys yet", Error.KEYS_THERE) from None
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; expected a folder to write to", Error.UNWRITABLE_FILE) from None
