"""A camera whose pictures are worth nothing when they are old: `python examples/camera.py` (docs/examples.md).

Frames come at their own pace, from a video file or a camera (with OpenCV) or drawn here, and never wait: at most two
are with the daemon, of those that come meanwhile only the newest is kept, and one that is not answered within its
deadline is given up by the daemon. Every second a line says how it goes.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from shisha_rt.client import AsyncClient, DeadlineExceeded, ResourceExhausted, ShishaError
from shisha_rt.errors import BadInput

Picture = npt.NDArray[np.uint8]
"""(height, width, 3): red, green, blue."""

IN_FLIGHT = 2
"""One that is computed and one that waits; more would only make all of them older."""


@dataclass
class Tally:
    """What has become of the frames."""

    taken: int = 0
    dropped: int = 0
    late: int = 0
    latencies_s: list[float] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.taken += other.taken
        self.dropped += other.dropped
        self.late += other.late
        self.latencies_s += other.latencies_s

    def __str__(self) -> str:
        counts = f"{self.taken} taken, {len(self.latencies_s)} answered, {self.dropped} dropped, {self.late} late"
        if not self.latencies_s:
            return counts
        middle_ms, slow_ms = np.percentile(self.latencies_s, (50, 99)) * 1e3
        return f"{counts}; latency {middle_ms:.1f} ms, of one in a hundred {slow_ms:.1f} ms or more"


def main() -> None:
    options = parse_options()
    try:
        total = asyncio.run(watch(options))
        print(f"in all: {total}")
    except BadInput as error:
        print(f"camera: {error}", file=sys.stderr)
        sys.exit(2)
    except ShishaError as error:
        sys.exit(f"camera: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Send a camera's frames to a daemon, the newest first.")
    parser.add_argument("--endpoint", default="tcp://127.0.0.1:5555", help="of a daemon that runs")
    parser.add_argument("--video", metavar="FILE|NUMBER", help="a file or a camera, through OpenCV; drawn if not given")
    parser.add_argument("--fps", type=float, default=30.0, help="frames that come in a second")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to watch")
    parser.add_argument("--deadline-ms", type=float, default=100.0, help="what is older than that is not wanted")
    return parser.parse_args()


async def watch(options: argparse.Namespace) -> Tally:
    """The whole of it. Raises BadInput for a model that takes no picture, or a video that cannot be read."""
    async with AsyncClient(options.endpoint) as client:
        name, height, width = await picture_input(client)
        pictures = read_video(options.video) if options.video else draw_pictures(2 * height, 2 * width)
        newest: asyncio.Queue[tuple[float, Picture]] = asyncio.Queue(maxsize=1)
        now, total = Tally(), Tally()

        async def send() -> None:
            """Take the newest picture, send it, wait for its answer, and so on."""
            while True:
                taken_s, picture = await newest.get()
                tensor = await client.empty((1, 3, height, width), np.float32)  # in memory that the daemon shares
                tensor[...] = as_tensor(picture, height, width)
                left_s = taken_s + options.deadline_ms / 1e3 - time.monotonic()
                try:
                    await client.infer({name: tensor}, stream="camera", deadline_s=max(0.0, left_s))
                except (DeadlineExceeded, ResourceExhausted):
                    now.late += 1
                else:
                    now.latencies_s.append(time.monotonic() - taken_s)

        async def film() -> None:
            """Offer pictures at their pace; the one that still waits gives way."""
            begun_s = time.monotonic()
            for number in range(round(options.seconds * options.fps)):
                await asyncio.sleep(begun_s + number / options.fps - time.monotonic())
                picture = await asyncio.to_thread(next, pictures, None)
                if picture is None:  # the end of the file
                    break
                now.taken += 1
                if newest.full():
                    newest.get_nowait()
                    now.dropped += 1
                newest.put_nowait((time.monotonic(), picture))
            await asyncio.sleep(options.deadline_ms / 1e3)  # by then the last ones are answered, or late

        def tell() -> None:
            nonlocal now
            print(now, flush=True)
            total.add(now)
            now = Tally()

        async def report() -> None:
            while True:
                await asyncio.sleep(1)
                tell()

        tasks = [asyncio.create_task(work()) for work in (film, report, *[send] * IN_FLIGHT)]
        try:
            # The first of them to end is `film`, or one that has failed.
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        tell()
        return total


async def picture_input(client: AsyncClient) -> tuple[str, int, int]:
    """What the model calls its picture, and how high and wide that is."""
    model = (await client.metadata())["model"]
    inputs: list[dict[str, Any]] = model["inputs"]
    if len(inputs) != 1 or inputs[0]["datatype"] != "FP32" or inputs[0]["shape"][:2] != [1, 3]:
        raise BadInput(f"{model['name']} takes {inputs}; expected one input, FP32 of (1, 3, height, width)")
    _, _, height, width = inputs[0]["shape"]
    return inputs[0]["name"], height, width


def as_tensor(picture: Picture, height: int, width: int) -> npt.NDArray[np.float32]:
    """(1, 3, height, width), values from 0 to 1. Each pixel is the nearest one of the picture's."""
    rows = np.arange(height) * picture.shape[0] // height
    columns = np.arange(width) * picture.shape[1] // width
    tensor: npt.NDArray[np.float32] = picture[rows][:, columns].transpose(2, 0, 1)[None] / np.float32(255)
    return tensor


def draw_pictures(height: int, width: int) -> Iterator[Picture]:
    """A bar that wanders over grey, without end."""
    number = 0
    while True:
        picture = np.full((height, width, 3), 96, np.uint8)
        left = 4 * number % width
        picture[:, left : left + width // 8] = (240, 200, 40)
        yield picture
        number += 1


def read_video(source: str) -> Iterator[Picture]:
    try:
        import cv2
    except ImportError:
        raise BadInput("--video: takes OpenCV, expected it: pip install opencv-python-headless") from None
    video = cv2.VideoCapture(int(source) if source.isdecimal() else source)
    if not video.isOpened():
        raise BadInput(f"--video {source}: cannot be read; expected a video file, or the number of a camera")
    while True:
        there_is, picture = video.read()
        if not there_is:
            return
        yield np.asarray(picture, np.uint8)[:, :, ::-1]  # OpenCV has blue first


if __name__ == "__main__":
    main()
