"""A daemon made of its settings and its part of the host, with a process that prepares what it serves."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from shisha_rt.daemon.front.addresses import addresses_of

if TYPE_CHECKING:  # what is not wanted before the model is prepared
    from shisha_rt.daemon.children.preparer_link import PreparerLink
    from shisha_rt.daemon.host_share import HostShare
    from shisha_rt.daemon.prepared import Preparation
    from shisha_rt.daemon.server import Daemon
    from shisha_rt.daemon.service_manager import ServiceManager


def start_daemon(
    asked: Preparation,
    share: HostShare,
    preparer: PreparerLink,
    manager: ServiceManager,
    log: tuple[int, str],
    tell: Callable[[str], None],
) -> Daemon:
    """The daemon, to which `share` and `preparer` belong from now on; they stay the caller's if it cannot be had.

    `log`: level and format. Raises BadInput and Failure.
    """
    settings, joined = asked.settings, None
    addresses = addresses_of(settings)
    with contextlib.ExitStack() as leaving:
        if settings.ray is None:
            preparer.ask(asked, log)
        else:  # the line to the cluster stays with this process
            from shisha_rt.daemon.prepare import prepare
            from shisha_rt.hosts.joined import Joined

            preparer.close()
            joined = Joined(settings.ray, share.machine, tell)
            leaving.callback(joined.close)
        from shisha_rt.daemon.server import Daemon

        prepared = preparer.wait(tell) if joined is None else prepare(asked, tell, joined)
        ahead = preparer if joined is None else None
        daemon = Daemon(prepared, addresses, settings.max_output_bytes, manager, joined, share, ahead)
        leaving.pop_all()
    return daemon
