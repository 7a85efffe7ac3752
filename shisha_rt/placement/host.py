"""The host as a device: what a stage reads lies in its memory, and what the stage hands on must end there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from shisha_rt.machine.device import Device

_NAME: Final = "(host)"  # no file can give a device or a memory such a name


def host_of(devices: Sequence[Device]) -> Device:
    """The host as a device: in the memory of the first described device behind no link, else in a memory of its own."""
    beside = (device for device in devices if device.described and device.transfer_out is None)
    return replace(next(beside, Device(_NAME, _NAME, "onnxruntime", _NAME, "fp32")), name=_NAME)
