"""Why a trace was made: what is new since the most similar one, or what has become of one of the same arguments."""

import re
import warnings
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from partax import _core
from partax._report.explain import RetraceWarning
from partax._report.part import Part
from partax._report.recreated import Recreations
from partax._report.snapshot import Difference, Record, Snapshot, below

_DIGESTS = 1 << 16
_SHOWN = 5  # differences in one line
_VALUES = 256  # of one static number that are counted
_WARN_AT = 3  # values of one static number, each of which is a trace


class Occasion(NamedTuple):
    """What the native wrapper tells of a trace that begins."""

    new_key: bool = False  # whether it is the first trace of its static key
    is_full: bool = False  # whether the cache holds as many static keys as it may
    epoch: int = 0  # changes when keys are void since a class has been registered as a pytree node
    difference: str = ""  # what a callable made anew reads, if that makes its key another one than an earlier one
    fields: Sequence[str] = ()  # the paths of static values that are no leaves, but belong to nodes
    arguments: Collection[str] = ()  # the names that the option `trace` takes
    statics: Sequence[tuple[str, Any]] = ()  # the static values that are objects, by path


class Reasons:
    def __init__(self, name: str, cache_size: int, nested: bool):
        self.first = "the first"
        self.recreations = Recreations()
        self.cleared_at = 0  # those up to this one clear_cache has dropped
        self._name = name
        self._cache_size = cache_size
        self._nested = nested
        self._digests: dict[int, int] = {}  # the numbers of traces that have ended, by what they depended on
        self._values: dict[str, set[str]] = {}  # of numbers, by path, each of which is a trace
        self._warned: set[str] = set()
        self._advised: set[str] = set()

    def keep(self, record: Record) -> None:
        """Remembers a trace that has ended, for when it is made again."""
        digest = record.snapshot.digest()
        if digest is not None and len(self._digests) < _DIGESTS:
            self._digests[digest] = record.number

    def count_number(self, changes: list[Difference]) -> Difference | None:
        """Counts a trace that only static numbers have caused; the first of them that is one too many."""
        if any(change.numbers is None for change in changes):
            return None
        for path, numbers in ((change.path, change.numbers or ()) for change in changes):
            values = self._values.setdefault(path, set())
            values.update(numbers if len(values) < _VALUES else ())
        often = (it for it in changes if len(self._values[it.path]) >= _WARN_AT and it.path not in self._warned)
        return next(often, None)

    def warn(self, change: Difference, occasion: Occasion, site: tuple[str, int]) -> None:
        of_all = ", or dynamic=partax.is_array_like for all numbers of all arguments" if self._warned else ""
        self._warned.add(change.path)
        warnings.warn_explicit(
            f"{len(self._values[change.path])} values of the static Python number `{change.path}` are a trace of "
            f"`{self._name}` each; {_advice(change, occasion)}{of_all}",
            RetraceWarning,
            *site,
        )

    def reason(self, snapshot: Snapshot, nearest: Record | None, changes: list[Difference], occasion: Occasion) -> str:
        """Why a trace is made, in words; `changes` are the differences from the nearest record, if there is one."""
        if nearest is None:
            return self.first
        if occasion.new_key and not nearest.failed:
            paths = [change.path for change in changes]
            if text := self.recreations.reason(occasion.difference, occasion.statics, paths):
                return text
        if not changes:
            return self._again(nearest, nearest.number, occasion, snapshot)
        digest = snapshot.digest()
        if digest is not None and digest in self._digests:
            return self._again(None, self._digests[digest], occasion, snapshot)
        texts = [f"{change}{self._so_far(change, occasion)}" for change in changes[:_SHOWN]]
        return "; ".join(texts + ([f"{len(changes) - _SHOWN} more"] if len(changes) > _SHOWN else []))

    def _so_far(self, change: Difference, occasion: Occasion) -> str:
        """How often a number has caused a trace, and once what to do."""
        if change.numbers is None:
            return ""
        advice = "" if change.path in self._advised else f": {_advice(change, occasion)}"
        self._advised.add(change.path)
        return f" ({len(self._values.get(change.path, '12'))} traces so far{advice})"

    def _again(self, same: Record | None, number: int, occasion: Occasion, snapshot: Snapshot) -> str:
        trace = f"trace {number}, of the same arguments"
        if self._nested:
            return f"it is called again with the arguments of trace {number}, as when what calls it is traced anew"
        if same is not None and same.failed:
            return f"{trace}, raised an exception"
        if number <= self.cleared_at:
            return f"clear_cache() has dropped {trace}"
        if same is not None and same.epoch != occasion.epoch:
            return f"a class has been registered as a pytree node since {trace}"
        if occasion.new_key and occasion.is_full:
            return f"the key of {trace}, was evicted: cache_size={self._cache_size} keeps the static keys used last"
        reason = f"jax holds {trace}, no more, as after jax.clear_caches()"
        if occasion.new_key:
            reason = unequal_text(None if same is None else same.snapshot, snapshot, number)
        return f"{reason} (compared: structure, static values, dtypes, shapes, jax configuration)"


def _advice(change: Difference, occasion: Occasion) -> str:
    """What to do about a number, each of which is another trace."""
    path = change.path
    owner, _, name = path.rpartition(".")
    if any(path == field or below(path, field) for field in occasion.fields):
        whole, aux, _ = path.partition(".<aux data>")
        if aux:
            return f"it is aux data of `{whole}`: make it a child that is an array"
        return f"it is a static field of `{owner}`: make it one that holds an array"
    argument = re.split(r"[.\[]", path, maxsplit=1)[0]
    may_trace = argument in occasion.arguments and not change.is_inside
    return f"pass jnp.asarray({name})" + (f', or dynamic=("{argument}",)' if may_trace else "")


_NAMED = 3


def _places(path: str, old: Part | None, new: Part) -> Iterator[tuple[str, bool]]:
    """Where the `==` of values decides, and whether that tells them apart; else one is gone, and nobody can tell."""
    if new.original is not None:
        value, before = new.original(), None if old is None or old.original is None else old.original()
        if value is None or before is None:
            yield path, False
        elif value is not before and not _are_equal(before, value):
            yield path, True
    known = old.items if old is not None and len(old.items) == len(new.items) else [("", None)] * len(new.items)
    for (segment, part), (_, earlier) in zip(new.items, known, strict=True):
        yield from _places(path + segment if segment[:1] in ".[" else f"{path}, {segment}", earlier, part)


def _are_equal(one: object, other: object) -> bool:
    try:
        return _core.static_equal(one, other)
    except Exception:  # of the user's `==`
        return False


def unequal_text(old: Snapshot | None, new: Snapshot, number: int) -> str:
    """Names the static values by which a key is another one than that of an equal snapshot, or those that it may be."""
    known = dict(old.pairs()) if old is not None else {}
    found = [it for path, part in new.pairs() for it in _places(path, known.get(path), part)]
    certain = [f"`{path}`" for path, is_unequal in found if is_unequal]
    paths = certain or [f"`{path}`" for path, _ in found]
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    listed = f"{', '.join(paths[:_NAMED])}{more}"
    if len(certain) > 1:
        return f"{listed} compare unequal to those of trace {number}, though text, type and hash of each are the same"
    if not certain and len(paths) != 1:
        listed = f"a static value (one of {listed})" if paths else "a static value"
    return f"{listed} compares unequal to that of trace {number}, though its text, type and hash are the same"
