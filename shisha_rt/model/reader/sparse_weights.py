"""Sparse weights made dense, as engines keep them; ONNX Runtime saves no optimised model that has sparse ones."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import onnx
from onnx import numpy_helper

from shisha_rt.errors import BadInput, Error
from shisha_rt.model.subgraphs import all_graphs

_MOST_VALUES: Final = 1 << 28  # of all: a few bytes can stand for terabytes of zeros


def make_dense(model: onnx.ModelProto) -> None:
    """Replace sparse initialisers and values of Constants by dense ones, in place. Raises BadInput for what is none."""
    left = _MOST_VALUES
    for graph in all_graphs(model.graph):
        for weight in graph.sparse_initializer:
            left -= _check(weight, weight.values.name, left)
            graph.initializer.append(_dense(weight, weight.values.name))
        del graph.sparse_initializer[:]
        for node in graph.node:
            for given in node.attribute:
                if given.name == "sparse_value" and node.op_type == "Constant" and not node.domain:
                    left -= _check(given.sparse_tensor, node.output[0], left)
                    given.CopyFrom(onnx.helper.make_attribute("value", _dense(given.sparse_tensor, node.output[0])))


def _check(sparse: onnx.SparseTensorProto, name: str, most: int) -> int:
    """The number of its values, zeros included."""
    count: int = math.prod(sparse.dims)
    if not 0 <= count <= most or any(size < 0 for size in sparse.dims):
        raise _unfit(f"sparse weight {name!r} is of shape {list(sparse.dims)}; expected at most {most} values")
    return count


def _dense(sparse: onnx.SparseTensorProto, name: str) -> onnx.TensorProto:
    dims = tuple(sparse.dims)
    try:
        if onnx.TensorProto.EXTERNAL in (sparse.values.data_location, sparse.indices.data_location):
            raise ValueError
        values, places = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
        if places.ndim > 1:
            places = np.ravel_multi_index(tuple(places.T), dims)  # raises ValueError for what is outside
        dense = np.zeros(dims, values.dtype)
        if places.min(initial=0) < 0:
            raise IndexError
        dense.reshape(-1)[places] = values
        return numpy_helper.from_array(dense, name)
    except (IndexError, TypeError, ValueError):  # too few values, or places outside; external data
        expected = f"values in the file itself, each with its place in {list(dims)}"
        raise _unfit(f"sparse weight {name!r} does not fit its shape; expected {expected}") from None


def _unfit(message: str) -> BadInput:
    return BadInput(message, Error.MODEL_UNSUPPORTED)
