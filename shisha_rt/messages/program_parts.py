"""What the job that writes a program's parts is asked: which runs of the cleaned model become files."""

from __future__ import annotations

import msgspec

from shisha_rt.machine.device import Device


class ProgramPart(msgspec.Struct, frozen=True):
    """Operators `first` to `last` as `device` computes them; `file`: its name."""

    file: str
    first: int
    last: int
    device: Device


class PartsJob(msgspec.Struct, frozen=True):
    """Write parts of the cleaned model in `model_folder` into the existing folder `target`."""

    model_folder: str
    target: str
    parts: tuple[ProgramPart, ...]
