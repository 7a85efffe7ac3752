"""A compiled model: its graph, its layers, where it can be cut, and the folders with its files."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from shisha_rt.model.graph import ModelGraph
from shisha_rt.model.index import ModelIndex
from shisha_rt.model.layers import Layer


@dataclass(frozen=True)
class Compiled:
    """`model_folder` holds the cleaned model, `engine_folder` the index of its cuts and the engine's optimised form.

    `shapes`: the model in each of its shapes, if it is compiled for several (see `measure.shapes`); else empty.
    """

    model: ModelGraph
    layers: tuple[Layer, ...]
    index: ModelIndex
    model_folder: Path
    engine_folder: Path
    shapes: tuple[Compiled, ...] = ()

    @property
    def each(self) -> tuple[Compiled, ...]:
        """The model in each of its shapes; itself if it has only one."""
        return self.shapes or (self,)

    @property
    def key(self) -> str:
        """Identifies everything that plans and costs of this model depend on."""
        keys = sorted(
            f"{compiled_shape.engine_folder.parent.name}-{compiled_shape.engine_folder.name}"
            for compiled_shape in self.each
        )
        return keys[0] if len(keys) == 1 else f"shapes-{hashlib.sha256(' '.join(keys).encode()).hexdigest()}"

    @property
    def legal_cuts(self) -> frozenset[int]:
        return frozenset(self.index.legal_cuts)

    @property
    def needs(self) -> tuple[frozenset[int], ...]:
        """(layers,): the earlier layers from which each reads a tensor, in some shape."""
        return tuple(
            frozenset().union(*of_shapes)
            for of_shapes in zip(*(compiled_shape.index.needs for compiled_shape in self.each), strict=True)
        )

    def named(self, name: str) -> Compiled:
        """The same under another name."""
        return replace(self, model=replace(self.model, name=name))

    @property
    def without_weights(self) -> Compiled:
        """The same without the ONNX model, and so the weights, that `model` may still hold."""
        model = ModelGraph(self.model.name, self.model.graph, self.model.key)
        return replace(self, model=model, shapes=tuple(shape.without_weights for shape in self.shapes))
