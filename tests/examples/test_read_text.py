"""The page reader: what it makes of the networks' answers, and what a stranger sees who runs it."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import psutil
import pytest
from PIL import Image

from examples.read_text import PAGE, as_frame, as_line, boxes_of, characters_of, draw_page, load_page, text_of, write
from shisha_rt.errors import BadInput
from shisha_rt.model.zoo import zoo_path
from tests.model.networks import run
from tests.real import REAL

SCRIPT: Final = Path(__file__).parents[2] / "examples" / "read_text.py"
MARK: Final = "SHISHA_TEST_READS_TEXT"


def test_boxes_are_what_is_sure_and_thick_enough_grown_and_from_top_to_bottom() -> None:
    probability = np.zeros((100, 200))
    probability[50:60, 20:60] = 0.9
    probability[10:20, 100:140] = 0.8
    probability[80:90, 20:60] = 0.4  # seen, but doubtful
    probability[95:97, 20:60] = 0.9  # too thin
    upper, lower = boxes_of(probability, growth=2.0)  # by area over perimeter, twice: 2 * 400 / 100
    assert upper.tolist() == [92, 2, 148, 28]
    assert lower.tolist() == [12, 42, 68, 68]


def test_text_is_read_without_repeats_and_blanks() -> None:
    characters = ["", "a", "b", " "]
    columns = np.eye(4)[[0, 1, 1, 0, 1, 2, 2, 3, 2, 0, 3]] * 0.5
    assert text_of(columns, characters) == ("aab b", 0.5)
    assert text_of(columns[:1], characters) == ("", 0.0)


def test_a_line_keeps_its_shape_until_it_is_too_wide() -> None:
    for width, served, used in ((80, 160, 160), (100, 320, 200), (160, 320, 320), (400, 320, 320)):
        frame = as_line(Image.new("RGB", (width, 24), "white"), [(48, 160), (48, 320)])
        assert frame.shape == (1, 3, 48, served)
        assert (frame[..., :used] == 1).all()
        assert (frame[..., used:] == 0).all()


def test_blue_comes_first() -> None:
    frame = as_frame(Image.new("RGB", (2, 2), (255, 0, 0)), 2, 2)
    assert frame[0, :, 0, 0].tolist() == [-1, -1, 1]


def test_what_is_no_image_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none\.png: not an .* read: .*No such file"):
        load_page(tmp_path / "none.png")
    with pytest.raises(BadInput, match=r"page\.nothing: cannot be written: unknown file extension"):
        write(Image.new("RGB", (2, 2)), tmp_path / "page.nothing")


@REAL
def test_drawn_lines_are_read_right() -> None:
    page = draw_page(PAGE[1:3])
    (detected,) = run(onnx.load(zoo_path("text_detector")), {"x": as_frame(page, 224, 704)})
    recogniser = onnx.load(zoo_path("text_recogniser"))
    crops = [page.crop(tuple(box)) for box in boxes_of(detected[0, 0])]
    answers = [run(recogniser, {"x": as_line(crop, [(48, 320), (48, 640)])})[0][0] for crop in crops]
    characters = characters_of(zoo_path("text_recogniser"))
    assert tuple(text_of(answer, characters)[0] for answer in answers) == PAGE[1:3]


@REAL
@pytest.mark.long
def test_a_page_is_drawn_read_by_two_daemons_and_pictured(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    done = subprocess.run(
        [sys.executable, SCRIPT, "--picture", "read.png"],
        cwd=tmp_path,
        env={**os.environ, MARK: mark},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert tuple(done.stdout.splitlines()) == PAGE
    assert [line.split(":")[0] for line in done.stderr.splitlines()][:2] == ["written", "starting"]
    with Image.open(tmp_path / "page.png") as page, Image.open(tmp_path / "read.png") as picture:
        assert picture.size == (2 * page.width, page.height)
    assert [process for process in psutil.process_iter() if _mark_of(process) == mark] == []


def _mark_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(MARK)
    except (psutil.Error, OSError):
        return None  # gone, or somebody else's
