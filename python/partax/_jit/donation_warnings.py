"""Keeps jax's warning about donated buffers that it could not use from users who did not ask for it."""

import contextlib
import threading
import warnings
from collections.abc import Generator
from typing import Any, cast


class _DonationWarnings:
    """What a filter of warnings matches texts with: it ignores the warning in threads that are silent, in no others.

    `warnings.catch_warnings` puts back what was there before, and so undoes what other threads do meanwhile.
    """

    def __init__(self) -> None:
        self._silent: dict[int, int] = {}  # by thread, how many calls under way are to be silent
        self._filter = ("ignore", self, UserWarning, None, 0)

    def match(self, text: str) -> bool:
        """Whether a warning is ignored; called by `warnings`."""
        return threading.get_ident() in self._silent and text.startswith("Some donated buffers were not usable")

    def silence(self) -> None:
        """Ignores the warning in this thread until `restore` is called as often."""
        thread = threading.get_ident()
        self._silent[thread] = self._silent.get(thread, 0) + 1
        filters = cast("list[Any]", warnings.filters)
        if not filters or filters[0] is not self._filter:
            filters.insert(0, self._filter)

    def restore(self) -> None:
        """Ends what the last `silence` of this thread has begun."""
        thread = threading.get_ident()
        self._silent[thread] -= 1
        if self._silent[thread] == 0:
            del self._silent[thread]
        filters = cast("list[Any]", warnings.filters)
        with contextlib.suppress(ValueError):  # until it is gone, by whatever thread
            while not self._silent:
                filters.remove(self._filter)

    @contextlib.contextmanager
    def silenced(self) -> Generator[None]:
        """A block without the warning."""
        self.silence()
        try:
            yield
        finally:
            self.restore()


donation_warnings = _DonationWarnings()
