"""A Ray cluster: joining or starting one, listing its nodes, and its errors as single lines."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Callable
from typing import Any, Final

from shisha_rt.errors import BadInput, Failure
from shisha_rt.hosts import messages as cm
from shisha_rt.hosts.bundles import ClusterNode

LOCAL: Final = "local"
_ANSWERS_WITHIN_S: Final = 5.0
_JOINS_WITHIN_S: Final = 30.0
_BEGINS_WITHIN_S: Final = 180.0  # a `local` cluster, on a busy host
_LARGEST_PORT: Final = 65535
_OBJECT_STORE_BYTES: Final = 200 << 20


class Unable(Exception):
    """The cluster cannot be joined, or lacks something; the message is one line."""


def guard_local() -> None:
    """Protect a `local` cluster, which is for this process alone, by a random token: Ray listens at all of the host's
    addresses, and runs whatever code it receives. Call before Ray is imported, which reads these variables.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if "RAY_AUTH_MODE" not in os.environ:
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))


_QUIET: Final = {"logging_level": "ERROR", "log_to_driver": False}


def join_cluster(ray: Any, asked: cm.Reserve, give_up: Callable[[str], None]) -> None:
    """Join or start the cluster. Raises Unable if nothing answers, or if versions of Ray or Python differ.

    `give_up` is called, from a different thread, if something listens but does not answer: Ray itself would wait for
    minutes.
    """
    patience_s = _BEGINS_WITHIN_S if asked.address == LOCAL else _JOINS_WITHIN_S
    answered, turn = threading.Event(), threading.Lock()

    def give_up_if_silent() -> None:
        with turn:
            if not answered.is_set():
                give_up(f"the Ray cluster at {asked.address} does not answer within {patience_s:g} s")

    late = threading.Timer(patience_s, give_up_if_silent)
    late.daemon = True
    late.start()
    try:
        if asked.address == LOCAL:
            _begin_here(ray, asked)
        else:
            _knock(asked.address)
            ray.init(address=asked.address, **_QUIET)
    except Unable:
        raise
    except Exception as error:  # of any class: a node that is too slow to start is a bare Exception
        raise Unable(f"the Ray cluster at {asked.address}: {in_a_line(error)}") from None
    finally:
        with turn:
            answered.set()
        late.cancel()


def _begin_here(ray: Any, asked: cm.Reserve) -> None:
    """Start a cluster on this host alone, with the sum of all places' requests as its resources."""
    resources: dict[str, float] = {}
    for place in asked.places.values():
        for name, amount in place.resources:
            resources[name] = resources.get(name, 0.0) + amount
    ray.init(
        address="local",
        num_cpus=sum(place.cpus for place in asked.places.values()),
        resources=resources,
        include_dashboard=False,
        object_store_memory=_OBJECT_STORE_BYTES,
        **_QUIET,
    )


def _knock(address: str) -> None:
    """Raises Unable at once if nothing listens at the address; Ray would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdecimal()):
        return  # one of Ray's keywords, such as "auto"
    if int(port) > _LARGEST_PORT:
        raise Unable(f"the Ray cluster at {address}: port {port}, expected at most {_LARGEST_PORT}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWERS_WITHIN_S).close()
    except OSError as error:
        raise Unable(f"the Ray cluster at {address} does not answer: {error.strerror or error}") from None


def living_nodes(ray: Any) -> list[ClusterNode]:
    try:
        from ray._private.state import available_resources_per_node

        free = available_resources_per_node()
    except Exception:  # not available through a client's port, nor in every version of Ray
        free = {}
    return [
        ClusterNode(
            node["NodeID"],
            node["NodeManagerAddress"],
            node["Resources"],
            free.get(node["NodeID"], {}),
            node.get("Labels") or {},
        )
        for node in ray.nodes()
        if node["Alive"]
    ]


def in_a_line(error: BaseException) -> str:
    """One line for an error. Ray's have paragraphs, and the one that says why is seldom the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    why = next((line for line in lines if line.startswith(("The actor is dead because", "The actor died because"))), "")
    missing = next((line for line in reversed(lines) if "ModuleNotFoundError" in line), "")
    said = missing or why or _raised(error) or " ".join(lines) or type(error).__name__
    return said[:400]


def _raised(error: BaseException) -> str:
    """The error that an actor's method raised, without the coloured traceback that Ray wraps it in; "" if none."""
    cause = getattr(error, "cause", None)
    if not isinstance(cause, Exception):
        return ""
    words = " ".join(str(cause).split())
    return words if isinstance(cause, BadInput | Failure) else f"{type(cause).__name__}: {words}"
