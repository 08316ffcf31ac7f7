"""Short programs of the tests: tables of them that are texts, and modules that are imported while a block runs."""

import itertools
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_numbers = itertools.count()


def rows_of(parts: Mapping[str, Any]) -> Callable[[str], dict[str, str]]:
    """What reads the tables of a file, whose globals are given: gives what each row has by its name.

    A row is a name, a colon, and a program, which goes on in indented lines. `\\n` is the end of a line of the program,
    and `{NAME}` a text among the globals.
    """

    def rows(text: str) -> dict[str, str]:
        whole = re.sub(r"\n +(?=\\n)", "", text.strip()).replace("\n ", "").splitlines()
        return {name: program(row) for name, row in (row.split(": ", 1) for row in whole)}

    def program(row: str) -> str:
        return re.sub(r"{(\w+)}", lambda it: parts.get(it[1], it[0]), row.replace("\\n", "\n"))

    return rows


@contextmanager
def imported(source: str, folder: Path, name: str | None = None) -> Iterator[types.ModuleType]:
    """The module of a source, as long as the block runs; its name is one of its own, where none is given."""
    number = next(_numbers)
    module = types.ModuleType(name or f"short_program_{number}")
    file = folder / f"{module.__name__}_{number}.py"
    file.write_text(source, encoding="utf-8")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module
    try:
        exec(compile(source, str(file), "exec", dont_inherit=True), vars(module))
        yield module
    finally:
        getattr(module, "restore", lambda: None)()
        sys.modules.pop(module.__name__, None)
