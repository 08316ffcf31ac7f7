"""A diagnosis as text: a table where a terminal and rich are there, else plain lines."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from partax._doctor.figure_text import figure_texts
from partax._doctor.finding import Finding
from partax._report.terminal import is_terminal

if TYPE_CHECKING:
    from rich.text import Text

_STYLES = {"high": "bold red", "medium": "bold yellow", "low": "bold cyan", "info": "dim"}


def print_diagnosis(diagnosis: Any, file: TextIO | None = None) -> None:
    """Prints a `Diagnosis` to the standard output or a file; on a terminal as a table, if rich is installed."""
    where = sys.stdout if file is None else file
    if is_terminal(where) and diagnosis.findings:
        try:
            from rich.console import Console

            table = diagnosis.__rich__()
        except ImportError:
            pass
        else:
            Console(file=where).print(table)
            return
    print(diagnosis, file=where)


def rich_diagnosis(title: str, findings: Sequence[Finding]) -> Any:
    """A diagnosis as `rich.print` prints it; an ImportError where rich is not installed."""
    from rich.table import Table
    from rich.text import Text

    head = Text(title)
    if not findings:
        return head
    table = Table(show_lines=True, title_justify="left", title=head)
    for name in ("severity", "kind", "where", "what it is, and what to do"):
        table.add_column(name, overflow="fold")
    for it in findings:
        table.add_row(Text(it.severity, style=_STYLES[it.severity]), Text(it.kind), Text(it.where), _told(it))
    return table


def _told(finding: Finding) -> "Text":
    from rich.text import Text

    told = Text()  # never as markup: paths such as `ws[0]` would be read as such
    if finding.source:
        told.append(finding.source + "\n", style="dim")
    told.append(finding.message + "\n")
    told.append("-> " + finding.advice, style="bold")
    if finding.figures:
        told.append("\n" + ", ".join(map(" ".join, figure_texts(finding.figures))), style="dim")
    return told
