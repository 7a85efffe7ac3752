"""Read an untrusted ONNX file: refuse it in one line, or return a model that is checked completely.

The file, its operators, its datatypes and its shapes are all checked here, before frames are in flight. The model is
then cleaned (`model.clean`); from then on operators and tensors have the cleaned model's names everywhere.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import onnx
from google.protobuf.message import DecodeError  # its type stubs are a separate package

from shisha_rt.checked import NO_TEXT
from shisha_rt.errors import BadInput, Error, about
from shisha_rt.model.clean import clean, without_weights
from shisha_rt.model.graph import Graph, ModelGraph, Operator, Tensor
from shisha_rt.model.input_sizes import ANY_SIZES, MOST_INPUTS, InputSizes
from shisha_rt.model.open_shapes import (
    SeenTensor,
    all_values,
    is_no_tensor,
    shape_with_open_axes,
    static_shape,
    unknown_tensors,
)
from shisha_rt.model.reader.external_data import (
    datatype_of,
    load_weights,
    save_with_external_weights,
    weight_datatype,
)
from shisha_rt.model.reader.functions import said_by_onnx, without_functions
from shisha_rt.model.reader.one_run import shapes_seen
from shisha_rt.model.reader.onnx_versions import LEARNED, MICROSOFT, check_versions
from shisha_rt.model.reader.open_dims import SettledDim, forget_other_shapes, runtime_inputs, settle_sizes, sized_names
from shisha_rt.model.reader.size_guesses import sizes_that_run
from shisha_rt.model.reader.sparse_weights import make_dense
from shisha_rt.model.subgraphs import all_graphs, all_nodes, make_constant_outputs, reads, subgraphs
from shisha_rt.tensors import of_no_size

CLEANER_VERSION: Final = 16  # raise it when `clean` would give another model for the same file
CLEAN_FILE: Final = "clean.onnx"
_PROTOBUF_LIMIT_BYTES: Final = 1 << 31
_OLDEST_OPSET: Final = 7  # the oldest that engines promise to run
_DOMAINS: Final = ("", LEARNED, MICROSOFT)
_IN_ANY_OPSET: Final = frozenset({"LayerNormalization", "SimplifiedLayerNormalization"})
"""Operators that ONNX Runtime has in ONNX's domain whatever the opset, as its tools for transformers write them."""
_DEPRECATED: Final = frozenset({"GroupNormalization"})
"""Operators that ONNX has deprecated in some opsets, in which ONNX Runtime runs them all the same."""
_PROSE: Final = ("doc_string", "value")  # protobuf fields of free text; `value` is that of a metadata entry


@dataclass(frozen=True, slots=True)
class FoundOut:
    """What reading a model found out beyond what the file says.

    `dims`: sizes of the dimensions that it leaves open; `seen`: tensors whose shape only a run of the model showed;
    `unread`: inputs that no operator reads, and that the cleaned model does not have.
    """

    dims: tuple[SettledDim, ...] = ()
    seen: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


@dataclass(frozen=True)
class Model(ModelGraph):
    """A cleaned model. `proto` contains its weights and may be larger than 2 GiB.

    `is_saved`: it was loaded from where it had been saved. Its large weights are only there, it cannot be saved again,
    and `found_out` is empty.
    """

    proto: onnx.ModelProto
    found_out: FoundOut = FoundOut()
    is_saved: bool = False

    def save(self, folder: Path) -> None:
        """Write `clean.onnx`, with its weights beside it in `clean.bin`, into an existing folder."""
        save_with_external_weights(self.proto, folder / CLEAN_FILE)


