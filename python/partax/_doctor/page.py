"""One HTML file with the findings of the doctor. It needs no network and no script."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from partax._doctor.figures import bytes_text, seconds_text
from partax._io.whole_file import write_whole

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # no page may hold these; names may
_MISSING = "the doctor's page needs jinja2, which was not found: pip install 'partax[doctor]'"


def write_page(path: str | Path, diagnoses: Sequence[Any]) -> None:
    """Writes one HTML file of diagnoses. An ImportError if `partax[doctor]` is not installed."""
    try:
        import jinja2
    except ImportError as error:
        raise ImportError(_MISSING, name="jinja2") from error
    environment: Any = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["figure"] = _figure_text
    template = environment.from_string(Path(__file__).with_name("page.html.jinja").read_text(encoding="utf-8"))
    text = template.render(diagnoses=diagnoses)
    write_whole(path, _CONTROL.sub("\ufffd", re.sub(r"\n\s*\n+", "\n", text)) + "\n")


def _figure_text(figure: tuple[str, int | float | str]) -> str:
    name, value = figure
    if isinstance(value, str):
        text = value
    elif name.endswith("bytes"):
        text = bytes_text(value)
    elif name.endswith("seconds"):
        text = seconds_text(value)
    else:
        text = f"{value:.0%}" if name == "share" else f"{value:,}"
    return f"{name.replace('_', ' ')}: {text}"
