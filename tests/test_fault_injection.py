"""Guards the promise that an allocation that fails is a clean MemoryError, for one operation: the harness that makes
each allocation fail detects deliberate bugs. All operations: python tests/faults/run.py."""

import sys
import sysconfig
from pathlib import Path

import pytest

HARNESS = Path(__file__).parent / "faults"
sys.path.insert(0, str(HARNESS))

from run import compiler  # noqa: E402

from processes import python  # noqa: E402

pytestmark = [
    pytest.mark.skipif(
        not sys.platform.startswith("linux") or compiler() is None, reason="needs Linux's loader and a C++ compiler"
    ),
    pytest.mark.skipif(
        bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="a free-threaded Python has its own allocator"
    ),
]


def table(*arguments: str) -> str:
    return python(str(HARNESS / "run.py"), *arguments).stdout


@pytest.mark.slow
def test_the_harness_sees_deliberate_bugs() -> None:
    assert "7 of 7 deliberate bugs reported" in table("--only", "no such operation")


@pytest.mark.slow
def test_an_operation_survives_each_failed_allocation() -> None:
    out = table("--no-self-check", "--quick", "--only", "hit with every family")
    assert "1 operations" in out and " 0 with faults" in out
