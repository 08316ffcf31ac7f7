"""Which static values have an `==` that tells them apart, where all that a snapshot knows of them is the same."""

from collections.abc import Iterator

from partax import _core
from partax._report.part import Part
from partax._report.snapshot import Snapshot

_SHOWN = 3


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
    """A sentence that names the static values, or those that it may be, by which the key of a trace is another one than
    that of an earlier trace of the same snapshot, if that is known.
    """
    known = dict(old.pairs()) if old is not None else {}
    found = [it for path, part in new.pairs() for it in _places(path, known.get(path), part)]
    certain = [f"`{path}`" for path, is_unequal in found if is_unequal]
    paths = certain or [f"`{path}`" for path, _ in found]
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    listed = f"{', '.join(paths[:_SHOWN])}{more}"
    if len(certain) > 1:
        return f"{listed} compare unequal to those of trace {number}, though text, type and hash of each are the same"
    if not certain and len(paths) != 1:
        listed = f"a static value (one of {listed})" if paths else "a static value"
    return f"{listed} compares unequal to that of trace {number}, though its text, type and hash are the same"
