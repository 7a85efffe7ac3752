"""The served model's files in the cache: held open, and put back if somebody empties the cache.

Workers read them when they start and when they prepare a plan; the files themselves last as long as somebody has them
open. What is overwritten in place is lost: no process but `cache.publish` writes there, and it replaces whole folders.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from shisha_rt.cache import LIST_FILE, hold, publish
from shisha_rt.errors import Failure

log = logging.getLogger(__name__)

_LOOK_EVERY_S: Final = 2.0


class ModelFiles:
    """Looks after published folders, in a thread of its own until `close`: copies may be large, and disks slow.

    Raises OSError, and leaves nothing behind, if there are no descriptors for the files.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        self._held: dict[Path, dict[str, int]] = {}
        self._missing: set[Path] = set()
        self._said: dict[Path, str] = {}
        self._ended = False
        self._wake = threading.Event()
        try:
            for folder in folders:
                self._hold(folder)
        except OSError:
            self._let_go()
            raise
        self._thread = threading.Thread(target=self._look_after, name="model_files", daemon=True)
        self._thread.start()

    def need(self) -> None:
        """Raises OSError if a file was missing at the last look; has the next look take place at once.

        It does not look itself: on a network file system that is gone the daemon's loop would stand still.
        """
        self._wake.set()
        missing = tuple(self._missing)  # the thread may change it
        if missing:
            raise FileNotFoundError(errno.ENOENT, f"{missing[0]} has been removed", str(missing[0]))

    def close(self) -> None:
        """Return once nothing is written any more."""
        self._ended = True
        self._wake.set()
        self._thread.join()
        self._let_go()

    def _look_after(self) -> None:
        while True:
            self._wake.wait(_LOOK_EVERY_S)
            self._wake.clear()
            if self._ended:
                return
            for folder in self._held:
                if not all(_is_there(folder / name) for name in self._held[folder]):
                    self._missing.add(folder)
                    self._put_back(folder)
                else:
                    self._missing.discard(folder)

    def _put_back(self, folder: Path) -> None:
        held = self._held[folder]

        def copy(target: Path) -> None:
            for name, fd in held.items():
                if name != LIST_FILE:  # `publish` writes it
                    shutil.copyfile(f"/proc/self/fd/{fd}", target / name)

        try:
            publish(folder, copy)
            self._hold(folder)  # the new files, as later workers read these
            self._missing.discard(folder)
            self._said.pop(folder, None)
            log.warning("%s: was removed while its model is served; it is there again", folder)
        except (Failure, OSError) as problem:  # tried again at the next look
            if str(problem) != self._said.get(folder):
                log.warning("%s: was removed while its model is served, and cannot be put back: %s", folder, problem)
            self._said[folder] = str(problem)

    def _hold(self, folder: Path) -> None:
        before = self._held.get(folder, {})
        with contextlib.ExitStack() as opened:
            held: dict[str, int] = {}
            for file in folder.iterdir():
                held[file.name] = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
                opened.callback(os.close, held[file.name])
            if LIST_FILE in held:
                hold(held[LIST_FILE])
            self._held[folder] = held
            opened.pop_all()
        for fd in before.values():
            os.close(fd)

    def _let_go(self) -> None:
        for held in self._held.values():
            for fd in held.values():
                os.close(fd)
        self._held.clear()


def _is_there(file: Path) -> bool:
    try:
        return file.exists()
    except OSError:  # a network file system has lost it, or is gone itself
        return False
