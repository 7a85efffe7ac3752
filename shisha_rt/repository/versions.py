"""Models that are loaded, unloaded and replaced by other versions while requests come.

A version is a daemon of its own beside the present one. It takes over once it serves: new requests go to it, and the
old daemon answers what it has.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from shisha_rt.core import dealer as de
from shisha_rt.core import event_log
from shisha_rt.daemon.settings import Settings
from shisha_rt.errors import Error
from shisha_rt.machine.host.memory import available_memory_bytes
from shisha_rt.protocol import operations as ops
from shisha_rt.protocol.exceptions import ShishaError, error_for, unknown_model
from shisha_rt.repository.entries import FIRST_VERSION, ModelEntry, identity_of
from shisha_rt.repository.fleet import Fleet, ServedModel
from shisha_rt.repository.front import Front
from shisha_rt.repository.model_daemon import Fields, ModelDaemon, refusal

_QUIET_S: Final = 1.0
"""A daemon that has been replaced is ended once nothing has been in flight there for this long."""
_PROCESS_BYTES: Final = 200 << 20
"""Memory of a daemon and its first worker, without the model's weights."""
_WEIGHT_COPIES: Final = 2
_LARGE_BYTES: Final = 64 << 20
"""A model's file above this size has its weights inside."""


class Versions:
    """`entries`: the first models; clients may load files of their folders alone. `changed`: as in `Fleet`."""

    def __init__(self, fleet: Fleet, front: Front, entries: Sequence[ModelEntry], changed: Callable[[], None]) -> None:
        self._fleet = fleet
        self._front = front
        self._changed = changed
        files = [Path(entry.settings.model) for entry in entries if not entry.settings.model.startswith("zoo:")]
        known = (*(file.parent for file in files), *(entry.folder for entry in entries if entry.folder is not None))
        self._folders = frozenset(folder.resolve() for folder in known)

    def change(self, op: str, arguments: ops.ModelLoad | ops.ModelUnload, then: Callable[[str | None], None]) -> None:
        """Load, unload or undo; `then` is called with the result. Raises `ShishaError` if it cannot be begun."""
        name, served = arguments.model_name, self._fleet.models.get(arguments.model_name)
        if isinstance(arguments, ops.ModelLoad):
            self._load(name, served, arguments, then)
            return
        if served is None:
            raise unknown_model(name, self._fleet.models)
        if op == "model_unload":
            self._unload(served)
            then(None)
        elif served.previous is None:
            raise load_failed(f"model {name!r} has had no other version yet")
        elif served.is_unloaded:
            raise load_failed(f"model {name!r} is unloaded; expected it to be loaded first")
        elif identity_of(before := served.previous.entry) != served.previous.identity:
            file, version = before.settings.model, before.version
            raise load_failed(f"{file}: has changed since version {version}; expected it as it was")
        else:
            self._replace(served, before, then)

    def _load(
        self, name: str, served: ServedModel | None, asked: ops.ModelLoad, then: Callable[[str | None], None]
    ) -> None:
        if asked.model is not None:
            self._check_within(asked.model)
        if served is None:
            if asked.model is None:
                raise error_for(Error.UNKNOWN_MODEL, f"no model {name!r} is known; expected its file, too (model)")
            entry = ModelEntry(name, asked.version or FIRST_VERSION, Settings(asked.model), de.Terms())
            _check_room(entry)
            self._fleet.models[name] = ServedModel(entry, then=[then])
            self._changed()
            self._fleet.deal(de.ModelCame(name, entry.terms))
            return
        served.shadowed = {}
        entry, serving = served.entry.in_folder(asked.version if asked.model is None else None), served.serving
        is_written_anew = serving is not None and entry == served.entry and identity_of(entry) != serving.identity
        is_named = entry.folder is None and (asked.version is not None or is_written_anew)
        if asked.model is not None or is_named:
            version = asked.version or _next_version(served.entry.version)
            entry = served.entry.as_version(asked.model or served.entry.settings.model, version)
        if served.is_unloaded:
            _check_room(entry)
            served.entry, served.is_unloaded, served.failed, served.failures = entry, False, False, 0
            served.reason = "it is being started"
            served.then.append(then)
            self._fleet.deal(de.ModelCame(name, entry.terms))
        elif serving is not None and identity_of(entry) == serving.identity:
            then(None)
        elif serving is None and entry == served.entry:
            served.then.append(then)
        else:
            self._replace(served, entry, then, shadow=asked.shadow)

    def _check_within(self, model: str) -> None:
        """Raises `ShishaError` for a file that clients may not load: one outside the folders of the first models."""
        if model.startswith("zoo:"):
            return
        folder = Path(model).resolve().parent
        if self._folders.isdisjoint((folder, *folder.parents)):
            message = f"{model} lies in no folder that a model was served from at the start; expected one that does"
            raise load_failed(message)

    def _unload(self, served: ServedModel) -> None:
        if served.is_unloaded:
            served.failed = False
            return
        served.is_unloaded, served.reason, served.again_at_s = True, "it is unloaded", math.inf
        if served.coming is not None:
            self._send_back(served, "does not take over, as the model is unloaded")
        if served.daemon is not None:
            served.daemon.terminate()
            served.leaving[served.daemon] = -math.inf
            served.daemon = None
            served.forget_daemon()
        entry = served.entry
        self._fleet.journal.write(event_log.ModelUnloaded(model=entry.name, version=entry.version), "a client")
        self._fleet.deal(de.ModelLeft(entry.name))
        self._changed()
        served.tell("it was unloaded meanwhile")

    def _replace(
        self, served: ServedModel, entry: ModelEntry, then: Callable[[str | None], None], *, shadow: int = 0
    ) -> None:
        """Start a daemon for `entry` beside the present one; it takes over once it serves."""
        if served.coming is not None or served.serving is None:
            raise load_failed(f"model {entry.name!r} is changing already; ask again later")
        _check_room(entry)
        served.coming = self._fleet.started(entry, self._fleet.staying_places(entry.name))
        if served.coming is None:
            raise load_failed("no process could be started for it")
        self._fleet.end_moves(entry.name)
        served.shadow = shadow
        served.then.append(then)

    def compare(self, served: ServedModel, coming: ModelDaemon) -> None:
        """Let the new version take over only if it takes all that the present one takes: no client is refused then."""
        assert served.daemon is not None
        said: dict[ModelDaemon, Fields] = {}

        def heard(daemon: ModelDaemon, metadata: Fields) -> None:
            if refusal(metadata) is not None:
                return  # one of them has just ended; `_ended` reports that
            said[daemon] = metadata
            if len(said) == 2 and coming is served.coming:
                unfit = _unfit(said.pop(coming), *said.values())
                if unfit:
                    self._send_back(served, unfit)
                elif served.shadow:
                    self._shadow(served, coming)
                else:
                    self._switch(served, coming)

        for daemon in (served.daemon, coming):
            daemon.ask("model_metadata", partial(heard, daemon))

    def _send_back(self, served: ServedModel, why: str) -> None:
        """End the daemon that was to take over; the present version keeps serving."""
        coming, served.coming = served.coming, None
        assert coming is not None
        entry = coming.entry
        self._fleet.journal.write(
            event_log.ModelEnded(model=entry.name, version=entry.version, reason=f"it {why}"), "the host process"
        )
        served.leaving[coming] = -math.inf
        coming.terminate()
        served.tell(f"version {entry.version} {why}")

    def _shadow(self, served: ServedModel, coming: ModelDaemon) -> None:
        """Have both versions compute, and the old one answer, until enough frames are compared; then switch."""
        assert served.daemon is not None

        def heard(said: Fields) -> None:
            if coming is not served.coming:
                return  # it has ended meanwhile; `_ended` has reported that
            trouble = refusal(said)
            if trouble is not None:
                self._send_back(served, f"could not be compared: {trouble}")
                return
            ends, entry = said["shadow"], coming.entry
            served.shadowed = {"shadow": ends}
            compared = event_log.ModelShadowed(model=entry.name, version=entry.version, **ends)
            self._fleet.journal.write(compared, "the daemon before")
            if ends["failed"]:
                self._send_back(served, f"failed on a frame: {ends['reason']}")
            elif not ends["compared"]:
                self._send_back(served, f"was not compared: {ends['reason'] or 'no frame came'}")
            else:
                self._switch(served, coming)

        served.daemon.ask("shadow", heard, endpoint=coming.endpoint, frames=served.shadow)

    def _switch(self, served: ServedModel, coming: ModelDaemon) -> None:
        """Send requests to `coming` from now on; the old daemon answers what it has, and sends its clients away."""
        old = served.daemon
        served.previous, served.entry, served.kept = old, coming.entry, coming.entry
        served.daemon, served.coming = coming, None
        served.forget_daemon()
        assert old is not None
        entry, before = served.entry, old.entry
        if old.ready:
            served.leaving[old] = math.inf
            old.send_away()
        replaced = event_log.ModelReplaced(model=entry.name, version=entry.version, before=before.version)
        self._fleet.journal.write(replaced, "a client")
        self._fleet.deal(de.DaemonBegan(entry.name))
        self._changed()
        served.tell(None)

    def ended(self, served: ServedModel, coming: ModelDaemon, reason: str) -> None:
        """Note that the daemon that was to take over has ended."""
        served.coming = None
        served.tell(f"version {coming.entry.version} could not be started: {reason}")

    def end_change(self, served: ServedModel, reason: str) -> None:
        """Note that the daemon to take over from has ended: there is nothing that the new version could take over."""
        if served.coming is not None:
            why = f"has nothing to take over from, as the daemon before ended: {reason}"
            self._send_back(served, why)

    def see_off(self, served: ServedModel, now_s: float) -> None:
        """End replaced daemons at which nothing has been in flight for `_QUIET_S`."""
        for daemon, quiet_s in list(served.leaving.items()):
            if not daemon.ready or quiet_s == -math.inf:
                continue
            if self._front.in_flight_at(daemon.endpoint):
                served.leaving[daemon] = math.inf
            elif now_s > quiet_s + _QUIET_S:
                served.leaving[daemon] = -math.inf
                daemon.terminate()
            else:
                daemon.ask("status", partial(self._note_quiet, served, daemon))

    def _note_quiet(self, served: ServedModel, daemon: ModelDaemon, said: Fields) -> None:
        if "status" in said and served.leaving.get(daemon, -math.inf) > -math.inf:
            busy = said["status"]["frames"]["in_flight"]
            served.leaving[daemon] = math.inf if busy else min(served.leaving[daemon], time.monotonic())


