"""A daemon that asks for keys, as its users meet it: clients, commands, the HTTP process, SIGHUP."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from shisha_rt.cli.app import main
from shisha_rt.client import (
    Answer,
    AsyncClient,
    Client,
    InvalidArgument,
    PermissionDenied,
    ShishaError,
    Unavailable,
)
from shisha_rt.protocol.keys import new_pair, read_public, write_pair
from tests.http.http_caller import HttpCaller
from tests.serving.daemon_process import DaemonProcess, machine_file
from tests.serving.identity_model import frame_of
from tests.serving.page import scrape, values
from tests.waiting import PATIENCE_S, until

USERS = {"boss": "operator", "camera": "client", "guest": "client"}
SOON_S = 30.0
"""A refusal comes at once, and not when the client's patience has ended."""


class Door:
    """The keys and the list of a daemon's users, in files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.entries = {}
        for name in (*USERS, "daemon", "stranger"):
            pair = new_pair()
            write_pair(folder, name, pair)
            self.entries[name] = f'[[user]]\nname = "{name}"\npublic_key = "{pair.public}"\n'
        self.let_in(*USERS)

    @property
    def list(self) -> Path:
        return self.folder / "access.toml"

    def let_in(self, *names: str) -> None:
        self.list.write_text("".join(f'{self.entries[name]}permission = "{USERS[name]}"\n' for name in names))

    def secret(self, name: str) -> Path:
        return self.folder / f"{name}.key_secret"

    def public(self, name: str) -> Path:
        return self.folder / f"{name}.key"


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Door:
    os.umask(0o022)
    return Door(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def daemon(identity: Path, door: Door) -> Iterator[DaemonProcess]:
    machine = machine_file(door.folder, ["fast0", "slow0"])
    options = ("--machine", machine, "--access", door.list, "--secret-key", door.secret("daemon"))
    web = ("--http", f"unix:{door.folder}/http")
    keys = door.secret("boss"), door.public("daemon")
    with DaemonProcess(door.folder, identity, *options, *web, endpoint="tcp://0.0.0.0:0", keys=keys) as running:
        running.endpoint = running.endpoint.replace("0.0.0.0", "127.0.0.1")
        yield running


def client_of(daemon: DaemonProcess, door: Door, name: str, server: str = "daemon") -> Client:
    secret, public = door.secret(name), door.public(server)
    return Client(daemon.endpoint, timeout_s=PATIENCE_S, secret_key=secret, server_key=public)


def refused(daemon: DaemonProcess, reason: str) -> float:
    return values(scrape(daemon.metrics), "shisha_access_refused_total", "reason").get(reason, 0.0)


def test_frames_of_who_has_a_key(daemon: DaemonProcess, door: Door) -> None:
    with client_of(daemon, door, "camera") as client:
        assert np.array_equal(client.infer(frame_of(7)).output, frame_of(7))
        assert client.status()["state"] == "serving"
        before = refused(daemon, "permission")
        with pytest.raises(PermissionDenied, match=r"place_set: 'camera' is .* client;"):
            client.call("place_set", place="fast0", down=True)
        assert refused(daemon, "permission") == before + 1
    assert "refused: place_set, which 'camera' (client)" in daemon.stderr()
    assert daemon.control.call("place_set", place="fast0", up=True)["state"] == "up"


def test_who_is_not_let_in_hears_why_at_once(daemon: DaemonProcess, door: Door) -> None:
    began_s = time.monotonic()
    with client_of(daemon, door, "stranger") as client:
        for _ in range(2):
            with pytest.raises(PermissionDenied, match="know this key"):
                client.live()
            time.sleep(0.15)  # it tries again then, and so hears when it is let in
    with client_of(daemon, door, "camera", server="guest") as client, pytest.raises(Unavailable, match="server_key"):
        client.live()
    with (
        Client(daemon.endpoint, timeout_s=PATIENCE_S) as client,
        pytest.raises((PermissionDenied, Unavailable), match="secret_key"),
    ):
        client.live()
    assert time.monotonic() < began_s + SOON_S
    assert refused(daemon, "unknown_key") >= 2
    assert refused(daemon, "handshake") >= 2


def test_it_is_the_same_with_asyncio(daemon: DaemonProcess, door: Door) -> None:
    async def ask(name: str) -> bool:
        itself = read_public(door.public("daemon"))
        async with AsyncClient(daemon.endpoint, secret_key=door.secret(name), server_key=itself) as client:
            return await client.live()

    assert asyncio.run(ask("camera"))
    with pytest.raises(PermissionDenied, match="know this key"):
        asyncio.run(ask("stranger"))


def test_a_client_of_no_keys_asked_for_them_says_so(daemon: DaemonProcess, door: Door) -> None:
    with pytest.raises(InvalidArgument, match="secret_key without server_key"):
        Client(daemon.endpoint, secret_key=door.secret("camera"))
    with pytest.raises(InvalidArgument, match=r"guest\.key: no secret .* it; .* NAME\.key_secret"):
        Client(daemon.endpoint, secret_key=door.public("guest"), server_key=door.public("daemon"))


def test_commands_take_keys(daemon: DaemonProcess, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--endpoint", daemon.endpoint, "--server-key", str(door.public("daemon"))]

    def run(name: str, *arguments: str) -> tuple[int, str, str]:
        status = main([*arguments, *where, "--key", str(door.secret(name))])
        return (status, *capsys.readouterr())

    status, out, _ = run("camera", "submit", "--frames", "3", "--json")
    assert (status, json.loads(out)["completed"]) == (0, 3)
    assert run("camera", "status", "--json")[0] == 0
    assert run("camera", "events")[0] == 0
    assert run("camera", "top", "--once")[0] == 0
    assert run("boss", "tuner")[0] == 0
    status, _, err = run("camera", "tuner")
    assert (status, err.count("\n")) == (1, 1)
    assert "expected the key of an operator" in err
    assert run("stranger", "status")[0] == 1


def test_the_http_process_comes_with_keys_of_its_own(daemon: DaemonProcess, door: Door) -> None:
    web = HttpCaller(daemon.http[0])
    status, output = web.infer(frame_of(3))
    assert status == 200
    assert np.array_equal(output, frame_of(3))
    web.close()


def outcomes_of(client: Client, daemon: DaemonProcess, revoke_at: int) -> list[object]:
    outcomes: list[object] = []
    with client.stream(in_flight=8) as stream:
        for outcome in stream.run(map(frame_of, range(revoke_at + 400)), errors="return"):
            outcomes.append(outcome)
            if len(outcomes) == revoke_at:
                daemon.popen.send_signal(signal.SIGHUP)
            if isinstance(outcome, ShishaError) and "does not know this key" in outcome.message:
                break
    return outcomes


def test_a_key_is_revoked_in_the_midst_of_a_stream(daemon: DaemonProcess, door: Door) -> None:
    """Frames that were accepted are answered, in order; what comes then is refused, and then so is the connection."""
    with client_of(daemon, door, "guest") as client, client_of(daemon, door, "camera") as other:
        door.let_in("boss", "camera")
        outcomes = outcomes_of(client, daemon, 50)
        answers = [outcome for outcome in outcomes if isinstance(outcome, Answer)]
        assert len(answers) >= 50
        for number, outcome in enumerate(outcomes):
            if number < len(answers):
                assert isinstance(outcome, Answer), "none after a refusal"
                assert np.array_equal(outcome.output, frame_of(number))
            else:
                assert isinstance(outcome, PermissionDenied | Unavailable)
        assert len(outcomes) > len(answers)
        with pytest.raises(PermissionDenied, match="know this key"):
            client.live()
        assert other.live(), "nobody else is concerned"
        assert refused(daemon, "revoked") + refused(daemon, "unknown_key") > 0
        door.let_in(*USERS)
        daemon.popen.send_signal(signal.SIGHUP)
        until(lambda: reads(daemon)[-1] == len(USERS), "the list is read")
        until(lambda: is_served(client), "an answer as before, with the same client")


def is_served(client: Client) -> bool:
    try:
        return np.array_equal(client.infer(frame_of(1)).output, frame_of(1))
    except Unavailable:  # it was sent as the refused connection was cut off
        return False


def reads(daemon: DaemonProcess) -> list[int]:
    events = daemon.control.events(limit=10000)["events"]
    return [event["users"] for event in events if event["kind"] == "access_read"]


def test_a_bad_list_is_told_of_and_the_old_one_stays(daemon: DaemonProcess, door: Door) -> None:
    before = reads(daemon)
    door.list.write_text("[[user]]\nname = 3\n")
    daemon.popen.send_signal(signal.SIGHUP)
    said = re.compile(r"the allow-list stays as it was: .*access\.toml: user\[0\]\.name = 3: expected text")
    until(lambda: said.search(daemon.stderr()), "a line in the log")
    assert reads(daemon) == before
    with client_of(daemon, door, "camera") as client:
        assert client.live()
    door.let_in(*USERS)
