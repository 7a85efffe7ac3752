"""Functions that a file defines, written out: each call is replaced by the function's operators.

ONNX's inliner leaves calls of functions standing whose opset is not the model's, though engines run them, too. Often no
operator in such a function differs between the two opsets except in its types: then it is given the model's opset. Nor
does it know the defaults of a function's attributes, so that calls are given them before.
"""

from __future__ import annotations

from collections.abc import Container
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import Final, TypeAlias

import onnx
import onnx.inliner
import onnx.version_converter
from onnx import helper

from shisha_rt.errors import BadInput, Error
from shisha_rt.model.net import one_operator
from shisha_rt.model.subgraphs import all_nodes

_Name: TypeAlias = tuple[str, str, str]
"""Domain, type and overload of an operator, or of the function that it calls."""

_MOST_OPERATORS: Final = 100_000  # after functions are inlined; the largest networks have some thousands
_MESSAGE_LIMIT: Final = 200  # characters of a message of ONNX's
_ONNX: Final = ("", "ai.onnx")  # both names of its own domain
_GRAPHS: Final = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)


def without_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """Inline the functions that the file defines; `model` may be changed. Raises BadInput if one cannot be."""
    if not model.functions:
        return model
    if _count_without_functions(model) > _MOST_OPERATORS:
        raise _unsupported(f"its functions, written out, are over {_MOST_OPERATORS} operators; expected fewer")
    _state_defaults(model)
    versions = {_plain(opset.domain): opset.version for opset in model.opset_import}
    reasons = {(function.domain, function.name): _take_opset(function, versions) for function in model.functions}
    try:
        inlined = onnx.inliner.inline_local_functions(model)
    except Exception as error:  # it raises whatever its C++ does
        raise _unsupported(f"its functions cannot be written out: {said_by_onnx(error)}") from error
    for node in all_nodes(inlined.graph.node):
        if (node.domain, node.op_type) in reasons:
            reason = reasons[node.domain, node.op_type] or "cannot be written out"
            function = f"function {node.op_type} of domain {node.domain!r}"
            raise _unsupported(f"{function} {reason}; expected the model's opsets")
    return inlined


def _state_defaults(model: onnx.ModelProto) -> None:
    """Give each call of a function the defaults of the attributes that it leaves out, in place.

    A function may pass on to another one what its own call leaves out, and has no default for: such a call is of a copy
    that leaves it out, too, so that the other one's default holds.
    """
    functions = {(each.domain, each.name, each.overload): each for each in model.functions}
    pending = [model.graph.node, *(function.node for function in model.functions)]
    while pending:
        for node in all_nodes(pending.pop()):
            called = functions.get(_called(node))
            if called is None:
                continue
            given = {attribute.name for attribute in node.attribute}
            node.attribute.extend(default for default in called.attribute_proto if default.name not in given)
            left_out = _passed_on(called, functions).difference(attribute.name for attribute in node.attribute)
            if not left_out:
                continue
            node.overload = f"{node.overload} without {sorted(left_out)}"
            if _called(node) not in functions:
                functions[_called(node)] = copy = model.functions.add()
                _copy_without(called, left_out, copy)
                copy.overload = node.overload
                pending.append(copy.node)


def _called(node: onnx.NodeProto) -> _Name:
    return node.domain, node.op_type, node.overload


def _passed_on(function: onnx.FunctionProto, functions: Container[_Name]) -> set[str]:
    """The attributes of a function that it passes on to others of `functions`."""
    calls = (node for node in all_nodes(function.node) if _called(node) in functions)
    return {attribute.ref_attr_name for node in calls for attribute in node.attribute if attribute.ref_attr_name}


def _copy_without(function: onnx.FunctionProto, left_out: Container[str], copy: onnx.FunctionProto) -> None:
    """Make `copy` the function whose operators leave out the attributes that they would have of `left_out`."""
    copy.CopyFrom(function)
    for node in all_nodes(copy.node):
        for attribute in [each for each in node.attribute if each.ref_attr_name in left_out]:
            node.attribute.remove(attribute)


