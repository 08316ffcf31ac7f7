"""Guards the promise that nothing crashes, whatever comes: programs for a fuzzer, one for each way in.

Each has a directory of its name in corpus/.
"""

import importlib
from collections.abc import Callable
from pathlib import Path

NAMES = ("tree_walk", "statics", "globs")
CORPUS = Path(__file__).parent / "corpus"


def load(name: str) -> Callable[[bytes], None]:
    """The function that gets one input; it raises for a finding."""
    return importlib.import_module(f"fuzz.{name}").check
