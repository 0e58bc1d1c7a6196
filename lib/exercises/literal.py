"""Read an answer that is a literal, without running anything.

The last value that the answer cell gives to the variable is taken. It may hold names that stand for
literals, such as SEED, and `dict(…)` or `range(…)` of literals; these are written out, and
`ast.literal_eval` reads what there is then. Sizes and depths are limited before.
"""

from __future__ import annotations

import ast
import functools
import re
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from lib.exercises.judging import WIDGET, Malformed

LENGTH = 50_000  # characters of a cell
LINES = 2_000  # of a cell that only IPython may understand, whose work grows faster than they do
NODES, DEPTH = 5_000, 30  # of one value


class Computed(Malformed):
    """The answer is no literal: its code has to run, and its value comes back."""


def clean(source: str) -> str:
    """Return a cell as plain Python: what IPython alone understands becomes calls, or is left out.

    Indented cells and pasted prompts are taken as IPython takes them. Code that no form of this
    makes Python stays as it is.
    """
    if len(source) > LENGTH or source.count("\n") > LINES or _is_python(source):
        return source
    from IPython.core.inputtransformer2 import TransformerManager

    untimed = re.sub(r"^%%(?:time|timeit|prun|capture)\b.*\n", "", source.lstrip("\n"))
    untimed = re.sub(
        r"^([ \t]*)%(?:time|timeit|prun)[ \t]+(?![-\n])", r"\1", untimed, flags=re.MULTILINE
    )
    for text in (untimed, source):
        try:
            made = TransformerManager().transform_cell(text)
        except (SyntaxError, ValueError, RecursionError):
            continue
        if _is_python(made):
            return made
    return source


