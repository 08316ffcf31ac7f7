"""Guards that a dataclass is made as by calling it, also where partax only sets its fields: the same fields in the same
order, and the user's own code runs whenever jax runs it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import pytest

import partax
from partax import _core
from reference import assert_exact
from trees import Pair, SlottedCell, add_one, array

MARKED: Any = {"static": True}
register = jax.tree_util.register_dataclass


@register
@dataclasses.dataclass
class Plain:
    b: Any
    kind: str = dataclasses.field(metadata=MARKED)
    a: Any


@register
@dataclasses.dataclass(frozen=True)
class Frozen:
    a: Any
    kind: str = dataclasses.field(default="x", metadata=MARKED)
    b: Any = 3


@register
@dataclasses.dataclass(slots=True)
class Slotted:
    a: Any
    kind: str = dataclasses.field(metadata=MARKED, default="x")
    b: Any = None


@register
@dataclasses.dataclass
class Child(Plain):
    c: Any = None


MADE: dict[str, Callable[[Any, Any], Any]] = {
    "plain": lambda x, y: Plain(x, "k", y),
    "frozen": lambda x, y: Frozen(x, "k", y),
    "slots": lambda x, y: Slotted(x, "k", y),
    "frozen with slots": lambda x, y: SlottedCell([x, y]),
    "inherited": lambda x, y: Child(x, "k", y, {"c": x}),
}


@pytest.mark.parametrize("form", MADE)
def test_all_fields_are_set_in_the_order_of_a_call(form: str) -> None:
    obj = MADE[form](array(2), array(3))
    assert _core.node_kind(obj) == "dataclass"
    copy = partax.combine(*partax.partition(obj, partax.is_array))
    assert copy is not obj
    assert all(a is b for a, b in zip(jax.tree.leaves(copy), jax.tree.leaves(obj), strict=True))
    step = partax.filter_jit(add_one)
    for found, expected in [(copy, jax.tree.map(lambda leaf: leaf, obj)), *((step(obj), add_one(obj)) for _ in "123")]:
        assert_exact(found, expected)
        assert list(getattr(found, "__dict__", ())) == list(getattr(expected, "__dict__", ()))


# Code of a user's that runs when an instance is made, by its name in the class or (`__call__`) in the metaclass.
RUNS: dict[str, Callable[[list[str]], Any]] = {
    "__init__": lambda log: lambda self, a: (log.append("ran"), object.__setattr__(self, "a", a))[1],
    "__new__": lambda log: lambda cls, *_, **__: (log.append("ran"), object.__new__(cls))[1],
    "__setattr__": lambda log: lambda self, n, v: (log.append("ran"), object.__setattr__(self, n, v))[1],
    "__call__": lambda log: lambda cls, *args, **named: (log.append("ran"), type.__call__(cls, *args, **named))[1],
    "__post_init__": lambda log: lambda self: log.append("ran"),
}


@pytest.mark.parametrize("name", RUNS)
def test_code_of_the_user_runs_as_in_jax(name: str) -> None:
    log: list[str] = []
    written = {name: RUNS[name](log)}
    meta = type("Meta", (type,), written if name == "__call__" else {})
    cls: Any = register(dataclasses.dataclass(meta("Made", (), {"__annotations__": {"a": Any}, **written})))
    obj = cls(array(2))
    parts = partax.partition(obj, partax.is_array)
    logs = []
    for make in (
        lambda: jax.tree.map(lambda leaf: leaf, obj),
        lambda: partax.combine(*parts),
    ):
        log.clear()
        assert vars(make()).keys() == vars(obj).keys()
        logs.append([*log])
    assert logs[0] and logs[1:] == [logs[0]]


class Marked(Pair):
    """A named tuple that can have attributes."""


def test_a_named_tuple_comes_back_as_the_same_object_if_it_cannot_have_attributes() -> None:
    step = partax.filter_jit(lambda trees: trees)
    plain, marked = Pair(array(2), 1), Marked(array(2), 1)
    marked.mark = 1  # type: ignore[attr-defined]
    for _ in range(3):
        same, made = step([plain, marked])
        assert same is plain
        assert type(made) is Marked and made.left is marked.left and not hasattr(made, "mark")
