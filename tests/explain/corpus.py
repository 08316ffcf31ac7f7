"""Guards the promise that the corpus is one list, whose differences docs/guides/retraces.md shows as a table.

`python tests/report/corpus.py --write` writes that table into the page.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # when this file is run by itself

import cases_arrays
import cases_callables
import cases_calls
import cases_functions
import cases_models
import cases_statics
from retrace_case import Case, Outcome

import page_tables
from page_tables import DOCS, print_or_write

CASES: list[Case] = [
    *cases_arrays.CASES, *cases_statics.CASES, *cases_callables.CASES, *cases_functions.CASES, *cases_models.CASES,
    *cases_calls.CASES,
]  # fmt: skip


def table() -> str:
    """The cases in which the three differ, in Markdown."""

    def cell(outcome: Outcome | None) -> str:
        return "n/a" if outcome is None else str(outcome)

    rows = [
        (case.name, cell(case.jax), cell(case.equinox), cell(case.partax))
        for case in CASES
        if {case.jax, case.equinox} - {None, case.partax}
    ]
    return page_tables.table(["what changes between two calls", "`jax.jit`", "Equinox", "partax"], rows)


TABLES = {(DOCS / "guides" / "retraces.md", "retraces"): table}

if __name__ == "__main__":
    print_or_write(TABLES)
