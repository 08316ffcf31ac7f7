"""Guards the promise that reports and all tables are one line by their `repr`, and the same words as plain
text, on a terminal, which they fit, and as HTML, whatever names and paths they hold."""

import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

import partax
from doctor_pages import diagnosis
from notebook_pages import ReadPage
from partax import Finding, FunctionReport, KeyReport, Report, SlowNode, TraceReport
from partax._pytree.short_text import LONGEST
from partax._report.captured_arrays import Constant
from partax._report.table import Table, Tables, figure_text, is_terminal, width_of
from processes import PACKAGE
from terminals import terminal

HOSTILE = "<script>alert(1)</script>[bold]x[/bold]\x1b[31m\n" + "long" * 50
PLACE = f"{HOSTILE}.py:1"


def function(name: str = "step", text: str = "n=1") -> FunctionReport:
    def trace(number: int, **more: Any) -> TraceReport:
        known: dict[str, Any] = {
            "number": number, "site": "train.py:41", "reason": f"{text} -> {number}", "calls": 1_000,
            "trace_seconds": 0.125, "lower_seconds": 0.0625, "compile_seconds": 1.5, "executables": 2, "failed": False,
            "equations": 12, "constants": (Constant(text, "float32[3]", 12),), "fast_path": True, "slow_because": "",
        }  # fmt: skip
        return TraceReport(**known | more)

    slow = trace(2, fast_path=False, slow_because="refs", calls=None, equations=None)
    keys = (KeyReport(text, 1000, (trace(1), slow)), KeyReport(f"{text}, name='b'", None, (trace(3, failed=True),)))
    return FunctionReport(name, "train.py:12", 2000, 3, keys, (SlowNode(text, 2, 1.25, "it is new"),))


def report(*texts: str) -> Report:
    return Report(tuple(function(text, text) for text in texts))


VIEWED: dict[str, Any] = {
    "a function's report": function(),
    "a report": report("step", "loss"),
    "a report of nothing": Report(()),
    "a function without traces": FunctionReport("f", "", None, None, (), ()),
    "a hostile report": report(HOSTILE),
}
RECORDS: list[Any] = [
    *VIEWED.values(),
    *(made for each in (function(), function(HOSTILE, HOSTILE)) for made in (each.keys[0], each.traces[0])),
    SlowNode(HOSTILE, 1, 0.1),
    diagnosis(),
    *diagnosis().findings,
    Finding("repeat", "high", PLACE, 1, HOSTILE, "", {}, HOSTILE, HOSTILE),
]


@pytest.fixture(autouse=True)
def _on_a_usual_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.mark.parametrize("record", RECORDS, ids=lambda it: type(it).__name__)
def test_a_repr_is_one_line(record: Any) -> None:
    assert 0 < len(repr(record)) <= LONGEST and repr(record).isprintable()
    assert type(record).__name__ in repr(record)


def test_a_repr_tells_the_totals() -> None:
    told = "2003 calls, 3 traces, 5.06 s to trace and compile"
    assert repr(function()) == f"<partax.FunctionReport of step (train.py:12): {told}>"
    assert repr(report("a", "b")) == "<partax.Report: 2 functions, 6 traces, 10.1 s to trace and compile>"
    assert repr(report("a")).startswith("<partax.Report: 1 function, 3 traces")
    found = Finding("repeat", "high", "/home/me/train.py", 41, "x = f(x)", "", {}, "The same, 6 times.", "Use a loop.")
    assert repr(found) == "<partax.Finding: high repeat at train.py:41: The same, 6 times.>"
    healthy = partax.doctor(lambda x: x + 1, jnp.ones(3))
    assert repr(healthy) == f"<partax.Diagnosis of {healthy}>" and "nothing found" in repr(healthy)


def test_the_table_of_a_report_in_a_pipe() -> None:
    head, columns, *lines = str(function()).splitlines()
    assert head == "step (train.py:12): 2003 calls, 3 traces, 5.06 s to trace and compile"
    # The words of each line; how they are aligned is another test's.
    assert [" ".join(line.split()) for line in (columns, *lines[:3])] == [
        "static key calls trace calls trace s lower s compile s equations constants fast path",
        "n=1 1000 1 1000 0.1250 0.0625 1.5000 (2 x) 12 12 B yes",
        "2 - 0.1250 0.0625 1.5000 (2 x) - 12 B no",
        "n=1, name='b' dropped 3 failed 1000 0.1250 0.0625 1.5000 (2 x) 12 12 B yes",
    ]
    assert lines[3:] == [
        "  trace 1 at train.py:41: n=1 -> 1",
        "    captured n=1: float32[3], 12 B",
        "  trace 2 at train.py:41: n=1 -> 2",
        "    not on jax's fast path because of refs",
        "    captured n=1: float32[3], 12 B",
        "  trace 3 at train.py:41: n=1 -> 3",
        "    captured n=1: float32[3], 12 B",
        "  n=1 x 2 flattened by a Python function: 1.2 us a call; it is new",
    ]


