"""A host process as its user starts it: several models at one address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shisha_rt.client import Client
from tests.serving.daemon_process import DaemonProcess
from tests.waiting import PATIENCE_S, until


class HostProcess(DaemonProcess):
    """`control` asks the host process itself."""

    extra_keys = frozenset({"http", "grpc", "models"})

    def model(self, name: str, **options: Any) -> Client:
        return Client(self.endpoint, model=name, timeout_s=PATIENCE_S, **options)

    def entry(self, name: str) -> dict[str, Any]:
        """What the host process says of one model."""
        return next(entry for entry in self.control.status()["models"] if entry["name"] == name)

    def wait_for(self, name: str, is_so: Callable[[dict[str, Any]], object], what: str) -> dict[str, Any]:
        until(lambda: is_so(self.entry(name)), f"{name}: {what}", every_s=0.05)
        return self.entry(name)

    def kinds(self) -> list[str]:
        return [event["kind"] for event in self.control.events()["events"]]
