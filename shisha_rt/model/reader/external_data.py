"""Weights in files beside the model: read only from inside the model's folder, and only whole.

A model file is not trusted, and it names these files itself. So a name that leads out of its folder (an absolute path,
`..`, a symbolic link) is refused before anything is opened. After loading, every tensor holds its bytes as `raw_data`,
of exactly the length that its shape and datatype ask for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath, PureWindowsPath
from typing import Final

import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import set_external_data

from shisha_rt.errors import BadInput, Error
from shisha_rt.model.subgraphs import all_graphs
from shisha_rt.tensors import NUMPY_OF, OF_WEIGHTS_ALONE, size_bytes

_PAGE_BYTES: Final = 4096
_EMBEDDED_BELOW_BYTES: Final = 1024
_MOST_BYTES: Final = (1 << 31) - (1 << 20)
"""Largest size of a weight: protobuf's limit of 2 GiB includes its name and shape."""
_SHOWN: Final = 100  # characters of a file name that may be far too long
_DATATYPE_OF: Final = {int(helper.np_dtype_to_tensor_dtype(dtype)): name for name, dtype in NUMPY_OF.items()}
_OF_WEIGHT: Final = _DATATYPE_OF | {TensorProto.DataType.Value(name): name for name in OF_WEIGHTS_ALONE}


def datatype_of(onnx_type: int, what: str) -> str:
    """The name in `tensors` of an ONNX element type. Raises BadInput about `what` for types that are not supported."""
    return _name_of(onnx_type, what, _DATATYPE_OF)


def weight_datatype(weight: TensorProto) -> str:
    """As `datatype_of`, of a weight, which may be of more types."""
    return _name_of(weight.data_type, f"weight {weight.name!r}", _OF_WEIGHT)


def _name_of(onnx_type: int, what: str, names: Mapping[int, str]) -> str:
    if onnx_type not in names:
        known = TensorProto.DataType.items()
        label = next((name for name, number in known if number == onnx_type), str(onnx_type))
        raise BadInput(
            f"{what} has datatype {label}; expected one of {', '.join(names.values())}", Error.MODEL_UNSUPPORTED
        )
    return names[onnx_type]


def load_weights(model: onnx.ModelProto, path: Path) -> bytes:
    """Bring all tensors of the model at `path` into memory, in place; return a SHA-256 digest of the external ones."""
    digest = hashlib.sha256()
    for tensor in _tensors(model.graph):
        expected_bytes = size_bytes(weight_datatype(tensor), tensor.dims)
        if expected_bytes > _MOST_BYTES:
            expected = f"expected at most {_MOST_BYTES} of one weight, as ONNX holds no larger"
            raise _unfit(f"weight {tensor.name!r} has {expected_bytes} bytes; {expected}")
        if tensor.data_location == TensorProto.EXTERNAL:
            _load(tensor, path.parent.resolve(), expected_bytes)
            digest.update(tensor.raw_data)
        _as_raw_data(tensor, expected_bytes)
    return digest.digest()


def _tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    for each in all_graphs(graph):
        yield from each.initializer
        for node in each.node:
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.TENSOR:
                    yield attribute.t
                yield from attribute.tensors


def _load(tensor: TensorProto, folder: Path, expected_bytes: int) -> None:
    where = {entry.key: entry.value for entry in tensor.external_data}
    location = where.get("location", "")
    try:
        tensor.raw_data = _read(tensor.name, where, _inside(folder, tensor.name, location), expected_bytes)
    except BadInput:
        raise
    except (OSError, RuntimeError, ValueError) as error:  # not permitted, too long a name; a loop of links; a NUL
        reason = error.strerror if isinstance(error, OSError) else error
        what = f"external data {location[:_SHOWN]!r} of weight {tensor.name!r}"
        raise _unfit(f"{what} cannot be read: {reason}; expected a file in the model's folder") from error
    tensor.data_location = TensorProto.DEFAULT
    del tensor.external_data[:]


def _read(tensor: str, where: Mapping[str, str], file: Path, expected_bytes: int) -> bytes:
    """The tensor's bytes, of which `where` has the offset and the length in `file`."""
    try:
        offset_bytes = int(where.get("offset", "0"))
        length_bytes = int(where.get("length", expected_bytes))
    except ValueError:
        offset_bytes = length_bytes = -1
    file_bytes = file.stat().st_size
    if offset_bytes < 0 or length_bytes != expected_bytes or offset_bytes + length_bytes > file_bytes:
        expected = f"{expected_bytes} bytes at offset {where.get('offset', '0')} of a file of {file_bytes}"
        raise _unfit(f"weight {tensor!r} is not in external data {file.name!r} as described; expected {expected}")
    with file.open("rb") as stream:
        stream.seek(offset_bytes)
        return stream.read(length_bytes)


def _inside(folder: Path, tensor: str, location: str) -> Path:
    """The external file. Raises BadInput unless it exists and, with links resolved, lies in the model's folder."""
    relative = PurePath(location)
    file = (folder / relative).resolve()
    steps_out = ".." in relative.parts or ".." in PureWindowsPath(location).parts
    if relative.is_absolute() or steps_out or not file.is_relative_to(folder):
        raise _unfit(
            f"external data {location!r} of weight {tensor!r} is outside the model's folder; expected a file in it"
        )
    if not file.is_file():
        raise _unfit(f"external data {location!r} of weight {tensor!r} is missing; expected it in {folder}")
    return file


def _as_raw_data(tensor: TensorProto, expected_bytes: int) -> None:
    try:
        if not tensor.HasField("raw_data"):
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
    except (ValueError, TypeError):
        pass  # too few or too many values: refused below
    if len(tensor.raw_data) != expected_bytes:
        expected = f"{expected_bytes} bytes, not {len(tensor.raw_data)}"
        raise _unfit(f"weight {tensor.name!r} does not fill its shape {list(tensor.dims)}; expected {expected}")


def _unfit(message: str) -> BadInput:
    return BadInput(message, Error.EXTERNAL_DATA)


def save_with_external_weights(model: onnx.ModelProto, path: Path) -> None:
    """Write `path` and, beside it, all weights but small ones in a file with the suffix `.bin`.

    The model is not changed, and never serialised whole, as protobuf's limit is 2 GiB.
    """
    data_path = path.with_suffix(".bin")
    shell = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    graph = model.graph
    shell.graph.name = graph.name
    for field in ("node", "input", "output", "value_info"):
        getattr(shell.graph, field).extend(getattr(graph, field))
    with data_path.open("wb") as stream:
        for tensor in graph.initializer:
            if len(tensor.raw_data) < _EMBEDDED_BELOW_BYTES:
                shell.graph.initializer.append(tensor)
                continue
            # Engines map the file into memory, which works in whole pages.
            stream.seek(-(-stream.tell() // _PAGE_BYTES) * _PAGE_BYTES)
            shell.graph.initializer.append(_reference(tensor, data_path.name, stream.tell()))
            stream.write(tensor.raw_data)
    path.write_bytes(shell.SerializeToString())


def _reference(tensor: TensorProto, location: str, offset_bytes: int) -> TensorProto:
    reference = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, raw_data=b"")
    set_external_data(reference, location, offset_bytes, len(tensor.raw_data))
    reference.ClearField("raw_data")
    return reference