@pytest.mark.parametrize("name", VIEWED)
def test_what_is_printed_on_a_terminal_fits_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(80) as seen:
        monkeypatch.setattr(sys, "stdout", seen.file)
        print(VIEWED[name])
        print("END")
        monkeypatch.undo()
        seen.file.flush()
        assert seen.wait_for("END")
    assert max(map(len, seen.text.split("\n"))) <= 80
    # Digits are never lost, though their cells may be folded.
    shown = seen.text.replace("\n", "").replace(" ", "")
    for number in re.findall(r"\b\d[\d,]*\b", str(VIEWED[name]))[:30] if "hostile" not in name else ():
        assert number in shown, number


@pytest.mark.parametrize("name", VIEWED)
def test_a_notebook_gets_tables_in_which_all_is_escaped(name: str) -> None:
    page = ReadPage(VIEWED[name]._repr_html_())
    assert page.open == [] and set(page.tags) <= {"p", "table", "thead", "tbody", "tr", "th", "td", "ul", "li"}
    assert not any("color" in attribute or "background" in attribute for attribute in page.attributes)
    assert page.cells and not any("\x1b" in cell for cell in page.cells)


def test_the_tables_of_a_notebook_have_the_data() -> None:
    page = ReadPage(report("a", "b")._repr_html_())
    assert page.tags.count("table") == 2 and page.tags.count("tr") == 2 * 4
    assert {f"trace 2 at train.py:41: {name} -> 2" for name in "ab"} <= set(page.cells)


def test_the_command_asks_the_stream_that_it_writes_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = "import jax, partax; f = partax.filter_jit(lambda x, name: x + 1); f(jax.numpy.ones(3), 'a long name' * 3)"
    (tmp_path / "script.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(PACKAGE), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", "partax", "explain", "script.py"]
    with terminal(100) as seen:
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=seen.file, cwd=tmp_path, check=True)
        assert seen.wait_for("compiled outside of partax")
        table = seen.text.partition("partax: what has been traced and compiled\n")[2]
    table = table.partition("compiled outside of partax")[0]
    assert "script.py" in table and max(map(len, table.splitlines())) <= 100


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
HOSTILE_TABLE = Table(("path", "n"), (((TEXT, "1"), TEXT),), frozenset({0}), TEXT, (TEXT,))


def test_a_terminal_that_cannot_show_its_lines_gets_plain_text() -> None:
    with terminal(60, "ascii") as seen:
        assert Tables(TABLE).text(seen.file) == PLAIN


def test_what_is_a_terminal_and_how_wide(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with open(tmp_path / "file", "w") as closed:
        assert not is_terminal(closed)
    for file in (closed, None, io.StringIO(), object()):
        assert not is_terminal(file)
    with terminal(57) as seen:
        for name in ("dumb", ""):
            monkeypatch.setenv("TERM", name)
            assert is_terminal(seen.file) == (name != "dumb")
        assert width_of(seen.file) == 57
        monkeypatch.setenv("COLUMNS", "33")
        assert width_of(seen.file) == 33
    monkeypatch.delenv("COLUMNS")
    assert width_of(io.StringIO()) > 0


@pytest.mark.parametrize("has_rich", [True, False])
def test_text_on_a_terminal_is_text(monkeypatch: pytest.MonkeyPatch, has_rich: bool) -> None:
    for name in () if has_rich else ("rich", "rich.console", "rich.table", "rich.text", "rich.box"):
        monkeypatch.setitem(sys.modules, name, None)
    with terminal(200) as seen:
        text = Tables(HOSTILE_TABLE).text(seen.file)
        assert has_rich or Tables(TABLE).text(seen.file) == PLAIN
    assert "\x1b" not in text and text.count("[bold]x[/bold]") == 4 and r"\x1b[31m\nnext" in text


FIGURES: list[tuple[str, Any, str]] = [
    ("bytes", 1023, "1023 B"), ("bytes", 1536, "1.5 KiB"), ("peak_bytes", 1 << 40, "1 TiB"),
    ("seconds", 0.0, "0 us"), ("seconds", 0.9994, "999 ms"), ("seconds", 1.0, "1 s"),
    ("compile_seconds", 1234.5, "1,234 s"), ("share", 0.935, "94%"), ("share", 0.004, "0.4%"),
    ("count", 1200, "1,200"), ("speedup", 3.14159, "3.14"), ("primitive", "sort", "sort"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "text"), FIGURES)
def test_a_figure_s_name_tells_its_unit(name: str, value: Any, text: str) -> None:
    assert figure_text(name, value) == text
