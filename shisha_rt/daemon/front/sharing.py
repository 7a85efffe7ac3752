"""The socket at which clients on this host get memory to share, or a direct line. It can pass a descriptor.

It lies in a folder that only this user may enter, and the kernel says which user connects: other users' programs are
cut off. A connection has one region, which ends with it, or is a line (see `lines`): so a killed client leaves nothing
behind. See "Tensors in shared memory" in `docs/wire.md`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import socket
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec

from shisha_rt.daemon.front.ipc_socket import IpcSocket, peer_of
from shisha_rt.daemon.front.lines import Lines
from shisha_rt.daemon.front.regions import LentRegion, Regions
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.endpoint import fits_socket
from shisha_rt.errors import BadInput, Error
from shisha_rt.protocol.exceptions import ShishaError, error_for
from shisha_rt.protocol.header import error_body
from shisha_rt.protocol.limits import MAX_INTEGER

log = logging.getLogger(__name__)

_LONGEST_BYTES: Final = 4096
_SPARE_CONNECTIONS: Final = 16  # connections that have no region yet
_PRIVATE: Final = 0o700
_TRIES: Final = 10
_AGAIN_S: Final = 0.01
_SHORT: Final = Path("/tmp")
_OF_LOGINS: Final = Path("/run/user")  # pam_systemd(8)
_USUAL_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "0.0.0.0", "*"})


class _RegionWanted(msgspec.Struct, frozen=True, tag_field="op", tag="region"):
    size_bytes: Annotated[int, msgspec.Meta(ge=1, le=MAX_INTEGER)]


class _LineWanted(msgspec.Struct, frozen=True, tag_field="op", tag="line"):
    pass


class Sharing:
    """`path`: the socket's; None if it cannot be made: then clients send bytes. `instance`: identifies the daemon."""

    def __init__(self, endpoint: str, instance: str, regions: Regions, lines: Lines, poller: Poller) -> None:
        self.regions = regions
        self._lines = lines
        self.path: Path | None = None
        self._instance = instance
        self._poller = poller
        self._connections: dict[int, tuple[socket.socket, int, LentRegion | None]] = {}
        self._watched = False
        path = folder_of(endpoint, ".share" if endpoint.startswith("ipc://") else "", "socket") / "socket"
        try:
            self._bound = _bound_alone(path)
        except (OSError, BadInput) as error:
            log.warning("clients cannot share memory, and send bytes: %s", error)
            remove_empty(path.parent)
            return
        _remove_dead(path.parent.parent)
        self.path = path
        self._listening = socket.socket(fileno=self._bound.hand_over())
        self._listen()

    @property
    def pids(self) -> set[int]:
        """Pids of the clients that share memory or have a line; those of other clients are not known."""
        return {process for _, process, _ in self._connections.values()} | self._lines.pids

    def look(self) -> None:
        """Called periodically: accept connections, and read lines, again after descriptors ran out."""
        self._lines.look()
        if self.path is not None and not self._watched:
            self._listen()

    def _listen(self) -> None:
        self._poller.watch(self._listening.fileno(), self._accept)
        self._watched = True

    def _accept(self) -> Iterable[object]:
        try:
            end, _ = self._listening.accept()
        except BlockingIOError:
            return ()
        except OSError:  # the socket stays readable, so the loop would try again without end
            self._poller.unwatch(self._listening.fileno())
            self._watched = False
            return ()
        process, user = peer_of(end)
        if user != os.geteuid() or len(self._connections) >= self.regions.most + _SPARE_CONNECTIONS:
            end.close()
            return ()
        end.setblocking(False)
        self._connections[end.fileno()] = end, process, None
        self._poller.watch(end.fileno(), functools.partial(self._read, end.fileno()))
        return ()

    def _read(self, fd: int) -> Iterable[object]:
        end, process, region = self._connections[fd]
        try:
            data, _, flags, _ = end.recvmsg(_LONGEST_BYTES)
        except BlockingIOError:
            return ()
        except OSError:
            data, flags = b"", 0
        if not data:
            self._close(fd)
            return ()
        try:
            if region is not None or flags & socket.MSG_TRUNC:
                raise error_for(Error.SECOND_REGION, "a connection has one region; expected one short message")
            asked = _asked(data)
            if isinstance(asked, _LineWanted):
                self._make_line(fd)
            else:
                self._connections[fd] = end, process, self._lend(end, process, asked.size_bytes)
        except ShishaError as error:
            _say(end, {"error": error_body(error)})
            self._close(fd)
        return ()

    def _make_line(self, fd: int) -> None:
        """Raises `ShishaError`."""
        if not self._lines.has_room:
            raise error_for(Error.LINE_REFUSED, "no direct line is free; send to the endpoint instead")
        end, process, _ = self._connections.pop(fd)
        self._poller.unwatch(fd)
        _say(end, {"instance": self._instance})
        self._lines.add(end, process)

    def _lend(self, end: socket.socket, process: int, size_bytes: int) -> LentRegion:
        """Raises `ShishaError`."""
        region = self.regions.create(process, size_bytes)
        _say(end, {"token": region.token, "size_bytes": region.size_bytes, "instance": self._instance}, region.fd)
        return region

    def _close(self, fd: int) -> None:
        end, _, region = self._connections.pop(fd)
        self._poller.unwatch(fd)
        end.close()
        if region is not None:
            self.regions.end(region)

    def close(self) -> None:
        for fd in list(self._connections):
            self._close(fd)
        self.regions.close()
        if self.path is not None:
            self._poller.unwatch(self._listening.fileno())
            self._listening.close()
            self._bound.close()
            remove_empty(self.path.parent)


