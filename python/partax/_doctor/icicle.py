"""The icicle: how many equations of a program each line stands for, by call stack, the outermost call on top."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from partax._doctor.examined import Examined
from partax._doctor.finding import SEVERITIES, Finding
from partax._doctor.lines import Line, stack_of

_BOXES = 800  # of one picture; what is smaller than all of these goes into "other"
_NARROWEST = 1 / 600  # of the picture
_DEEPEST = 40  # levels; a recursion has more
_OTHER = Line("", 0, "other")


@dataclasses.dataclass(eq=False, slots=True)
class Box:
    """A line in the call stack of equations, and in the picture as wide as these."""

    line: Line  # without a file of the program as a whole, and of lines with few equations
    depth: int  # how many lines it is called through
    equations: int = 0  # that it stands for, those below included
    below: dict[Line, "Box"] = dataclasses.field(default_factory=dict[Line, "Box"])  # in the program's order
    severity: str = ""  # of the worst finding about it; empty where there is none

    @property
    def text(self) -> str:
        name = self.line.function.rpartition("<locals>.")[2]
        if self.line.file:
            return f"{self.line.short_place}  {self.line.source or name}"
        return f"{name}: {self.equations:,} equations"

    @property
    def title(self) -> str:
        place = f"{self.line.place} in {self.line.function}\n{self.line.source}" if self.line.file else self.text
        finding = f"\na finding of severity {self.severity} is about this line" if self.severity else ""
        return f"{place}\n{self.equations:,} equations{finding}"


def icicle(examined: Examined, findings: Sequence[Finding] = (), boxes: int = _BOXES) -> Box:
    """The equations of a program by call stack, in at most so many boxes, but for those of "other"."""
    root = _call_tree(examined)
    every = list(_preorder(root))
    # A line has no more equations than its caller, which comes before it where they have as many.
    by_size = sorted(every, key=lambda box: -box.equations)[:boxes]
    drawn = {id(box) for box in by_size if box.equations >= _NARROWEST * root.equations}
    worst = sorted(findings, key=lambda it: SEVERITIES.index(it.severity), reverse=True)
    found = {(it.file, it.line): it.severity for it in worst if it.file}
    for box in every:
        box.severity = found.get(box.line[:2], "")
        hidden = [line for line, it in box.below.items() if id(it) not in drawn]
        equations = sum(box.below.pop(line).equations for line in hidden)
        if equations:
            box.below[_OTHER] = Box(_OTHER, box.depth + 1, equations)
    return root


def _call_tree(examined: Examined) -> Box:
    """Of inner programs jax knows the lines from the inner function on: they stand below those of each call."""
    root = Box(Line("", 0, examined.name), 0)
    equations = examined.equations
    known: dict[tuple[int, Any], Box] = {}  # by traceback: those of a loop's turns are alike
    boxes: list[Box] = []
    for eqn, parent in zip(equations.eqns, equations.parents, strict=True):
        above = root if parent < 0 else boxes[parent]
        key = (id(above), eqn.source_info.traceback)
        box = known.get(key)
        if box is None:
            box = above
            for line in stack_of(eqn)[: _DEEPEST - above.depth]:
                box = box.below.setdefault(line, Box(line, box.depth + 1))
            known[key] = box
        boxes.append(box)
        box.equations += 1
    for box in reversed(list(_preorder(root))):
        box.equations += sum(it.equations for it in box.below.values())
    return root


def _preorder(box: Box) -> Iterator[Box]:
    yield box
    for it in box.below.values():
        yield from _preorder(it)
