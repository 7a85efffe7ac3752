"""Convert plain data (decoded TOML or JSON) into typed records; every fault is one line that a user can act on.

msgspec checks, but its messages name neither the file nor the wrong value. Here each becomes `FILE: place[0].speed =
-1: expected a number > 0`, in the same form for every file format that users write. The caller has read the file. Pure.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum, EnumType
from types import UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

import msgspec

from shisha_rt.errors import BadInput, Error

T = TypeVar("T")
Choice = TypeVar("Choice", bound=str)

Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
"""Up to 30 million years: more is a mistake, and sums of these values are finite."""
Watts = Annotated[float, msgspec.Meta(gt=0, le=1e6)]

_MOST_WHOLE: Final = 2**53
"""Up to here floats represent every integer; sums, and what processes exchange, stay within 64 bits."""
Count = Annotated[int, msgspec.Meta(ge=1, le=_MOST_WHOLE)]
WholeNumber = Annotated[int, msgspec.Meta(ge=0, le=_MOST_WHOLE)]
_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9_.-]*\Z"
_SHOWABLE: Final = r"^[^\x00-\x1f\x7f-\x9f]*\Z"
_PATTERNS: Final = {
    _NAME: "of letters, digits, '_', '.' and '-', the first a letter or digit",
    _SHOWABLE: "without control characters",
}
"""What the patterns say, in words."""
Word = Annotated[str, msgspec.Meta(pattern=_NAME, max_length=64)]
"""A name that needs no quotes anywhere."""
Title = Annotated[str, msgspec.Meta(pattern=_SHOWABLE)]
"""Text that a terminal shows as it is."""
NO_TEXT: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""A character that a terminal obeys instead of showing it; or, in a path, a byte that is not UTF-8."""

