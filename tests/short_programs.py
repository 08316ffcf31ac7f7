"""Modules that are imported while a block runs."""

import importlib.util
import itertools
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_numbers = itertools.count()


@contextmanager
def imported(source: str, folder: Path, name: str | None = None) -> Iterator[types.ModuleType]:
    """The module of a source, as long as the block runs; its name is one of its own, where none is given."""
    number = next(_numbers)
    name = name or f"short_program_{number}"
    file = folder / f"{name}_{number}.py"
    file.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    try:
        exec(compile(source, str(file), "exec", dont_inherit=True), vars(module))
        yield module
    finally:
        getattr(module, "restore", lambda: None)()
        sys.modules.pop(module.__name__, None)
