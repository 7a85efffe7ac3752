"""A stage as an ONNX Runtime session: a segment, cut out of the graph that was compiled for ONNX Runtime.

Weights stay in the file that every worker maps, so a segment is only a few hundred nodes, which were serialised when
the model was compiled (`parts.py`). So building one holds the interpreter lock, which frames need to start, for
microseconds instead of milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from shisha_rt.model.index import ModelIndex
from shisha_rt.model.spans import Span
from stages.engines.onnxruntime.options import as_built_options, open_session, optimising_options
from stages.engines.onnxruntime.parts import Boundaries, read_parts
from stages.engines.onnxruntime.session import OrtSession
from stages.engines.session import ONE_THREAD, Ends, Threads

Axes: TypeAlias = Mapping[str, int]
_NO_AXES: Final[Axes] = {}


class OptimisedModel:
    """The whole graph, without weights' values. Segments of a graph in form "as_is" are optimised when built."""

    def __init__(self, folder: Path, index: ModelIndex) -> None:
        self._folder = str(folder)
        self._parts = read_parts(folder)
        self._specs = {spec.name: spec for spec in index.tensors}
        self._options = optimising_options if index.form == "as_is" else as_built_options
        self._boundaries = Boundaries(self._parts, [spec.name for spec in index.outputs])

    def segment(self, work: Sequence[Span], threads: Threads = ONE_THREAD, axes: Axes = _NO_AXES) -> OrtSession:
        """Build a session of one or more runs of layers.

        `axes`: `batch_axes` of the index, for batches of any size, which the layers must allow (`model/batches.py`).
        """
        parts = self._parts
        here = self._boundaries.nodes(work)
        read = dict.fromkeys(name for node in here for name in node.reads)
        constants = [parts.constants[name] for name in read if name in parts.constants]
        reads, makes = self._boundaries.of(work)
        inputs, outputs = (parts.inputs_of_many, parts.outputs_of_many) if axes else (parts.inputs, parts.outputs)
        model = (
            parts.header,
            *(node.part for node in here),
            *(constant.part for constant in constants),
            *(inputs[name] for name in reads),
            *(outputs[name] for name in makes),
        )
        ends = Ends(tuple(self._specs[name] for name in reads), tuple(self._specs[name] for name in makes), axes)
        session = open_session(b"".join(model), self._options(self._folder, threads))
        return OrtSession(session, ends, sum(constant.size_bytes for constant in constants))
