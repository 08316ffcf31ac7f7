"""Guards the promise that a table is the same words as plain text, on a terminal and as HTML, and that nothing in its
cells is taken for more than text."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from notebook_pages import ReadPage
from partax._report.figure_text import figure_text
from partax._report.table import Table, Tables, is_terminal, width_of
from terminals import terminal

TABLE = Table(
    ("what it is", "count", "bytes"),
    ((("a name of several words", "1", "1,000"), ("short", "20,000", "3")), (("total", "20,001", "1,003"),)),
    frozenset({0}),
    "The title of it",
    ("  a note", "    and one that is indented, and longer than the others"),
    ruled=True,
)
PLAIN = """\
The title of it
what it is                count  bytes
--------------------------------------
a name of several words       1  1,000
short                    20,000      3
--------------------------------------
total                    20,001  1,003
  a note
    and one that is indented, and longer than the others"""
TEXT = "<script>alert(1)</script>[bold]x[/bold]\x1b[31m\nnext & 'more'"
HOSTILE = Table(("path", "n"), (((TEXT, "1"), TEXT),), frozenset({0}), TEXT, (TEXT,))


@pytest.fixture(autouse=True)
def _as_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("COLUMNS", raising=False)


def without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rich", "rich.console", "rich.table", "rich.text", "rich.box"):
        monkeypatch.setitem(sys.modules, name, None)


def test_a_pipe_gets_plain_text_of_any_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    for file in (io.StringIO(), None):
        assert Tables(TABLE, TABLE).text(file) == f"{PLAIN}\n\n{PLAIN}"


def test_a_terminal_without_rich_or_without_its_lines_gets_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(60, "ascii") as seen:
        assert Tables(TABLE).text(seen.file) == PLAIN
    without_rich(monkeypatch)
    with terminal(120) as seen:
        assert Tables(TABLE).text(seen.file) == PLAIN


@pytest.mark.parametrize("name", ["dumb", ""])
def test_a_dumb_terminal_is_none(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("TERM", name)
    with terminal() as seen:
        assert is_terminal(seen.file) == (name != "dumb")


def test_what_is_no_terminal(tmp_path: Any) -> None:
    with open(tmp_path / "file", "w") as closed:
        assert not is_terminal(closed)
    for file in (closed, None, io.StringIO(), object()):
        assert not is_terminal(file)


def test_the_width_is_the_terminal_s(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(57) as seen:
        assert width_of(seen.file) == 57
        monkeypatch.setenv("COLUMNS", "33")
        assert width_of(seen.file) == 33
    monkeypatch.delenv("COLUMNS")
    assert width_of(io.StringIO()) > 0


def test_html_has_each_cell_and_no_colour() -> None:
    read = ReadPage(Tables(TABLE).html())
    assert read.open == [] and read.tags.count("tr") == 4 and read.tags.count("th") == 3 and read.tags.count("td") == 9
    rows = [cell for section in TABLE.sections for row in section for cell in row]
    assert read.cells == [TABLE.title, *TABLE.columns, *rows, *(note.strip() for note in TABLE.notes)]
    assert read.attributes <= {f"style=text-align: {side}; vertical-align: top" for side in ("left", "right")}


@pytest.mark.parametrize("has_rich", [True, False])
def test_text_on_a_terminal_is_text(monkeypatch: pytest.MonkeyPatch, has_rich: bool) -> None:
    if not has_rich:
        without_rich(monkeypatch)
    with terminal(200) as seen:
        text = Tables(HOSTILE).text(seen.file)
    assert "\x1b" not in text and text.count("[bold]x[/bold]") == 4 and r"\x1b[31m\nnext" in text


def test_a_table_without_rows_is_its_title() -> None:
    empty = Tables(Table(title="nothing to see"))
    assert empty.html() == "<p>nothing to see</p>"
    with terminal(80) as seen:
        assert empty.text(None) == empty.text(seen.file) == "nothing to see"


FIGURES: list[tuple[str, Any, str]] = [
    ("bytes", 1023, "1023 B"), ("bytes", 1536, "1.5 KiB"), ("peak_bytes", 1 << 40, "1 TiB"),
    ("seconds", 0.0, "0 us"), ("seconds", 0.9994, "999 ms"), ("seconds", 1.0, "1 s"),
    ("compile_seconds", 1234.5, "1,234 s"), ("share", 0.935, "94%"), ("share", 0.004, "0.4%"),
    ("count", 1200, "1,200"), ("speedup", 3.14159, "3.14"), ("primitive", "sort", "sort"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "text"), FIGURES)
def test_a_figure_s_name_tells_its_unit(name: str, value: Any, text: str) -> None:
    assert figure_text(name, value) == text
