"""Read a page of text with two models: `python examples/read_text.py [IMAGE]` (docs/examples.md).

One finds lines of text in the page, the other reads them. Both are trained networks of the zoo (the extra `real`),
served at one address by `shisha-rt serve configs/daemons/read_text.toml`, and all that is asked of them goes through
`shisha_rt.client`: one frame for the page, and then a stream with a frame for each line. What the networks answer is
turned into text here, with numpy and scipy.

The recogniser is served in several widths at once, and each line goes to the narrowest that it fits: a short line takes
a fraction of the time of a long one. Lines must be straight and horizontal, as on a screen or a scan; one that is too
long for the widest is squeezed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from PIL import Image, ImageDraw, ImageFont
from scipy import ndimage

from shisha_rt.client import Client, ShishaError
from shisha_rt.errors import BadInput
from shisha_rt.model.zoo import resolve_model

Array = npt.NDArray[Any]

MODELS = Path(__file__).parents[1] / "configs" / "daemons" / "read_text.toml"

PAGE = (
    "Notes on a slow machine",
    "Two cores share one memory,",
    "and 24 frames wait in a queue.",
    "Layer 11 may move to core 1:",
    "no frame is lost by that.",
    "Throughput: 76.5 frames a second",
)


@dataclass(frozen=True)
class Line:
    """Where a line of text stands, in pixels of the page, what it says, and how sure the recogniser is (0 to 1)."""

    left: int
    top: int
    right: int
    bottom: int
    text: str = ""
    score: float = 0.0


def main() -> None:
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the daemons are stopped then, too
    try:
        page = load_page(options.image)
        with contextlib.ExitStack() as closing:  # whatever happens, the daemons are stopped
            endpoint = options.endpoint or closing.enter_context(daemon(str(MODELS)))
            started_s = time.monotonic()
            boxes = find_lines(page, endpoint)
            lines = read_lines(page, boxes, endpoint)
            tell(f"{len(lines)} lines in {time.monotonic() - started_s:.2f} s")
        for line in lines:
            print(line.text)
        if options.picture:
            write(draw_result(page, lines), options.picture)
    except BadInput as error:
        tell(f"read_text: {error}")
        sys.exit(2)
    except ShishaError as error:
        sys.exit(f"read_text: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Read a page of text with two models.")
    parser.add_argument("image", nargs="?", type=Path, help="a picture of a page; drawn (page.png) if not given")
    parser.add_argument("--picture", type=Path, metavar="PNG", help="draw the page and what was read, side by side")
    parser.add_argument("--endpoint", help="where both are served already, as tcp://127.0.0.1:5555")
    return parser.parse_args()


def tell(progress: str) -> None:
    """On standard error: standard output has the text and nothing else."""
    print(progress, file=sys.stderr, flush=True)


# --- the models -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def daemon(*arguments: str) -> Iterator[str]:
    """Serve for as long as the block lasts, on ports that are free; gives its endpoint."""
    tell(f"starting: shisha-rt serve {' '.join(arguments)}")
    ports = ("--endpoint", "tcp://127.0.0.1:0", "--metrics", "127.0.0.1:0")
    command = [sys.executable, "-m", "shisha_rt", "serve", *arguments, *ports]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # waits for its end, too
        assert process.stdout is not None
        try:
            ready = process.stdout.readline()  # one line, once frames can be sent
            if not ready:
                sys.exit(process.wait())  # it has said why
            yield json.loads(ready)["endpoint"]
        finally:
            process.terminate()


def image_input(client: Client, endpoint: str, answer_axes: int) -> tuple[str, list[tuple[int, int]]]:
    """What the model that is served calls its image, and how high and wide that may be, from narrow to wide."""
    model = client.metadata()["model"]
    shapes = [[tensor["shape"] for tensor in model[side]] for side in ("inputs", "outputs")]
    if [[len(shape) for shape in side] for side in shapes] != [[4], [answer_axes]]:
        raise BadInput(
            f"{endpoint} serves {model['name']}, inputs {shapes[0]}, outputs {shapes[1]}; "
            f"expected an input (1, 3, height, width) and an output of {answer_axes} axes"
        )
    name = model["inputs"][0]["name"]
    served = [shape[name] for shape in model.get("shapes", [])] or [shapes[0][0]]  # one each, where there are several
    return name, sorted(((height, width) for _, _, height, width in served), key=lambda size: size[1])


# --- the detector: page -> boxes ----------------------------------------------------------------------------------


def find_lines(page: Image.Image, endpoint: str) -> list[Line]:
    """Lines of text from top to bottom, not read yet. The page goes to the detector as one frame."""
    with Client(endpoint, model="detector") as client:
        name, (*_, (height, width)) = image_input(client, endpoint, answer_axes=4)
        scale = min(width / page.width, height / page.height)
        resized = page.resize((round(page.width * scale), round(page.height * scale)), Image.Resampling.BILINEAR)
        answer = client.infer({name: as_frame(resized, height, width)})
    boxes = boxes_of(answer.output[0, 0])
    limits = np.array([page.width, page.height, page.width, page.height])
    return [Line(*np.clip(np.rint(box / scale), 0, limits).astype(int).tolist()) for box in boxes]


def as_frame(image: Image.Image, height: int, width: int) -> Array:
    """The image in the upper left corner of a frame (1, 3, height, width), blue first, values from -1 to 1."""
    pixels = np.asarray(image.convert("RGB"), np.float32)[:, :, ::-1] / 127.5 - 1
    frame = np.zeros((1, 3, height, width), np.float32)
    frame[0, :, : image.height, : image.width] = pixels.transpose(2, 0, 1)
    return frame


def boxes_of(probability: Array, threshold: float = 0.3, least: float = 0.5, growth: float = 1.6) -> list[Array]:
    """Boxes (left, top, right, bottom) around what is text in the detector's map (height, width), top to bottom.

    The network is taught to mark lines shrunk, so that neighbours do not touch (Liao et al. 2020, "DB"): each connected
    piece grows again by its area over its perimeter. Pieces that are thin or doubtful are dropped.
    """
    labels, _ = ndimage.label(probability > threshold)
    boxes = []
    for number, (rows, columns) in enumerate(ndimage.find_objects(labels), start=1):
        height, width = rows.stop - rows.start, columns.stop - columns.start
        score = probability[rows, columns][labels[rows, columns] == number].mean()
        if min(height, width) < 3 or score < least:
            continue
        by = growth * height * width / (2 * (height + width))
        boxes.append(np.array([columns.start - by, rows.start - by, columns.stop + by, rows.stop + by]))
    return sorted(boxes, key=lambda box: (box[1], box[0]))


# --- the recogniser: boxes -> text --------------------------------------------------------------------------------


def read_lines(page: Image.Image, lines: Sequence[Line], endpoint: str) -> list[Line]:
    """The same lines with their text. Each is a frame of a stream: several are on their way at once, none overtakes."""
    characters = characters_of(resolve_model("zoo:text_recogniser"))
    with Client(endpoint, model="recogniser") as client:
        name, sizes = image_input(client, endpoint, answer_axes=3)
        crops = (page.crop((line.left, line.top, line.right, line.bottom)) for line in lines)
        frames = ({name: as_line(crop, sizes)} for crop in crops)
        with client.stream("lines") as stream:
            read = [text_of(answer.output[0], characters) for answer in stream.run(frames)]
    return [
        Line(line.left, line.top, line.right, line.bottom, text, score)
        for line, (text, score) in zip(lines, read, strict=True)
    ]


def as_line(crop: Image.Image, sizes: Sequence[tuple[int, int]]) -> Array:
    """A frame of the narrowest of `sizes` (height, width) that the crop, scaled to its height, fits; else squeezed."""
    height, width = next((size for size in sizes if crop.width * size[0] <= size[1] * crop.height), sizes[-1])
    scaled = min(width, max(1, round(crop.width * height / crop.height)))
    return as_frame(crop.resize((scaled, height), Image.Resampling.BILINEAR), height, width)


def characters_of(model: Path) -> list[str]:
    """What each number of the recogniser's answer stands for: its file says so. The first stands for "nothing new"."""
    said = {entry.key: entry.value for entry in onnx.load(model).metadata_props}
    return ["", *said["character"].split("\n"), " "]


