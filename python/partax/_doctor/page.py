"""One HTML file with what the doctor has found. It needs no network and no script."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from partax._doctor.figures import figure_texts, seconds_text
from partax._doctor.finding import Figures
from partax._explain.table import counted
from partax._io.whole_file import write_whole
from partax._pytree.call_site import site_text

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # no page may hold these; names may
_MISSING = "the doctor's page needs jinja2, which was not found: pip install 'partax[doctor]'"


def write_page(path: str | Path, diagnoses: Sequence[Any]) -> None:
    """Writes one HTML file of diagnoses. An ImportError if `partax[doctor]` is not installed."""
    try:
        import jinja2
    except ImportError as error:
        raise ImportError(_MISSING, name="jinja2") from error
    environment: Any = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(
        figures=figure_texts, place=lambda it: site_text((it.file, it.line)) if it.file else it.path
    )
    template = environment.from_string(Path(__file__).with_name("page.html.jinja").read_text(encoding="utf-8"))
    text = template.render(diagnoses=diagnoses, summary=_summary(diagnoses))
    write_whole(path, _CONTROL.sub("\ufffd", re.sub(r"\n\s*\n+", "\n", text)) + "\n")


def _summary(diagnoses: Sequence[Any]) -> str:
    """What a reader should know first: the costliest function, how often it was traced, and what is wrong."""
    if not diagnoses:
        return "No program was compiled."
    costliest = max(diagnoses, key=lambda it: (not it.is_of_library, _seconds(it.figures)))
    seconds, times = _seconds(costliest.figures), costliest.figures.get("times", 1)
    message = costliest.findings[0].message if costliest.findings else "nothing was found in it"
    name = f"`{costliest.name}`" + (f" ({costliest.defined})" if costliest.defined else "")
    often = "once" if times == 1 else f"{times} times"
    cost = f", traced {often}: {seconds_text(seconds)}" if seconds else ""  # a loop outside of any function has none
    totals = (
        f"{counted(sum(len(it.findings) for it in diagnoses), 'finding')} in {counted(len(diagnoses), 'function')}."
    )
    return f"{totals} The costliest function is {name}{cost}. {message[0].upper()}{message[1:]}".rstrip(".") + "."


def _seconds(figures: Figures) -> float:
    return sum(float(figures.get(f"{stage}_seconds", 0.0)) for stage in ("trace", "lower", "compile"))
