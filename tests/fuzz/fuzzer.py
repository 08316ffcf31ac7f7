"""Runs one target under atheris: `python tests/fuzz/fuzzer.py TARGET [options and corpora of libFuzzer]`.

The native module has to be built for it, as `.ci/fuzz` does, which runs all targets.
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
    name = sys.argv.pop(1)

    def run(data: bytes) -> None:
        try:
            fuzz.TARGETS[name](data)
        except BaseException:
            # Immediately, as a regular exit may crash in this state and lose the input.
            traceback.print_exc()
            print(f"\nthe input, for tests/fuzz/corpus: {base64.b64encode(data).decode()}", file=sys.stderr, flush=True)
            os._exit(1)

    warnings.simplefilter("ignore")
    # libFuzzer runs this command to merge corpora in another process.
    atheris.Setup([f"{sys.executable} {__file__} {name}", *sys.argv[1:]], run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
