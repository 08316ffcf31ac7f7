"""Trees of the libraries whose classes partax reads, from a fuzzer's bytes: read, matched and made anew against
jax.tree and the model; then changed in place, and matched again."""

import copy
from typing import Any

import jax

from fuzz.source import REFUSALS, Source, outcome, patched
from fuzz.tree_walk import check_static_part, same_objects, static_key
from fuzz.values import ARRAYS
from library_trees import PAIRS, parts_of
from partax import _core
from reference import dynamic_leaves
from trees import double

MAX_DEPTH = 4
STATICS: list[Any] = [1, True, 1.0, "a", (1, "x"), float("nan"), None, [1, {2}], {"a": 1.0}, double]
NAMES = ["mode", "x", "more", "mark", "a", "label"]
FAMILIES = sorted(PAIRS)


def check(data: bytes) -> None:
    """Fails where the native reading disagrees with the libraries' own functions."""
    source = Source(data)
    changes = [source.byte() for _ in range(5)]
    first, second = patched(source)
    left, again, right = (_tree(Source(part), 0) for part in (first, first, second))
    key = _key(left)
    if key is None or _key(right) is None:
        outcome(lambda: _core.flatten(left))
        return
    check_static_part(left, again, right)
    leaves, spec = _core.flatten(left)
    _matches(spec, spec.rebuild(leaves), key)
    for what, place, kind in ((changes[0], changes[1], changes[2]), (changes[3], changes[4], changes[0])):
        _change(left, what, place, kind)
        outcome(lambda: _core.flatten(left))
        for tree in (left, again):
            _matches(spec, tree, key)


def _tree(source: Source, depth: int) -> Any:
    def inner() -> Any:
        return _tree(source, depth + 1)

    if depth >= MAX_DEPTH:
        return source.pick(ARRAYS)
    match source.below(8):
        case 0 | 1:
            return source.pick(ARRAYS)
        case 2:
            return copy.deepcopy(source.pick(STATICS))
        case 3:
            return source.pick([list, tuple])(inner() for _ in range(source.below(4)))
        case _:
            return PAIRS[source.pick(FAMILIES)](inner(), inner(), copy.deepcopy(source.pick(STATICS)))


def _key(tree: Any) -> Any:
    """The model's static key; None where the tree may not be one."""
    try:
        return static_key(tree)
    except (*REFUSALS, AttributeError, KeyError):  # of a library that misses what has been taken out
        return None


def _matches(spec: Any, tree: Any, key: Any) -> None:
    found = spec.match(tree)
    assert (found is not None) is (_key(tree) == key)
    if found is not None:
        same_objects(found, [leaf for _, leaf in dynamic_leaves(tree)])


def _change(tree: Any, what: int, place: int, kind: int) -> None:
    """Changes an object of the tree in place, if there is one that can be."""
    nodes = [node for node in jax.tree.leaves(tree, is_leaf=_is_changeable) if _is_changeable(node)]
    if not nodes:
        return
    node = nodes[place % len(nodes)]
    parts = parts_of(node)
    value = copy.deepcopy((STATICS + ARRAYS)[kind % (len(STATICS) + len(ARRAYS))])
    if isinstance(parts, list):
        parts[place % (len(parts) + 1) :] = [value] * (what % 3)
        return
    # An object with more attributes than are declared has another key, whatever its functions say.
    names = [*parts, *([] if parts is getattr(node, "__dict__", None) else NAMES)] or NAMES
    name = names[what % len(names)]
    if place % 4 == 3:
        parts.pop(name, None)
    elif place % 4 == 2 and name in parts:
        parts[name] = parts.pop(name)
    else:
        parts[name] = value


def _is_changeable(node: Any) -> bool:
    return parts_of(node) is not None
