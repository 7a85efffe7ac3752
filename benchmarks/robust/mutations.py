"""Mutations of valid input, by its structure: bytes, JSON, TOML and ONNX models.

Pure: they take a random generator, so a seed reproduces the result.
"""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import onnx
from google.protobuf.descriptor import FieldDescriptor

_NUMBERS: Final = (0, 1, -1, 2, 7, 65, 127, 255, 256, 2**31 - 1, 2**31, -(2**31), 2**53, 2**63 - 1, -(2**63), 2**64)
_FLOATS: Final = (0.0, -0.0, 0.5, -1.0, 1e-320, 1e-30, 1e30, 1e308, float("nan"), float("inf"), float("-inf"))
_TEXTS: Final = ("", " ", "a", "x" * 300, "\x00", "\n", "\u00e9", "\u202e", "..", "../x", "/", "%s", "0", "null")
_JSON: Final[Sequence[Any]] = (
    *_NUMBERS,
    *_FLOATS,
    *_TEXTS,
    None,
    True,
    False,
    [],
    {},
    [[]],
    [None],
    {"a": 1},
    [0] * 300,
)
_TOKEN: Final = re.compile(rb"[A-Za-z_][A-Za-z_0-9]*|-?[0-9][0-9._eE+-]*|\"[^\"\n]*\"|\[\[?|\]\]?|[={},\n#]")
_TOKENS: Final = (*rb"""0 -1 1e999 nan true "" "\u0000" [] {} [[ = # '""".split(), b"\n")


def mutated_bytes(rng: random.Random, data: bytes) -> bytes:
    """Bytes with some changed, removed or repeated."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(changed) + 1)
        size = rng.choice((1, 1, 2, 4, 16, 100))
        match rng.randrange(5):
            case 0:
                changed[at : at + size] = rng.randbytes(len(changed[at : at + size]))
            case 1:
                del changed[at : at + size]
            case 2:
                changed[at:at] = rng.randbytes(size)
            case 3:
                changed[at:at] = changed[at : at + size]
            case _:
                del changed[at:]
    return bytes(changed)


def mutated_json(rng: random.Random, value: Any) -> Any:
    """A value with some of its parts changed, removed, repeated, or put in another's place."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        homes = list(_homes(value))
        if not homes:
            return rng.choice(_JSON)
        home, key = rng.choice(homes)
        other_home, other_key = rng.choice(homes)
        match rng.randrange(6):
            case 0:
                del home[key]
            case 1:
                home[key] = copy.deepcopy(other_home[other_key])
            case 2 if isinstance(home, list):
                home[key:key] = [copy.deepcopy(home[key])] * rng.choice((1, 2, 50))
            case 3 if isinstance(home, dict):
                home[rng.choice(_TEXTS)] = home.pop(key)
            case 4 if isinstance(home[key], int | float) and not isinstance(home[key], bool):
                home[key] = rng.choice((home[key] + 1, home[key] - 1, -home[key], home[key] * 2, home[key] / 3))
            case _:
                home[key] = copy.deepcopy(rng.choice(_JSON))
    return value


def _homes(value: Any) -> list[tuple[Any, Any]]:
    """Positions of all parts of a value: a list or an object, and an index or key."""
    if isinstance(value, dict | list):
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        return [(value, key) for key in keys] + [home for key in keys for home in _homes(value[key])]
    return []


def mutated_json_text(rng: random.Random, text: bytes) -> bytes:
    """Text of JSON, mutated so that it is mostly still JSON."""
    if rng.random() < 0.15:
        return mutated_bytes(rng, text)
    return json.dumps(mutated_json(rng, json.loads(text))).encode(errors="surrogatepass")


