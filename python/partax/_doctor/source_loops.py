"""Whether a line of the user's source is in a loop."""

import ast
import functools
import linecache

from partax._doctor.lines import Line

_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def loop_around(line: Line) -> tuple[int, int] | None:
    """The first and the last line of the innermost loop of the line's own function that is around it.

    None where there is none, also where the source is not there.
    """
    around = [it for it in _loops(line.file, line.line) if it[0] <= line.line <= it[1]]
    return min(around, key=lambda it: it[1] - it[0], default=None)


@functools.lru_cache(maxsize=1024)
def _loops(file: str, line: int) -> tuple[tuple[int, int], ...]:
    """The first and the last line of each loop in the innermost function that has this line."""
    tree = _tree(file)
    if tree is None:
        return ()
    found: list[tuple[int, int]] = []
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", None)
        if last is not None and not first <= line <= last:
            continue
        if isinstance(node, _FUNCTIONS):
            found.clear()  # a loop around a function does not call it
        elif isinstance(node, _LOOPS):
            found.append((first, int(last or first)))
        left += ast.iter_child_nodes(node)
    return tuple(found)


@functools.lru_cache(maxsize=64)
def _tree(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return None
