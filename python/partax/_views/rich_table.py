"""Tables as rich draws them. rich is imported when something is drawn."""

import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from partax._views.table import Table, fits, plain_text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType


class RichTables:
    """What `rich.print` prints. No text is read as markup: a path such as `[bold]` stays as it is."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self._tables = [table.printable() for table in tables]

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterator[RenderableType]":
        for table in self._tables:
            yield from _parts(table, options.max_width)


def drawn(tables: Sequence[Table], width: int) -> str:
    """Tables as text of that width, without codes for colours.

    Raises:
      ImportError: rich is not installed.
    """
    from rich.console import Console

    file = io.StringIO()
    console = Console(file=file, width=width, color_system=None, force_terminal=False, force_jupyter=False)
    console.print(RichTables(tables))
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def _parts(table: Table, width: int) -> "Iterator[RenderableType]":
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    if table.apart and not fits(table, width):
        yield Text(plain_text(table, width))
        return
    if table.title:
        yield Text(table.title)
    if any(table.sections):
        made = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        for i, heading in enumerate(table.columns):
            made.add_column(Text(heading), justify="left" if i in table.left else "right", overflow="fold")
        for section in table.sections:
            for row in section:
                made.add_row(*map(Text, (row,) if isinstance(row, str) else row))
            made.add_section()
        yield made
    yield from map(Text, table.notes)
