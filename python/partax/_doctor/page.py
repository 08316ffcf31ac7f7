"""One HTML file with what the doctor has found: findings first, then pictures. It needs no network and no script."""

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from partax._doctor.examined import Examined
from partax._doctor.finding import SEVERITIES, Figures, Finding
from partax._doctor.lines import Line, grouped, stack_of
from partax._doctor.liveness import Buffer, Liveness, live_bytes, told_limit
from partax._io.whole_file import write_whole
from partax._pytree.call_site import file_text, site_text
from partax._report.table import bytes_text, counted, figure_texts, seconds_text

_BOXES = 1600  # of all icicles together, which keeps the file under a megabyte
_FEWEST_BOXES, _MOST_BOXES = 80, 800  # of one; what is smaller than all of these goes into "other"
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


def icicle(examined: Examined, findings: Sequence[Finding] = (), boxes: int = _MOST_BOXES) -> Box:
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


_TEMPLATE = Path(__file__).with_name("page.html.jinja")
_PICTURED = 20  # programs
_COLUMNS = 550  # of a curve
_BUFFERS = 8
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # no page may hold these; names may
_MISSING = "the doctor's page needs jinja2, which was not found: pip install 'partax[doctor]'"


Pictured = tuple[Examined, Sequence[Finding]]  # a program and what was found of it


class Section(NamedTuple):
    name: str
    icicle: Box
    live: Liveness
    curve: list[tuple[int, int]]  # a step, and the most bytes from there to the next one
    buffers: list[list[Buffer]]  # that live at the peak, those together that are alike
    limit: int | None


def write_page(path: str | Path, diagnoses: Sequence[Any]) -> None:
    """Writes one HTML file: the findings of all diagnoses, then pictures.

    Each is a `Diagnosis`, which imports this file. An ImportError if `partax[doctor]` is not installed, an OSError if
    the file cannot be written.
    """
    write_whole(path, page(diagnoses))


def page(diagnoses: Sequence[Any]) -> str:
    try:
        import jinja2
    except ImportError as error:
        raise ImportError(_MISSING, name="jinja2") from error
    environment: Any = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(figures=figure_texts, bytes=bytes_text, seconds=seconds_text, relative=file_text)
    environment.filters["place"] = lambda it: site_text((it.file, it.line)) if it.file else it.path
    programs = [(it.examined, it.findings) for it in diagnoses if it.examined is not None and it.examined.equations]
    text = environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        diagnoses=diagnoses, summary=_summary(diagnoses), sections=list(_sections(programs))
    )
    return _CONTROL.sub("\ufffd", re.sub(r"\n\s*\n+", "\n", text)) + "\n"


def _sections(programs: Sequence[Pictured]) -> Iterator[Section]:
    programs = programs[:_PICTURED]
    boxes = max(_FEWEST_BOXES, min(_MOST_BOXES, _BOXES // max(len(programs), 1)))
    for program, findings in programs:
        live = live_bytes(program)
        alike = grouped(live.largest, lambda it: it._replace(name="", type=""))  # as the parameters of layers are
        each = max(1, -(-len(live.bytes) // _COLUMNS))
        curve = [(i, max(live.bytes[i : i + each])) for i in range(0, len(live.bytes), each)]
        picture, buffers = icicle(program, findings, boxes), list(alike.values())[:_BUFFERS]
        yield Section(program.name, picture, live, curve, buffers, told_limit(program))


def _summary(diagnoses: Sequence[Any]) -> str:
    """What a reader should know first: the costliest function, how often it was traced, and why or what is wrong."""
    if not diagnoses:
        return "No program was compiled."
    costliest = max(diagnoses, key=lambda it: (not it.is_of_library, _cost(it.figures)))
    seconds, times = _cost(costliest.figures), costliest.figures.get("times", 1)
    message = costliest.findings[0].message if costliest.findings else "nothing was found in it"
    reason = f"{message[0].upper()}{message[1:]}".rstrip(".") + "."
    count = sum(len(it.findings) for it in diagnoses)
    found = f"{counted(count, 'finding')} in {counted(len(diagnoses), 'function')}. "
    name = f"`{costliest.name}`" + (f" ({costliest.defined})" if costliest.defined else "")
    often = "once" if times == 1 else f"{times} times"
    cost = f", traced {often}: {seconds_text(seconds)}" if seconds else ""  # a loop outside of any function has none
    return f"{found}The costliest function is {name}{cost}. {reason}"


def _cost(figures: Figures) -> float:
    return sum(float(figures.get(f"{stage}_seconds", 0.0)) for stage in ("trace", "lower", "compile"))
