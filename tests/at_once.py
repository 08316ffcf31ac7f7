"""Calls in several threads that begin at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


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
