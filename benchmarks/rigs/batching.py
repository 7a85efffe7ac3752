"""Servers with batching of their own: each server's best setting, and a model whose first axis is open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import onnx

from benchmarks.rigs.servers import SERVERS, running
from shisha_rt.errors import BadInput
from shisha_rt.model.batches import follow_batch
from shisha_rt.model.free_batch import free_batch, integers_of
from stages.built.clean_model import CleanModel

BATCHING: Final = {f"{name}_batches": name for name in SERVERS}
"""Servers by the names of their sides in which they may batch."""
_SIZES: Final = (4, 8)
_DELAYS_MS: Final = (0, 2)
_SCOUT_S: Final = 1.5


class Batching(NamedTuple):
    """`batch`: the most frames of a run; `delay_ms`: how long a server waits for them."""

    batch: int
    delay_ms: int

    def __str__(self) -> str:
        return f"batches of {self.batch}, {self.delay_ms} ms"


def open_batch(cleaned: Path, to: Path) -> Path:
    """Write the cleaned model in folder `cleaned` for any number of frames, with all weights, as `to`.

    For servers: most networks of the zoo were exported for one frame. Raises BadInput if frames do not stay apart.
    """
    model = CleanModel.read(cleaned)
    followed = follow_batch(model.graph, integers_of(model.proto.graph))
    if followed.mixing:
        raise BadInput(f"frames cannot share a run: {next(iter(followed.mixing.values()))}")
    whole = model.with_weights(model.proto)
    graph, shapes = whole.graph, {name: tensor.shape for name, tensor in model.graph.tensors.items()}
    free_batch(graph, followed.reshaped, shapes)
    del graph.value_info[:]
    for end in (*graph.input, *graph.output):
        end.type.tensor_type.shape.dim[followed.axes[end.name]].dim_param = "frames"
    onnx.save(whole, to)
    return to


def best_batching(
    name: str, python: str, path: Path, inputs: Sequence[Mapping[str, Any]], workers: int, in_flight: int
) -> Batching:
    """The setting with which a server answers most frames in a round of each. Arguments: see `servers.running`."""

    def frame_s(setting: Batching) -> float:
        with running(name, python, path, inputs, workers, in_flight, (), **setting._asdict()) as server:
            return float(server.client.ask(seconds=_SCOUT_S)["frame_s"])

    return min((Batching(*setting) for setting in product(_SIZES, _DELAYS_MS)), key=frame_s)
