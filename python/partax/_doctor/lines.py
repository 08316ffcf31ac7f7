"""The user's lines behind the equations of a program, and the loops around them."""

import ast
import functools
import linecache
import os
import sys
import sysconfig
import traceback
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax

from partax._jax.programs import frames_of
from partax._pytree.call_site import is_of_library, site_text


class Line(NamedTuple):
    file: str
    line: int  # from 1
    function: str  # the qualified name of what it belongs to

    @property
    def source(self) -> str:
        return linecache.getline(self.file, self.line).strip()

    @property
    def place(self) -> str:
        """Such as `train.py:12`; empty if unknown."""
        return site_text((self.file, self.line))

    @property
    def is_users(self) -> bool:
        return self.file != "" and rank(self.file) == USERS


NOWHERE = Line("", 0, "")  # where no line is known

Item = TypeVar("Item")
Key = TypeVar("Key")


def group_by(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


_STANDARD = sysconfig.get_path("stdlib") + os.sep
_INSTALLED = tuple({sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib")})
_HIDDEN = (
    str(Path(str(jax.__file__)).parent) + os.sep, str(Path(__file__).parents[1]) + os.sep,
    "<frozen", "<string>", "<__array_function__", "<eqx",
)  # fmt: skip
USERS = 2


@functools.lru_cache(maxsize=1 << 16)
def rank(file: str) -> int:
    """0 of jax's, partax's and Python's files, 1 of those of libraries, `USERS` of the user's."""
    if file.startswith(_HIDDEN):
        return 0
    if is_of_library(file):
        return 1
    return 0 if file.startswith(_STANDARD) and not file.startswith(_INSTALLED) else USERS


@functools.lru_cache(maxsize=1 << 16)
def _line_at(code: types.CodeType, instruction: int) -> Line:
    numbers = (line for begin, end, line in code.co_lines() if begin <= instruction < end)
    return Line(code.co_filename, next(numbers, 0) or 0, code.co_qualname)


def nearest_line(equations: Iterable[Any]) -> Line:
    """The innermost line of the first equation that comes from the user's code; of a library's where none does."""
    lines = [line for equation in equations for line in reversed(stack_of(equation))]
    return next((line for line in lines if line.is_users), lines[0] if lines else NOWHERE)


def stack_of(equation: Any) -> tuple[Line, ...]:
    """All lines of the user's and of libraries' that an equation comes from, the outermost first."""
    pairs = list(zip(*frames_of(equation), strict=True))
    return tuple(_line_at(code, at) for code, at in reversed(pairs) if rank(code.co_filename))


def first_line_of(jaxpr: Any, name: str) -> Line:
    _, _, place = str(getattr(jaxpr.debug_info, "func_src_info", "") or "").rpartition(" at ")
    file, _, number = place.rpartition(":")
    return Line(file, int(number), name) if file and number.isdigit() else NOWHERE


def running_line() -> Line | None:
    codes = ((frame.f_code, number) for frame, number in traceback.walk_stack(sys._getframe()))
    lines = (Line(code.co_filename, number, code.co_qualname) for code, number in codes)
    return next((line for line in lines if line.is_users), None)


_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@functools.lru_cache(maxsize=1024)
def loops_around(line: Line) -> list[tuple[int, int]]:
    """The first and the last line of each loop around a line, in its own function; the innermost loop first."""
    loops: list[tuple[int, int]] = []
    nodes: list[ast.AST] = [_syntax_tree(line.file)]
    while nodes:
        node = nodes.pop()
        first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", None)
        if last is not None and not first <= line.line <= last:
            continue
        if isinstance(node, _FUNCTIONS) and not (isinstance(node, ast.Lambda) and "<lambda>" not in line.function):
            loops.clear()  # a loop around a function does not call it; a line around a lambda is not inside that
        elif isinstance(node, _LOOPS):
            loops.append((first, int(last or first)))
        nodes += ast.iter_child_nodes(node)
    return sorted(loops, key=lambda loop: loop[1] - loop[0])


@functools.lru_cache(maxsize=64)
def _syntax_tree(file: str) -> ast.Module:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return ast.parse("")
