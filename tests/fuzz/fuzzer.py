"""Runs one target under atheris: `python tests/fuzz/fuzzer.py TARGET [options and corpora of libFuzzer]`.

The native module has to be built for it: `.ci/fuzz` does that, and runs them all.
"""

import base64
import os
import sys
import traceback
import warnings
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path.insert(0, str(Path(__file__).parent.parent))

import atheris

with atheris.instrument_imports(include=["partax"]):
    import partax  # noqa: F401

import fuzz


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in fuzz.NAMES:
        sys.exit(f"usage: {sys.argv[0]} {{{','.join(fuzz.NAMES)}}} [options and corpora of libFuzzer]")
    name = sys.argv.pop(1)
    check = fuzz.load(name)

    def one(data: bytes) -> None:
        try:
            check(data)
        except BaseException:
            # At once: at a regular exit, so much may go wrong in so odd a state that the input would be lost.
            traceback.print_exc()
            print(f"\nthe input, for tests/fuzz/corpus: {base64.b64encode(data).decode()}", file=sys.stderr, flush=True)
            os._exit(1)

    warnings.simplefilter("ignore")
    # What libFuzzer calls itself by, to merge corpora in a process of their own.
    atheris.Setup([f"{sys.executable} {__file__} {name}", *sys.argv[1:]], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
