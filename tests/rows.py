"""Guards that tables of short programs can be read: each is a text, whose rows are a name, a colon, and what it has."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any


def rows_of(parts: Mapping[str, Any]) -> Callable[[str], dict[str, str]]:
    """What reads the tables of a file, whose globals are given: gives the rows by their names.

    `\\n` is the end of a line of a program, and `{NAME}` a text among the globals. A row goes on in indented lines.
    """

    def rows(text: str) -> dict[str, str]:
        whole = re.sub(r"\n +(?=\\n)", "", text.strip()).replace("\n ", "").splitlines()
        return {name: program(row) for name, row in (row.split(": ", 1) for row in whole)}

    def program(row: str) -> str:
        return re.sub(r"{(\w+)}", lambda it: parts.get(it[1], it[0]), row.replace("\\n", "\n"))

    return rows
