"""Guards that a class registered with Python functions is what jax makes of it, in as few calls of these as can be, and
that a class declared by `register_fields` is the same without any; a wrong declaration is told."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

import partax
from partax import _core
from trees import Nameless, array

LOG: list[str] = []


def declared(
    data: tuple[str, ...] = ("x", "y"),
    static: tuple[str, ...] = ("name",),
    *,
    slots: bool = False,
    aux: Callable[[Any], Any] | None = None,
    declare: bool = True,
) -> Any:
    """A new class of these attributes, which logs what is called."""
    body: dict[str, Any] = {"__slots__": (*data, *static)} if slots else {}
    cls: Any = type("Pair", (), body)

    def flatten(obj: Any) -> Any:
        LOG.append("flatten")
        kept = tuple(getattr(obj, name) for name in static)
        return [getattr(obj, name) for name in data], kept if aux is None else aux(kept)

    def unflatten(kept: Any, children: Any) -> Any:
        LOG.append("unflatten")
        made = object.__new__(cls)
        for name, value in zip((*static, *data), (*kept, *children), strict=True):
            setattr(made, name, value)
        return made

    jax.tree_util.register_pytree_node(cls, flatten, unflatten)
    if declare:
        assert partax.register_fields(cls, data=data, static=static) is cls
    return cls


def made(cls: Any, **values: Any) -> Any:
    obj = cls()
    for name, value in values.items():
        setattr(obj, name, value)
    return obj


def pair(cls: Any, x: Any = 1.0, y: Any = 2.0, name: Any = "a") -> Any:
    return made(cls, x=array(2) * x, y=array(3) * y, name=name)


@pytest.mark.parametrize("slots", [False, True])
def test_no_function_is_called_once_it_is_known(slots: bool) -> None:
    cls = declared(slots=slots)
    traces: list[Any] = []

    @partax.filter_jit
    def step(tree: Any) -> Any:
        traces.append(tree.name)
        return jax.tree.map(lambda leaf: leaf + 1, tree)

    step(pair(cls))
    LOG.clear()
    found = step(pair(cls, 3.0))
    assert _core.node_kind(found) == "declared"
    assert LOG == [] and traces == ["a"]
    assert type(found) is cls and found.name == "a"
    np.testing.assert_array_equal(found.x, array(2) * 3 + 1)
    np.testing.assert_array_equal(found.y, array(3) * 2 + 1)
    if not slots:
        assert list(vars(found)) == ["name", "x", "y"], "as the function sets them"
    assert step(pair(cls, name="b")).name == "b"
    assert step(pair(cls, name=1)).name == 1
    assert step(pair(cls, name=True)).name is True
    assert traces == ["a", "b", 1, True]


def test_another_instance_than_declared_is_left_to_the_functions() -> None:
    cls = declared()
    step = partax.filter_jit(lambda tree: jax.tree.map(lambda leaf: leaf + 1, tree))
    step(pair(cls))
    extra = pair(cls)
    extra.cached = 3
    LOG.clear()
    assert list(vars(step(extra))) == ["name", "x", "y"]
    assert "flatten" in LOG
    assert step(extra).name == "a"
    absent = pair(cls)
    del absent.y
    with pytest.raises(AttributeError, match="'y'"):
        step(absent)
    cls.y = array(4)  # which getattr finds
    np.testing.assert_array_equal(step(absent).y, array(4) + 1)
    del cls.y
    LOG.clear()
    step(pair(cls))
    assert LOG == []


def test_an_unset_slot_is_left_to_the_functions() -> None:
    cls = declared(slots=True)
    step = partax.filter_jit(lambda tree: tree)
    step(pair(cls))
    obj = pair(cls)
    del obj.x
    with pytest.raises(AttributeError, match="x"):
        step(obj)
    del obj.y, obj.name
    with pytest.raises(AttributeError):
        step(obj)


def swapped(cls: Any) -> Any:
    return lambda it: ((it.y, it.x), it.name), lambda aux, children: made(cls, x=children[1], y=children[0], name=aux)


def copying(cls: Any) -> Any:
    return lambda it: ((it.x, it.y), it.name), lambda aux, c: made(cls, x=c[0], y=c[1], name=f"{aux}!"[:-1])


def counting(cls: Any) -> Any:
    return lambda it: ((it.x, it.y), it.name), lambda aux, c: made(cls, x=c[0], y=c[1], name=aux, made=1)


def forgetting(cls: Any) -> Any:
    return lambda it: ((it.x, it.y), it.name), lambda aux, c: made(cls, x=c[0], y=c[1])


def other_type(cls: Any) -> Any:
    sub = type("Sub", (cls,), {})
    return lambda it: ((it.x, it.y), it.name), lambda aux, c: made(sub, x=c[0], y=c[1], name=aux)


def more_children(cls: Any) -> Any:
    return lambda it: ((it.x, it.y, 3.0), it.name), lambda aux, c: made(cls, x=c[0], y=c[1], name=aux)


WRONG = {
    swapped: r"the children are \(`y`, `x`\)",
    copying: "unflattening makes another `name`",
    counting: r"unflattening sets the attributes \('x', 'y', 'name', 'made'\)",
    forgetting: r"unflattening sets the attributes \('x', 'y'\)",
    other_type: "unflattening gives a `Sub`",
    more_children: r"the children are \(`x`, `y`, another object\)",
}


@pytest.mark.parametrize("functions", WRONG, ids=lambda functions: functions.__name__)
def test_a_wrong_declaration_is_told_with_both_sides_and_a_path(functions: Callable[[Any], Any]) -> None:
    cls: Any = type("Pair", (), {})
    jax.tree_util.register_pytree_node(cls, *functions(cls))
    partax.register_fields(cls, data=("x", "y"), static=("name",))
    step = partax.filter_jit(lambda tree: jax.tree.leaves(tree)[0])
    for _ in range(2):
        with pytest.raises(TypeError, match=WRONG[functions]) as found:
            step([pair(cls, name="".join(("long", " name")))])
        message = str(found.value)
        assert message.startswith("`tree[0]`: ")
        assert "data=('x', 'y') and static=('name',)" in message


def test_what_the_functions_raise_is_raised_with_a_path() -> None:
    cls: Any = type("Pair", (), {})

    def unflatten(*_: Any) -> Any:
        raise KeyError("not today")

    jax.tree_util.register_pytree_node(cls, lambda it: ((it.x,), None), unflatten)
    partax.register_fields(cls, data=("x",))
    with pytest.raises(KeyError, match="not today") as found:
        partax.filter_jit(lambda tree: tree)({"at": made(cls, x=array(1))})
    assert any("['at']" in note for note in found.value.__notes__)


def test_what_cannot_be_declared() -> None:
    cls = declared(declare=False)
    with pytest.raises(TypeError, match="expected a tuple of names"):
        partax.register_fields(cls, data="xy")
    with pytest.raises(TypeError, match="expected a tuple of names"):
        partax.register_fields(cls, data=(1,))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected each once"):
        partax.register_fields(cls, data=("x", "y"), static=("x",))
    with pytest.raises(TypeError, match="expected a class"):
        partax.register_fields(pair(cls), data=("x",))
    with pytest.raises(TypeError, match="register_pytree_node"):
        partax.register_fields(type("Unknown", (), {}), data=("x",))
    with pytest.raises(TypeError, match="partax reads itself"):
        partax.register_fields(dict, data=())
    with pytest.raises(TypeError, match="partax reads itself"):
        partax.register_fields(jax.tree_util.Partial, data=("args",))
    cls.x = property(lambda self: 3)
    with pytest.raises(TypeError, match="found `x` of `Pair` elsewhere"):
        partax.register_fields(cls, data=("x", "y"), static=("name",))


def test_once_is_for_good() -> None:
    cls = declared()
    partax.register_fields(cls, data=["x", "y"], static=["name"])
    with pytest.raises(ValueError, match=r"expected what was said before: data=\('x', 'y'\)"):
        partax.register_fields(cls, data=("y", "x"), static=("name",))
    LOG.clear()
    partax.filter_jit(lambda tree: tree)(pair(cls))
    assert LOG


@pytest.mark.parametrize("as_result", [False, True])
def test_a_class_that_a_wrapper_knows_is_read_anew(as_result: bool) -> None:
    cls = declared(declare=False)
    traces: list[Any] = []

    @partax.filter_jit
    def step(tree: Any) -> Any:
        traces.append(1)
        return pair(cls) if as_result else tree

    argument = array(1) if as_result else pair(cls)
    step(argument)
    LOG.clear()
    step(argument)
    assert LOG
    partax.register_fields(cls, data=("x", "y"), static=("name",))
    assert type(step(argument)) is (cls if as_result else type(argument))
    LOG.clear()
    step(argument)
    step(argument)
    if not as_result:
        assert LOG == []
        assert len(traces) == 2


def test_a_subclass_is_another_class() -> None:
    cls = declared()
    sub: Any = type("Sub", (cls,), {})
    step = partax.filter_jit(lambda tree: tree)
    obj = made(sub, x=1, y=2, name="a")
    assert step(obj) is obj, "a leaf"
    jax.tree_util.register_pytree_node(
        sub, lambda it: ((it.y,), None), lambda aux, children: made(sub, y=children[0], x=0, name="sub")
    )
    assert step(obj).x == 0
    assert _core.node_kind(obj) == "registered"


class Items:
    """Children that are only a sequence, as Python's old protocol has it."""

    def __init__(self, *items: Any):
        self.items = items

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


