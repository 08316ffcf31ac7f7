"""Guards the promise that a diagnosis says as plain text what it has found, and figures in their units."""

from __future__ import annotations

from typing import Any

import pytest

from doctor_pages import diagnosis
from partax._report.figure_text import figure_text


def test_a_text_has_the_words_of_each_finding() -> None:
    found = diagnosis()
    for it in found.findings:
        assert all(part in str(found) for part in (it.message, it.advice, it.severity, it.kind, it.where))


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