def mutated_tokens(rng: random.Random, text: bytes) -> bytes:
    """Text of TOML with some words, numbers and brackets changed."""
    if rng.random() < 0.15:
        return mutated_bytes(rng, text)
    tokens = [match.span() for match in _TOKEN.finditer(text)]
    for start, end in sorted(rng.sample(tokens, min(len(tokens), rng.choice((1, 1, 2, 3)))), reverse=True):
        first, last = rng.choice(tokens)
        new = rng.choice(
            (b"", text[first:last], text[start:end] * 2, rng.choice(_TOKENS), str(rng.choice(_NUMBERS)).encode())
        )
        text = text[:start] + new + text[end:]
        tokens = [match.span() for match in _TOKEN.finditer(text)] or [(0, 0)]
    return text


def mutated_model(rng: random.Random, model: bytes) -> bytes:
    """An ONNX file with fields of its messages changed, removed, or put in another's place."""
    if rng.random() < 0.1:
        return mutated_bytes(rng, model)
    proto = onnx.ModelProto.FromString(model)
    names = [name for node in proto.graph.node for name in (*node.input, *node.output, node.op_type)]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        messages = _messages(proto)
        message = rng.choice(messages)
        if message.ListFields():
            field, value = rng.choice(message.ListFields())
            _change_field(rng, message, field, value, messages, names)
    data: bytes = proto.SerializeToString()
    return data


def _messages(message: Any) -> list[Any]:
    messages = [message]
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for part in value if field.is_repeated else [value]:
                messages += _messages(part)
    return messages


def _change_field(
    rng: random.Random, message: Any, field: Any, value: Any, messages: Sequence[Any], names: Sequence[str]
) -> None:
    is_message = field.type == FieldDescriptor.TYPE_MESSAGE
    if field.is_repeated:
        index, other = rng.randrange(len(value)), rng.randrange(len(value))
        match rng.choice(("drop", "twice", "swap", "change")):
            case "drop":
                del value[index]
            case "twice":
                value.append(_copied(value[index]) if is_message else value[index])
            case "swap" if is_message:
                first, second = _copied(value[index]), _copied(value[other])
                value[index].CopyFrom(second)
                value[other].CopyFrom(first)
            case _ if not is_message:
                value[index] = _scalar(rng, field, value[index], names)
    elif is_message:
        alike = [other for other in messages if other.DESCRIPTOR is value.DESCRIPTOR]
        if rng.random() < 0.5:
            message.ClearField(field.name)
        else:
            value.CopyFrom(_copied(rng.choice(alike)))
    elif rng.random() < 0.2:
        message.ClearField(field.name)
    else:
        setattr(message, field.name, _scalar(rng, field, value, names))


def _copied(message: Any) -> Any:
    """A deep copy of a message; the original may contain the place where the copy is put."""
    return type(message).FromString(message.SerializeToString())


def _scalar(rng: random.Random, field: Any, value: Any, names: Sequence[str]) -> Any:
    kinds: dict[int, Callable[[], Any]] = {
        FieldDescriptor.TYPE_STRING: lambda: rng.choice((*names, "", "x" * 300, "a\nb", f"{value}_")),
        FieldDescriptor.TYPE_BYTES: lambda: rng.choice((b"", value[:-1], value + b"\0", b"\xff" * 4)),
        FieldDescriptor.TYPE_FLOAT: lambda: rng.choice(_FLOATS[:7]),
        FieldDescriptor.TYPE_DOUBLE: lambda: rng.choice(_FLOATS),
        FieldDescriptor.TYPE_INT64: lambda: rng.choice(
            (*_NUMBERS[:15], max(-(2**63), min(value * 2, 2**62)), value - 1 if value > 0 else 0)
        ),
        FieldDescriptor.TYPE_ENUM: lambda: rng.choice([value.number for value in field.enum_type.values]),
        FieldDescriptor.TYPE_UINT64: lambda: rng.choice((0, 1, 7, 2**63 - 1)),
    }
    change = kinds.get(field.type)
    return rng.choice((0, 1, 2, 7, 16, 65, 127, 2**31 - 1, -1)) if change is None else change()
