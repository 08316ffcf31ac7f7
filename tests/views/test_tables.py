"""Guards the promise that a table is the same words as plain text, on a terminal of any width, with rich or without
it, and as HTML, and that nothing in its cells is taken for more than text."""

from __future__ import annotations

import dataclasses
import io
import re
import sys
from typing import Any

import pytest

from notebook_pages import ReadPage
from partax._report.table import Table, html_of, plain_text, text_of
from partax._report.terminal import is_terminal, width_of
from terminals import terminal

TABLE = Table(
    ("what it is", "count", "bytes"),
    ((("a name of several words", "1", "1,000"), ("short", "20,000", "3")), (("total", "20,001", "1,003"),)),
    frozenset({0}),
    "The title of it",
    ("  a note", "    and one that is indented, and longer than the others"),
    ruled=True,
)
APART = dataclasses.replace(TABLE, apart=True, ruled=False)
HOSTILE = "<script>alert(1)</script>[bold]x[/bold]\x1b[31m\nnext & 'more'"


@pytest.fixture(autouse=True)
def _as_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("COLUMNS", raising=False)


def words(text: str) -> list[str]:
    return sorted(re.findall(r"[\w,]+", text))


def without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rich", "rich.console", "rich.table", "rich.text", "rich.box"):
        monkeypatch.setitem(sys.modules, name, None)


def test_plain_text_is_aligned() -> None:
    lines = plain_text(TABLE).splitlines()
    assert lines == [
        "The title of it",
        "what it is                count  bytes",
        "--------------------------------------",
        "a name of several words       1  1,000",
        "short                    20,000      3",
        "--------------------------------------",
        "total                    20,001  1,003",
        "  a note",
        "    and one that is indented, and longer than the others",
    ]


@pytest.mark.parametrize("table", [TABLE, APART], ids=["folded", "apart"])
@pytest.mark.parametrize("width", [200, 60, 40, 30, 21])
def test_text_fits_the_width_and_loses_no_word(table: Table, width: int) -> None:
    text = plain_text(table, width)
    assert max(map(len, text.splitlines())) <= width
    heading = ["what", "it", "is"] if "what it is: " in text else []  # it is told again for each row
    found = words(text)
    for word in words(plain_text(table)):
        assert word in found or width < 25, (word, width)
    if not heading and width > 25:
        assert found == words(plain_text(table))


@pytest.mark.parametrize("width", [1, 2, 5, 10])
def test_a_terminal_that_is_much_too_narrow_is_no_error(width: int) -> None:
    assert "".join(words(plain_text(TABLE, width))) != ""


def test_a_first_column_without_room_stands_above_its_rows() -> None:
    lines = plain_text(APART, 30).splitlines()
    assert lines[1].split() == ["count", "bytes"]
    assert lines[2:4] == ["what it is: a name of several", "words"]
    assert lines[4].split() == ["1", "1,000"]


def test_a_row_without_its_first_cell_belongs_to_the_one_above() -> None:
    table = Table(("key", "n"), ((("a" * 50, "1"), ("", "2")),), frozenset({0}), apart=True)
    assert plain_text(table, 30).split()[-2:] == ["1", "2"]
    assert plain_text(table, 30).count("key: ") == 1


def test_a_pipe_gets_plain_text_of_any_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    for file in (io.StringIO(), None):
        assert text_of([TABLE, TABLE], file) == f"{plain_text(TABLE)}\n\n{plain_text(TABLE)}"


@pytest.mark.parametrize("columns", [120, 40])
def test_a_terminal_gets_what_rich_draws(columns: int) -> None:
    with terminal(columns) as seen:
        text = text_of([TABLE], seen.file)
    assert "───" in text and "\x1b" not in text
    assert max(map(len, text.splitlines())) <= columns
    assert words(text) == words(plain_text(TABLE))


@pytest.mark.parametrize("columns", [120, 30])
def test_without_rich_a_terminal_gets_text_that_fits(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    without_rich(monkeypatch)
    with terminal(columns) as seen:
        assert text_of([TABLE], seen.file) == plain_text(TABLE, columns)


def test_a_terminal_that_has_no_lines_to_draw_gets_plain_text() -> None:
    with terminal(60, "ascii") as seen:
        assert text_of([TABLE], seen.file) == plain_text(TABLE, 60)


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
    read = ReadPage(html_of([TABLE]))
    assert read.open == [] and read.tags.count("tr") == 4 and read.tags.count("th") == 3 and read.tags.count("td") == 9
    rows = [cell for section in TABLE.sections for row in section for cell in row]
    assert read.cells == [TABLE.title, *TABLE.columns, *rows, *(note.strip() for note in TABLE.notes)]
    assert read.attributes <= {f"style=text-align: {side}; vertical-align: top" for side in ("left", "right")}


def hostile_table() -> Table:
    return Table(("path", "n"), (((HOSTILE, "1"), HOSTILE),), frozenset({0}), HOSTILE, (HOSTILE,))


def test_html_escapes_all_text() -> None:
    read = ReadPage(html_of([hostile_table()]))
    assert "script" not in read.tags and len([cell for cell in read.cells if "<script>" in cell]) == 4
    assert set(read.tags) <= {"p", "table", "thead", "tbody", "tr", "th", "td", "ul", "li"}


@pytest.mark.parametrize("has_rich", [True, False])
def test_text_on_a_terminal_is_text(monkeypatch: pytest.MonkeyPatch, has_rich: bool) -> None:
    if not has_rich:
        without_rich(monkeypatch)
    with terminal(200) as seen:
        text = text_of([hostile_table()], seen.file)
    assert "\x1b" not in text and text.count("[bold]x[/bold]") == 4 and r"\x1b[31m\nnext" in text
    assert r"\x1b[31m\nnext" in text_of([hostile_table()], None)


def test_a_table_without_rows_is_its_title() -> None:
    empty = Table((), (), frozenset(), "nothing to see")
    assert plain_text(empty) == plain_text(empty, 80) == "nothing to see"
    assert html_of([empty]) == "<p>nothing to see</p>"
    with terminal(80) as seen:
        assert text_of([empty], seen.file) == "nothing to see"
