"""A start that comes to nothing: the cluster process has said why, and is gone; or is gone before it could."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from contextlib import suppress

import psutil
import pytest

from benchmarks.rigs.raylets import lacking_ray
from shisha_rt.errors import Error, Failure
from shisha_rt.hosts import messages as cm
from shisha_rt.hosts.joined import Joined
from shisha_rt.hosts.messages import PROCESS
from shisha_rt.machine.config.machine_file import parse_machine
from shisha_rt.machine.machine import Machine, Remote
from shisha_rt.process.channel import Channel
from shisha_rt.process.child import start_child
from tests.commands import command_of
from tests.wording import raised

pytestmark = pytest.mark.skipif(lacking_ray() is not None, reason="needs Ray: the extra `ray`")

_NOBODY = "127.0.0.1:1"
_PATIENCE_S = 60.0


def test_a_process_that_cannot_join_says_so_and_ends_so_that_another_may_try() -> None:
    channel, theirs = Channel.pair()
    with theirs:
        child = start_child(PROCESS, str(theirs.fileno()), str(os.getpid()), pass_fds=[theirs.fileno()])
    channel.send(cm.TO_CLUSTER.encode(cm.Reserve(_NOBODY, {"far": Remote()})))
    ended = select.select([child.pidfd], [], [], _PATIENCE_S)[0]
    said = [cm.FROM_CLUSTER.decode(data) for data in channel.receive()]
    status = child.end()
    channel.close()
    assert ended
    assert status == 1
    assert isinstance(said[-1], cm.Lacking)
    assert "does not answer" in said[-1].reason


def test_a_process_that_dies_while_it_joins_is_a_failure_of_one_line() -> None:
    def kill(_line: str) -> None:
        for process in psutil.Process().children():
            with suppress(psutil.NoSuchProcess):  # another test's, which has just ended
                if PROCESS in command_of(process):
                    process.kill()

    with socket.create_server(("127.0.0.1", 0)) as silent:  # so that it is still joining by then
        port = silent.getsockname()[1]
        with raised(Failure, Error.CLUSTER_LOST, match="killed by signal 9"):
            Joined(f"127.0.0.1:{port}", _machine(), kill)


@pytest.mark.long
def test_nobody_else_can_use_a_local_cluster() -> None:
    joined = Joined("local", _machine(), lambda _: None)
    try:
        gcs = next(process for process in psutil.Process().children(recursive=True) if process.name() == "gcs_server")
        port = next(
            connection.laddr.port for connection in gcs.net_connections() if connection.status == psutil.CONN_LISTEN
        )
        address = f"{joined.places['far'].host}:{port}"
        script = f"import ray; ray.init({address!r}); ray.nodes()"
        other = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=_PATIENCE_S, check=False)
        token = {name: value for name, value in gcs.environ().items() if name.startswith("RAY_AUTH")}
        mine = {**os.environ, **token}
        own = subprocess.run([sys.executable, "-c", script], env=mine, timeout=_PATIENCE_S, check=False)
    finally:
        joined.close()
    assert other.returncode != 0
    assert own.returncode == 0


def _machine() -> Machine:
    return parse_machine('[[place]]\nname = "far"\nhost = "ray"\n', name="hosts", source="hosts.toml")
