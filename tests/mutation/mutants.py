"""Small mistakes put into source text: errors of a programmer that may stay unnoticed.

Texts, annotations, decorators, docstrings and assertions stay as they are: they decide nothing.
"""

from __future__ import annotations

import ast
import copy
import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_SUMS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_CALLS = {"any": "all", "all": "any", "min": "max", "max": "min"}
_NO_ORDER = ("isinstance", "issubclass", "getattr", "cast", *_CALLS)
"""Calls whose swapped arguments fail at once, or make no difference."""
_JUMPS: dict[type[ast.stmt], str] = {ast.Continue: "break", ast.Break: "continue", ast.Raise: "pass"}
_Node = TypeVar("_Node", bound=ast.expr)
_Mistake = tuple[ast.expr | ast.stmt, str, str]
"""The node that is replaced, the kind, the new source."""


class Mutant(NamedTuple):
    """A file with one mistake.

    *file*: below the source root.  *line*, *last*: the replaced lines; *column*: in bytes.  *was*, *now*: the replaced
    source and the new one.
    """

    file: str
    line: int
    last: int
    column: int
    was: str
    now: str
    kind: str


def mutants_of(file: str, source: str) -> Iterator[Mutant]:
    """Yield every mutant of a module's source, from the top."""
    for node in _deciding(ast.parse(source)):
        for place, kind, now in _mistakes(node):
            was = ast.get_source_segment(source, place)
            assert was is not None
            yield Mutant(file, place.lineno, place.end_lineno or place.lineno, place.col_offset, was, now, kind)


def place_of(source: str, mutant: Mutant) -> tuple[str, str, str]:
    """Return the identity of a mutant, wherever its lines are: its file, its lines, and those mutated."""
    lines = "\n".join(source.splitlines()[mutant.line - 1 : mutant.last])
    first = mutant._replace(line=1, last=mutant.last - mutant.line + 1)
    return mutant.file, lines.strip(), mutated(lines, first).strip()


def mutated(source: str, mutant: Mutant) -> str:
    """Return the source with the mistake in it."""
    whole, was = source.encode(), mutant.was.encode()
    start = sum(map(len, whole.splitlines(keepends=True)[: mutant.line - 1])) + mutant.column
    assert whole[start : start + len(was)] == was, mutant
    return (whole[:start] + mutant.now.encode() + whole[start + len(was) :]).decode()


def _deciding(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that affect something, in the order of the source."""
    if isinstance(node, ast.JoinedStr | ast.Assert):
        return
    yield node
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "bases", "type_comment"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _deciding(child)


def _changed(node: _Node, change: Callable[[_Node], object]) -> str:
    other = copy.deepcopy(node)
    change(other)
    return f"({ast.unparse(other)})"


def _mistakes(node: ast.AST) -> Iterator[_Mistake]:
    match node:
        case ast.Compare(ops=ops):
            for at, op in enumerate(ops):
                other = _COMPARISONS[type(op)]
                change = functools.partial(_put_comparison, at, other)
                yield node, "comparison", _changed(node, change)
        case ast.BoolOp(op=op):
            swapped = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield node, "and, or", _changed(node, lambda new: setattr(new, "op", swapped))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, "not", f"({ast.unparse(operand)})"
        case ast.BinOp(op=op) if type(op) in _SUMS and not _is_text(node):
            yield node, "arithmetic", _changed(node, lambda new: setattr(new, "op", _SUMS[type(op)]()))
        case ast.Constant(value=bool(value)):
            yield node, "constant", str(not value)
        case ast.Constant(value=int(value)):
            yield from ((node, "constant", str(value + by)) for by in (1, -1) if value + by >= 0)
        case ast.Call():
            yield from _wrong_calls(node)
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) if _has_no_mistake_of_its_own(test):
            yield test, "not", f"(not {ast.unparse(test)})"
        case ast.stmt():
            yield from _wrong_statements(node)


def _put_comparison(at: int, other: type[ast.cmpop], comparison: ast.Compare) -> None:
    comparison.ops[at] = other()


def _has_no_mistake_of_its_own(test: ast.expr) -> bool:
    is_other_kind = isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant)
    return not is_other_kind and not (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING")


def _wrong_calls(call: ast.Call) -> Iterator[_Mistake]:
    if isinstance(call.func, ast.Name) and call.func.id in _CALLS:
        other = _CALLS[call.func.id]
        yield call, "any, all, min, max", _changed(call, lambda new: setattr(new.func, "id", other))
    is_fixed = ast.unparse(call.func) in _NO_ORDER or any(isinstance(one, ast.Starred) for one in call.args[:2])
    if len(call.args) > 1 and not is_fixed and ast.dump(call.args[0]) != ast.dump(call.args[1]):
        swap = slice(2)
        yield call, "swapped arguments", _changed(call, lambda new: new.args.__setitem__(swap, new.args[1::-1]))


def _wrong_statements(node: ast.stmt) -> Iterator[_Mistake]:
    match node:
        case ast.Expr(value=ast.Call() | ast.YieldFrom() | ast.Yield()):
            yield node, "removed", "pass"
        case ast.AugAssign() | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield node, "removed", "pass"
        case ast.Continue() | ast.Break() | ast.Raise():
            yield node, "removed", _JUMPS[type(node)]
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield node, "return value", "return None"


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in (node.left, node.right)
    )
