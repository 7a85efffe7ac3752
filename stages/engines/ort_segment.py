"""A stage as ONNX Runtime runs it: a cut of the optimised graph, bound to the arena's slots.

Cutting copies a few hundred nodes, not weights; those stay in the file that every worker maps. A binding is made once
for each slot and holds raw addresses, which the engine does not check: shapes and sizes are compared here instead.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

from shisha_rt.fabric.arena import Arena
from shisha_rt.fabric.layout import Region
from shisha_rt.fabric.model_index import ModelIndex, TensorSpec
from shisha_rt.graph.datatypes import NUMPY_OF
from stages.engines.ort_compile import MODEL_FILE
from stages.engines.ort_options import as_built_options


class OptimisedModel:
    """The whole optimised graph (without weight values), from which segments are cut."""

    def __init__(self, folder: Path, index: ModelIndex) -> None:
        self._folder = str(folder)
        self._model = onnx.load(str(folder / MODEL_FILE), load_external_data=False)
        self._constants = {tensor.name: tensor for tensor in self._model.graph.initializer}
        self._index = index
        self._specs = {spec.name: spec for spec in index.tensors}

    def segment(self, first: int, last: int, threads: int) -> Segment:
        """Build layers `first` to `last` (inclusive) as one session."""
        here = [
            node
            for node, layer in zip(self._model.graph.node, self._index.node_layers, strict=True)
            if first <= layer <= last
        ]
        made = {name for node in here for name in node.output if name}
        read = dict.fromkeys(name for node in here for name in node.input if name)
        read_later = {
            name
            for node, layer in zip(self._model.graph.node, self._index.node_layers, strict=True)
            if layer > last
            for name in node.input
        } | {spec.name for spec in self._index.outputs}
        constants = [self._constants[name] for name in read if name in self._constants]
        inputs = [self._specs[name] for name in read if name not in made and name not in self._constants]
        outputs = [self._specs[name] for name in self._specs if name in made and name in read_later]
        graph = onnx.GraphProto(
            name="segment",
            node=here,
            initializer=constants,
            input=[_value_info(spec) for spec in inputs],
            output=[_value_info(spec) for spec in outputs],
        )
        model = onnx.ModelProto(ir_version=self._model.ir_version, opset_import=self._model.opset_import, graph=graph)
        session = ort.InferenceSession(
            model.SerializeToString(), as_built_options(threads, self._folder), providers=["CPUExecutionProvider"]
        )
        weight_bytes = sum(int(np.prod(c.dims)) * _item_bytes(c.data_type) for c in constants)
        return Segment(session, inputs, outputs, weight_bytes)


class Segment:
    """A built stage. `frame_bytes`: weights, inputs and outputs that one frame moves."""

    def __init__(
        self, session: ort.InferenceSession, inputs: list[TensorSpec], outputs: list[TensorSpec], weight_bytes: int
    ) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.frame_bytes = weight_bytes + sum(spec.size_bytes for spec in (*inputs, *outputs))
        self._session = session
        self._bindings: dict[int, ort.IOBinding] = {}

    def warm(self) -> None:
        """Run once on memory of its own: first-run allocations happen before a frame waits for them."""
        feeds = {spec.name: np.zeros(spec.shape, NUMPY_OF[spec.datatype]) for spec in self.inputs}
        self._session.run([spec.name for spec in self.outputs], feeds)

    def run(self, arena: Arena, slot: int) -> None:
        """Compute the stage on the tensors of `slot`, in place in the arena."""
        binding = self._bindings.get(slot)
        if binding is None:
            binding = self._bindings[slot] = self._bind(arena, slot)
        self._session.run_with_iobinding(binding)

    def _bind(self, arena: Arena, slot: int) -> ort.IOBinding:
        binding = self._session.io_binding()
        for spec in self.inputs:
            binding.bind_input(*_place(arena, slot, spec))
        for spec in self.outputs:
            binding.bind_output(*_place(arena, slot, spec))
        return binding


def _place(arena: Arena, slot: int, spec: TensorSpec) -> tuple[object, ...]:
    region = arena.layout.regions[spec.name]
    _check_fits(region, spec)
    dtype = NUMPY_OF[spec.datatype]
    return spec.name, "cpu", 0, dtype.type, spec.shape, arena.address(slot, region)


def _check_fits(region: Region, spec: TensorSpec) -> None:
    if region.tensor != spec:
        raise ValueError(f"tensor {spec.name!r} is {spec.datatype} {spec.shape}, its room in the slot is for "
                         f"{region.tensor.datatype} {region.tensor.shape}")  # fmt: skip


def _value_info(spec: TensorSpec) -> onnx.ValueInfoProto:
    element = onnx.helper.np_dtype_to_tensor_dtype(NUMPY_OF[spec.datatype])
    return onnx.helper.make_tensor_value_info(spec.name, element, spec.shape)


def _item_bytes(data_type: int) -> int:
    return int(onnx.helper.tensor_dtype_to_np_dtype(data_type).itemsize)
