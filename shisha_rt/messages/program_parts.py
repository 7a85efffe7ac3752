"""The job that writes a program's parts: which runs of the cleaned model's operators become files."""

from __future__ import annotations

import msgspec

from shisha_rt.machine.device import Device


class ProgramPart(msgspec.Struct, frozen=True):
    """Operators `first` to `last` as `device` computes them; `file`: the part's file name."""

    file: str
    first: int
    last: int
    device: Device


class PartsJob(msgspec.Struct, frozen=True):
    """Write parts of the cleaned model in `model_folder` into the existing folder `target`."""

    model_folder: str
    target: str
    parts: tuple[ProgramPart, ...]