def _unfit(coming: Fields, present: Fields) -> str:
    """Why a version cannot take over, by the `model_metadata` of both; empty if it can."""
    if any(coming.get(ends) != present.get(ends) for ends in ("inputs", "outputs", "shapes")):
        return "has other inputs or outputs; expected the same"
    frames, expected = (said.get("most_frames", 1) for said in (coming, present))
    if frames < expected:
        why = f" ({coming['one_frame']})" if "one_frame" in coming else ""
        return f"takes at most {frames} frames in a request{why}; expected {expected}"
    return ""


def load_failed(message: str, request_id: str | None = None) -> ShishaError:
    return error_for(Error.LOAD_FAILED, message, request_id)


def _next_version(version: str) -> str:
    return str(int(version) + 1) if version.isdecimal() else f"{version}.1"


def _weight_bytes(path: Path) -> int:
    """Bytes of a model's file, and of the files beside it that it names: its external data."""
    size_bytes = path.stat().st_size
    if size_bytes > _LARGE_BYTES:
        return size_bytes
    content = path.read_bytes()
    beside = (other for other in path.parent.iterdir() if other != path and os.fsencode(other.name) in content)
    return size_bytes + sum(other.stat().st_size for other in beside if other.is_file())


def _check_room(entry: ModelEntry) -> None:
    """Raises `ShishaError` if memory does not suffice for one more daemon with this model's weights."""
    path = Path(entry.settings.model)
    if entry.settings.model.startswith("zoo:"):
        return
    if not path.is_file():
        raise load_failed(f"{path}: there is no such file; expected an ONNX file, or zoo:NAME")
    needed = _PROCESS_BYTES + _WEIGHT_COPIES * _weight_bytes(path)
    free = available_memory_bytes()
    if needed > free:
        raise load_failed(f"{needed >> 20} MiB are needed for {entry.name!r}, {free >> 20} MiB are free")
