"""Guards the promise that reports, summaries and all tables are one line by their `repr` and aligned plain text by
`str`, whatever names and paths they hold."""

from typing import Any

import jax.numpy as jnp
import pytest

import partax
from doctor_pages import diagnosis
from partax.reports import Finding, FunctionReport, KeyReport, Report, TraceReport
from partax._pytree.short_text import LONGEST
from partax._explain.captured_arrays import Constant
from partax._explain.table import Table, figure_text

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
    return FunctionReport(name, "train.py:12", 2000, 3, keys)


def report(*texts: str) -> Report:
    return Report(tuple(function(text, text) for text in texts))


VIEWED: dict[str, Any] = {
    "a function's report": function(),
    "a report": report("step", "loss"),
    "a report of nothing": Report(()),
    "a function without traces": FunctionReport("f", "", None, None, ()),
    "a hostile report": report(HOSTILE),
}
RECORDS: list[Any] = [
    *VIEWED.values(),
    *(made for each in (function(), function(HOSTILE, HOSTILE)) for made in (each.keys[0], each.traces[0])),
    diagnosis(),
    *diagnosis().findings,
    Finding("repeat", "high", PLACE, 1, HOSTILE, "", {}, HOSTILE, HOSTILE),
]


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


def test_the_table_of_a_report() -> None:
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
    ]


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


def test_a_table_is_aligned_text() -> None:
    assert str(TABLE) == PLAIN


def test_what_would_move_the_text_on_a_terminal_is_escaped() -> None:
    text = str(Table(("path", "n"), (((TEXT, "1"), TEXT),), frozenset({0}), TEXT, (TEXT,)))
    assert "\x1b" not in text and text.count(r"\x1b[31m\nnext & 'more'") == 4
    assert len(text.splitlines()) == 5


@pytest.mark.parametrize("name", VIEWED)
def test_a_view_is_printable_lines(name: str) -> None:
    assert all(line.isprintable() for line in str(VIEWED[name]).split("\n"))


FIGURES: list[tuple[str, Any, str]] = [
    ("bytes", 1023, "1023 B"), ("bytes", 1536, "1.5 KiB"), ("peak_bytes", 1 << 40, "1 TiB"),
    ("seconds", 0.0, "0 us"), ("seconds", 0.9994, "999 ms"), ("seconds", 1.0, "1 s"),
    ("compile_seconds", 1234.5, "1,234 s"), ("share", 0.935, "94%"), ("share", 0.004, "0.4%"),
    ("count", 1200, "1,200"), ("speedup", 3.14159, "3.14"), ("primitive", "sort", "sort"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "text"), FIGURES)
def test_a_figure_s_name_tells_its_unit(name: str, value: Any, text: str) -> None:
    assert figure_text(name, value) == text
