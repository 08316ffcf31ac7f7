"""Tables that tests make and pages show, each between `<!-- NAME begin -->` and `<!-- NAME end -->`."""

import argparse
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
WIDEST = 60


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def cases(text: str) -> dict[str, str]:
    """What a line shows, and the code below it: all but its last line is run, that is shown; `jit` is one of two."""
    return dict(re.findall(r"^(\S.*)\n((?: {4}.*\n)+)", text, re.MULTILINE))


def outcome(code: str, names: dict[str, Any], *, with_message: bool) -> str:
    """What the last line of some code gives, or the error; without its message, where that is another library's."""
    *before, last = textwrap.dedent(code).strip().splitlines()
    try:
        exec("\n".join(before), names)
        return f"`{eval(last, names)!r}`"
    except Exception as error:
        name = f"`{type(error).__name__}`"
        if not with_message:
            return name
        message = " ".join(str(error).split()).replace("|", "¦")
        cut = message if len(message) <= WIDEST else message[: WIDEST - 3].rstrip() + "..."
        return f"{name}: {cut}"


def _place(page: Path, name: str) -> re.Match[str]:
    found = re.search(rf"(<!-- {name} begin -->\n\n)(.*?)(\n\n<!-- {name} end -->)", page.read_text("utf-8"), re.DOTALL)
    assert found is not None, f"{page.name} has nothing between <!-- {name} begin --> and <!-- {name} end -->"
    return found


def read_table(page: Path, name: str) -> str:
    """The table of that name in a page."""
    return _place(page, name)[2]


Tables = dict[tuple[Path, str], Callable[[], str]]
"""By page and name: what makes the table."""


def assert_shown(tables: Tables, page: Path, name: str) -> None:
    """A page shows what is made; the file of a test that fails writes it."""
    assert read_table(page, name) == tables[page, name](), "write it: run this file with `--write`"


def print_or_write(tables: Tables) -> None:
    """What a file of tables does when it is run: with `--write` it writes them into the pages, else it prints them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true", help="write them into the pages; without it, they are printed")
    writes = parser.parse_args().write
    for (page, name), make in tables.items():
        text, found = make(), _place(page, name)
        if writes:
            page.write_text(found.string[: found.start(2)] + text + found.string[found.end(2) :], "utf-8")
        else:
            print(f"{page.name}, {name}:\n\n{text}\n")
