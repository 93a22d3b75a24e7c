"""One-line mutants of a Python file: every place in its functions where one small change can be made, and the changed text.

Changed are comparisons, arithmetic, `and` and `or`, conditions, integers, truth values, bounds of slices, the first two arguments of a
call if both are names, functions with a counterpart (min and max), and statements without a name to assign, which are dropped. Declarations
outside functions (knobs, tables, types), messages of errors, assertions and docstrings are left alone.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot,
    ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
PAIRS = (("min", "max"), ("amin", "amax"), ("argmin", "argmax"), ("minimum", "maximum"), ("any", "all"), ("zeros", "ones"))
COUNTERPARTS = {a: b for pair in PAIRS for a, b in (pair, pair[::-1])}
LEFT_ALONE = (ast.Raise, ast.Assert, ast.JoinedStr)


@dataclass(frozen=True)
class LineMutant:
    """A changed line of a file. start, end : bytes of its text that are replaced"""

    path: str
    line: int
    start: int
    end: int
    before: str
    after: str

    def apply(self, source: bytes) -> bytes:
        """The file's text with the change."""
        return source[: self.start] + self.after.encode() + source[self.end :]


def line_mutants(root: Path, path: str) -> list[LineMutant]:
    """All mutants of a file, in the order of its text."""
    source = (root / path).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    mutants = []
    for node, after in _changes(ast.parse(source), False):
        if node.lineno == node.end_lineno:
            start, end = (starts[node.lineno - 1] + column for column in (node.col_offset, node.end_col_offset))
            mutants.append(LineMutant(path, node.lineno, start, end, source[start:end].decode(), after))
    return sorted(mutants, key=lambda mutant: (mutant.start, mutant.end, mutant.after))


def _changes(node: ast.AST, inside: bool) -> Iterator[tuple[ast.AST, str]]:
    """Nodes inside functions, and the text that replaces each."""
    if isinstance(node, LEFT_ALONE):
        return
    if inside:
        yield from _changes_of(node)
    inside = inside or isinstance(node, ast.FunctionDef | ast.Lambda)
    for field, value in ast.iter_fields(node):
        if field not in ("annotation", "returns", "decorator_list"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _changes(child, inside)


def _changes_of(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in COMPARISONS:
            yield node, _edited(node, lambda copy: setattr(copy, "ops", [COMPARISONS[type(operator)]()]))
        case ast.BinOp(op=operator) if type(operator) in OPERATORS:
            yield node, _edited(node, lambda copy: setattr(copy, "op", OPERATORS[type(operator)]()))
        case ast.BoolOp(op=operator):
            yield node, _edited(node, lambda copy: setattr(copy, "op", ast.Or() if isinstance(operator, ast.And) else ast.And()))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, f"({ast.unparse(operand)})"
        case ast.Constant(value=bool(value)):
            yield node, repr(not value)
        case ast.Constant(value=int(value)):
            yield node, repr(value + 1)
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) if not isinstance(test, ast.UnaryOp):
            yield test, f"(not ({ast.unparse(test)}))"
        case ast.Slice(lower=lower, upper=upper):
            yield from ((bound, f"{ast.unparse(bound)} + 1") for bound in (lower, upper) if bound and not isinstance(bound, ast.Constant))
        case ast.Call(func=ast.Name(id=name) as function) if name in COUNTERPARTS:
            yield function, COUNTERPARTS[name]
        case ast.Call(func=ast.Attribute(value=owner, attr=name) as function) if name in COUNTERPARTS:
            yield function, ast.unparse(ast.Attribute(owner, COUNTERPARTS[name]))
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.Continue():
            yield node, "pass"
    match node:
        case ast.Call(func=function, args=[ast.Name() | ast.Attribute() as first, ast.Name() | ast.Attribute() as second, *_]):
            if ast.unparse(first) != ast.unparse(second) and ast.unparse(function).split(".")[-1] not in COUNTERPARTS:
                yield node, _edited(node, lambda copy: copy.args.__setitem__(slice(0, 2), [second, first]))


def _edited(node: ast.expr, edit: Callable[[ast.AST], None]) -> str:
    """The text of an expression after an edit of a copy of it, in parentheses."""
    copy = ast.parse(ast.unparse(node), mode="eval").body
    edit(copy)
    return f"({ast.unparse(copy)})"
