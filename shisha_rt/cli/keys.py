"""`shisha-rt keys`: keys and tokens for users who may connect to a daemon from other hosts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from shisha_rt.cli.options import Json, takes
from shisha_rt.errors import BadInput, Error

_TOKEN_BYTES: Final = 32
_DAEMON: Final = "daemon"

keys = typer.Typer(name="keys", help="Make keys and tokens, for daemons that other hosts can reach.")


@keys.callback()
def _keys() -> None:
    """Make keys and tokens, for daemons that other hosts can reach."""


@dataclass(frozen=True, slots=True)
class NewKeyOptions:
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of a user, or of the daemon itself: camera-1, daemon.")]
    operator: Annotated[
        bool, typer.Option("--operator", help="May control the daemon, too, and not only send frames and look.")
    ] = False
    token: Annotated[
        bool, typer.Option("--token", help="Make a token for HTTP, too. It is printed once, and kept nowhere.")
    ] = False
    unix_user: Annotated[
        str | None, typer.Option(metavar="USER", help="The user's name on the daemon's host, for its shared memory.")
    ] = None
    folder: Annotated[Path, typer.Option(metavar="DIR", help="Where the files are written.")] = Path()
    as_json: Json = False


@keys.command(
    epilog="Exit status: 0 done; 2 bad input: one line says what, and what was expected.\n\n"
    "See also: serve --access; docs/cli.md."
)
@takes(NewKeyOptions)
def new(options: NewKeyOptions) -> None:
    """Make a pair of keys: NAME.key, to be handed on, and NAME.key_secret, for its owner alone.

    Prints the entry for the daemon's allow-list (serve --access). Nothing is overwritten.

    \b
    Examples:
      shisha-rt keys new daemon
      shisha-rt keys new camera-1
      shisha-rt keys new me --operator --token
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    import secrets

    from shisha_rt.protocol.access import Permission, access_list, token_hash
    from shisha_rt.protocol.keys import new_pair, write_pair

    if not options.name.isprintable() or options.name != Path(options.name).name or options.name.startswith((".", "-")):
        raise BadInput(f"{options.name!r}: expected a name that a file can have, as camera-1", Error.WRONG_OPTION)
    pair = new_pair()
    entry = {"name": options.name, "permission": Permission.OPERATOR if options.operator else Permission.CLIENT}
    entry["public_key"] = pair.public
    made = secrets.token_urlsafe(_TOKEN_BYTES) if options.token else None
    if made is not None:
        entry["token_sha256"] = token_hash(made)
    if options.unix_user is not None:
        entry["unix_user"] = options.unix_user
    access_list({"user": [entry]}, "keys new")
    public, secret = write_pair(options.folder, options.name, pair)
    if options.as_json:
        files = {"public_file": str(public), "secret_file": str(secret)}
        print(json.dumps({"user": entry, "token": made, **files}))
        return
    _tell(public, secret, made, entry)


def _tell(public: Path, secret: Path, token: str | None, entry: Mapping[str, object]) -> None:
    print(f"{public}: the public key, to be handed on")
    print(f"{secret}: the secret key; it stays with its owner")
    if token is not None:
        print(f"token, shown this once: {token}")
    print("\nFor the file of serve --access (a running daemon reads it again on SIGHUP):\n\n[[user]]")
    for key, value in entry.items():
        print(f"{key} = {json.dumps(value, ensure_ascii=False)}")
    print(f"\nThen: shisha-rt status --key {secret} --server-key {_DAEMON}.key --endpoint tcp://HOST:5555")
    print(f"The daemon's own pair needs no entry; it is made with: shisha-rt keys new {_DAEMON}")
