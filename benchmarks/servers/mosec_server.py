"""Mosec: its front end is written in Rust, its workers get a body over a socket."""

from __future__ import annotations

import sys

from mosec import Server, Worker

from benchmarks.servers.network import Network, settings


class Runner(Worker):
    def __init__(self) -> None:
        self._network = Network()

    def deserialize(self, data: bytes) -> bytes:
        return data

    def serialize(self, data: bytes) -> bytes:
        return data

    def forward(self, data: bytes | list[bytes]) -> bytes | list[bytes]:
        """Answer a body, or as many as Mosec has put together."""
        return self._network.run_together(data) if isinstance(data, list) else self._network.run(data)


def main() -> None:
    options = settings()
    sys.argv[1:] = ["--address", "127.0.0.1", "--port", str(options["ports"][0]), "--log-level", "warning"]
    sys.argv += ["--timeout", str(options["timeout_ms"])]
    if options["waiting"] is not None:
        sys.argv += ["--capacity", str(options["waiting"])]
    server = Server()
    batching = {"max_batch_size": options["batch"], "max_wait_time": options["delay_ms"]}
    server.append_worker(Runner, num=options["workers"], **(batching if options["batch"] > 1 else {}))
    server.run()


if __name__ == "__main__":
    main()
