"""Imports partax as soon as jax has been imported, if the environment variable `PARTAX_JAX` is 1.

`partax.pth`, and `partax.start` from Python 3.15 on, call `start` when an interpreter starts.
"""

import os
import sys


def start() -> None:
    if os.environ.get("PARTAX_JAX") == "1" and _finder not in sys.meta_path:  # a venv reads its files twice
        sys.meta_path.insert(0, _finder)


class _Finder:
    """Finds jax by the finders after it, with a loader that imports partax after it."""

    def find_spec(self, name, path=None, target=None):
        if name != "jax":
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader.exec_module = _followed_by_partax(spec.loader.exec_module)
                return spec
        return None


_finder = _Finder()


def _followed_by_partax(exec_module):
    def exec_and_import(module) -> None:
        exec_module(module)
        try:
            import partax  # noqa: F401  # which replaces `jax.jit`
        except Exception as error:
            print(f"PARTAX_JAX=1: jax.jit is that of jax, as partax cannot be imported: {error}", file=sys.stderr)

    return exec_and_import
