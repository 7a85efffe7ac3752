"""LitServe: uvicorn as front end, by default one for each worker; requests reach a worker through a queue."""

# No postponed annotations, as LitServe evaluates those of `decode_request` itself.
from typing import Annotated

import litserve
from fastapi import Depends, Request, Response

from benchmarks.servers.network import Network, settings


async def _body(request: Request) -> bytes:
    return await request.body()


class Runner(litserve.LitAPI):
    def setup(self, device: object) -> None:
        self._network = Network()

    def decode_request(self, request: Annotated[bytes, Depends(_body)]) -> bytes:
        return request

    def batch(self, inputs: list[bytes]) -> list[bytes]:
        return inputs

    def predict(self, x: bytes | list[bytes]) -> bytes | list[bytes]:
        return self._network.run_together(x) if isinstance(x, list) else self._network.run(x)

    def unbatch(self, output: list[bytes]) -> list[bytes]:
        return output

    def encode_response(self, output: bytes) -> Response:
        return Response(output, media_type="application/octet-stream")


def main() -> None:
    given = settings()
    batching = {"max_batch_size": given["batch"], "batch_timeout": given["delay_ms"] / 1e3}
    runner = Runner(api_path="/inference", **(batching if given["batch"] > 1 else {}))
    server = litserve.LitServer(runner, accelerator="cpu", workers_per_device=given["workers"], timeout=60)
    quiet = {"generate_client_file": False, "log_level": "warning", "access_log": False}
    server.run(host="127.0.0.1", port=given["ports"][0], **quiet)


if __name__ == "__main__":
    main()
