"""The actor that Ray starts on a host for each place there: it fetches the model, and starts far ends.

Ray makes each actor in a separate process and calls it from several threads. Arguments and results are bytes and plain
values. The thread that starts a far end also waits for its end, as the kernel kills a child when the thread that
started it ends (`process.parent`).
"""

from __future__ import annotations

import hashlib
import logging
import os
import queue
import socket
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from shisha_rt.errors import BadInput, Error, Failure
from shisha_rt.hosts.hosts import about_this_host
from shisha_rt.hosts.model_files import FolderEntry, ModelManifest, ModelPiece, fetch, is_here
from shisha_rt.hosts.probe import answer_probe
from shisha_rt.machine.host.leases import take_cores
from shisha_rt.measure.compile import engine_key, recompiled
from shisha_rt.measure.sitting import ALONE, measure, turn
from shisha_rt.messages.calibration import Calibrated, CalibrationJob
from shisha_rt.messages.worker import FarConfig, WorkerConfig
from shisha_rt.model.reader import index_file
from shisha_rt.process.child import Child, end_in_words, start_child

log = logging.getLogger(__name__)

_FAR_MODULE: Final = "stages.far.host"


class FarHost:
    """The actor of one place. Its far ends listen at the address by which the cluster knows this host."""

    def __init__(self) -> None:
        import ray

        self._address = ray.util.get_node_ip_address()
        self._engines: tuple[Path, ...] = ()
        self._far: dict[int, _Far] = {}

    def about(self) -> tuple[str, bytes]:
        return self._address, msgspec.json.encode(about_this_host())

    def stay(self) -> None:
        """Wait forever, so that this call fails when the process is gone."""
        threading.Event().wait()

    # --- the model --------------------------------------------------------------------------------------------

    def lacking(self, manifest: bytes) -> list[int]:
        """Return the numbers, in the manifest, of the folders that this host lacks."""
        wanted = msgspec.json.decode(manifest, type=ModelManifest).folders_for(engine_key())
        return [number for number, folder in enumerate(wanted) if not is_here(folder)]

    def bring(self, manifest: bytes, pieces: Sequence[tuple[int, bytes, list[Any]]]) -> str:
        """Fetch the model to this host. `pieces`: number of the folder, `ModelPiece` as JSON, and Ray's reference.

        Returns why that failed, or an empty string.
        """
        import ray

        manifest_read = msgspec.json.decode(manifest, type=ModelManifest)
        of = {(number, msgspec.json.decode(piece, type=ModelPiece)): ref for number, piece, (ref,) in pieces}
        try:
            folders = [
                fetch(folder, lambda piece, number=number: ray.get(of[number, piece]))  # type: ignore[misc]
                for number, folder in enumerate(manifest_read.folders_for(engine_key()))
            ]
            if manifest_read.engine_key != engine_key():
                folders = [
                    recompiled(manifest_read.name, folder, like=_index_of(engine))
                    for folder, engine in zip(folders, manifest_read.engines, strict=True)
                ]
            for folder, engine in zip(folders, manifest_read.engines, strict=True):
                if hashlib.sha256((folder / index_file.FILE_NAME).read_bytes()).hexdigest() != _index_of(engine):
                    raise Failure(
                        f"it has {manifest_read.name} in another form already: remove {folder} there", Error.HOST_UNFIT
                    )
        except (BadInput, Failure, OSError, KeyError) as error:
            return " ".join(str(error).split())
        self._engines = tuple(folders)
        return ""

    # --- measuring --------------------------------------------------------------------------------------------

    def measure(self, shape: int, job: bytes) -> tuple[bytes, str]:
        """Run a `CalibrationJob` for one shape of the model on this host; return `Calibrated` as JSON, or a reason."""
        asked = msgspec.json.decode(job, type=CalibrationJob)
        if not self._engines:
            return b"", "it is another one than the model was sent to"
        taken = take_cores(len(asked.cores))
        cores = taken.cores[: len(asked.cores)]
        if len(cores) < len(asked.cores):
            return b"", f"it has {len(cores)} usable cores, expected at least {len(asked.cores)}"
        here = msgspec.structs.replace(asked, engine_folder=str(self._engines[shape]), cores=cores, neighbours=())
        try:
            with turn(ALONE):
                times = measure("the model's layers", "stages.jobs.calibrate", here, Calibrated, lambda _: None)
        except (BadInput, Failure) as error:
            return b"", " ".join(str(error).split())
        finally:
            taken.leases.close()
        return msgspec.json.encode(times), ""

    def echo(self) -> int:
        """Return a port at which one `probe` of this host is answered."""
        listener = socket.create_server((self._address, 0))
        threading.Thread(target=answer_probe, args=(listener,), daemon=True).start()
        return int(listener.getsockname()[1])

    # --- far ends ---------------------------------------------------------------------------------------------

    def start(self, incarnation: int, worker: bytes, near_key: str) -> tuple[str, str]:
        """Start a far end; return the line that it writes once it listens (`FarUp` as JSON), or why it failed."""
        config = msgspec.structs.replace(
            msgspec.json.decode(worker, type=WorkerConfig),
            engine_folders=tuple(map(str, self._engines)),
            model_folders=(),
        )
        far = self._far[incarnation] = _Far()
        order = FarConfig(config, self._address, near_key, os.getpid())
        threading.Thread(target=far.run, args=(order,), daemon=True).start()
        said, reason = far.up.get()
        if reason:
            del self._far[incarnation]
        return said, reason

    def wait(self, incarnation: int) -> str:
        """Wait for the end of a far end; return why it ended."""
        reason = self._far[incarnation].ended.get()
        del self._far[incarnation]
        return reason

    def end(self, incarnation: int) -> None:
        """End a far end whose relay is gone, unless it has ended by itself or was never started."""
        far = self._far.get(incarnation)
        if far is not None:
            far.end()


class _Far:
    """A far end. `up`: the line that it writes once it listens, and why it failed; `ended`: why it has ended."""

    def __init__(self) -> None:
        self.up: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self.ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._child: Child | None = None
        self._is_unwanted = False

    def run(self, config: FarConfig) -> None:
        """Start it, and wait for its end."""
        try:
            child = start_child(
                _FAR_MODULE, msgspec.json.encode(config).decode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as error:
            self.up.put(("", f"it could not be started: {error.strerror}"))
            return
        self._child = child
        if self._is_unwanted:
            child.kill()
        assert child.stdout is not None
        assert child.stderr is not None
        said = child.stdout.readline().decode().strip()
        if said:
            self.up.put((said, ""))
        last = ""
        for line in child.stderr:
            last = line.decode(errors="replace").strip()[:500] or last
        child.wait()
        self._child = None
        how = end_in_words(child.end())
        reason = last or how
        if not said:
            self.up.put(("", reason))
        self.ended.put(reason)

    def end(self) -> None:
        self._is_unwanted = True
        child = self._child
        if child is not None:
            child.kill()


def _index_of(engine: FolderEntry) -> str:
    """The digest of the index file in a folder of the daemon's engine."""
    return next(file.sha256 for file in engine.files if file.name == index_file.FILE_NAME)
