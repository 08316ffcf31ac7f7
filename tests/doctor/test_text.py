"""Guards the promise that a diagnosis is a table on a terminal, and the same words as plain text anywhere else."""

from __future__ import annotations

import dataclasses
import io
import re
import sys
from typing import Any

import jax.numpy as jnp
import pytest
from rich.cells import cell_len

import partax
from doctor_pages import diagnosis
from partax._report.figure_text import figure_text


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def printed(found: Any, file: io.StringIO, monkeypatch: pytest.MonkeyPatch, columns: int = 200) -> str:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    return found.__rich__().text(file, plain=str(found))


def test_a_pipe_gets_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    found = partax.doctor(lambda x: x + 1, jnp.ones(3))
    assert printed(found, io.StringIO(), monkeypatch) == str(found)


@pytest.mark.parametrize("columns", [200, 60])
def test_a_terminal_gets_a_table_of_the_same_words(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    text = re.sub(r"\x1b\[[\d;]*m", "", printed(diagnosis(), Terminal(), monkeypatch, columns))
    assert "─" in text and max(map(cell_len, text.splitlines())) <= columns
    for word in ("repeat", "donation", "precision", "high", "medium", "low", "partax.fold", "94%"):
        assert word in text
    if columns == 200:
        assert "The same 4 equations, 6 times in a row." in text
        assert "-> Write the loop as `partax.fold`." in text


def test_paths_are_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    found = diagnosis()
    finding = dataclasses.replace(found.findings[0], message="about [bold]x[/bold] and ws[0]")
    text = printed(dataclasses.replace(found, findings=(finding,)), Terminal(), monkeypatch)
    assert "about [bold]x[/bold] and ws[0]" in text


def test_without_rich_a_terminal_gets_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rich.console", "rich.table", "rich.text"):
        monkeypatch.setitem(sys.modules, name, None)
    found = diagnosis()
    assert printed(found, Terminal(), monkeypatch) == str(found)


FIGURES = [
    ("bytes", 1023, "1023 B"),
    ("bytes", 1536, "1.5 KiB"),
    ("peak_bytes", 1 << 40, "1 TiB"),
    ("seconds", 0.0, "0 us"),
    ("seconds", 0.9994, "999 ms"),
    ("seconds", 1.0, "1 s"),
    ("compile_seconds", 1234.5, "1,234 s"),
    ("share", 0.935, "94%"),
    ("share", 0.004, "0.4%"),
    ("count", 1200, "1,200"),
    ("speedup", 3.14159, "3.14"),
    ("primitive", "sort", "sort"),
]


@pytest.mark.parametrize(("name", "value", "text"), FIGURES)
def test_a_figure_s_name_tells_its_unit(name: str, value: Any, text: str) -> None:
    assert figure_text(name, value) == text
