"""Runs a test of test_fuzz.py under atheris: `python tests/fuzzer.py TEST [options of libFuzzer]`.

The native module has to be built for it, as `.ci/fuzz` does, which runs all of these tests.
"""

import os
import sys
import traceback
import warnings

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import atheris

with atheris.instrument_imports(include=["partax"]):
    import partax  # noqa: F401

import test_fuzz

test = getattr(test_fuzz, sys.argv.pop(1)).hypothesis.fuzz_one_input


def run(data: bytes) -> None:
    try:
        test(data)
    except BaseException:
        # Immediately, as a regular exit may crash in this state. Hypothesis has printed the failing example.
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


warnings.simplefilter("ignore")
atheris.Setup(sys.argv, run)
atheris.Fuzz()
