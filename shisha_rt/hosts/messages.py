"""Every message between the daemon and its cluster process."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from shisha_rt.costs.link_speed import LinkSpeed
from shisha_rt.machine.machine import Remote
from shisha_rt.messages.worker import WorkerConfig
from shisha_rt.process.codec import Codec

PROCESS: Final = "shisha_rt.hosts.process"
LEAVES_WITHIN_S: Final = 8.0
"""How long a cluster process may take to give back what it has reserved."""

# --- daemon -> cluster process --------------------------------------------------------------------------------


class Reserve(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Join the cluster at `address` (as for `ray.init`; `local`: start one here); reserve all places together."""

    address: str
    places: dict[str, Remote]


class ShipModel(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Bring the model to every host that has a place, now or later. `manifest`: `ModelManifest` as JSON."""

    manifest: bytes


class ProfileThere(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Measure layers on the host of `place`, in the model's shape of index `shape`.

    `job`: a `CalibrationJob` as JSON; of its `cores` only the number counts.
    """

    place: str
    shape: int
    job: bytes


class StartFar(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Start a far end for the relay of this incarnation. `near_key`: the relay's public key."""

    place: str
    incarnation: int
    worker: WorkerConfig
    near_key: str


class EndFar(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """End the far end of this incarnation, as its relay is gone."""

    incarnation: int


class EndCluster(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Give all reservations back, and end."""


ToCluster: TypeAlias = Reserve | ShipModel | ProfileThere | StartFar | EndFar | EndCluster

# --- cluster process -> daemon --------------------------------------------------------------------------------


class AllThere(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """All places have a host; `PlaceThere` has come for each."""


class Lacking(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The cluster cannot be joined, or cannot meet the requests; `reason` is one line."""

    reason: str


class Shipped(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Every host that has a place has the model. (A host that joins later gets the model before its `PlaceThere`.)"""


class PlaceThere(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """`place` can be started on `host` (an address). `about`: `HostAbout` as JSON; `link`: its measured speed."""

    place: str
    host: str
    about: bytes
    link: LinkSpeed


class PlaceLost(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A place cannot be used any more, until the next `PlaceThere`."""

    place: str
    reason: str


class MeasuredThere(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The answer to `ProfileThere`. `profiles`: `Calibrated` as JSON; or `reason`: why nothing was measured."""

    place: str
    profiles: bytes
    reason: str = ""


class FarStarted(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A far end listens at `endpoint`. `public_key`: its own."""

    incarnation: int
    endpoint: str
    public_key: str


class FarFailed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A far end could not be started, or has ended; `reason` says why, in one line."""

    incarnation: int
    reason: str


class Told(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Progress, for people."""

    message: str


FromCluster: TypeAlias = (
    AllThere | Lacking | Shipped | PlaceThere | PlaceLost | MeasuredThere | FarStarted | FarFailed | Told
)

TO_CLUSTER: Final[Codec[ToCluster]] = Codec(ToCluster)
FROM_CLUSTER: Final[Codec[FromCluster]] = Codec(FromCluster)
