"""For tests of the zoo's trained networks: the mark of those that need them, and what to show them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageDraw, ImageFont

REAL: Final = pytest.mark.skipif(find_spec("rapidocr") is None, reason="needs the extra `real`")


def drawn_text(shape: Sequence[int], text: str = "copy 24 copies") -> npt.NDArray[Any]:
    """Black text on white, from the left until it is cut off: a frame (1, 3, height, width) from -1 to 1."""
    height, width = shape[2:]
    image = Image.new("L", (width, height), "white")
    size = min(height, 48) * 0.7
    ImageDraw.Draw(image).text((8, (height - size) / 2), text, "black", ImageFont.load_default(size))
    pixels = np.asarray(image, np.float32) / 127.5 - 1
    return np.ascontiguousarray(np.broadcast_to(pixels, tuple(shape)))
