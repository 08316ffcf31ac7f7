"""Tables as plain text."""

from collections.abc import Collection, Sequence

from partax._pytree.short_text import printable


def table_lines(rows: Sequence[Sequence[str]], left: Collection[int]) -> list[str]:
    """A line for each row, the first with the headings; the columns `left` are aligned at the left, numbers at the
    right. What would move the text on a terminal is escaped, as a line break in a path.
    """
    texts = [list(map(printable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    signs = ["<" if i in left else ">" for i in range(len(widths))]
    form = "  ".join(f"{{:{sign}{width}}}" for sign, width in zip(signs, widths, strict=True))
    return [form.format(*row).rstrip() for row in texts]


def counted(count: int, noun: str) -> str:
    """`1 finding`, `2 findings`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