def _unsupported(message: str) -> BadInput:
    return BadInput(message, Error.MODEL_UNSUPPORTED)


def _take_opset(function: onnx.FunctionProto, versions: dict[str, int]) -> str:
    """Give a function the opset of the model, whose `versions` are by domain, if it means the same in it.

    Return what is in the way of its being written out; '' if nothing is.
    """
    for opset in function.opset_import:
        domain = _plain(opset.domain)
        version = versions.get(domain, opset.version)
        if opset.version == version:
            continue
        other = f"is of opset version {opset.version} of {domain or 'ai.onnx'}, and the model of {version}"
        if domain or max(opset.version, version) > onnx.defs.onnx_opset_version():
            return other
        changed = _changed(function, opset.version, version)
        if changed:
            return f"{other}, in which {changed} is another operator"
        opset.version = version
    return ""


def _changed(function: onnx.FunctionProto, before: int, after: int) -> str:
    """The type of an operator of a function that differs between two opsets in more than its types; '' if none does."""
    own = (node for node in all_nodes(function.node) if node.domain in _ONNX)
    return next((node.op_type for node in own if not _is_same(node, before, after)), "")


def _is_same(node: onnx.NodeProto, before: int, after: int) -> bool:
    try:
        schemas = [onnx.defs.get_schema(node.op_type, version, "") for version in (before, after)]
    except onnx.defs.SchemaError:
        return False
    if schemas[0].since_version == schemas[1].since_version:
        return True
    if any(attribute.name not in schemas[1].attributes for attribute in node.attribute):
        return False
    bare = onnx.NodeProto(
        op_type=node.op_type,
        input=[name and f"in {position}" for position, name in enumerate(node.input)],
        output=[name and f"out {position}" for position, name in enumerate(node.output)],
    )
    # The converter knows no attributes that a call gives; subgraphs are looked at by themselves.
    bare.attribute.extend(each for each in node.attribute if not each.ref_attr_name and each.type not in _GRAPHS)
    return _is_kept(bare.SerializeToString(deterministic=True), before, after)


@lru_cache(maxsize=1000)
def _is_kept(serialised: bytes, before: int, after: int) -> bool:
    """Whether ONNX's own converter leaves this operator as it is."""
    node = onnx.NodeProto.FromString(serialised)
    inputs = [helper.make_value_info(name, onnx.TypeProto()) for name in node.input if name]
    model = one_operator(node, inputs, [helper.make_opsetid("", before)])
    try:
        converted = onnx.version_converter.convert_version(model, after)
    except Exception:  # it raises whatever its C++ does
        return False
    return list(converted.graph.node) == [node]


def _plain(domain: str) -> str:
    return "" if domain in _ONNX else domain


def _count_without_functions(model: onnx.ModelProto) -> int:
    """The number of operators after functions are inlined; beyond `_MOST_OPERATORS` some larger number.

    A few functions that each call the next one twice can stand for more operators than any memory holds. Raises
    BadInput for functions that call themselves.
    """
    bodies = {(each.domain, each.name, each.overload): each.node for each in model.functions}
    calls = {name: [*map(_called, all_nodes(body))] for name, body in bodies.items()}
    sizes: dict[_Name, int] = {}
    try:
        for name in TopologicalSorter(calls).static_order():  # what is called comes first
            written_out = sum(sizes[called] for called in calls[name]) if name in calls else 1
            sizes[name] = min(written_out, _MOST_OPERATORS + 1)
    except CycleError:
        raise _unsupported("its functions call themselves; expected calls that end") from None
    return sum(sizes.get(_called(node), 1) for node in all_nodes(model.graph.node))


def said_by_onnx(error: Exception) -> str:
    """The first line of what ONNX says, with the rest where that ends in a colon, cut if it is long."""
    lines = [" ".join(line.split()) for line in str(error).splitlines() if line.strip()]
    said = next(iter(lines), type(error).__name__)
    if said.endswith(":"):
        said = " ".join(lines)
    return said if len(said) <= _MESSAGE_LIMIT else said[: _MESSAGE_LIMIT - 3] + "..."
