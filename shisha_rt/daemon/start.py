"""Starts a daemon from its settings and its share of the host, with a process that prepares the model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from shisha_rt.daemon.front.addresses import addresses_of
from shisha_rt.process.child import expect_children

if TYPE_CHECKING:  # imports that are not needed before the model is prepared
    from shisha_rt.daemon.host_share import HostShare
    from shisha_rt.daemon.prepared import Preparation
    from shisha_rt.daemon.server import Daemon
    from shisha_rt.daemon.service_manager import ServiceManager


_CHILDREN: Final = (
    "shisha_rt.daemon.children.preparer",
    "stages.worker",
    "shisha_rt.daemon.children.tuner",
    "shisha_rt.daemon.children.profiler",
)


def expect_daemon(*before: str) -> None:
    """Have the fork server import modules of children (`before` first), while this process does its own imports."""
    expect_children(*before, *_CHILDREN)


def start_daemon(asked: Preparation, share: HostShare, manager: ServiceManager, tell: Callable[[str], None]) -> Daemon:
    """Make a daemon, which then owns `share`, unless this raises BadInput, Failure or OSError.

    Call `expect_daemon` before.
    """
    from shisha_rt.daemon.front.web import check_free
    from shisha_rt.daemon.server import Daemon  # while the fork server loads what the children need
    from shisha_rt.protocol.multipart import expect_descriptors

    settings, joined, preparer = asked.settings, None, None
    addresses = addresses_of(settings)
    if addresses.http or addresses.grpc:
        expect_children("shisha_rt.http.process")
    expect_descriptors()
    check_free(addresses)
    with contextlib.ExitStack() as leaving:
        if settings.ray is None:
            from shisha_rt.daemon.children.preparer_link import PreparerLink

            preparer = PreparerLink()
            leaving.callback(preparer.close)
            preparer.ask(asked)
            prepared = preparer.wait(tell)
        else:  # the connection to the cluster stays with this process
            from shisha_rt.daemon.prepare import prepare
            from shisha_rt.hosts.joined import Joined

            joined = Joined(settings.ray, share.machine, tell)
            leaving.callback(joined.close)
            prepared = prepare(asked, tell, joined)
        daemon = Daemon(prepared, addresses, manager, joined, share)
        if preparer is not None:
            daemon.plan_ahead(preparer)
        leaving.pop_all()
    return daemon