def text_of(probability: Array, characters: Sequence[str]) -> tuple[str, float]:
    """The likeliest character of each column (columns, characters), repeats and blanks left out (CTC); the mean of
    the probabilities of those kept.
    """
    best = probability.argmax(axis=1)
    starts = [i for i, number in enumerate(best) if number != 0 and (i == 0 or number != best[i - 1])]
    text = "".join(characters[best[i]] for i in starts)
    return text.strip(), float(probability[starts, best[starts]].mean()) if starts else 0.0


# --- pictures -----------------------------------------------------------------------------------------------------


def load_page(path: Path | None) -> Image.Image:
    """The image at `path`; without one the page above, drawn and written to page.png."""
    if path is None:
        page = draw_page(PAGE)
        write(page, Path("page.png"))
        return page
    try:
        return Image.open(path).convert("RGB")
    except OSError as error:
        raise BadInput(f"{path}: not an image that can be read: {error}") from error


def write(image: Image.Image, path: Path) -> None:
    try:
        image.save(path)
    except (OSError, ValueError) as error:  # the latter: its name says no format
        raise BadInput(f"{path}: cannot be written: {error}") from error
    tell(f"written: {path}")


def draw_page(lines: Sequence[str], size: int = 34) -> Image.Image:
    """Black on white, `size` pixels to a line's letters."""
    page = Image.new("RGB", (680, (2 + 2 * len(lines)) * size), "white")
    draw = ImageDraw.Draw(page)
    for number, text in enumerate(lines):
        draw.text((size, (1 + 2 * number) * size), text, "black", ImageFont.load_default(size))
    return page


def draw_result(page: Image.Image, lines: Sequence[Line]) -> Image.Image:
    """The page with its boxes on the left; on the right what was read, where it stood."""
    both = Image.new("RGB", (2 * page.width, page.height), "white")
    both.paste(page)
    draw = ImageDraw.Draw(both)
    for line in lines:
        draw.rectangle((line.left, line.top, line.right, line.bottom), outline="crimson", width=2)
        height = line.bottom - line.top
        draw.text((page.width + line.left, line.top), line.text, "navy", ImageFont.load_default(0.7 * height))
    draw.line((page.width, 0, page.width, page.height), "silver", 2)
    return both


if __name__ == "__main__":
    main()
