"""The mark of tests that need the zoo's trained networks."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

import pytest

REAL: Final = pytest.mark.skipif(find_spec("rapidocr") is None, reason="needs the extra `real`")
