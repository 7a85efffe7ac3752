"""Tests assert kinds of errors, fields and values; few assert the words of a message, and their number is held.

An assertion of prose compares with a text that has four words in a row within a clause: in the pattern of `match=`, or
in what an `assert` compares with, searches for, or takes as a beginning or an end. Each text counts, also where a name,
a loop, `parametrize` or a call of the file's own function brings it there. What is given to other calls, and the keys
of dictionaries, are no words of a message.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Final, TypeAlias

TESTS: Final = Path(__file__).parent
MOST: Final = 80
WORD: Final = r"[\"'(]?(?:a|[A-Za-z][a-z]+)"
PROSE: Final = re.compile(rf"(?<!\S)(?:{WORD}[,.)\"']? +){{3}}{WORD}[,.)\"':;]?(?!\S)")
SEARCHES: Final = {"startswith", "endswith", "count", "search", "match", "fullmatch", "findall", "says"}
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Bound: TypeAlias = Iterator[tuple[str, Sequence[ast.expr]]]


def is_prose(text: str) -> bool:
    return PROSE.search(text.replace("\\", "")) is not None


def prose_in(source: str) -> list[tuple[int, str]]:
    """Lines and texts of the assertions of prose in a test file."""
    tree = ast.parse(source)
    nodes = {function: list(ast.walk(function)) for function in _functions(tree.body)}
    calls: defaultdict[str, list[ast.Call]] = defaultdict(list)
    for node in chain.from_iterable(nodes.values()):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            calls[node.func.id].append(node)
    of_file = _by_name(chain.from_iterable(map(_bound_by, tree.body)))
    texts: dict[tuple[int, int], str] = {}
    for function, inside in nodes.items():
        if wanted := list(_compared(inside)):
            called = (_parameters(function, call) for call in calls[function.name])
            names = of_file | _by_name(chain.from_iterable((*map(_bound_by, inside), *called)))
            for node in _reached(wanted, names):
                texts[node.lineno, node.col_offset] = str(node.value)
    return [(line, text) for (line, _), text in sorted(texts.items())]


def _functions(body: Sequence[ast.stmt]) -> Iterator[Function]:
    """Those of a file and of its classes; what is defined within a function is a part of it."""
    for node in body:
        if isinstance(node, Function):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body)


def _by_name(bound: Bound) -> dict[str, list[ast.expr]]:
    names: defaultdict[str, list[ast.expr]] = defaultdict(list)
    for name, values in bound:
        names[name] += values
    return dict(names)


def _reached(wanted: list[ast.expr], names: dict[str, list[ast.expr]]) -> Iterator[ast.Constant]:
    followed: set[str] = set()
    while wanted:
        for node in _parts(wanted.pop()):
            if isinstance(node, ast.Name) and node.id not in followed:
                followed.add(node.id)
                wanted += names.get(node.id, ())
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and is_prose(node.value):
                yield node


def _compared(nodes: list[ast.AST]) -> Iterator[ast.expr]:
    for node in nodes:
        if isinstance(node, ast.keyword) and node.arg == "match":
            yield node.value
        elif isinstance(node, ast.Assert):
            for part in ast.walk(node.test):
                if isinstance(part, ast.Compare):
                    yield from (part.left, *part.comparators)
                elif isinstance(part, ast.Call) and _called(part) in SEARCHES:
                    yield from part.args


def _called(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """A node and what is compared with it."""
    yield node
    if isinstance(node, ast.Dict):
        for value in node.values:
            yield from _parts(value)
    elif not isinstance(node, ast.Call | ast.Subscript | ast.Attribute | ast.Compare):
        for child in ast.iter_child_nodes(node):
            yield from _parts(child)


def _bound_by(node: ast.AST) -> Bound:
    """Names with what an assignment, a loop or `parametrize` binds them to."""
    if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from _columns(target, [node.value])
    elif isinstance(node, ast.For | ast.comprehension):
        yield from _columns(node.target, _rows(node.iter))
    elif isinstance(node, ast.Call) and _called(node) == "parametrize":
        names = ast.literal_eval(node.args[0])
        names = names.split(",") if isinstance(names, str) else names
        listed: list[ast.expr] = [ast.Name(name.strip()) for name in names]
        yield from _columns(ast.Tuple(listed) if len(listed) > 1 else listed[0], _rows(node.args[1]))


def _parameters(function: Function, call: ast.Call) -> Bound:
    parameters = [argument.arg for argument in function.args.posonlyargs + function.args.args]
    yield from ((name, [value]) for name, value in zip(parameters, call.args, strict=False))
    yield from ((keyword.arg, [keyword.value]) for keyword in call.keywords if keyword.arg)


def _rows(values: ast.expr) -> Sequence[ast.expr]:
    if isinstance(values, ast.Call) and isinstance(values.func, ast.Attribute) and values.func.attr == "items":
        values = values.func.value
    if isinstance(values, ast.Dict):
        return [ast.Tuple([key, value]) for key, value in zip(values.keys, values.values, strict=True) if key]
    return values.elts if isinstance(values, ast.Tuple | ast.List | ast.Set) else [values]


def _columns(target: ast.expr, rows: Sequence[ast.expr]) -> Bound:
    """The names of a target with their values; a row that is no tuple goes to each of them."""
    if isinstance(target, ast.Name):
        yield target.id, rows
    elif isinstance(target, ast.Tuple):
        for k, name in enumerate(target.elts):
            yield from _columns(name, [cell for row in rows if (cell := _cell(row, k)) is not None])


def _cell(row: ast.expr, k: int) -> ast.expr | None:
    if isinstance(row, ast.Call) and _called(row) == "param":
        cells = row.args
    elif isinstance(row, ast.Tuple | ast.List):
        cells = row.elts
    else:
        return row
    return cells[k] if k < len(cells) else None


def test_few_assert_the_words_of_a_message() -> None:
    asserted = [
        f"{path.relative_to(TESTS)}:{line}: {text!r}"
        for path in sorted(TESTS.rglob("*.py"))
        if path != Path(__file__)
        for line, text in prose_in(path.read_text(encoding="utf-8"))
    ]
    assert len(asserted) <= MOST, "\n".join(
        [f"{len(asserted)} assertions of prose; expected at most {MOST}", *asserted]
    )


ASSERTIONS: Final = """
BACK = "the walk is back where it began"

@pytest.mark.parametrize(("given", "said"), [("x", "no such file is there"), ("which is no place at all", "--x")])
def test_one(given, said):
    assert fault(given) == f"at 1: {said}"
    with pytest.raises(ValueError, match="it may not be so"):
        fault("what is given is no message")

def test_two():
    for text in ("5 of 7 frames", "in a sentence of its own"):
        assert text in shown()
    assert told() == {"what a key is called": [says("… that is all of it"), BACK]}
"""


def test_what_is_compared_is_found_wherever_it_comes_from() -> None:
    assert {text for _, text in prose_in(ASSERTIONS)} == {
        "the walk is back where it began",
        "no such file is there",
        "it may not be so",
        "in a sentence of its own",
        "… that is all of it",
    }