def _asked(data: bytes) -> _RegionWanted | _LineWanted:
    """Raises `ShishaError`."""
    try:
        return msgspec.json.decode(data, type=_RegionWanted | _LineWanted)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        expected = 'expected {"op":"region","size_bytes":N}, N from 1 on, or {"op":"line"}'
        raise error_for(Error.MALFORMED_REQUEST, f"the message is not understood; {expected}") from None


def _say(end: socket.socket, said: object, fd: int | None = None) -> None:
    """Send a message, which is lost if the client does not read."""
    with contextlib.suppress(OSError):
        socket.send_fds(end, [msgspec.json.encode(said)], [] if fd is None else [fd])


def _bound_alone(path: Path, tries: int = _TRIES) -> IpcSocket:
    """The socket at `path`, in a folder of its own. Raises OSError and BadInput.

    A daemon that starts at another address, and removes what a dead one has left here, is done in a moment.
    """
    try:
        make_private(path.parent)
        return IpcSocket(f"ipc://{path}", socket.SOCK_SEQPACKET)
    except (OSError, BadInput):
        if tries == 1:
            raise
    time.sleep(_AGAIN_S)
    return _bound_alone(path, tries - 1)


def _remove_dead(folder: Path) -> None:
    """Remove from the folder for all daemons of this user those of killed ones: nobody holds their locks.

    Whoever binds a socket there has its lock, and removes both as it is closed.
    """
    if folder.name != _name_for_all():
        return
    for lock in folder.glob("*/socket.lock"):
        with contextlib.suppress(OSError, BadInput):
            IpcSocket(f"ipc://{lock.with_suffix('')}", socket.SOCK_SEQPACKET).close()
            remove_empty(lock.parent)


def folder_of(endpoint: str, suffix: str, longest: str) -> Path:
    """Folder of the process that serves at `endpoint`: beside an ipc endpoint, else in the runtime folder that was set,
    but not in a login's, which goes when its user logs out: a daemon may stay.

    If a socket named `longest` does not fit there, the folder is in /tmp. The path is absolute, as clients may have
    another working directory.
    """
    if endpoint.startswith("ipc://"):
        folder = Path(f"{endpoint.removeprefix('ipc://')}{suffix}").absolute()
        short = f"{hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]}{suffix}"
    else:
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        beside = "" if host in _USUAL_HOSTS else f"-{host.strip('[]')}"
        short = f"{port}{beside}{suffix}"
        runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
        if runtime.parent == _OF_LOGINS:
            runtime = Path(tempfile.gettempdir())
        folder = runtime.absolute() / _name_for_all() / short
    return folder if fits_socket(folder / longest) else _SHORT / _name_for_all() / short


def _ours(folder: Path) -> Sequence[Path]:
    """The folder, and its parent if that is the one for the folders of all daemons of this user."""
    return (folder, folder.parent) if folder.parent.name == _name_for_all() else (folder,)


def remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for our in _ours(folder):
            our.rmdir()


def _name_for_all() -> str:
    return f"shisha-rt-{os.geteuid()}"


def make_private(folder: Path) -> None:
    """Make the folder, and its parent if that is ours. Raises BadInput if anybody but this user may enter them."""
    for tries_left in reversed(range(_TRIES)):
        try:
            _make_private(folder)
            return
        except FileNotFoundError:  # a daemon that ends has removed the parent, which was empty
            if not tries_left:
                raise


def _make_private(folder: Path) -> None:
    for our in reversed(_ours(folder)):
        with contextlib.suppress(FileExistsError):
            our.mkdir(mode=_PRIVATE)
        status = our.lstat()  # a set-group-ID bit, which folders inherit, is ignored: it lets nobody in
        if status.st_uid != os.geteuid() or status.st_mode & 0o777 != _PRIVATE or not our.is_dir() or our.is_symlink():
            raise BadInput(f"{our}: expected a folder that only this user may enter", Error.EXPOSED_FILE)
