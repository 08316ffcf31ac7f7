"""Guards the promise that nothing crashes, whatever the input is: programs for a fuzzer.

Each target has a directory of its name in corpus/.
"""

from collections.abc import Callable
from pathlib import Path

from fuzz import statics, tree_walk

CORPUS = Path(__file__).parent / "corpus"
TARGETS: dict[str, Callable[[bytes], None]] = {"tree_walk": tree_walk.check, "statics": statics.check}
"""By name a function of one input, which raises for a finding."""