def generated(*items: Any) -> Iterator[Any]:
    yield from items


def pair_class(flattened: Callable[[Any], Any]) -> type:
    """A class of two attributes that is flattened so, and logs the functions that are called."""

    class Pair:
        log: list[str]

        def __init__(self, a: Any, b: Any):
            self.a, self.b = a, b

    def flatten(pair: Any) -> Any:
        Pair.log.append("flatten")
        return flattened(pair)

    def unflatten(aux: Any, children: Any) -> Any:
        assert type(children) is tuple
        Pair.log.append("unflatten")
        return Pair(*children)

    Pair.log = []
    jax.tree_util.register_pytree_node(Pair, flatten, unflatten)
    return Pair


class PairTuple(tuple[Any, ...]):
    pass


FLATTENED: dict[str, Callable[[Any], Any]] = {
    "tuple": lambda it: ((it.a, it.b), None),
    "list": lambda it: ([it.a, it.b], "aux"),
    "iterator": lambda it: (generated(it.a, it.b), 3),
    "values": lambda it: ({1: it.a, 2: it.b}.values(), (1, 2)),
    "sequence": lambda it: (Items(it.a, it.b), None),
    "a subclass of tuple": lambda it: PairTuple(((it.a, it.b), None)),
}


@pytest.mark.parametrize("form", FLATTENED)
def test_children_come_in_any_form_and_each_function_is_called_once(form: str) -> None:
    cls: Any = pair_class(FLATTENED[form])

    def body(pair: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf + 1, pair)

    ours = partax.filter_jit(body)
    pair = cls(array(2), {"b": array(3), "a": array(1)})
    ours(pair)
    expected = jax.jit(body)(pair)
    cls.log.clear()
    found = ours(pair)
    assert cls.log == ["flatten", "unflatten"]
    assert type(found) is cls
    np.testing.assert_array_equal(found.a, expected.a)
    np.testing.assert_array_equal(found.b["a"], expected.b["a"])
    arrays, rest = partax.partition(pair, partax.is_array)
    np.testing.assert_array_equal(partax.combine(arrays, rest).a, pair.a)


