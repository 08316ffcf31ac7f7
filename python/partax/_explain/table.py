"""Tables as plain text."""

import dataclasses

from partax._pytree.short_text import printable


@dataclasses.dataclass(frozen=True)
class Table:
    columns: tuple[str, ...]  # their headings
    rows: tuple[tuple[str, ...], ...]
    left: frozenset[int] = frozenset()  # the columns that are aligned at the left; numbers are at the right
    title: str = ""  # the line above
    notes: tuple[str, ...] = ()  # the lines below
    indent: int = 0  # of all but the title and the notes

    def __str__(self) -> str:
        """A line for each row; what would move the text on a terminal is escaped, as a line break in a path."""
        rows = [tuple(map(printable, row)) for row in (self.columns, *self.rows)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [printable(self.title)] if self.title else []
        for row in rows:
            cells = enumerate(zip(row, widths, strict=True))
            texts = [text.ljust(width) if i in self.left else text.rjust(width) for i, (text, width) in cells]
            lines.append((" " * self.indent + "  ".join(texts)).rstrip())
        return "\n".join([*lines, *map(printable, self.notes)])


def counted(count: int, noun: str) -> str:
    """`1 finding`, `2 findings`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
