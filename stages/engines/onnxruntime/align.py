"""Align prepacked weights, so that the engine's kernels can read them.

ONNX Runtime writes a weight and, right behind it, its prepacked blobs, of which it aligns only those over 1 MiB; on
loading it maps them in place. But kernels read them by instructions that fault at an address that is not a multiple of
the vector's width. And ONNX Runtime (1.32) may pack a large weight again, into private memory, unless its blob begins
with a page.

For a depthwise convolution of integers ONNX Runtime writes an empty blob, which it fails to read. Such weights, which
are small, lose their prepacked blobs, and each session packs them for itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, Final

import onnx

from shisha_rt.model.subgraphs import all_graphs

_ALIGNMENT_BYTES: Final = (
    256  # a multiple of 64: a cache line, the widest vector, and what the engine's own buffers have
)
_LARGE_BYTES: Final = 1 << 20
_PAGE_BYTES: Final = 1 << 16  # the largest page of any processor here
_PREPACKED: Final = "prepacked_"


def align_weights(model_file: Path, weights_file: Path) -> None:
    """Rewrite a saved model and its weights file, so that each weight and each prepacked blob is aligned."""
    model = onnx.load(str(model_file), load_external_data=False)
    aligned = weights_file.with_suffix(".aligned")
    with weights_file.open("rb") as source, aligned.open("wb") as target:
        for constant in (constant for graph in all_graphs(model.graph) for constant in graph.initializer):
            entries = {entry.key: entry for entry in constant.external_data}
            if "offset" in entries:
                offset, length = int(entries["offset"].value), int(entries["length"].value)
                entries["offset"].value = str(_moved(source, target, offset, length))
            for entry in [entry for key, entry in entries.items() if key.startswith(_PREPACKED)]:
                # The engine's name of the kernel and the weight, then of each blob: offset, length, checksum.
                name, *blobs = entry.value.split("|")
                if any(blob.split(";")[1] == "0" for blob in blobs):
                    constant.external_data.remove(entry)
                else:
                    entry.value = "|".join([name, *(_moved_blob(source, target, blob) for blob in blobs)])
    aligned.replace(weights_file)
    model_file.write_bytes(model.SerializeToString())


def _moved_blob(source: BinaryIO, target: BinaryIO, blob: str) -> str:
    offset, length, checksum = blob.split(";")
    return f"{_moved(source, target, int(offset), int(length))};{length};{checksum}"


def _moved(source: BinaryIO, target: BinaryIO, offset: int, length: int) -> int:
    """Copy bytes to an aligned offset, which is returned."""
    target.write(bytes(-target.tell() % (_PAGE_BYTES if length >= _LARGE_BYTES else _ALIGNMENT_BYTES)))
    aligned_at = target.tell()
    source.seek(offset)
    target.write(source.read(length))
    return aligned_at
