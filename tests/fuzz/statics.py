"""Two static values from a fuzzer's bytes: equality, hash and snapshots, against the model in reference.py."""

from typing import Any

from fuzz.source import REFUSALS, Source, outcome, patched
from fuzz.values import World, change, static
from partax import _core
from reference import canonical
from trees import Bag, Cell


def check(data: bytes) -> None:
    """Fails where partax and the model disagree."""
    first, second = patched(Source(data))
    world = World()

    def build(data: bytes) -> Any:
        value = static(Source(data), world)
        world.root = value
        return value

    left, again, right = build(first), build(first), build(second)
    if world.hostile:
        _check_hostile(left, right, len(data) % 2)
        return
    values = (left, again, right)
    keys = [outcome(lambda v=v: canonical(v), (TypeError,)) for v in values]
    hashes = [outcome(lambda v=v: _core.static_hash(v), (TypeError,)) for v in values]
    for key, found in zip(keys, hashes, strict=True):
        assert isinstance(key, TypeError) is isinstance(found, TypeError), (key, found)
    known = [triple for triple in zip(values, keys, hashes, strict=True) if not isinstance(triple[1], TypeError)]
    for value, key, found in known:
        assert _core.static_hash(value) == found
        for other, other_key, other_hash in known:
            same, equal = key == other_key, _core.static_equal(value, other)
            assert equal is same, (value, other)
            assert not equal or found == other_hash, (value, other)
    for value in values:
        outcome(lambda v=value: _core.static_equal(v, left), (TypeError,))
    _check_snapshot(left, again, right, Bag if data[:1] < b"\x80" else Cell)


def _check_hostile(left: Any, right: Any, half: int) -> None:
    operations = (
        lambda: _core.static_hash(left),
        lambda: _core.static_equal(left, right),
        lambda: _core.static_equal(left, left),
        lambda: _core.flatten(Cell(1, mode=left))[1].match(Cell(1, mode=right)),
        lambda: _core.flatten(Bag(1, label=left))[1] == _core.flatten(Bag(1, label=right))[1],
        lambda: hash(_core.flatten(Bag(1, label=left))[1]),
        lambda: _found(_kept(Bag(1, label=left)), Bag(1, label=right)),
        lambda: _found(_kept(Cell(1, mode=left)), Cell(1, mode=left)),
    )
    for operation in operations[half::2]:
        outcome(operation)
    assert _core.static_equal((1, [2.0]), (1, [2.0])) and not _core.static_equal((1, [2.0]), (1, [2]))


def _kept(tree: Any) -> dict[Any, str]:
    return {_core.flatten(tree)[1]: "found"}


def _found(table: dict[Any, str], tree: Any) -> str | None:
    return table.get(_core.flatten(tree)[1])


def _node(kind: Any, value: Any) -> Any:
    return Bag(1, label=value) if kind is Bag else Cell(1, mode=value)


def _check_snapshot(left: Any, again: Any, right: Any, kind: Any) -> None:
    """As aux data: what a key keeps is the value as it was."""
    keys = [outcome(lambda v=v: canonical(v, compared_only=True), (TypeError,)) for v in (left, again, right)]
    table = outcome(lambda: _kept(_node(kind, left)), REFUSALS)
    assert isinstance(table, TypeError) is isinstance(keys[0], TypeError), (table, keys[0])
    if isinstance(table, TypeError):
        return
    for value, key in zip((left, again, right), keys, strict=True):
        if not isinstance(key, TypeError):
            assert (_found(table, _node(kind, value)) == "found") is (key == keys[0]), value
    if change(left):
        assert _found(table, _node(kind, left)) is None
        assert (_found(table, _node(kind, again)) == "found") is (keys[0] == keys[1])
