"""Guards the promise that each change of the corpus retraces or not, as it should, and is explained in one line."""

import logging
import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from corpus import CASES, TABLES
from retrace_case import HIT, OTHERS, PARTAX, PLAIN, RAISES, TRACES, WRONG, Case, Library, Outcome

import partax
from counting import SEEN
from page_tables import assert_shown

PLACE = re.compile(r"\S+\.py:\d+")
IDS = [case.name for case in CASES]


def counted(call: Callable[[], Any]) -> tuple[Any, int]:
    """The result of a call, and how often the body of the function has run."""
    before = SEEN.count
    return jax.block_until_ready(call()), SEEN.count - before


def same(result: Any, expected: Any) -> bool:
    """Whether two results have one structure and the same dtypes, shapes and values."""
    if jax.tree.structure(result) != jax.tree.structure(expected):
        return False
    pairs = zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True)
    return all(
        np.asarray(a).dtype == np.asarray(b).dtype and np.array_equal(np.asarray(a), np.asarray(b)) for a, b in pairs
    )


def outcome(case: Case, library: Library) -> Outcome:
    """What becomes of the last call of a case; all before it must be right."""
    traces, right = 0, True
    try:
        for call, expected in zip(case.play(library), case.play(PLAIN), strict=True):
            assert right, "an earlier call was wrong"
            wanted = expected()
            result, traces = counted(call)
            right = same(result, wanted)
    except (TypeError, ValueError):
        return RAISES
    return (TRACES if traces else HIT) if right else WRONG


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_partax_retraces_where_it_must_and_says_why(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    def lines() -> list[str]:
        found = [record.getMessage() for record in caplog.records if record.name == "partax"]
        caplog.clear()
        return found

    told: list[str] = []
    traces = 0
    with caplog.at_level(logging.WARNING, "partax"), partax.explain():
        for call, expected in zip(case.play(PARTAX), case.play(PLAIN), strict=True):
            wanted = expected()
            lines()
            try:
                result, traces = counted(call)
            except (TypeError, ValueError) as error:
                assert case.partax is RAISES and str(error) == case.line
                assert lines() == []
                return
            told = lines()
            assert same(result, wanted)
            assert sum(": trace " in line for line in told) == traces
            result, again = counted(call)
            assert same(result, wanted)
            assert again == 0 and lines() == []
    assert case.partax is (TRACES if traces else HIT)
    if case.line is None:
        assert told == []
        return
    (line,) = told
    place, line = line.split(" ", 1)
    assert re.fullmatch(r"\S*(retrace_case|cases_\w+)\.py:\d+", place)
    pattern = ".*".join(map(re.escape, case.line.split("...")))
    assert re.fullmatch(pattern, PLACE.sub("FILE:LINE", line))


@pytest.mark.nightly
@pytest.mark.parametrize("library", OTHERS, ids=lambda library: library.name)
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_the_others_do_what_the_table_says(case: Case, library: Library) -> None:
    expected = getattr(case, library.name)
    if expected is not None:
        assert outcome(case, library) is expected


def test_the_page_shows_the_table() -> None:
    assert_shown(TABLES, *next(iter(TABLES)))
