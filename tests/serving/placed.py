"""Machines whose places have devices, emulated from descriptions; and placements as `status` tells them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from shisha_rt.client import Client

_LINK: Final = """
[transfer_in]
latency_s = 30e-6
bandwidth_bytes_per_s = 1e12
[transfer_out]
latency_s = 30e-6
bandwidth_bytes_per_s = 1e12
"""


def described(
    folder: Path, name: str, call_s: float, ops: str, *, linked: bool = False, precision: str = "fp32"
) -> str:
    """A device that takes `call_s` for any operator of `ops`, and if `linked` 30 us for each tensor in or out."""
    memory = "link" if linked else "dram"
    (folder / f"{name}.toml").write_text(
        f'engine = "onnxruntime"\nprecision = "{precision}"\nmemory = "{memory}"\ncall_s = {call_s}\n'
        f'[[family]]\nops = ["{ops}"]\ncost = []\n{_LINK if linked else ""}'
    )
    return f"{name}.toml"


def machine_of(folder: Path, **devices: Sequence[str]) -> Path:
    """Places with these devices, in turns on the cores that may be used; one with none lists none."""
    cores = sorted(os.sched_getaffinity(0))
    path = folder / "devices.toml"
    path.write_text(
        "".join(
            f'[[place]]\nname = "{place}"\ncores = [{cores[i % len(cores)]}]\nshared = true\n'
            + (f"devices = {list(names)}\n" if names else "")
            for i, (place, names) in enumerate(devices.items())
        )
    )
    return path


def placements(client: Client) -> dict[str, dict[str, Any]]:
    """The placement of each place's stage now."""
    by_place: dict[str, dict[str, Any]] = {
        stage["places"][0]: stage["placement"] for stage in client.status()["plan"]["stages"]
    }
    return by_place


def used(client: Client, place: str) -> set[str]:
    """The devices of a place that its stage uses; none while the place has no stage or nothing is known of it yet."""
    placement = placements(client).get(place)
    return set() if placement is None else {segment["device"] for segment in placement["segments"]}


def segments(placement: Mapping[str, Any]) -> list[tuple[str, int]]:
    """The device of each segment, and how many operators it has."""
    return [(segment["device"], segment["operators"]) for segment in placement["segments"]]


def operators(placement: Mapping[str, Any]) -> int:
    return sum(count for _, count in segments(placement))
