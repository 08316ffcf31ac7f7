"""Tables of pages, each between `<!-- NAME begin -->` and `<!-- NAME end -->`."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def read_table(page: Path, name: str) -> str:
    match = re.search(rf"<!-- {name} begin -->\n\n(.*?)\n\n<!-- {name} end -->", page.read_text("utf-8"), re.DOTALL)
    assert match is not None, f"{page.name} has nothing between <!-- {name} begin --> and <!-- {name} end -->"
    return match[1]


def read_rows(page: Path, name: str) -> list[list[str]]:
    """The cells of a table, without those of the head."""
    return [line.strip("| ").split(" | ") for line in read_table(page, name).splitlines()[2:]]
