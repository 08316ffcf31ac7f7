"""Tables of pages, each between `<!-- NAME begin -->` and `<!-- NAME end -->`."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def read_table(page: Path, name: str) -> str:
    match = re.search(rf"<!-- {name} begin -->\n\n(.*?)\n\n<!-- {name} end -->", page.read_text("utf-8"), re.DOTALL)
    assert match is not None, f"{page.name} has nothing between <!-- {name} begin --> and <!-- {name} end -->"
    return match[1]


def read_rows(page: Path, name: str) -> list[list[str]]:
    """The cells of a table, without those of the head."""
    return [line[2:-2].split(" | ") for line in read_table(page, name).splitlines()[2:]]
