"""What the tests know of a program from a public thread, and how such programs are declared."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from examining import Call

MARKER = "# here"
GIB = 1024**3


@dataclasses.dataclass(frozen=True)
class ThreadProgram:
    """A program from a public thread, in small.

    Attributes:
      name: of the program.
      url: of the thread.
      kind: of the finding that explains the thread.
      make: gives the function and its arguments.
      figures: what the finding must say, by name, computed without the doctor.
      path: the argument or the constant that the finding is about.
      also: kinds that are right beside it.
      memory_limit: bytes, as the option of the doctor; by default more than the programs need.
      x64: whether the program is traced with 64-bit types.
    """

    name: str
    url: str
    kind: str
    make: Callable[[], Call]
    figures: Mapping[str, float | str]
    path: str = ""
    also: tuple[str, ...] = ()
    memory_limit: int = 64 * GIB
    x64: bool = False

    @property
    def lines(self) -> set[int]:
        """The marked lines, of which the finding must name one; none where it names no line."""
        source, first = inspect.getsourcelines(self.make)
        return {first + at for at, text in enumerate(source) if text.rstrip().endswith(MARKER)}

    @property
    def file(self) -> str:
        return inspect.getsourcefile(self.make) or ""


PROGRAMS: list[ThreadProgram] = []


def thread(url: str, kind: str, figures: Mapping[str, float | str], **more: Any) -> Callable[[Callable[[], Call]], Any]:
    """Declares a program: the decorated function makes it, and its last comment marks the line to be named."""

    def declare(make: Callable[[], Call]) -> Callable[[], Call]:
        PROGRAMS.append(ThreadProgram(make.__name__, url, kind, make, figures, **more))
        return make

    return declare