def _is_python(source: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(source)
        return True
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False


@functools.lru_cache(maxsize=512)
def parse(source: str) -> ast.Module:
    """Return the tree of a cell; what IPython alone understands is taken as `clean` does.

    Raises
    ------
    Malformed
        It is no Python, or too much of it.
    """
    if len(source) > LENGTH:
        raise Malformed(f"its answer cell has {len(source)} characters; {LENGTH} are enough.")
    return _parse(clean(source))


def _parse(source: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except SyntaxError as error:
        text = f"{error.msg} at line {error.lineno}"
    except (ValueError, MemoryError, RecursionError) as error:
        text = f"it is nested too deeply or holds what is no text ({type(error).__name__})"
    raise Malformed(f"its answer cell does not run: SyntaxError: {text}.")


def bound(statement: ast.stmt) -> set[str]:
    """Return the names to which a top-level statement gives a value."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(a.asname or a.name).partition(".")[0] for a in statement.names}
    names = set()
    for inner in _inside(statement):  # `if`, `for`, `with`, `try`, `:=`
        names |= {inner.id} if isinstance(inner, ast.Name) else bound(inner)
    for target in _targets(statement):
        while isinstance(target, ast.Subscript | ast.Starred):
            target = target.value
        inner = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        names |= {one.id for one in inner if isinstance(one, ast.Name)}
    return names


def _inside(statement: ast.stmt) -> Iterator[ast.stmt | ast.Name]:
    """Yield the statements within a statement, and the names that `:=` gives a value in it."""
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.ExceptHandler | ast.match_case):
            yield from child.body
        elif isinstance(child, ast.withitem) and child.optional_vars is not None:
            yield from (n for n in ast.walk(child.optional_vars) if isinstance(n, ast.Name))
        elif isinstance(child, ast.stmt):
            yield child
        elif isinstance(child, ast.expr):
            yield from (n.target for n in ast.walk(child) if isinstance(n, ast.NamedExpr))


def _targets(statement: ast.stmt) -> list[Any]:
    if isinstance(statement, ast.Assign):
        return statement.targets
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        return [statement.target]
    if isinstance(statement, ast.AugAssign | ast.For):
        return [statement.target]
    return []


def read(source: str, variable: str, others: Iterable[str], form: str) -> object:
    """Return the value that an answer cell gives to a variable.

    Parameters
    ----------
    source : str
        Of the answer cell.
    variable : str
    others : iterable of str
        Sources of the other code cells, whose literals may be named.
    form : str
        What an answer looks like, for the message.

    Raises
    ------
    Malformed
        There is no such value, or it is not written out.
    """
    trees = []
    for other in others:
        try:
            trees.append(parse(other))
        except Malformed:
            continue
    own = parse(source)
    names = {}
    for tree in [*trees, own]:
        names |= dict(_assigned(tree))
    if not any(variable in bound(statement) for statement in own.body):
        raise Malformed(f"its answer cell should give `{variable}` a value.")
    node = dict(_assigned(own)).get(variable)
    if node is None or _elsewhere(own, variable):
        raise Computed(f"`{variable}` is computed by code.")
    return _read(_with_items(node, own, variable), names, variable, form)


def _elsewhere(tree: ast.Module, variable: str) -> bool:
    """Tell whether the last to give the variable a value is a statement that holds others."""
    nested = (ast.If, ast.Try, ast.With, ast.For, ast.While, ast.Match)
    last = [s for s in tree.body if variable in bound(s)][-1]
    return isinstance(last, nested)


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    statement: Any
    for statement in tree.body:
        for target in _targets(statement):
            if isinstance(target, ast.Name) and not isinstance(statement, ast.AugAssign | ast.For):
                yield target.id, statement.value


def _with_items(node: ast.expr, tree: ast.Module, variable: str) -> ast.expr:
    """Return a dict with the items that later lines put into it: ``answer["A"] = "both"``."""
    for statement in tree.body:
        for target in [] if isinstance(statement, ast.For) else _targets(statement):
            of = target.value if isinstance(target, ast.Subscript) else None
            if isinstance(of, ast.Name) and of.id == variable and isinstance(node, ast.Dict):
                keys, values = [*node.keys, target.slice], [*node.values, _given(statement, target)]
                node = ast.Dict(keys, values)
            elif isinstance(target, ast.Name) and target.id == variable:
                node = _given(statement, node)
    return node


def _given(statement: Any, before: ast.expr) -> ast.expr:
    """Return what a statement gives to its target, which had the value `before`."""
    if isinstance(statement, ast.AugAssign):
        return ast.BinOp(before, statement.op, statement.value)
    return statement.value


def _read(node: ast.expr, names: dict, variable: str, form: str) -> object:
    left = [NODES]
    try:
        return ast.literal_eval(_spelled(node, names, left, DEPTH))
    except _TooLarge:
        raise Malformed(
            f"the answer should be {form}; what stands there is far larger or deeper than that."
        ) from None
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        code = _code(node)
    if re.search(r"widget|[.](value|literal)\b", code):
        raise Malformed(f"the answer should be {form}; here it is `{code}`. {WIDGET}")
    raise Computed(f"`{variable}` is computed by code, `{code}`.")


class _TooLarge(Exception):
    pass


def _code(node: ast.expr) -> str:
    try:
        return ast.unparse(node)[:80]
    except (RecursionError, ValueError):
        return "…"


def _spelled(node: ast.expr, names: dict, left: list[int], depth: int) -> ast.expr:
    """Return an expression with names, `dict(…)`, `range(…)` and sums of strings written out."""
    left[0] -= 1
    if left[0] < 0 or depth < 0:
        raise _TooLarge

    def inner(one: ast.expr | None) -> Any:
        return one and _spelled(one, names, left, depth - 1)

    if isinstance(node, ast.Name) and node.id in names:
        return _spelled(names[node.id], names, left, depth - 1)
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return type(node)([inner(one) for one in node.elts])
    if isinstance(node, ast.Dict):
        return ast.Dict([inner(one) for one in node.keys], [inner(one) for one in node.values])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _called(node.func.id, [inner(a) for a in node.args], node.keywords, inner)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        one, other = inner(node.left), inner(node.right)
        texts = [getattr(part, "value", None) for part in (one, other)]
        if all(type(text) is str for text in texts):
            return ast.Constant("".join(map(str, texts)))
    return node


def _called(name: str, arguments: list, keywords: list, inner) -> ast.expr:
    if name == "dict" and not arguments and all(k.arg for k in keywords):
        return ast.Dict([ast.Constant(k.arg) for k in keywords], [inner(k.value) for k in keywords])
    if name == "range" and not keywords:
        numbers = range(*map(ast.literal_eval, arguments))
        if len(numbers) > NODES:
            raise _TooLarge
        return ast.List([ast.Constant(number) for number in numbers])
    kinds = {"list": ast.List, "tuple": ast.Tuple, "set": ast.Set}
    if name in kinds and not keywords:
        if not arguments:
            return kinds[name]([])
        (one,) = arguments
        if isinstance(one, ast.List | ast.Tuple | ast.Set):
            return kinds[name](one.elts)
    raise ValueError(name)
