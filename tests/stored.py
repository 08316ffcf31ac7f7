"""Waits for what partax writes beside the calls."""

import threading
import time
from collections.abc import Callable


def written() -> None:
    """Waits until all that is to be stored is."""
    for thread in threading.enumerate():
        if thread.name == "partax store":
            thread.join(30)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)
