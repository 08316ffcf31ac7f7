"""What is shown: figures, tables as plain text, as rich draws them, and as HTML; how far long work has come."""

import contextlib
import dataclasses
import html
import io
import os
import shutil
import sys
import threading
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from partax._pytree.short_text import one_line, printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

Row = tuple[str, ...] | str
"""The cells of a row, or a text that goes across."""


@dataclasses.dataclass(frozen=True)
class Table:
    columns: tuple[str, ...] = ()  # their headings
    sections: tuple[tuple[Row, ...], ...] = ()  # groups of rows, with a rule between them where the table has rules
    left: frozenset[int] = frozenset()  # the columns whose text stands at the left; numbers stand at the right
    title: str = ""  # the line above
    notes: tuple[str, ...] = ()  # the lines below
    ruled: bool = False  # whether the plain text has rules
    indent: int = 0  # how far the plain text stands to the right of its title

    def printable(self) -> "Table":
        """The table with escapes for what would move the text on a terminal, as a line break in a path does."""

        def row(cells: Row) -> Row:
            return printable(cells) if isinstance(cells, str) else tuple(map(printable, cells))

        sections = tuple(tuple(map(row, section)) for section in self.sections)
        notes = tuple(map(printable, self.notes))
        return dataclasses.replace(self, sections=sections, title=printable(self.title), notes=notes)


class Tables:
    """Tables, one below the other; `rich.print` draws them. No text is read as markup: `[bold]` stays as it is."""

    def __init__(self, *tables: Table) -> None:
        self._tables = [table.printable() for table in tables]

    def text(self, file: Any, plain: str = "") -> str:
        """As printed to a file: by rich on a terminal, elsewhere a line for each row, or the plain text if given."""
        if is_terminal(file) and (getattr(file, "encoding", None) or "").lower().replace("-", "") == "utf8":
            with contextlib.suppress(ImportError):  # rich is not installed
                return self._drawn(width_of(file))
        return plain or "\n\n".join(map(_plain_text, self._tables))

    def html(self) -> str:
        """The tables as HTML for a notebook, with no colours of their own. All text is escaped."""
        return "".join(map(_html, self._tables))

    def _drawn(self, width: int) -> str:
        from rich.console import Console

        file = io.StringIO()
        Console(file=file, width=width, color_system=None, force_terminal=False, force_jupyter=False).print(self)
        return "\n".join(line.rstrip() for line in file.getvalue().splitlines())

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterator[RenderableType]":
        from rich.text import Text

        for table in self._tables:
            yield from [Text(table.title)] if table.title else []
            yield from [_rich_table(table)] if any(table.sections) else []
            yield from map(Text, table.notes)


class Shown:
    """What is shown as tables: where it is printed, by rich, and in a notebook."""

    def _tables(self) -> Tables:
        raise NotImplementedError

    def __str__(self) -> str:
        return self._tables().text(sys.stdout)

    def __rich__(self) -> Any:
        return self._tables()

    def _repr_html_(self) -> str:
        return self._tables().html()


def _rich_table(table: Table) -> "RenderableType":
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    made = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for i, heading in enumerate(table.columns):
        made.add_column(Text(heading), justify="left" if i in table.left else "right", overflow="fold")
    for section in table.sections:
        for row in section:
            made.add_row(*map(Text, (row,) if isinstance(row, str) else row))
        made.add_section()
    return made


def _plain_text(table: Table) -> str:
    cells = [table.columns, *(row for section in table.sections for row in section if isinstance(row, tuple))]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]

    def line(row: Row) -> str:
        if isinstance(row, tuple):
            pairs = enumerate(zip(row, widths, strict=True))
            aligned = [cell.ljust(width) if i in table.left else cell.rjust(width) for i, (cell, width) in pairs]
            row = "  ".join(aligned).rstrip()
        return " " * table.indent + row

    rule = ["-" * max(len(line(row)) for row in cells)] if table.ruled else []
    lines = [*filter(None, [table.title]), *map(line, filter(None, [table.columns]))]
    for section in filter(None, table.sections):
        lines += [*rule, *map(line, section)]
    return "\n".join([*lines, *table.notes])


