"""Tables and figures as plain text."""

import dataclasses
from collections.abc import Mapping

from partax._pytree.short_text import printable

Row = tuple[str, ...] | str
"""The cells of a row, or a text that goes across."""


@dataclasses.dataclass(frozen=True)
class Table:
    columns: tuple[str, ...] = ()  # their headings
    sections: tuple[tuple[Row, ...], ...] = ()  # groups of rows, with a rule before each if `ruled`
    left: frozenset[int] = frozenset()  # the columns that are aligned at the left; numbers are at the right
    title: str = ""  # the line above
    notes: tuple[str, ...] = ()  # the lines below
    ruled: bool = False
    indent: int = 0  # of all but the title and the notes

    def __str__(self) -> str:
        """A line for each row; what would move the text on a terminal is escaped, as a line break in a path."""
        rows: list[Row] = [row for section in self.sections for row in section]
        cells = [self.columns, *(row for row in rows if isinstance(row, tuple))]
        widths = [max(len(printable(cell)) for cell in column) for column in zip(*cells, strict=True)]

        def line(row: Row) -> str:
            if isinstance(row, tuple):
                texts = enumerate(zip(map(printable, row), widths, strict=True))
                aligned = [text.ljust(width) if i in self.left else text.rjust(width) for i, (text, width) in texts]
                return (" " * self.indent + "  ".join(aligned)).rstrip()
            return " " * self.indent + printable(row)

        rule = ["-" * max(len(line(row)) for row in cells)] if self.ruled else []
        lines = [*filter(None, [printable(self.title)]), *map(line, filter(None, [self.columns]))]
        for section in filter(None, self.sections):
            lines += [*rule, *map(line, section)]
        return "\n".join([*lines, *map(printable, self.notes)])


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
