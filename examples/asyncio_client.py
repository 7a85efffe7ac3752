"""Several cameras in one asyncio program: `python examples/asyncio_client.py` (docs/examples.md).

Each camera is a stream of its own: its answers come in order, whatever the others do. Meanwhile the program tells what
the daemon changes: plans that go live while frames flow.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator

import numpy as np

from shisha_rt.client import AsyncClient, ShishaError
from shisha_rt.protocol.frame_tensors import Array

NUMPY_OF = {"FP32": "f4", "FP64": "f8", "FP16": "f2", "INT64": "i8", "INT32": "i4", "INT8": "i1", "UINT8": "u1"}


async def frames(client: AsyncClient, camera: int, count: int) -> AsyncIterator[dict[str, Array]]:
    """Noise for every input of the model, each camera's own."""
    generator = np.random.default_rng(camera)
    inputs = (await client.metadata())["model"]["inputs"]
    for _ in range(count):
        frame = {}
        for tensor in inputs:
            # An array for each frame: large ones lie in memory that the daemon shares, and nothing is copied.
            array = await client.empty(tensor["shape"], NUMPY_OF[tensor["datatype"]])
            array[...] = generator.uniform(0, 8, tensor["shape"])
            frame[tensor["name"]] = array
        yield frame


async def watch_camera(client: AsyncClient, camera: int, count: int) -> str:
    """Sends its frames, four at once, and says what came of them."""
    answered, epochs = 0, set()
    async with client.stream(f"camera{camera}", in_flight=4) as stream:
        async for answer in stream.run(frames(client, camera, count)):
            answered += 1
            epochs.add(answer.epoch)
    return f"camera{camera}: {answered} frames, in order, of epochs {sorted(epochs)}"


async def tell_plans(client: AsyncClient) -> None:
    """Says which plans go live, as it happens, until it is cancelled."""
    next_event = 0
    while True:
        page = await client.events(next_event)
        for event in page["events"]:
            if event["kind"] == "plan_live":
                print(f"epoch {event['epoch']} is live: {event['plan']}", flush=True)
        if page["next"] == next_event:
            await asyncio.sleep(0.2)
        next_event = page["next"]


async def main(endpoint: str, cameras: int, count: int) -> None:
    async with AsyncClient(endpoint) as client, asyncio.TaskGroup() as group:  # one that fails ends the others
        teller = group.create_task(tell_plans(client))
        watched = [group.create_task(watch_camera(client, camera, count)) for camera in range(cameras)]
        for task in watched:
            print(await task)
        teller.cancel()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Several streams of frames to one daemon.")
    parser.add_argument("--endpoint", default="tcp://127.0.0.1:5555")
    parser.add_argument("--cameras", type=int, default=3)
    parser.add_argument("--frames", type=int, default=100, help="of each camera")
    options = parser.parse_args()
    try:
        asyncio.run(main(options.endpoint, options.cameras, options.frames))
    except* ShishaError as errors:
        sys.exit(f"asyncio_client: {errors.exceptions[0]}")
