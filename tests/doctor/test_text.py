"""Guards the promise that a diagnosis is a table on a terminal, and the same words as plain text anywhere else."""

from __future__ import annotations

from typing import Any

import pytest

from partax._report.figure_text import figure_text

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
