"""Tables as plain text."""

from collections.abc import Collection, Sequence

from partax._pytree.short_text import printable


def table_lines(rows: Sequence[Sequence[str]], left: Collection[int]) -> list[str]:
    """A line for each row, the first with the headings; the columns `left` are aligned at the left, numbers at the
    right. What would move the text on a terminal is escaped, as a line break in a path.
    """
    texts = [list(map(printable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    aligned = (
        [
            text.ljust(width) if i in left else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        for row in texts
    )
    return ["  ".join(cells).rstrip() for cells in aligned]


def counted(count: int, noun: str) -> str:
    """`1 finding`, `2 findings`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
