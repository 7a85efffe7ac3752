"""GPT-2 (Radford et al., 2019), 12 layers, as PyTorch exports it with an open sequence length.

Each projection is a Gemm on rows, so it stands between two Reshapes whose shapes are computed at run time, by Shape,
Gather, Unsqueeze and Concat. These are most of its operators, 1936 with 2420 edges (DCG-2024, Table 3: 1934 and 2424),
and none of its work: once the sequence length is known, cleaning folds them all, and leaves 709 with 842 edges.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto

from shisha_rt.model.topologies.blocks import layer_norm, positions
from shisha_rt.model.topologies.network import Network

DEFAULT_SEQUENCE: Final = 16
_SEQUENCE: Final = "sequence"
_LAYERS: Final = 12
_WIDTH: Final = 768
_INNER_WIDTH: Final = 3072
_HEADS: Final = 12
_VOCABULARY: Final = 50257
_POSITIONS: Final = 1024
_MASKED: Final = -10000.0  # the score of a masked token


def gpt2(layers: int = _LAYERS) -> onnx.ModelProto:
    """Token numbers (1, sequence) to hidden states (1, sequence, 768).

    Further outputs are each layer's keys and values (2, 1, 12, sequence, 64), from which a next call could start.
    """
    net = Network("gpt2")
    tokens = net.input("input_ids", (1, _SEQUENCE), TensorProto.INT64)
    causal = net.constant(np.tri(_POSITIONS)[None, None], np.uint8)
    presents = []
    with net.scope("embeddings"):
        batch, length = (_size(net, tokens, axis) for axis in (0, 1))
        words = net.add("Gather", net.weight(_VOCABULARY, _WIDTH), _reshape(net, tokens, -1, length))
        embedded = hidden = net.add(
            "Add", words, positions(net, net.constant(np.arange(_POSITIONS)[None]), length, _POSITIONS, _WIDTH)
        )
    for layer in range(layers):
        with net.scope(f"layer{layer}"):
            attended, present = _attend(net, layer_norm(net, hidden, _WIDTH), causal)
            presents.append(present)
            hidden = net.add("Add", attended, hidden)
            hidden = net.add("Add", hidden, _feed_forward(net, layer_norm(net, hidden, _WIDTH)))
    with net.scope("final"):
        hidden = layer_norm(net, hidden, _WIDTH)
        hidden = _reshape(net, hidden, batch, length, _size(net, embedded, 2))
    cache = (2, 1, _HEADS, _SEQUENCE, _WIDTH // _HEADS)
    outputs = {hidden: (1, _SEQUENCE, _WIDTH)} | dict.fromkeys(presents, cache)
    return net.model(outputs, {_SEQUENCE: DEFAULT_SEQUENCE})


def _attend(net: Network, x: str, causal: str) -> tuple[str, str]:
    """Self-attention over the tokens so far: (1, sequence, width) to the same, and the layer's keys and values."""
    with net.scope("attention"):
        query, key, value = net.add_multiple(
            "Split", 3, _project(net, "query_key_value", x, _WIDTH, 3 * _WIDTH), axis=2
        )
        query = _split_heads(net, query, [0, 2, 1, 3])
        key = _split_heads(net, key, [0, 2, 3, 1])
        value = _split_heads(net, value, [0, 2, 1, 3])
        stacked = (net.add("Transpose", key, perm=[0, 1, 3, 2]), value)
        present = net.add("Concat", *(net.add("Unsqueeze", part, axes=[0]) for part in stacked), axis=0)
        scores = net.add("Div", net.add("MatMul", query, key), net.scalar(math.sqrt(_WIDTH // _HEADS)))
        seen = net.add("Cast", _causal_mask(net, scores, causal), to=TensorProto.BOOL)
        shares = net.add("Softmax", net.add("Where", seen, scores, net.scalar(_MASKED)), axis=-1)
        context = _merge_heads(net, net.add("MatMul", shares, value))
        return _project(net, "output", context, _WIDTH, _WIDTH), present


def _causal_mask(net: Network, scores: str, causal: str) -> str:
    """The last rows and first columns of `causal`, as many as `scores` has."""
    rows, columns = (_size(net, scores, axis) for axis in (2, 3))
    first_row = net.add("Unsqueeze", net.add("Sub", columns, rows), axes=[0])
    rows_end, columns_end = (net.add("Unsqueeze", columns, axes=[0]) for _ in range(2))
    mask = net.add("Slice", causal, first_row, rows_end, net.constant([2]))
    return net.add("Slice", mask, net.constant([0]), columns_end, net.constant([3]))


def _split_heads(net: Network, x: str, perm: list[int]) -> str:
    """(1, sequence, width) as (1, sequence, heads, width / heads), with its axes permuted."""
    batch, length, width = (_size(net, x, axis) for axis in (0, 1, 2))
    head_width = net.add("Div", width, net.constant(_HEADS))
    return net.add("Transpose", _reshape(net, x, batch, length, _HEADS, head_width), perm=perm)


def _merge_heads(net: Network, x: str) -> str:
    """(1, heads, sequence, width / heads) as (1, sequence, width)."""
    x = net.add("Transpose", x, perm=[0, 2, 1, 3])
    batch, length, heads, head_width = (_size(net, x, axis) for axis in (0, 1, 2, 3))
    return _reshape(net, x, batch, length, net.add("Mul", heads, head_width))


def _feed_forward(net: Network, x: str) -> str:
    """Two projections around GELU: (1, sequence, width) to the same."""
    with net.scope("feed_forward"):
        inner = _gelu(net, _project(net, "wide", x, _WIDTH, _INNER_WIDTH))
        return _project(net, "narrow", inner, _INNER_WIDTH, _WIDTH)


def _gelu(net: Network, x: str) -> str:
    """Approximate GELU: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) (Hendrycks and Gimpel, 2016)."""
    cubic = net.add("Mul", net.add("Pow", x, net.scalar(3)), net.scalar(0.044715))
    bent = net.add("Tanh", net.add("Mul", net.add("Add", x, cubic), net.scalar(math.sqrt(2 / math.pi))))
    return net.add("Mul", net.add("Mul", x, net.scalar(0.5)), net.add("Add", bent, net.scalar(1)))


def _project(net: Network, name: str, x: str, columns_in: int, columns_out: int) -> str:
    """(1, sequence, columns in) to (1, sequence, columns out) by a Gemm on (sequence, columns in)."""
    with net.scope(name):
        batch, length, width = (_size(net, x, axis) for axis in (0, 1, 2))
        rows = _reshape(net, x, -1, width)
        rows = net.add("Gemm", rows, net.weight(columns_in, columns_out), net.weight(columns_out))
        return _reshape(net, rows, batch, length, columns_out)


def _size(net: Network, x: str, axis: int) -> str:
    return net.add("Gather", net.add("Shape", x), net.constant(axis))


def _reshape(net: Network, x: str, *sizes: str | int) -> str:
    """Reshape `x` to `sizes`: integers, or names of tensors."""
    parts = [net.constant([s]) if isinstance(s, int) else net.add("Unsqueeze", s, axes=[0]) for s in sizes]
    return net.add("Reshape", x, net.add("Concat", *parts, axis=0))
