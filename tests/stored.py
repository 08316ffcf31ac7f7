"""Waits for what partax writes beside the calls."""

import threading


def written() -> None:
    """Waits until all that is to be stored is."""
    for thread in threading.enumerate():
        if thread.name == "partax store":
            thread.join(30)
