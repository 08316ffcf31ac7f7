"""A diagnosis as text: a table where a terminal and rich are there, else plain lines."""

import sys
from typing import TYPE_CHECKING, Any, TextIO

from partax._doctor.diagnosis import Diagnosis
from partax._doctor.figure_text import figure_name, figure_text

if TYPE_CHECKING:
    from rich.text import Text

_STYLES = {"high": "bold red", "medium": "bold yellow", "low": "bold cyan"}


def print_diagnosis(diagnosis: Diagnosis, file: TextIO | None = None) -> None:
    """Prints a diagnosis.

    Args:
      diagnosis: to print.
      file: where to; the standard output by default. On a terminal there is a table, if rich is installed.
    """
    where = sys.stdout if file is None else file
    rich = _rich() if where.isatty() and diagnosis.findings else None
    if rich is None:
        print(diagnosis, file=where)
        return
    console, table_class, text_class = rich
    head, _, _ = str(diagnosis).partition("\n")
    table = table_class(show_lines=True, title_justify="left", title=text_class(head))
    for name in ("severity", "kind", "where", "what it is, and what to do"):
        table.add_column(name, overflow="fold")
    for it in diagnosis.findings:
        severity = text_class(it.severity, style=_STYLES[it.severity])
        table.add_row(severity, text_class(it.kind), text_class(it.where), _told(text_class, it))
    console(file=where).print(table)


def _told(text_class: "type[Text]", finding: Any) -> "Text":
    told = text_class()  # never as markup: paths such as `ws[0]` would be read as such
    if finding.source:
        told.append(finding.source + "\n", style="dim")
    told.append(finding.message + "\n")
    told.append("-> " + finding.advice, style="bold")
    if finding.figures:
        figures = (f"{figure_name(name)} {figure_text(name, value)}" for name, value in finding.figures.items())
        told.append("\n" + ", ".join(figures), style="dim")
    return told


def _rich() -> tuple[Any, Any, Any] | None:
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return None
    return Console, Table, Text