def read_model(
    path: Path,
    sizes: InputSizes = ANY_SIZES,
    saved: Callable[[str], Model | None] = lambda _key: None,
) -> Model:
    """Read, check and clean an ONNX file; `sizes` are for dimensions that it leaves open.

    `saved` finds a model that was saved earlier, by its key; it is asked only for the key of a file without external
    data. If shapes can only be found by a run of the model, the run may take `one_run.RUN_LIMIT_S`.

    Raises BadInput with one line for whatever is wrong with the file.
    """
    with about(path):
        content = _read_file(path)
        settings = json.dumps([sorted(sizes.dims.items()), sorted(sizes.shapes.items()), CLEANER_VERSION]).encode()
        digest = hashlib.sha256(content).digest()

        def key_of(external_digest: bytes) -> str:
            return hashlib.sha256(digest + external_digest + settings).hexdigest()

        saved_model = saved(key_of(hashlib.sha256().digest()))
        if saved_model is not None:
            return saved_model
        model = _parsed(content)
        external_digest = load_weights(model, path)
        dims = settle_sizes(model, sizes, partial(sizes_that_run, model))
        _check_valid(model)
        forget_other_shapes(model.graph)
        _check_room(model.graph, _in_words(dims))
        cleaned, seen = _cleaned(model, dims)
        cleaned.graph.name = path.stem
        graph = _graph_of(cleaned)
        if not graph.inputs:
            raise BadInput(
                "no output depends on an input; expected at least one input that is not a weight",
                Error.MODEL_UNSUPPORTED,
            )
        read = {tensor.name for tensor in graph.inputs}
        unread = tuple(value.name for value in runtime_inputs(model.graph) if value.name not in read)
        return Model(path.stem, graph, key_of(external_digest), cleaned, FoundOut(dims, seen, unread))


def _parsed(content: bytes) -> onnx.ModelProto:
    """The model of a file in the form that all that follows expects, without external weights. Raises BadInput."""
    model = without_functions(_parse(content))
    _settle_header(model)
    make_dense(model)
    check_versions(model)
    _check_operators(model)
    _state_onesided(model)
    _check_ends(model)
    make_constant_outputs(model.graph)
    return model


def read_sized_names(path: Path) -> tuple[set[str], set[str]]:
    """As `sized_names`, of a file. Raises BadInput if that is no ONNX file."""
    with about(path):
        return sized_names(_parse(_read_file(path)).graph)


def _check_valid(model: onnx.ModelProto) -> None:
    try:
        onnx.checker.check_model(_as_checked(model))
    except onnx.checker.ValidationError as error:
        raise BadInput(f"not a valid ONNX model: {said_by_onnx(error)}", Error.NOT_ONNX) from error


