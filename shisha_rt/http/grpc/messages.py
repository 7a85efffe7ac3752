"""The messages and methods of `inference.proto`, read from that file when imported: there is no generated code.

They are in a descriptor pool of their own, so that a program which has the same names from elsewhere, such as a test
with Triton's client, can import both. Only the part of the proto language that this file uses is parsed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass, GetMessageClassesForFiles

_FILE: Final = Path(__file__).with_name("inference.proto")
_STATEMENT: Final = re.compile(
    r"""//.*
    | package \s (?P<package>\w+);
    | (?P<block>service|message|enum|oneof) \s (?P<title>\w+) \s \{
    | (?P<end>\})
    | rpc \s (?P<rpc>\w+) \( (?P<streams>stream\s)? (?P<request>\w+) \)
          \s returns \s \( (?:stream\s)? (?P<answer>\w+) \);
    | (?P<repeated>repeated\s)? (?:map<(?P<key>\w+),\s(?P<value>\w+)> | (?P<kind>\w+))
          \s (?P<field>\w+) \s=\s (?P<number>\d+);
    | (?P<constant>\w+) \s=\s (?P<of_enum>\d+);""",
    re.VERBOSE,
)
_SCALARS: Final = frozenset({"double", "float", "int32", "int64", "uint32", "uint64", "bool", "string", "bytes"})


class Method(NamedTuple):
    """A method of the service. `streams`: both requests and answers are streams."""

    name: str
    request: type[Any]
    answer: type[Any]
    streams: bool


def _described(text: str) -> FileDescriptorProto:
    """The descriptors of a file. Type names are left to the pool, which resolves them by scope."""
    file = FileDescriptorProto(name=_FILE.name, syntax="proto3")
    within: list[Any] = [file]  # a oneof stands for its message, whose fields it has
    for said in _STATEMENT.finditer(text):
        if said["package"]:
            file.package = said["package"]
        elif said["block"]:
            within.append(_begun(within[-1], said["block"], said["title"]))
        elif said["end"]:
            within.pop()
        elif said["rpc"]:
            streams = bool(said["streams"])
            method = within[-1].method.add(name=said["rpc"], client_streaming=streams, server_streaming=streams)
            method.input_type, method.output_type = said["request"], said["answer"]
        elif said["constant"]:
            within[-1].value.add(name=said["constant"], number=int(said["of_enum"]))
        elif said["field"]:
            field = _field(within[-1], said)
            if len(within) > 1 and within[-1] is within[-2]:
                field.oneof_index = len(within[-1].oneof_decl) - 1
    return file


def _begun(owner: Any, block: str, title: str) -> Any:
    if block == "oneof":
        owner.oneof_decl.add(name=title)
        return owner
    if block == "message":
        return (owner.message_type if isinstance(owner, FileDescriptorProto) else owner.nested_type).add(name=title)
    return (owner.service if block == "service" else owner.enum_type).add(name=title)


def _field(message: DescriptorProto, said: re.Match[str]) -> FieldDescriptorProto:
    """Add a field. A map is a repeated message of key and value."""
    kind = said["kind"]
    if said["key"]:
        entry = message.nested_type.add(name=f"{said['field'].title().replace('_', '')}Entry")
        entry.options.map_entry = True
        _add(entry, "key", 1, said["key"])
        _add(entry, "value", 2, said["value"])
        kind = entry.name
    field = _add(message, said["field"], int(said["number"]), kind)
    if said["repeated"] or said["key"]:
        field.label = FieldDescriptorProto.LABEL_REPEATED
    return field


def _add(message: DescriptorProto, name: str, number: int, kind: str) -> FieldDescriptorProto:
    field: FieldDescriptorProto = message.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
    if kind in _SCALARS:
        field.type = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
    else:
        field.type_name = kind
    return field


def _read() -> tuple[str, dict[str, type[Any]], list[Method]]:
    file, pool = _described(_FILE.read_text(encoding="utf-8")), DescriptorPool()
    pool.Add(file)
    (service,) = (pool.FindServiceByName(f"{file.package}.{service.name}") for service in file.service)
    messages = GetMessageClassesForFiles([file.name], pool)
    return (
        service.full_name,
        {name.removeprefix(f"{file.package}."): kind for name, kind in messages.items()},
        [
            Method(of.name, GetMessageClass(of.input_type), GetMessageClass(of.output_type), of.client_streaming)
            for of in service.methods
        ],
    )


SERVICE, MESSAGES, METHODS = _read()
"""The service's full name; classes of messages by name; the methods."""
