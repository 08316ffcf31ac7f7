"""Threads that begin at the same moment, where Python may switch after every instruction and what hangs is ended."""

import contextlib
import faulthandler
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

HANGS_AFTER = 120  # seconds; machines may be slow


@contextlib.contextmanager
def switching(interval: float = 1e-6, hangs_after: float = HANGS_AFTER) -> Iterator[None]:
    """Python switches that often; the process ends with the stacks of all threads where the block takes that long."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(interval)
    faulthandler.dump_traceback_later(hangs_after, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        sys.setswitchinterval(before)


def at_once(call: Callable[[int], Any], count: int = 4) -> list[Any]:
    """What ``call(i)`` gives in the i-th of so many threads; an exception where it raises one."""
    start = threading.Barrier(count)

    def run(i: int) -> Any:
        start.wait()
        try:
            return call(i)
        except Exception as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def together(*works: Callable[[], Any]) -> list[Any]:
    """What each gives in a thread of its own, all starting at once; an exception where one raises it."""
    return at_once(lambda i: works[i](), len(works))


def all_right(results: list[Any]) -> None:
    for result in results:
        if isinstance(result, BaseException):
            raise result


def assert_equal(actual: Any, expected: Any) -> None:
    assert np.array_equal(np.asarray(actual), np.asarray(expected)), (actual, expected)
