"""The user's lines behind the equations of a program."""

import functools
import linecache
import sys
import sysconfig
import types
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from partax._jax.programs import frames_of
from partax._pytree.call_site import LIBRARY_FOLDERS, is_of_library, site_text


class Line(NamedTuple):
    """A line of a file.

    Attributes:
      file: as Python knows it.
      line: from 1.
      function: the qualified name of the function that it belongs to.
    """

    file: str
    line: int
    function: str

    @property
    def source(self) -> str:
        """The text of the line, without indentation; empty where the file is not there."""
        return linecache.getline(self.file, self.line).strip()

    @property
    def place(self) -> str:
        """Where it is as its user writes it, such as `train.py:12`; empty where that is not known."""
        return site_text((self.file, self.line))

    @property
    def short_place(self) -> str:
        """The same without folders."""
        return f"{Path(self.file).name}:{self.line}"


NOWHERE = Line("", 0, "")  # where no line is known


_PACKAGES = (str(Path(str(jax.__file__)).parent) + "/", str(Path(__file__).parents[1]) + "/")
_STANDARD = sysconfig.get_path("stdlib") + "/"
_INSTALLED = tuple({sysconfig.get_path(name) + "/" for name in ("purelib", "platlib")})
_NOT_CODE = ("<frozen", "<string>", "<__array_function__", "<eqx")


USERS = 2


@functools.lru_cache(maxsize=1 << 16)
def _rank(file: str) -> int:
    """0 of jax's, partax's and the interpreter's files, 1 of those of libraries, 2 of the user's."""
    if file.startswith(_PACKAGES) or file.startswith(_NOT_CODE):
        return 0
    if is_of_library(file):
        return 1
    return 0 if file.startswith(_STANDARD) and not file.startswith(_INSTALLED) else USERS


# By the id of a code object, whose hash is one of all its constants, and the instruction. The object is kept alive.
_known: dict[tuple[int, int], tuple[types.CodeType, Line]] = {}


def _line_at(code: types.CodeType, instruction: int) -> Line:
    known = _known.get((id(code), instruction))
    if known is None:
        lines = (line for begin, end, line in code.co_lines() if begin <= instruction < end)
        known = code, Line(code.co_filename, next(lines, 0) or 0, code.co_qualname)
        _known[id(code), instruction] = known
    return known[1]


def line_of(equation: Any) -> Line | None:
    """The innermost line of the user's that an equation comes from; of a library's where there is no such.

    None if jax does not know it.
    """
    codes, instructions = frames_of(equation)
    best, best_at = 0, -1
    for i, code in enumerate(codes):
        rank = _rank(code.co_filename)
        if rank > best:
            best, best_at = rank, i
            if rank == USERS:
                break
    return None if best_at < 0 else _line_at(codes[best_at], instructions[best_at])


def nearest_line(equations: Iterable[Any]) -> Line:
    """The line of the first equation that comes from the user's code; the first that is known where none does."""
    found: Line | None = None
    for equation in equations:
        line = line_of(equation)
        if line is not None and is_users(line):
            return line
        found = found or line
    return found or NOWHERE


def stack_of(equation: Any) -> tuple[Line, ...]:
    """All lines of the user's and of libraries' that an equation comes from, the outermost first."""
    codes, instructions = frames_of(equation)
    pairs = zip(codes, instructions, strict=True)
    found = [_line_at(code, at) for code, at in pairs if _rank(code.co_filename)]
    return tuple(reversed(found))


def comes_from(equation: Any, file: str, *functions: str) -> bool:
    """Whether one of these functions of jax's made an equation itself, and not a function that it was given."""
    return any(code.co_name in functions and code.co_filename.endswith(file) for code in frames_of(equation)[0])


def rank_of(code: types.CodeType) -> int:
    """0 of code of jax, of partax and of Python, 1 of that of libraries, 2 of the user's."""
    return _rank(code.co_filename)


def function_called_by(file: str, equations: Sequence[Any]) -> Line | None:
    """The first line of the user's function that a library's wrapper in a file calls; None if it calls none."""
    library = next((folder for folder in LIBRARY_FOLDERS if file.startswith(folder)), file)
    for equation in equations:
        codes = iter(reversed(frames_of(equation)[0]))  # the outermost first
        if not any(code.co_filename == file for code in codes):
            continue
        inner = (code for code in codes if rank_of(code) and not code.co_filename.startswith(library))
        code = next(inner, None)
        if code is not None:
            line = Line(code.co_filename, code.co_firstlineno, code.co_qualname)
            return line if is_users(line) else None
    return None


def running_line() -> Line | None:
    """The innermost line of the user's that runs now; None where there is none."""
    frame = sys._getframe(1)
    while frame is not None and rank_of(frame.f_code) != USERS:
        frame = frame.f_back
    return None if frame is None else Line(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname)


def is_of_jax(jaxpr: Any) -> bool:
    """Whether a program is one of jax's own functions."""
    _, _, place = str(getattr(jaxpr.debug_info, "func_src_info", "") or "").rpartition(" at ")
    return _rank(place.rpartition(":")[0]) == 0 if place else False


def is_users(line: Line) -> bool:
    """Whether a line is the user's, and not one of a library's."""
    return _rank(line.file) == USERS
