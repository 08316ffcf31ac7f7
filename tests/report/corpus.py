"""Guards the promise that the corpus is one list, whose differences docs/guides/retraces.md shows as a table.

`python tests/report/corpus.py --table` prints that table.
"""

from __future__ import annotations

import argparse

import cases_arrays
import cases_callables
import cases_calls
import cases_functions
import cases_models
import cases_settings
import cases_statics
import cases_structure
import cases_wrapped
from retrace_case import Case, Outcome

CASES: list[Case] = [
    *cases_arrays.CASES,
    *cases_structure.CASES,
    *cases_statics.CASES,
    *cases_callables.CASES,
    *cases_wrapped.CASES,
    *cases_functions.CASES,
    *cases_models.CASES,
    *cases_calls.CASES,
    *cases_settings.CASES,
]


def table() -> str:
    """The cases in which the three differ, in Markdown."""

    def cell(outcome: Outcome | None) -> str:
        return "n/a" if outcome is None else str(outcome)

    rows = ["| what changes between two calls | `jax.jit` | Equinox | partax |", "|---|---|---|---|"]
    rows += [
        f"| {case.name} | {cell(case.jax)} | {cell(case.equinox)} | {cell(case.partax)} |"
        for case in CASES
        if {case.jax, case.equinox} - {None, case.partax}
    ]
    return "\n".join(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The corpus of changes that should or should not retrace.")
    parser.add_argument("--table", action="store_true", help="print the table of docs/guides/retraces.md")
    print(table() if parser.parse_args().table else f"{len(CASES)} cases")
