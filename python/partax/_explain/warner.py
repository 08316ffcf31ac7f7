"""Warnings at the third trace that one static number, or one re-created function or object, has caused."""

import collections
import warnings
from collections.abc import Sequence

from partax._explain.differences import Difference
from partax._explain.explain import RetraceWarning

WARN_AT = 3
FUNCTION_REMEDY = "create it once and reuse it, or pass what it reads as an argument"
_OBJECT_REMEDY = "keep one object, or give its class `__eq__` and `__hash__`"


class Warner:
    """The causes of the traces of one function, with at most one warning for each."""

    def __init__(self, name: str):
        self._name = name
        self._numbers: dict[str, set[str]] = {}  # the traced values of a number, by its path
        self._recreations: collections.Counter[str] = collections.Counter()
        self._warned_paths = set[str]()

    def count(self, differences: Sequence[Difference], site: tuple[str, int], in_recursion: bool) -> None:
        recreated = next((difference for difference in differences if difference.is_recreated), None)
        if recreated is not None:
            self.count_recreation(recreated.path, str(recreated), _OBJECT_REMEDY, site)
        elif not in_recursion and all(difference.is_number for difference in differences):
            for difference in differences:
                self._count_number(difference, site)

    def _count_number(self, difference: Difference, site: tuple[str, int]) -> None:
        path, old, new = difference
        if path in self._warned_paths:
            return
        values = self._numbers.setdefault(path, set())
        values.update(entry.value_text for entry in (old, new) if entry is not None)
        if len(values) >= WARN_AT:
            self._warned_paths.add(path)
            text = f"{len(values)} values of the static Python number `{path}` are a trace of `{self._name}` each"
            warnings.warn_explicit(f"{text}; {difference.advice}", RetraceWarning, *site)

    def count_recreation(self, path: str, text: str, remedy: str, site: tuple[str, int]) -> None:
        self._recreations[path] += 1
        if self._recreations[path] == WARN_AT - 1:
            warn_of_recreation(text, remedy, site)


def warn_of_recreation(text: str, remedy: str, site: tuple[str, int]) -> None:
    warnings.warn_explicit(f"{text}, and traced {WARN_AT} times so far; {remedy}", RetraceWarning, *site)