def _html(table: Table) -> str:
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


def is_terminal(file: Any) -> bool:
    """Whether a stream is a terminal that can place its text: no pipe, file or notebook, and not a dumb one."""
    try:
        return bool(file.isatty()) and os.environ.get("TERM") != "dumb"
    except (AttributeError, ValueError, OSError):  # None, as under pythonw; or a closed file
        return False


def width_of(file: Any) -> int:
    """How many columns a terminal has: what the environment variable `COLUMNS` says, else what the terminal does."""
    try:
        if not os.environ.get("COLUMNS", "").isdecimal():
            return os.get_terminal_size(file.fileno()).columns or _USUAL
    except (AttributeError, ValueError, OSError):  # a stream that says that it is a terminal, but is no file
        pass
    return shutil.get_terminal_size((_USUAL, 24)).columns


_USUAL = 80


_AFTER = 1.0  # seconds; what is done sooner shows nothing
_EVERY = 0.1  # seconds
_LONGEST = 50  # characters of a title


class Progress:
    def __init__(self, title: str, total: int) -> None:
        self.title = title
        self.total = total
        self.done = 0

    def begin(self, title: str) -> None:
        """The first stage of the work, or the next one, which ends the one before."""
        self.done += bool(self.title)
        self.title = title


@contextlib.contextmanager
def progress(title: str, total: int) -> Generator[Progress]:
    """Shows how many stages of the work in a block are done, once it has taken a second. A thread draws the bar by rich
    on the standard error, where that is a terminal and rich is installed; it is gone when the block is left.
    """
    work = Progress(title, total)
    file = sys.stderr
    if not is_terminal(file):
        yield work
        return
    over = threading.Event()
    thread = threading.Thread(target=_show, args=(work, file, over), name="partax progress", daemon=True)
    try:
        with contextlib.suppress(RuntimeError):  # no thread can be started, as when the interpreter ends
            thread.start()
        yield work
    finally:
        over.set()
        if thread.ident is not None:
            thread.join()


def _show(work: Progress, file: Any, over: threading.Event) -> None:
    if over.wait(_AFTER):
        return
    title = one_line(work.title, _LONGEST)  # before rich is imported, which may take as long as the work
    with contextlib.suppress(Exception), _bar(file) as bar:  # no rich, a terminal that is gone: the work goes on
        task = bar.add_task(title, total=work.total)
        bar.tasks[0].start_time = bar.get_time() - _AFTER
        while True:
            title = one_line(work.title, _LONGEST)
            bar.update(task, description=title, completed=min(work.done, work.total), refresh=True)
            if over.wait(_EVERY):
                break


def _bar(file: Any) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(file=file),
        transient=True,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    )


def bytes_text(size: float) -> str:
    """`1.5 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{_three(size)} {unit}"
        size /= 1024
    return f"{_three(size)} TiB"


def seconds_text(seconds: float) -> str:
    """`1.5 s`, `12 ms`."""
    if seconds >= 1:
        return f"{_three(seconds)} s"
    return f"{_three(seconds * 1e3)} ms" if seconds >= 1e-3 else f"{_three(seconds * 1e6)} us"


def counted(count: int, noun: str) -> str:
    """`1 finding`, `2 findings`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def figure_text(name: str, value: float | str) -> str:
    """A figure of a finding or of a program, in the unit that its name tells."""
    if isinstance(value, (str, bool)):
        return str(value)
    if name.endswith("bytes"):
        return bytes_text(value)
    if name.endswith("seconds"):
        return seconds_text(value)
    if name == "share" or name.endswith("_share"):
        return f"{value:.0%}" if value >= 0.01 else f"{value:.1%}"
    return f"{value:,}" if isinstance(value, int) else _three(value)


def figure_texts(figures: Mapping[str, float | str]) -> list[tuple[str, str]]:
    """Figures by what they are called: `compile_seconds` is `compile`."""
    return [(name.removesuffix("_seconds").replace("_", " "), figure_text(name, it)) for name, it in figures.items()]


def _three(number: float) -> str:
    """Three digits, but no power of ten."""
    return f"{number:.3g}" if number < 1000 else f"{number:,.0f}"