_SHOWN_CHARACTERS: Final = 60
_CLOSE: Final = 0.8
"""Least similarity (difflib's ratio) at which a name is suggested."""
_WORDS: Final = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "null",
}
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`")
_MISSING: Final = re.compile(r"Object missing required field `(.*)`")
_AT: Final = re.compile(r"(?P<what>.*?)(?: - at `\$(?P<path>[^`]*)`)?", re.DOTALL)


def convert(raw: object, record: type[T], source: str) -> T:
    """`raw` as a `record` (a msgspec.Struct); `source` names the file in the BadInput that a fault raises.

    A whole number may be written as 16.0 and an optional key as null, as some programs write all of theirs.
    """
    try:
        record_read = _converted(raw, record)
    except msgspec.ValidationError as error:
        raise BadInput(f"{source}: {_explain(str(error), raw, record)}", Error.WRONG_VALUE) from None
    except (OverflowError, RecursionError):
        raise BadInput(f"{source}: a number is too large or the nesting too deep", Error.MALFORMED_FILE) from None
    _refuse_infinities(raw, source)
    return record_read


def _converted(raw: object, of: type[T]) -> T:
    try:
        return msgspec.convert(raw, type=of)
    except msgspec.ValidationError:
        written = _without_nulls(raw, msgspec.inspect.type_info(of))
        return msgspec.convert(_with_whole_numbers(written), type=of)


def refuse(faults: Iterable[str], source: str, kind: Error) -> None:
    for fault in faults:
        raise BadInput(f"{source}: {fault}", kind)


def repeated_names(kind: str, names: Sequence[str]) -> Iterator[str]:
    """A fault for each name in a list of tables of one `kind` that an earlier one has."""
    for number, name in enumerate(names):
        if name in names[:number]:
            yield f"{kind}[{number}].name = {shown(name)}: used twice, expected a name of its own"


def decode_json(text: bytes | str, source: str, expected: str) -> object:
    """Plain data from JSON text. Raises BadInput; for text that is nested too deeply, it says what was `expected`."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        _refuse_infinities(_leniently(text), source)
        raise BadInput(f"{source}: not JSON: {error}", Error.MALFORMED_FILE) from None
    except RecursionError:
        raise BadInput(f"{source}: nested too deeply, expected {expected}", Error.MALFORMED_FILE) from None


def _leniently(text: bytes | str) -> object:
    """Decode by Python's own parser, which accepts Infinity and NaN, too; None for text that it refuses as well."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def shown(value: object) -> str:
    """A value as the user may have written it, on one line and not too long."""
    try:
        text = json.dumps(value, default=str, ensure_ascii=False)
    except RecursionError:  # data that could just be read may be nested too deeply to be written
        return "..."
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."


def printable(text: str) -> str:
    """`text` with characters that are no text escaped, as Python has it."""
    return NO_TEXT.sub(lambda match: f"\\x{ord(match[0]) & 0xFF:02x}", text)


def one_of(what: str, word: str, among: Sequence[Choice]) -> Choice:
    """The one of `among` that `word` is. Raises ValueError, which lists them, if it is none; `what`: what they are."""
    for each in among:
        if word == each:
            return each
    raise ValueError(f"{what}: {word!r}; expected {', '.join(among[:-1])} or {among[-1]}")


def did_you_mean(text: str, known: Mapping[str, str]) -> str:
    """End of a message with the name that a wrong one nearly is; empty if none. `known`: names by what is compared."""
    close = difflib.get_close_matches(text, known, n=1, cutoff=_CLOSE)
    return f"; did you mean {known[close[0]]}?" if close else ""


def _explain(message: str, raw: object, record: type) -> str:
    match = _AT.fullmatch(message)
    assert match is not None  # the pattern's tail is optional, so it matches any text
    what, steps = match["what"], _steps(match["path"] or "", raw, record)
    if unknown := _UNKNOWN.fullmatch(what):
        steps.append(unknown[1])
        keys = [field.encode_name for field in msgspec.structs.fields(_options(_type_at(record, steps[:-1]))[0])]
        expected = f"unknown key, expected one of {', '.join(keys)}"
    elif missing := _MISSING.fullmatch(what):
        return f"{_spelled([*steps, missing[1]])} is missing"
    elif what.startswith("Invalid enum value"):
        expected = f"expected one of {', '.join(_choices(_options(_type_at(record, steps))[0]))}"
    else:
        expected = _in_words(what)
    if not steps:
        return expected
    return f"{_spelled(steps)} = {shown(_value_at(raw, steps))}: {expected}"


def _in_words(what: str) -> str:
    for pattern, meaning in _PATTERNS.items():
        what = what.replace(f"matching regex {pattern!r}", meaning)
    if "`int" in what:
        what = what.replace("got `float`", "got a fraction")
    # `int | null` as 'a whole number or null'
    words = re.sub(r"`([^`]*)`", lambda types: " or ".join(_WORDS.get(t, t) for t in types[1].split(" | ")), what)
    return words[:1].lower() + words[1:]


def _steps(path: str, raw: object, record: type) -> list[str | int]:
    """`.place[0].name` as ['place', 0, 'name'].

    msgspec does not say which key of a mapping it means (`[...]`): the first whose value does not fit.
    """
    steps: list[str | int] = []
    for name, index in re.findall(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]", path):
        if index == "...":
            steps.append(_misfit(_value_at(raw, steps), _type_at(record, [*steps, ""])))
        else:
            steps.append(int(index) if index else name)
    return steps


def _misfit(mapping: Any, of: Any) -> Any:
    """First key of a mapping to values of a type whose value is not one."""
    return next(key for key, value in mapping.items() if not _fits(value, of))


def _fits(value: object, of: Any) -> bool:
    try:
        _converted(value, of)
    except msgspec.ValidationError:
        return False
    return True


def _spelled(steps: list[str | int]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")


def _value_at(raw: object, steps: list[str | int]) -> object:
    value: Any = raw
    for step in steps:
        value = value[step]
    return value


def _choices(of: Any) -> Sequence[str]:
    """What a Literal or an enumeration has to choose from."""
    if not isinstance(of, EnumType):
        return get_args(of)
    members: Iterable[Enum] = of
    return [str(member.value) for member in members]


def _type_at(record: Any, steps: list[str | int]) -> Any:
    """The type of what lies in a `record` at `steps`: of a table, its record; any text is a key of a mapping."""
    for step in steps:
        record = next(_inner(option, step) for option in _options(record) if isinstance(step, str) == _has_keys(option))
    return record


def _inner(of: Any, step: str | int) -> Any:
    arguments = get_args(of)
    if arguments:
        return arguments[1] if isinstance(step, str) else arguments[0]
    return next(field.type for field in msgspec.structs.fields(of) if field.encode_name == step)


def _options(of: Any) -> list[Any]:
    """What a type may be: the members of a union, without bounds."""
    if get_origin(of) is Annotated:
        return _options(get_args(of)[0])
    if get_origin(of) in (UnionType, Union):  # the latter where a member is no class
        return [option for member in get_args(of) for option in _options(member)]
    return [of]


def _has_keys(of: Any) -> bool:
    return get_origin(of) is dict or (isinstance(of, type) and issubclass(of, msgspec.Struct))


def _without_nulls(raw: object, kind: msgspec.inspect.Type) -> object:
    """Leave out null, at any depth, for optional keys of records for which it is no value of its own."""
    match kind, raw:
        case msgspec.inspect.ListType(item_type=item), list():
            return [_without_nulls(inner, item) for inner in raw]
        case msgspec.inspect.DictType(value_type=item), dict():
            return {key: _without_nulls(inner, item) for key, inner in raw.items()}
        case msgspec.inspect.StructType(fields=fields), dict():
            types = {field.encode_name: field.type for field in fields}
            optional = {field.encode_name for field in fields if not field.required}
            return {
                key: _without_nulls(inner, types[key]) if key in types else inner
                for key, inner in raw.items()
                if inner is not None or key not in optional or getattr(types[key], "includes_none", False)
            }
    return raw


def _with_whole_numbers(raw: object) -> object:
    """Replace 16.0 by 16, at any depth: a field for a number accepts either."""
    if isinstance(raw, dict):
        return {key: _with_whole_numbers(inner) for key, inner in raw.items()}
    if isinstance(raw, list):
        return [_with_whole_numbers(inner) for inner in raw]
    return int(raw) if isinstance(raw, float) and raw.is_integer() else raw


def _refuse_infinities(raw: object, source: str) -> None:
    """Raise BadInput for infinities and NaN: bounds let `inf` through (TOML has it), but no quantity here is infinite.

    There may be millions of numbers, so only tables and lists are kept for later.
    """
    pending: list[tuple[list[str | int], object]] = [([], raw)]
    while pending:
        steps, value = pending.pop()
        inner: Iterable[tuple[str | int, object]] = ()
        if isinstance(value, dict):
            inner = value.items()
        elif isinstance(value, list):
            inner = enumerate(value)
        for step, nested in inner:
            if isinstance(nested, float):
                if not math.isfinite(nested):
                    raise BadInput(
                        f"{source}: {_spelled([*steps, step])} = {shown(nested)}: expected a finite number",
                        Error.WRONG_VALUE,
                    )
            elif isinstance(nested, dict | list):
                pending.append(([*steps, step], nested))
