"""One HTML file with what the doctor has found: findings first, then pictures. It needs no network and no script."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from partax._doctor.compiled_programs import Program, examined_program, traced_programs
from partax._doctor.examined import Examined
from partax._doctor.finding import Figures, Finding
from partax._doctor.lines import grouped
from partax._doctor.liveness import Buffer, Liveness, live_bytes, told_limit
from partax._doctor.pictures import LOAD, STAGES, Box, Event, events, icicle
from partax._io.whole_file import write_whole
from partax._pytree.call_site import file_text, site_text
from partax._report import function_reports as _function_reports
from partax._report.figure_text import bytes_text, counted, figure_texts, seconds_text
from partax._report.report import Report

_TEMPLATE = Path(__file__).with_name("page.html.jinja")
_BOXES = 1600  # of all icicles together, which keeps the file under a megabyte
_FEWEST_BOXES = 80
_MOST_BOXES = 800
_PICTURED = 20  # programs
_COLUMNS = 550  # of a curve
_BUFFERS = 8
_TRACES = 40  # that are shown: those that took longest
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


def write_page(path: str | Path, diagnoses: Sequence[Any], report: Report | None = None) -> None:
    """Writes one HTML file: the findings of all diagnoses, then pictures, then the traces of this process.

    Each is a `Diagnosis`, which imports this file. Without any it is the page of a report, of now if none is given. An
    ImportError if `partax[doctor]` is not installed, an OSError if the file cannot be written.
    """
    write_whole(path, page(diagnoses, report))


def page(diagnoses: Sequence[Any], report: Report | None = None) -> str:
    try:
        import jinja2
    except ImportError as error:
        raise ImportError(_MISSING, name="jinja2") from error
    environment: Any = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(figures=figure_texts, bytes=bytes_text, seconds=seconds_text, relative=file_text)
    environment.filters["place"] = lambda it: site_text((it.file, it.line)) if it.file else it.path
    programs = [(it.examined, it.findings) for it in diagnoses if it.examined is not None and it.examined.equations]
    report = _function_reports.report() if report is None else report
    traces = _traces(report)
    costliest = {id(it) for it in sorted(traces, key=lambda it: -it[0])[:_TRACES]}
    text = environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        diagnoses=diagnoses,
        summary=_summary(diagnoses, report),
        sections=list(_sections(programs if diagnoses else _costliest(report))),
        traces=[it for it in traces if id(it) in costliest],
        left_out=max(len(traces) - _TRACES, 0),
        stages=[(stage, stage) for stage in (*STAGES, LOAD)],
    )
    return _CONTROL.sub("\ufffd", re.sub(r"\n\s*\n+", "\n", text)) + "\n"


def _costliest(report: Report) -> list[Pictured]:
    """Of each function of a report the program that took longest, as far as jax still holds it."""
    functions = {(it.name, it.defined) for it in report.functions}
    found: dict[tuple[str, str], Program] = {}
    for program in sorted(traced_programs(), key=lambda it: -it.seconds):
        if (program.name, program.defined) in functions:
            found.setdefault((program.name, program.defined), program)
    return [(examined_program(program), ()) for program in found.values()]


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


def _traces(report: Report) -> list[tuple[float, list[Event]]]:
    functions = {(it.name, it.defined) for it in report.functions}
    told = (event for event in events() if (event.function, event.defined) in functions)
    traces = grouped(told, lambda event: (event.track, event.trace))
    return [(sum(event.seconds for event in trace), trace) for trace in traces.values()]


def _summary(diagnoses: Sequence[Any], report: Report) -> str:
    """What a reader should know first: the costliest function, how often it was traced, and why or what is wrong."""
    if diagnoses:
        costliest = max(diagnoses, key=lambda it: (not it.is_of_library, _cost(it.figures)))
        seconds, times = _cost(costliest.figures), costliest.figures.get("times", 1)
        message = costliest.findings[0].message if costliest.findings else "nothing was found in it"
        reason = f"{message[0].upper()}{message[1:]}".rstrip(".") + "."
        count = sum(len(it.findings) for it in diagnoses)
        found = f"{counted(count, 'finding')} in {counted(len(diagnoses), 'function')}. "
    elif report.functions:
        costliest, found = report.functions[0], ""
        seconds, times = costliest.seconds, len(costliest.traces)
        reason = f"The latest trace: {costliest.traces[-1].reason}" if costliest.traces else ""
    else:
        return ""
    name = f"`{costliest.name}`" + (f" ({costliest.defined})" if costliest.defined else "")
    often = "once" if times == 1 else f"{times} times"
    cost = f", traced {often}: {seconds_text(seconds)}" if seconds else ""  # a loop outside of any function has none
    return f"{found}The costliest function is {name}{cost}. {reason}"


def _cost(figures: Figures) -> float:
    return sum(float(figures.get(f"{stage}_seconds", 0.0)) for stage in ("trace", "lower", "compile"))
