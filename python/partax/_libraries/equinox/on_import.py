"""Accelerates Equinox from the moment in which a program imports it."""

import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any


def accelerate_when_imported() -> None:
    if "equinox" in sys.modules:
        _accelerate()
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _accelerate() -> None:
    from partax._libraries.equinox.accelerate import accelerate

    accelerate()


class _Finder:
    """Finds Equinox where it is, once, and has what loads it accelerate it afterwards."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        if name != "equinox":
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec = importlib.util.find_spec(name)
        loader: Any = None if spec is None else spec.loader
        if loader is not None:
            load = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                _accelerate()

            loader.exec_module = exec_module
        return spec
