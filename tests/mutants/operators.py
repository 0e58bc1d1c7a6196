"""The wrongs that are put into a file, one at a time, and the code that each makes of it.

The operators are those of the literature (Offutt et al. 1996, the five that suffice; Papadakis et
al. 2015, section 3, for leaving out what compiles to the same code): another arithmetic operator,
another comparison, `and` for `or`, a condition negated, a sign or `not` dropped, a number off by
one, a statement left out, nothing returned.

Mutants are made in functions, in their defaults and in the constants of a module. Words are left
alone: docstrings, f-strings, what is raised, and text that is not compared with anything.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType

BINARY = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.LShift: ast.RShift,
    ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitAnd,
}  # fmt: skip
COMPARED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
NEGATED = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)  # by the table above already
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
TEXT = (ast.JoinedStr, ast.Constant)


@dataclass(frozen=True)
class Mutant:
    """One wrong in one file."""

    function: str  # where: "Class.method", or "" for the module itself
    first: int  # lines of the statement
    last: int
    line: str  # what stands there, without its indent
    change: str  # "a < b → a <= b"
    code: CodeType  # of the whole file
    default: bool = False  # whether it is in the default of a parameter
    name: str = ""  # of the constant, where it is one of the module's

    @property
    def key(self) -> tuple[str, str, str]:
        """What names it across edits elsewhere in the file."""
        return self.function, self.line, self.change


@dataclass(frozen=True)
class _Place:
    """A node, and how to put another in its place."""

    parent: ast.AST
    field: str
    index: int | None
    function: tuple[str, ...]
    span: tuple[int, int]
    default: bool = False
    name: str = ""

    def put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def mutants(source: str, filename: str) -> list[Mutant]:
    """Return all mutants of a file that compile, and not to the code that was there."""
    tree = ast.parse(source)
    compiled = compile(tree, filename, "exec", dont_inherit=True)
    lines, made = source.splitlines(), []
    for place, old, new in _changes(tree):
        place.put(ast.fix_missing_locations(ast.copy_location(new, old)))
        try:
            code = compile(tree, filename, "exec", dont_inherit=True)
        except (SyntaxError, ValueError):  # a break outside of a loop, say
            code = compiled
        place.put(old)
        if code != compiled:
            change = f"{_said(old)} → {_said(new)}"
            where, line = ".".join(place.function), lines[place.span[0] - 1].strip()
            made.append(Mutant(where, *place.span, line, change, code, place.default, place.name))
    return made


def _said(node: ast.AST) -> str:
    """Return one line; the wrappers that keep names alive are told as what they do."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Constant):
        return "return None" if node.test.value else "pass"
    return " ".join(ast.unparse(node).split())


def _changes(tree: ast.Module) -> Iterator[tuple[_Place, ast.AST, ast.AST]]:
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and _constant(statement.value):
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            if isinstance(target, ast.Name):
                span = statement.lineno, statement.end_lineno
                place = _Place(statement, "value", None, (), span, name=target.id)
                yield from _of_expression(place, statement.value)
                continue
        yield from _inside(statement, ())


def _constant(node: ast.expr | None) -> bool:
    kinds = (ast.Constant, ast.UnaryOp, ast.BinOp, ast.Tuple, ast.operator, ast.unaryop, ast.Load)
    return node is not None and all(isinstance(n, kinds) for n in ast.walk(node))


def _inside(node: ast.AST, names: tuple[str, ...]) -> Iterator:
    """Look for functions: what stands outside of them runs once, at import."""
    if isinstance(node, FUNCTION):
        inner = (*names, node.name)
        for field in ("defaults", "kw_defaults"):
            for index, value in enumerate(getattr(node.args, field)):
                if value is not None and (not inner[:-1] or inner[-2][0].isupper()):
                    span = node.lineno, node.body[0].lineno - 1
                    place = _Place(node.args, field, index, inner, span, default=True)
                    yield from _of_expression(place, value)
        yield from _of_block(node, "body", inner)
    elif isinstance(node, ast.Lambda):
        span = node.lineno, node.end_lineno
        yield from _of_expression(_Place(node, "body", None, names, span), node.body)
    else:
        inner = (*names, node.name) if isinstance(node, ast.ClassDef) else names
        for child in ast.iter_child_nodes(node):
            yield from _inside(child, inner)


