"""`shisha-rt keys new`: what it writes, for whom it is to be read, and that stock tools and the daemon take it."""

from __future__ import annotations

import json
import os
import stat
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import IO, Any

import pytest
from zmq.auth import create_certificates, load_certificate

from shisha_rt.cli.app import main
from shisha_rt.errors import BadInput, Error
from shisha_rt.protocol.access import Permission, access_list
from shisha_rt.protocol.keys import KeyPair, is_kept_secret, new_pair, read_pair, read_public, write_pair
from tests.wording import raised


def test_a_pair_is_made_and_the_entry_is_for_the_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "new", "camera 1", "--token", "--unix-user", "alice", "--folder", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    (user,) = access_list(tomllib.loads("[[user]]" + shown.partition("[[user]]")[2].partition("\n\n")[0]), "told").users
    token = shown.partition("shown this once: ")[2].partition("\n")[0]
    assert (user.name, user.permission, user.unix_user) == ("camera 1", Permission.CLIENT, "alice")
    assert access_list({"user": [{"name": "a", "token_sha256": user.token_sha256}]}, "").of_token(token) is not None
    secret, public = tmp_path / "camera 1.key_secret", tmp_path / "camera 1.key"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert read_pair(secret).public == read_public(public) == read_public(secret) == user.public_key
    assert token not in secret.read_text() + public.read_text()


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = ["keys", "new", "me", "--operator", "--json", "--folder", str(tmp_path)]
    assert main(new) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["user"]["permission"], made["token"]) == ("operator", None)
    before = Path(made["secret_file"]).read_text()
    assert main(new) == 2
    assert "is there already" in capsys.readouterr().err
    assert Path(made["secret_file"]).read_text() == before
    Path(made["secret_file"]).unlink()
    assert main(new) == 2, "the public file is there"
    assert not Path(made["secret_file"]).exists()


@pytest.mark.parametrize("name", ["", "a/b", "../a", ".a", "-a", "a\nb", "x" * 65])
def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "new", "--folder", str(tmp_path), "--", name]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_where_nothing_can_be_written_a_line_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "new", "me", "--folder", str(tmp_path / "none")]) == 2
    assert "expected a folder to write to" in capsys.readouterr().err


def test_stock_tools_read_ours_and_we_read_theirs(tmp_path: Path) -> None:
    pair = new_pair()
    public, secret = write_pair(tmp_path, "ours", pair)
    assert load_certificate(secret) == (pair.public.encode(), pair.secret.encode())
    assert load_certificate(public) == (pair.public.encode(), None)
    theirs, their_secret = map(Path, create_certificates(tmp_path, "theirs", {"email": "a@example.org"}))
    with raised(BadInput, Error.EXPOSED_FILE, match=rf"may read it; .* chmod 600 {their_secret}"):
        read_pair(their_secret)
    their_secret.chmod(0o600)
    assert read_pair(their_secret).public == read_public(theirs)


@pytest.mark.parametrize(
    ("mode", "owner_uid", "own_uid", "kept"),
    [
        (0o600, 1000, 1000, True),
        (0o400, 0, 0, True),
        (0o640, 1000, 1000, False),
        (0o604, 1000, 1000, False),
        (0o440, 0, 10001, True),  # as Kubernetes mounts a Secret for a group
        (0o640, 0, 10001, True),
        (0o660, 0, 10001, False),
        (0o644, 0, 10001, False),
        (0o640, 0, 0, False),
        (0o640, 33, 10001, False),
    ],
)
def test_who_else_may_read_a_secret(mode: int, owner_uid: int, own_uid: int, kept: bool) -> None:
    assert is_kept_secret(stat.S_IFREG | mode, owner_uid, own_uid) is kept


def test_what_is_wrong_with_a_key_file_is_said_in_one_line(tmp_path: Path) -> None:
    pair, other = new_pair(), new_pair()
    public, secret = write_pair(tmp_path, "a", pair)
    _, mixed = write_pair(tmp_path, "mixed", KeyPair(other.public, pair.secret))
    no_key, noise = tmp_path / "no-key", tmp_path / "noise"
    no_key.write_text(secret.read_text().replace(pair.secret, "#" * 40))
    no_key.chmod(0o600)
    noise.write_bytes(bytes(range(256)) * 1000)
    noise.chmod(0o600)
    for path, said in (
        (public, "no secret key"),
        (mixed, "the public key"),
        (no_key, "no keys in"),
        (noise, "no keys in"),
        (tmp_path / "none", "No such file"),
        (tmp_path, "directory"),
    ):
        with raised(BadInput, Error.KEYS_UNUSABLE, match=said) as refused:
            read_pair(path)
        assert "\n" not in str(refused.value)
    assert pair.secret not in repr(read_pair(secret))


@pytest.mark.parametrize("file", ["a.key", "a.key_secret"])
def test_what_could_not_be_written_whole_is_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    open_file = os.fdopen

    def full_disk(fd: int, mode: str) -> IO[Any]:
        if Path(f"/proc/self/fd/{fd}").readlink() == tmp_path / file:
            os.close(fd)
            fd = os.open("/dev/full", os.O_WRONLY)
        return open_file(fd, mode)

    monkeypatch.setattr(os, "fdopen", full_disk)
    with raised(BadInput, Error.UNWRITABLE_FILE, match="No space left"):
        write_pair(tmp_path, "a", new_pair())
    monkeypatch.undo()
    write_pair(tmp_path, "a", new_pair())


def test_of_many_that_write_one_pair_all_but_the_first_are_refused_for_that(tmp_path: Path) -> None:
    together = Barrier(4)

    def write_all(_: int) -> list[str | None]:
        kinds: list[str | None] = []
        for name in map(str, range(100)):
            pair = new_pair()
            together.wait()
            try:
                write_pair(tmp_path, name, pair)
                kinds.append(None)
            except BadInput as refused:
                kinds.append(refused.kind)
        return kinds

    with ThreadPoolExecutor(4) as pool:
        kinds = [kind for of_thread in pool.map(write_all, range(4)) for kind in of_thread]
    assert (kinds.count(None), kinds.count(Error.KEYS_THERE)) == (100, 300)
    for name in range(100):
        assert read_pair(tmp_path / f"{name}.key_secret").public == read_public(tmp_path / f"{name}.key")
