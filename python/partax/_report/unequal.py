"""Which static values have an `==` that tells them apart, where all that a snapshot knows of them is the same."""

from collections.abc import Iterator
from typing import NamedTuple

from partax import _core
from partax._report.part import Part
from partax._report.snapshot import Snapshot

_SHOWN = 3


class _Place(NamedTuple):
    path: str
    is_unequal: bool
    """Whether the two values are unequal now; else one of them is gone, and nobody can tell."""


def _places(path: str, old: Part | None, new: Part) -> Iterator[_Place]:
    if new.original is not None:
        value, before = new.original(), None if old is None or old.original is None else old.original()
        if value is None or before is None:
            yield _Place(path, False)
        elif value is not before and not _are_equal(before, value):
            yield _Place(path, True)
    items = old.items if old is not None and len(old.items) == len(new.items) else [("", None)] * len(new.items)
    for (segment, part), (_, known) in zip(new.items, items, strict=True):
        yield from _places(path + segment if segment[:1] in ".[" else f"{path}, {segment}", known, part)


def _are_equal(one: object, other: object) -> bool:
    try:
        return _core.static_equal(one, other)
    except Exception:  # of the user's `==`
        return False


def unequal_text(old: Snapshot | None, new: Snapshot, number: int) -> str:
    """A sentence that names the static values, or those that it may be, by which the key of a trace is another one than
    that of an earlier trace of the same snapshot, if that is known.
    """
    known = dict(old.pairs()) if old is not None else {}
    found = [place for path, part in new.pairs() for place in _places(path, known.get(path), part)]
    certain = [place.path for place in found if place.is_unequal]
    paths = certain or [place.path for place in found]
    listed = ", ".join([f"`{path}`" for path in paths[:_SHOWN]])
    if len(paths) > _SHOWN:
        listed += f" and {len(paths) - _SHOWN} more"
    if len(paths) == 1 or certain:
        subject = listed
    else:
        subject = f"a static value (one of {listed})" if paths else "a static value"
    if len(certain) > 1:
        return f"{subject} compare unequal to those of trace {number}, though text, type and hash of each are the same"
    return f"{subject} compares unequal to that of trace {number}, though its text, type and hash are the same"
