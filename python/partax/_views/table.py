"""Tables: one description of a table, and what it is as plain text, as HTML and on a terminal."""

import contextlib
import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

from partax._tree.short_text import printable
from partax._views.terminal import is_terminal, width_of

Row = tuple[str, ...] | str
"""The cells of a row, or a text that goes across."""


@dataclasses.dataclass(frozen=True)
class Table:
    """A table to look at.

    Attributes:
      columns: their headings.
      sections: groups of rows, with a rule between them where the table has rules.
      left: the indices of the columns whose text stands at the left; numbers stand at the right.
      title: the line above, or an empty string.
      notes: the lines below.
      ruled: whether the plain text has rules.
      indent: how far the plain text stands to the right of its title.
      apart: whether the first column, where there is no room for it, stands in lines of its own above the rows.
    """

    columns: tuple[str, ...]
    sections: tuple[tuple[Row, ...], ...]
    left: frozenset[int]
    title: str = ""
    notes: tuple[str, ...] = ()
    ruled: bool = False
    indent: int = 0
    apart: bool = False

    def printable(self) -> "Table":
        """The table with escapes for what would move the text on a terminal, as a line break in a path does."""
        return dataclasses.replace(
            self,
            sections=tuple(tuple(map(_printable, section)) for section in self.sections),
            title=printable(self.title),
            notes=tuple(map(printable, self.notes)),
        )


def _printable(row: Row) -> Row:
    return printable(row) if isinstance(row, str) else tuple(map(printable, row))


def text_of(tables: Sequence[Table], file: Any) -> str:
    """Tables as they are printed.

    Args:
      tables: to print, one below the other.
      file: where to. On a terminal they fit its width, and rich draws them, where it is installed; elsewhere each row
        is one line.

    Returns:
      The text, without codes for colours.
    """
    tables = [table.printable() for table in tables]
    if not is_terminal(file):
        return "\n\n".join(plain_text(table) for table in tables)
    width = width_of(file)
    if (getattr(file, "encoding", None) or "").lower().replace("-", "") == "utf8":
        from partax._views.rich_table import drawn

        with contextlib.suppress(ImportError):  # rich is not installed
            return drawn(tables, width)
    return "\n\n".join(plain_text(table, width) for table in tables)


def plain_text(table: Table, width: int | None = None) -> str:
    """A table as lines of text.

    Args:
      table: the table.
      width: how long a line may be: cells that do not fit are folded. None: each row is one line.

    Returns:
      The lines, without spaces at their ends.
    """
    cells, widths = _columns(table)
    gap, indent = 2, table.indent
    if width is not None and table.apart and indent + _sum(widths, gap) > width:
        table = _with_first_apart(table)
        cells, widths = _columns(table)
    if width is not None and indent + _sum(widths, gap) > width:
        indent = 0
        gap = 2 if _sum(_words(cells), 2) <= width else 1
        _narrow(widths, cells, width - gap * (len(widths) - 1))

    def lines_of(row: Row) -> list[str]:
        if isinstance(row, str):
            return _folded(" " * indent + row, width)
        folded = [_folded(cell, column) for cell, column in zip(row, widths, strict=True)]
        return [
            " " * indent
            + (" " * gap)
            .join(
                text.ljust(column) if i in table.left else text.rjust(column)
                for i, (text, column) in enumerate(zip(texts, widths, strict=True))
            )
            .rstrip()
            for texts in itertools.zip_longest(*folded, fillvalue="")
        ]

    heading = lines_of(table.columns)
    sections = [[line for row in section for line in lines_of(row)] for section in table.sections if section]
    lines = _folded(table.title, width) if table.title else []
    rule = ["-" * max(len(line) for row in cells for line in lines_of(row))] if table.ruled else []
    lines += heading
    for section in sections:
        lines += [*rule, *section]
    return "\n".join([*lines, *(line for note in table.notes for line in _folded(note, width))])


def fits(table: Table, width: int) -> bool:
    """Whether no cell must be folded for a table to have its columns side by side, with two spaces between."""
    return _sum(_columns(table)[1], 2) + 2 <= width


def _columns(table: Table) -> tuple[list[tuple[str, ...]], list[int]]:
    """The rows with cells, the headings first, and how wide each column is."""
    cells = [table.columns, *(row for section in table.sections for row in section if isinstance(row, tuple))]
    return cells, [max(map(len, column)) for column in zip(*cells, strict=True)]


def _sum(widths: Sequence[int], gap: int) -> int:
    return sum(widths) + gap * (len(widths) - 1)


def _with_first_apart(table: Table) -> Table:
    sections: list[tuple[Row, ...]] = []
    for section in table.sections:
        rows: list[Row] = []
        for row in section:
            rows += [f"{table.columns[0]}: {row[0]}", row[1:]] if isinstance(row, tuple) and row[0] else [row[1:]]
        sections.append(tuple(rows))
    left = frozenset(i - 1 for i in table.left if i > 0)
    return dataclasses.replace(table, columns=table.columns[1:], sections=tuple(sections), left=left)


def _words(cells: Sequence[tuple[str, ...]]) -> list[int]:
    """The longest word of each column."""
    return [max(len(word) for cell in column for word in cell.split() or [""]) for column in zip(*cells, strict=True)]


def _narrow(widths: list[int], cells: Sequence[tuple[str, ...]], room: int) -> None:
    """Narrows the widest columns until all fit: first down to their longest words, then further."""
    for least in (_words(cells), [1] * len(widths)):
        while sum(widths) > room:
            wide = [i for i, width in enumerate(widths) if width > least[i]]
            if not wide:
                break
            widths[max(wide, key=widths.__getitem__)] -= 1


def _folded(text: str, width: int | None) -> list[str]:
    if width is None or len(text) <= width:
        return [text]
    import textwrap

    further = " " * min(len(text) - len(text.lstrip()), width - 1)
    return textwrap.wrap(text, width, subsequent_indent=further, break_on_hyphens=False) or [""]


def html_of(tables: Sequence[Table]) -> str:
    """Tables as HTML for a notebook, with no colours of their own. All text is escaped."""
    return "".join(_html(table.printable()) for table in tables)


def _html(table: Table) -> str:
    import html

    def cell(kind: str, i: int, text: str) -> str:
        side = "left" if i in table.left else "right"
        return f'<{kind} style="text-align: {side}; vertical-align: top">{html.escape(text)}</{kind}>'

    def line(kind: str, row: Row) -> str:
        if isinstance(row, str):
            return f'<tr><{kind} colspan="{len(table.columns)}">{html.escape(row)}</{kind}></tr>'
        return f"<tr>{''.join(cell(kind, i, text) for i, text in enumerate(row))}</tr>"

    body = "".join(f"<tbody>{''.join(line('td', row) for row in section)}</tbody>" for section in table.sections)
    head = f"<p>{html.escape(table.title)}</p>" if table.title else ""
    notes = "".join(f"<li>{html.escape(note.strip())}</li>" for note in table.notes)
    rows = f"<table><thead>{line('th', table.columns)}</thead>{body}</table>" if any(table.sections) else ""
    return head + rows + (f"<ul>{notes}</ul>" if notes else "")
