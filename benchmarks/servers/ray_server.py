"""Ray Serve: a proxy, and a replica for each worker; Ray's own daemons run, too."""

from __future__ import annotations

import signal

import ray
from ray import serve

from benchmarks.servers.network import settings
from benchmarks.servers.ray_network import deploy


def main() -> None:
    given = settings()
    # Stopped by a signal in the main thread only; the rest of it ends with this process.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    ray.init(num_cpus=given["workers"], include_dashboard=False, log_to_driver=False, object_store_memory=1 << 27)
    serve.start(http_options={"host": "127.0.0.1", "port": given["ports"][0]})
    deploy(
        given,
        given["workers"],
        {"num_cpus": 1},
        max_queued_requests=-1 if given["waiting"] is None else given["waiting"],
        **({"max_ongoing_requests": 2 * given["batch"]} if given["batch"] > 1 else {}),
    )
    signal.pause()


if __name__ == "__main__":
    main()
