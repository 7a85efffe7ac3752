"""BERT (Devlin et al., 2018) and RoBERTa (Liu et al., 2019) with a classifier of two classes, as PyTorch exports them.

Projections are MatMul and Add; only the pooler and the classifier are Gemm, with B transposed. The sequence length
stays open: the positions and RoBERTa's all-ones mask follow from it, and cleaning folds both once it is known. What
is left are the operators that DCG-2024 counts in Table 3: 222 nodes and 262 edges (BERT), 616 and 725 (RoBERTa).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper

from shisha_rt.model.topologies.blocks import fully_connected, layer_norm, positions
from shisha_rt.model.topologies.network import Network

DEFAULT_SEQUENCE: Final = 16
_SEQUENCE: Final = "sequence"
_TOKENS: Final = (1, _SEQUENCE)
_HEAD_WIDTH: Final = 64
_POSITIONS: Final = 512
_CLASSES: Final = 2
_MASKED: Final = -10000.0  # added to the scores of masked tokens


@dataclass(frozen=True, slots=True)
class _Size:
    layers: int
    width: int
    inner_width: int
    vocabulary: int

    @property
    def heads(self) -> int:
        return self.width // _HEAD_WIDTH


def bert() -> onnx.ModelProto:
    """BERT-small: 4 layers, hidden 512, feed-forward 2048; three inputs (1, sequence), logits (1, 2)."""
    size = _Size(layers=4, width=512, inner_width=2048, vocabulary=30522)
    net = Network("bert")
    tokens, seen, types = (
        net.input(name, _TOKENS, TensorProto.INT64) for name in ("input_ids", "attention_mask", "token_type_ids")
    )
    with net.scope("embeddings"):
        words = net.add("Gather", net.weight(size.vocabulary, size.width), tokens)
        embedded = net.add("Add", words, net.add("Gather", net.weight(2, size.width), types))
        embedded = net.add("Add", embedded, _positions(net, tokens, size.width, first=0))
        embedded = layer_norm(net, embedded, size.width)
    with net.scope("mask"):
        mask = _mask(net, net.add("Cast", _over_scores(net, seen), to=TensorProto.FLOAT))
    return _encode_and_classify(net, embedded, mask, size)


def roberta() -> onnx.ModelProto:
    """RoBERTa-base: 12 layers, hidden 768, feed-forward 3072; input of token ids (1, sequence), logits (1, 2)."""
    size = _Size(layers=12, width=768, inner_width=3072, vocabulary=50265)
    net = Network("roberta")
    tokens = net.input("input_ids", _TOKENS, TensorProto.INT64)
    with net.scope("embeddings"):
        words = net.add("Gather", net.weight(size.vocabulary, size.width), tokens)
        type_zero = net.add("ConstantOfShape", net.add("Shape", tokens), value=_filled(TensorProto.INT64, 0))
        embedded = net.add("Add", words, net.add("Gather", net.weight(1, size.width), type_zero))
        embedded = net.add("Add", embedded, _positions(net, tokens, size.width, first=2))
        embedded = layer_norm(net, embedded, size.width)
    with net.scope("mask"):
        seen = net.add("ConstantOfShape", net.add("Shape", tokens), value=_filled(TensorProto.FLOAT, 1))
        mask = _mask(net, _over_scores(net, seen))
    return _encode_and_classify(net, embedded, mask, size)


def _positions(net: Network, tokens: str, width: int, first: int) -> str:
    """Embeddings (1, sequence, width) of the positions from `first` on; RoBERTa's first two rows have other uses."""
    numbers = net.constant(np.arange(first, first + _POSITIONS)[None])
    length = net.add("Gather", net.add("Shape", tokens), net.constant(1))
    return positions(net, numbers, length, first + _POSITIONS, width)


def _over_scores(net: Network, seen: str) -> str:
    """(1, sequence) as (1, 1, 1, sequence), for all heads and rows of the attention scores."""
    return net.add("Unsqueeze", net.add("Unsqueeze", seen, axes=[1]), axes=[2])


def _mask(net: Network, seen: str) -> str:
    return net.add("Mul", net.add("Sub", net.scalar(1), seen), net.scalar(_MASKED))


def _filled(element: int, value: int) -> onnx.TensorProto:
    return helper.make_tensor("value", element, [1], [value])


def _encode_and_classify(net: Network, embedded: str, mask: str, size: _Size) -> onnx.ModelProto:
    hidden = embedded
    for layer in range(size.layers):
        with net.scope(f"layer{layer}"):
            hidden = _attend(net, hidden, mask, size)
            hidden = _feed_forward(net, hidden, size)
    with net.scope("classifier"):
        first_token = net.add("Gather", hidden, net.constant(0), axis=1)
        pooled = net.add("Tanh", fully_connected(net, first_token, size.width, size.width))
        logits = fully_connected(net, pooled, size.width, _CLASSES)
    return net.model({logits: (1, _CLASSES)}, {_SEQUENCE: DEFAULT_SEQUENCE})


def _attend(net: Network, hidden: str, mask: str, size: _Size) -> str:
    """Self-attention with its residual and norm: (1, sequence, width) to the same."""
    with net.scope("attention"):
        projected = [_linear(net, name, hidden, size.width, size.width) for name in ("query", "key", "value")]
        query, key, value = (
            net.add("Transpose", net.add("Reshape", x, net.constant([0, 0, size.heads, _HEAD_WIDTH])), perm=perm)
            for x, perm in zip(projected, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True)
        )
        scores = net.add("Div", net.add("MatMul", query, key), net.scalar(math.sqrt(_HEAD_WIDTH)))
        shares = net.add("Softmax", net.add("Add", scores, mask), axis=-1)
        context = net.add("Transpose", net.add("MatMul", shares, value), perm=[0, 2, 1, 3])
        context = net.add("Reshape", context, net.constant([0, 0, size.width]))
        result = net.add("Add", _linear(net, "output", context, size.width, size.width), hidden)
        return layer_norm(net, result, size.width)


def _feed_forward(net: Network, hidden: str, size: _Size) -> str:
    """Two projections around GELU, with residual and norm: (1, sequence, width) to the same."""
    with net.scope("feed_forward"):
        inner = _gelu(net, _linear(net, "wide", hidden, size.width, size.inner_width))
        result = net.add("Add", _linear(net, "narrow", inner, size.inner_width, size.width), hidden)
        return layer_norm(net, result, size.width)


def _gelu(net: Network, x: str) -> str:
    """GELU, x * (1 + erf(x / sqrt 2)) / 2 (Hendrycks and Gimpel, 2016)."""
    erf = net.add("Erf", net.add("Div", x, net.scalar(math.sqrt(2))))
    return net.add("Mul", net.add("Mul", x, net.add("Add", erf, net.scalar(1))), net.scalar(0.5))


def _linear(net: Network, name: str, x: str, columns_in: int, columns_out: int) -> str:
    with net.scope(name):
        return net.add("Add", net.add("MatMul", x, net.weight(columns_in, columns_out)), net.weight(columns_out))
