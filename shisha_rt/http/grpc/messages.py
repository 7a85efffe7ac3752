"""The messages and methods of `inference.proto`, read from that file when imported: there is no generated code.

They are in a descriptor pool of their own, so that a program which has the same names from elsewhere, such as a test
with Triton's client, can import both. Only the part of the proto language that this file uses is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClassesForFiles

_FILE: Final = Path(__file__).with_name("inference.proto")
_TOKEN: Final = re.compile(r"//[^\n]*|([\w.]+|[{}();=<>,]|\"[^\"]*\")")
_SCALARS: Final = frozenset({"double", "float", "int32", "int64", "uint32", "uint64", "bool", "string", "bytes"})


class Method(NamedTuple):
    """A method of the service. `streams`: both requests and answers are streams."""

    name: str
    request: type[Any]
    answer: type[Any]
    streams: bool


class _Reader:
    """Builds the descriptors of a file. Type names are left to the pool, which resolves them by scope."""

    def __init__(self, text: str) -> None:
        self._tokens = [match[1] for match in _TOKEN.finditer(text) if match[1]]
        self.file = FileDescriptorProto(name="inference.proto", syntax="proto3")
        self.rpcs: list[tuple[str, str, str, bool]] = []
        while self._tokens:
            match self._take():
                case "syntax":
                    self._skip(3)
                case "package":
                    self.file.package = self._take()
                    self._skip(1)
                case "service":
                    self.service = f"{self.file.package}.{self._take()}"
                    self.rpcs = [self._rpc() for _ in self._block()]
                case "enum":
                    enum = self.file.enum_type.add(name=self._take())
                    for name in self._block():
                        enum.value.add(name=name, number=self._number())
                case "message":
                    self._message(self.file.message_type.add(name=self._take()))

    def _take(self) -> str:
        return self._tokens.pop(0)

    def _skip(self, count: int) -> None:
        del self._tokens[:count]

    def _block(self) -> Iterator[str]:
        """The first token of each statement between braces."""
        self._skip(1)
        while (token := self._take()) != "}":
            yield token

    def _number(self) -> int:
        _, number, _ = (self._take() for _ in "=n;")
        return int(number)

    def _rpc(self) -> tuple[str, str, str, bool]:
        name, *rest = self._tokens[: self._tokens.index(";")]
        self._skip(len(rest) + 2)
        request, answer = (words for words in " ".join(rest).replace("returns", "").split("(") if words.strip())
        return name, request.split()[-2], answer.split()[-2], "stream" in request.split()

    def _message(self, message: DescriptorProto) -> None:
        for token in self._block():
            if token == "message":
                self._message(message.nested_type.add(name=self._take()))
            elif token == "oneof":
                message.oneof_decl.add(name=self._take())
                for kind in self._block():
                    self._field(message, kind).oneof_index = len(message.oneof_decl) - 1
            elif token == "map":
                self._map(message)
            elif token == "repeated":
                self._field(message, self._take()).label = FieldDescriptorProto.LABEL_REPEATED
            else:
                self._field(message, token)

    def _field(self, message: DescriptorProto, kind: str) -> FieldDescriptorProto:
        name = self._take()
        return _add(message, name, self._number(), kind)

    def _map(self, message: DescriptorProto) -> None:
        _, key, _, value, _, name = (self._take() for _ in "<k,v>n")
        entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        _add(entry, "key", 1, key)
        _add(entry, "value", 2, value)
        _add(message, name, self._number(), entry.name).label = FieldDescriptorProto.LABEL_REPEATED


def _add(message: DescriptorProto, name: str, number: int, kind: str) -> FieldDescriptorProto:
    field: FieldDescriptorProto = message.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
    if kind in _SCALARS:
        field.type = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
    else:
        field.type_name = kind
    return field


def _read() -> tuple[str, dict[str, type[Any]], list[Method]]:
    reader = _Reader(_FILE.read_text(encoding="utf-8"))
    pool = DescriptorPool()
    pool.Add(reader.file)
    package = f"{reader.file.package}."
    messages = GetMessageClassesForFiles([reader.file.name], pool)
    classes = {name.removeprefix(package): kind for name, kind in messages.items()}
    methods = [
        Method(name, classes[request], classes[answer], streams) for name, request, answer, streams in reader.rpcs
    ]
    return reader.service, classes, methods


SERVICE, MESSAGES, METHODS = _read()
"""The service's full name; classes of messages by name; the methods."""
