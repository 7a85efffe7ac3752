"""ONNX Runtime's blocked formats (NCHWc) of tensors in its optimised graphs.

Channels lie in blocks of 8 or 16, depending on the processor, and their number is rounded up to full blocks. A blocked
tensor's shape reads (N, C, H, W) all the same. The block size does not matter for cuts at multiples of 16.
"""

from __future__ import annotations

from typing import Final

NCHWC: Final = "com.microsoft.nchwc"
BLOCK: Final = 16
"""A multiple of all block sizes."""