def _of_block(parent: ast.AST, field: str, names: tuple[str, ...]) -> Iterator:
    for index, node in enumerate(getattr(parent, field)):
        if isinstance(node, (*FUNCTION, ast.ClassDef)):
            yield from _inside(node, names)
            continue
        blocks = [name for name in ("body", "orelse", "finalbody") if hasattr(node, name)]
        last = node.body[0].lineno - 1 if "body" in blocks else node.end_lineno
        place = _Place(parent, field, index, names, (node.lineno, max(node.lineno, last)))
        yield from _of_statement(place, node)
        for block in blocks:
            yield from _of_block(node, block, names)
        for handler in getattr(node, "handlers", []):
            yield from _of_block(handler, "body", names)


def _of_statement(place: _Place, node: ast.stmt) -> Iterator:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return  # a docstring
    stored = isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name | ast.Tuple)
    if stored or isinstance(node, ast.Expr | ast.AugAssign | ast.Raise | ast.Continue):
        yield place, node, _never(node)
    if isinstance(node, ast.Continue | ast.Break):
        yield place, node, ast.Break() if isinstance(node, ast.Continue) else ast.Continue()
    if isinstance(node, ast.AugAssign) and type(node.op) in BINARY:
        yield place, node, ast.AugAssign(node.target, BINARY[type(node.op)](), node.value)
    if isinstance(node, ast.Return) and not _is_nothing(node.value):
        nothing = ast.Return(ast.Constant(None))
        yield place, node, ast.If(ast.Constant(True), [nothing], [node])
    if isinstance(node, ast.If | ast.While | ast.Assert):
        yield from _negated(_at(place, node, "test"), node.test)
    if not isinstance(node, ast.Raise):
        yield from _of_children(place, node)


def _never(node: ast.stmt) -> ast.If:
    """Leave a statement out; the names in it still belong to whom they did."""
    return ast.If(ast.Constant(False), [node], [])


def _is_nothing(node: ast.expr | None) -> bool:
    return node is None or (isinstance(node, ast.Constant) and node.value in (None, False))


def _at(place: _Place, parent: ast.AST, field: str, index: int | None = None) -> _Place:
    return _Place(parent, field, index, place.function, place.span, place.default, place.name)


def _of_children(place: _Place, node: ast.AST) -> Iterator:
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "ctx"):
            continue
        several = isinstance(value, list)
        for index, child in enumerate(value if several else [value]):
            at = _at(place, node, field, index if several else None)
            if isinstance(child, ast.expr):
                yield from _of_expression(at, child)
            elif isinstance(child, ast.keyword | ast.comprehension | ast.withitem):
                for k, test in enumerate(getattr(child, "ifs", [])):
                    yield from _negated(_at(at, child, "ifs", k), test)
                yield from _of_children(at, child)


def _of_expression(place: _Place, node: ast.expr) -> Iterator:
    if isinstance(node, ast.JoinedStr):
        return
    for new in _replaced(node, place):
        yield place, node, new
    if isinstance(node, ast.IfExp):
        yield from _negated(_at(place, node, "test"), node.test)
    yield from _of_children(place, node)


def _negated(place: _Place, test: ast.expr) -> Iterator:
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], NEGATED):
        return
    yield place, test, ast.UnaryOp(ast.Not(), test)


def _replaced(node: ast.expr, place: _Place) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and type(node.op) in BINARY:
        if not any(isinstance(n, TEXT) and _is_text(n) for n in (node.left, node.right)):
            yield ast.BinOp(node.left, BINARY[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node.operand
    elif isinstance(node, ast.Compare):
        for k, op in enumerate(node.ops):
            ops = [*node.ops[:k], COMPARED[type(op)](), *node.ops[k + 1 :]]
            yield ast.Compare(node.left, ops, node.comparators)
    elif isinstance(node, ast.Constant):
        yield from _other(node.value, place.parent)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or isinstance(node.value, str)


def _other(value: object, parent: ast.AST) -> Iterator[ast.Constant]:
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int):
        yield from (ast.Constant(value + 1), ast.Constant(value - 1))
    elif isinstance(value, float):
        yield ast.Constant(value + 1)
    elif isinstance(value, str) and isinstance(parent, ast.Compare):
        yield ast.Constant(f"{value}?")


def repeated(found: list[Mutant]) -> Counter:
    """Count mutants by their keys; the same line twice in a function gives the same key."""
    return Counter(mutant.key for mutant in found)