@pytest.mark.parametrize("count", [0, 1])
def test_what_telling_the_keys_of_children_raises_goes_no_further(count: int) -> None:
    ours = partax.filter_jit(lambda tree: jax.tree.map(lambda x: x + 1, tree))
    tree = [array(2), Nameless(count * (array(3),))]

    def trace(*_: Any) -> None:  # as a debugger's: a call of C fails where an error was left behind
        len(())

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        first, second = ours(tree)
        structure = partax.tree.structure(tree)
    finally:
        sys.settrace(before)
    np.testing.assert_array_equal(first, array(2) + 1)
    assert len(second.children) == count and structure.num_leaves == 1 + count


def test_what_another_thread_changes_while_a_class_is_compared_is_no_wrong_declaration() -> None:
    class Box:
        x: Any

    changes = [array(3), array(4)]

    def flatten(box: Box) -> Any:
        if changes:  # as by another thread, at this moment
            box.x = changes.pop()
        return (box.x,), ()

    jax.tree_util.register_pytree_node(Box, flatten, lambda _, children: made(Box, x=children[0]))
    partax.register_fields(Box, data=("x",))
    found = partax.filter_jit(lambda box: box.x * 2)(made(Box, x=array(2)))
    assert not changes
    assert found.shape in ((2,), (3,))
