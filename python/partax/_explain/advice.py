"""Warnings at the third trace that one static number, or one re-created function or object, has caused."""

import collections
import warnings

from partax._explain.differences import Change
from partax._explain.explain import RetraceWarning

_WARN_AT = 3
_VALUES = 256  # of one static number that are counted
FUNCTION_REMEDY = "create it once and reuse it, or pass what it reads as an argument"
OBJECT_REMEDY = "keep one object, or give its class `__eq__` and `__hash__`"


class Warner:
    """Counts what has caused the traces of one function, and warns of each cause once."""

    def __init__(self, name: str):
        self._name = name
        self._values: dict[str, set[str]] = {}  # the traced values of a number, by its path
        self._recreated: collections.Counter[str] = collections.Counter()
        self._is_warned = set[str]()

    def count_numbers(self, changes: list[Change], site: tuple[str, int]) -> None:
        """Counts a trace that only static numbers have caused."""
        for change in changes:
            values = self._values.setdefault(change.path, set())
            values.update(change.numbers or () if len(values) < _VALUES else ())
        for change in changes:
            count = len(self._values[change.path])
            if count >= _WARN_AT and change.path not in self._is_warned:
                of_all = ", or dynamic=partax.is_array_like for all numbers of all arguments" if self._is_warned else ""
                self._is_warned.add(change.path)
                text = f"{count} values of the static Python number `{change.path}` are a trace of `{self._name}` each"
                warnings.warn_explicit(f"{text}; {change.advice}{of_all}", RetraceWarning, *site)
                return

    def count_recreated(self, path: str, text: str, remedy: str, site: tuple[str, int]) -> None:
        self._recreated[path] += 1
        if self._recreated[path] == _WARN_AT - 1:
            _warn_of_recreated(text, remedy, site)

    def count_function(self, reason: str, number: int, site: tuple[str, int]) -> None:
        """The same of the called function, by how many of its code there were."""
        if number == _WARN_AT and " was re-created and " in reason:  # and not only evicted
            _warn_of_recreated(f"`{self._name}`: {reason.partition(': ')[2]}", FUNCTION_REMEDY, site)


def _warn_of_recreated(text: str, remedy: str, site: tuple[str, int]) -> None:
    warnings.warn_explicit(f"{text}, and traced {_WARN_AT} times so far; {remedy}", RetraceWarning, *site)
