"""MLServer over gRPC, as its HTTP has tensors in JSON only; a body is one element of type BYTES.

Raw FP32 would be unpacked into a list of numbers before it reaches the workers.
"""

from __future__ import annotations

import asyncio

from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput
from mlserver.utils import install_uvloop_event_loop

from benchmarks.servers.network import FIRST, Network, settings


class Runner(MLModel):
    async def load(self) -> bool:
        self._network = Network(self.name)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        answers = self._network.run_together(list(payload.inputs[0].data))
        output = ResponseOutput(name="out", shape=[len(answers)], datatype="BYTES", data=answers)
        return InferenceResponse(model_name=self.name, outputs=[output])


async def _serve() -> None:
    given = settings()
    grpc_port, http_port, metrics_port = given["ports"]
    server = MLServer(
        Settings(
            host="127.0.0.1",
            http_port=http_port,
            grpc_port=grpc_port,
            metrics_port=metrics_port,
            metrics_dir=given["folder"] + "/metrics",
            parallel_workers=given["workers"],
            debug=False,
            load_models_at_startup=False,
        )
    )
    batching = {"max_batch_size": given["batch"], "max_batch_time": given["delay_ms"] / 1e3}
    names = (FIRST, *given["further"])
    await server.start(
        [ModelSettings(name=name, implementation=Runner, **(batching if given["batch"] > 1 else {})) for name in names]
    )


def main() -> None:
    install_uvloop_event_loop()  # as MLServer's command does
    asyncio.run(_serve())


if __name__ == "__main__":
    main()