def _as_checked(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model for the ONNX checker: without large weights, and with a shape for every output.

    The checker demands these shapes, which nothing else needs and some exporters leave out. It leaves operators of
    other domains than ONNX's alone, so those of `_IN_ANY_OPSET` and `_DEPRECATED` are given one.
    """
    light = without_weights(model)
    version = _opset(light)
    for node in all_nodes(light.graph.node):
        is_known = onnx.defs.has(node.op_type, version, "")
        if not node.domain and (not is_known or node.op_type in _DEPRECATED):
            node.domain = MICROSOFT
    if all(opset.domain != MICROSOFT for opset in light.opset_import):
        light.opset_import.add(domain=MICROSOFT, version=1)
    for graph in all_graphs(light.graph):
        for value in graph.output:
            if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape"):
                value.type.tensor_type.shape.SetInParent()
    return light


def _cleaned(model: onnx.ModelProto, dims: Sequence[SettledDim]) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """Clean the model so that every tensor has a shape; return also the names of those whose shape only a run showed.

    Shape inference may be wrong: if it finds contradictions but the engine runs the model, the engine is right.
    """
    fault = None
    sizes = _in_words(dims)
    seen: dict[str, SeenTensor] = {}
    while True:
        try:
            cleaned = clean(model, seen, strict=fault is None)
        except onnx.shape_inference.InferenceError as error:
            if fault is not None:
                raise _contradiction(fault, dims) from error
            fault = error
            continue
        _check_room(cleaned.graph, sizes)
        unknown = unknown_tensors(cleaned.graph, seen)
        if not unknown:
            return cleaned, tuple(seen)
        try:
            seen |= shapes_seen(cleaned, unknown)
        except BadInput as error:
            if fault is None:
                raise
            raise _contradiction(fault, dims) from error


def _contradiction(fault: Exception, dims: Sequence[SettledDim]) -> BadInput:
    """What shapes that contradict each other mean: where a user gave sizes, that these do not fit the model."""
    with_sizes = f" with {_in_words(dims)}" if dims else ""
    kind = Error.WRONG_SIZES if any(dim.source == "user" for dim in dims) else Error.NOT_ONNX
    return BadInput(f"not a valid ONNX model{with_sizes}: {said_by_onnx(fault)}", kind)


def _in_words(dims: Sequence[SettledDim]) -> str:
    return ", ".join(f"{dim.name} = {dim.size}" for dim in dims)


def read_saved(name: str, folder: Path) -> Model:
    """The model that `Model.save` wrote into `folder`, named after its key; large weights stay in their file."""
    proto, graph = load_clean(folder)
    # It may have been saved under a different file name.
    return Model(name, replace(graph, name=name), folder.name, proto, is_saved=True)


def read_clean(folder: Path) -> Graph:
    """The graph of a model that `Model.save` wrote, without touching its weights."""
    return load_clean(folder)[1]


def load_clean(folder: Path) -> tuple[onnx.ModelProto, Graph]:
    """As `read_clean`, with the model, whose large weights stay in their file."""
    path = folder / CLEAN_FILE
    with about(path):
        proto = onnx.load(path, load_external_data=False)
        return proto, _graph_of(proto)


def _read_file(path: Path) -> bytes:
    expected = "expected an ONNX file"
    try:
        if NO_TEXT.search(path.stem):  # the network is called so, in a file of ours and in messages
            raise BadInput(f"its name is not printable text; {expected} whose name is", Error.MODEL_UNREADABLE)
        if not path.exists():
            raise BadInput(f"no such file; {expected}", Error.MODEL_UNREADABLE)
        if not path.is_file():
            kind = "a folder" if path.is_dir() else "not a regular file"
            raise BadInput(f"is {kind}; {expected}", Error.MODEL_UNREADABLE)
        if path.stat().st_size >= _PROTOBUF_LIMIT_BYTES:
            raise BadInput("over 2 GiB, more than ONNX allows; expected large weights as external data", Error.NOT_ONNX)
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}; {expected}", Error.MODEL_UNREADABLE) from error
    if not content:
        raise BadInput(f"is empty; {expected}", Error.MODEL_UNREADABLE)
    return content


def _parse(content: bytes) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except DecodeError:
        raise BadInput("truncated, or not ONNX at all; expected an ONNX file", Error.NOT_ONNX) from None
    if not model.HasField("graph") or not model.graph.node:
        raise BadInput("no network in it; expected an ONNX file with at least one operator", Error.NOT_ONNX)
    if not _is_text(model):
        raise BadInput("damaged: a name in it is not text; expected printable UTF-8", Error.NOT_ONNX)
    return model


def _is_text(message: Any) -> bool:
    """Whether the names in a protobuf message can be printed on one line. A string that is not UTF-8 comes as bytes."""
    if isinstance(message, onnx.TensorProto):
        return _is_name(message.name)  # ListFields would copy its values, which may be most of the file
    for field, value in message.ListFields():
        parts = [value] if isinstance(value, str | bytes) or hasattr(value, "ListFields") else value
        if field.type == field.TYPE_MESSAGE and not all(map(_is_text, parts)):
            return False
        if field.type == field.TYPE_STRING:
            named = (part for part in parts if field.name not in _PROSE or not isinstance(part, str))
            if not all(map(_is_name, named)):
                return False
    return True


def _is_name(value: str | bytes) -> bool:
    return isinstance(value, str) and value.isprintable()


def _settle_header(model: onnx.ModelProto) -> None:
    """Check opsets. Replace `ai.onnx`, the other name of the default domain, by ''.

    A version of a domain that is stated twice, as tools do that merge graphs, is kept once; that of a domain without
    operators is dropped: some tools import every domain that they know, and an engine refuses versions that it does not
    know, used or not.
    """
    for part in (*model.opset_import, *all_nodes(model.graph.node)):
        if part.domain == "ai.onnx":
            part.domain = ""
    versions = {(opset.domain, opset.version): opset for opset in model.opset_import}
    for domain, count in Counter(domain for domain, _ in versions).items():
        if count > 1:
            raise BadInput(f"{count} opset versions of domain {domain or 'ai.onnx'!r}; expected one", Error.NOT_ONNX)
    version = next((version for domain, version in versions if not domain), None)
    if version is None:
        raise BadInput(f"truncated, or no opset of ai.onnx given; expected {_OLDEST_OPSET} or newer", Error.NOT_ONNX)
    if version < _OLDEST_OPSET:
        raise BadInput(f"opset version {version}; expected {_OLDEST_OPSET} or newer", Error.MODEL_UNSUPPORTED)
    used = {"", *(node.domain for node in all_nodes(model.graph.node))}
    del model.opset_import[:]
    model.opset_import.extend(opset for (domain, _), opset in versions.items() if domain in used)


def _opset(model: onnx.ModelProto) -> int:
    return int(next(opset.version for opset in model.opset_import if not opset.domain))


def _check_operators(model: onnx.ModelProto) -> None:
    version = _opset(model)
    for node in all_nodes(model.graph.node):
        label = node.name or next((name for name in node.output if name), "")
        what = f"operator {node.op_type} ({label!r})"
        if node.domain not in _DOMAINS:
            raise BadInput(
                f"{what} is of domain {node.domain!r}; expected ai.onnx, ai.onnx.ml or com.microsoft",
                Error.MODEL_UNSUPPORTED,
            )
        is_known = node.op_type in _IN_ANY_OPSET or onnx.defs.has(node.op_type, version, "")
        if not node.domain and not is_known:
            raise BadInput(f"{what} is unknown; expected an operator of ONNX opset {version}", Error.MODEL_UNSUPPORTED)
        if node.op_type == "If" and not node.domain:
            for branch in subgraphs(node):
                if len(branch.output) != len(node.output):
                    expected = f"expected {len(node.output)}"
                    raise BadInput(f"{what}: a branch has {len(branch.output)} outputs; {expected}", Error.NOT_ONNX)


def _state_onesided(model: onnx.ModelProto) -> None:
    """State STFT's attribute `onesided` where it is left out: 1 by the standard, but ONNX's shape inference takes 0."""
    for node in all_nodes(model.graph.node):
        if node.op_type == "STFT" and not node.domain and all(given.name != "onesided" for given in node.attribute):
            node.attribute.append(onnx.helper.make_attribute("onesided", 1))


def _check_ends(model: onnx.ModelProto) -> None:
    inputs = runtime_inputs(model.graph)
    if not inputs:
        raise BadInput("no input; expected at least one that is not a weight", Error.MODEL_UNSUPPORTED)
    if len(inputs) > MOST_INPUTS:
        raise BadInput(f"{len(inputs)} inputs; expected at most {MOST_INPUTS}", Error.MODEL_UNSUPPORTED)
    for value in (*inputs, *model.graph.output):
        _datatype(value)
    given = {value.name for value in inputs}
    for kind, values in (("input", inputs), ("output", model.graph.output), ("weight", model.graph.initializer)):
        for name, count in Counter(value.name for value in values).items():
            if count > 1:
                raise BadInput(f"{kind} {name!r} is listed {count} times; expected each once", Error.NOT_ONNX)
    for value in model.graph.output:
        if value.name in given:
            expected = "expected one that an operator makes"
            raise BadInput(f"output {value.name!r} is an input, too; {expected}", Error.MODEL_UNSUPPORTED)


def _check_room(graph: onnx.GraphProto, sizes: str) -> None:
    """Raise BadInput if the inputs together, or any one tensor of known shape, are larger than this host's memory.

    Every engine has to hold these at once. `sizes`: of the dimensions that the file leaves open; '' if there are none.
    """
    host_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    takes_bytes = {"its inputs": sum(map(_bytes_of, runtime_inputs(graph)))}
    takes_bytes |= {f"tensor {value.name!r}": _bytes_of(value) for value in all_values(graph)}
    what, most_bytes = max(takes_bytes.items(), key=lambda item: item[1])
    if most_bytes > host_bytes:
        raise BadInput(
            f"{what} would take {most_bytes / 1e9:.1f} GB{f' with {sizes}' if sizes else ''};"
            f" expected at most {host_bytes / 1e9:.1f} GB, this host's memory",
            Error.WRONG_SIZES if sizes else Error.MODEL_UNSUPPORTED,
        )


def _bytes_of(value: onnx.ValueInfoProto) -> int:
    """Bytes of a tensor; 0 if its shape or its datatype is not known."""
    datatype, shape = value.type.tensor_type.elem_type, static_shape(value)
    if shape is None or not datatype:
        return 0
    return math.prod(shape) * int(onnx.helper.tensor_dtype_to_np_dtype(datatype).itemsize)


def _graph_of(model: onnx.ModelProto) -> Graph:
    """The `Graph` of a cleaned model. Raises BadInput for a tensor without a known shape or a supported datatype."""
    graph = model.graph
    described = {value.name: value for value in (*graph.input, *graph.value_info, *graph.output)}
    made = [name for node in graph.node for name in node.output if name]
    names = [*(value.name for value in graph.input), *made]
    outputs = {value.name for value in graph.output}
    values = [described.get(name) or onnx.ValueInfoProto(name=name) for name in names]
    tensors = {
        value.name: of_no_size(value.name) if is_no_tensor(value) and value.name not in outputs else _tensor(value)
        for value in values
    }
    return Graph(
        name=graph.name,
        operators=tuple(operator_of(node) for node in graph.node),
        inputs=tuple(tensors[value.name] for value in graph.input),
        outputs=tuple(tensors[value.name] for value in graph.output),
        tensors=tensors,
        constants={
            weight.name: Tensor(weight.name, tuple(weight.dims), weight_datatype(weight))
            for weight in graph.initializer
        },
    )


def _tensor(value: onnx.ValueInfoProto) -> Tensor:
    # There is no type if nothing could be inferred, usually because the operator is not one of ONNX's own.
    datatype = _datatype(value) if value.HasField("type") else ""
    open_shape = shape_with_open_axes(value)
    if open_shape is None:
        raise BadInput(
            f"the shape of tensor {value.name!r} is not known beforehand; expected a static shape", Error.OPEN_SHAPES
        )
    shape, open_axes = open_shape
    return Tensor(value.name, shape, datatype, open_axes)


def _datatype(value: onnx.ValueInfoProto) -> str:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        kind = str(kind).removesuffix("_type")
        raise BadInput(f"{value.name!r} is of type {kind}; expected a dense tensor", Error.MODEL_UNSUPPORTED)
    return datatype_of(value.type.tensor_type.elem_type, f"tensor {value.name!r}")


def operator_of(node: onnx.NodeProto) -> Operator:
    """Describe a node. Attributes other than integers, integer lists and strings are left out."""
    attributes: dict[str, int | tuple[int, ...]] = {}
    texts = {}
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.INT:
            attributes[attribute.name] = attribute.i
        elif attribute.type == onnx.AttributeProto.INTS:
            attributes[attribute.name] = tuple(attribute.ints)
        elif attribute.type == onnx.AttributeProto.STRING:
            texts[attribute.name] = attribute.s.decode(errors="replace")
    return Operator(node.name, node.op_type, node.domain, reads(node), tuple(node.output), attributes, texts)
