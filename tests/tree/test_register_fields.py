"""Guards that a class registered with Python functions is what jax makes of it, in as few calls of these as can be, and
that a class declared by `register_fields` is the same without any; a wrong declaration is told."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import partax
from partax import _core
from trees import add_one, array

LOG: list[str] = []
Flatten = Callable[[Any], Any]


def pair_class(flatten: Flatten | None = None, *, slots: bool = False, declare: bool = False) -> Any:
    """A new class of two children and a name, which logs what is called."""
    cls: Any = type("Pair", (), {"__slots__": ("x", "y", "name")} if slots else {})

    def flattened(it: Any) -> Any:
        LOG.append("flatten")
        return ([it.x, it.y], it.name) if flatten is None else flatten(it)

    def unflatten(name: Any, children: Any) -> Any:
        LOG.append("unflatten")
        assert type(children) is tuple
        return made(cls, name=name, x=children[0], y=children[1])

    jax.tree_util.register_pytree_node(cls, flattened, unflatten)
    return partax.register_fields(cls, data_fields=("x", "y"), meta_fields=("name",)) if declare else cls


def made(cls: Any, **values: Any) -> Any:
    it = object.__new__(cls)
    for name, value in values.items():
        setattr(it, name, value)
    return it


def pair(cls: Any, x: Any = 1.0, name: Any = "a") -> Any:
    return made(cls, x=array(2) * x, y=array(3), name=name)


@pytest.mark.parametrize("slots", [False, True])
def test_no_function_is_called_once_it_is_known(slots: bool) -> None:
    cls = pair_class(slots=slots, declare=True)
    traces: list[Any] = []
    step = partax.filter_jit(lambda tree: (traces.append(tree.name), add_one(tree))[1])
    step(pair(cls))
    LOG.clear()
    found = step(pair(cls, 3.0))
    assert _core.node_kind(found) == "declared"
    assert LOG == [] and traces == ["a"]
    assert type(found) is cls and found.name == "a"
    np.testing.assert_array_equal(found.x, array(2) * 3 + 1)
    np.testing.assert_array_equal(found.y, array(3) + 1)
    for name in ("b", 1, True):
        assert step(pair(cls, name=name)).name is name
    assert traces == ["a", "b", 1, True]


def test_another_instance_than_declared_is_left_to_the_functions() -> None:
    cls = pair_class(declare=True)
    step = partax.filter_jit(lambda tree: add_one(tree))
    step(pair(cls))
    extra = pair(cls)
    extra.cached = 3
    LOG.clear()
    assert list(vars(step(extra))) == ["name", "x", "y"]
    assert "flatten" in LOG
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


def children(it: Any) -> Any:
    return it.x, it.y


# What the message says, and functions that do something else than is declared.
WRONG: dict[str, tuple[Flatten, Callable[..., Any]]] = {
    r"the children are \(`y`, `x`\)": (lambda it: (it.y, it.x), lambda cls, name, y, x: made(cls, x=x, y=y, name=name)),
    "unflattening makes another `name`": (children, lambda cls, name, x, y: made(cls, x=x, y=y, name=f"{name}!"[:-1])),
    r"unflattening sets the attributes \('x', 'y', 'name', 'made'\)": (
        children,
        lambda cls, name, x, y: made(cls, x=x, y=y, name=name, made=1),
    ),
    "unflattening gives a `Sub`": (
        children,
        lambda cls, name, x, y: made(type("Sub", (cls,), {}), x=x, y=y, name=name),
    ),
}


@pytest.mark.parametrize("told", WRONG)
def test_a_wrong_declaration_is_told_with_both_sides_and_a_path(told: str) -> None:
    cls: Any = type("Pair", (), {})
    flatten, rebuild = WRONG[told]
    jax.tree_util.register_pytree_node(
        cls, lambda it: (flatten(it), it.name), lambda name, children: rebuild(cls, name, *children)
    )
    partax.register_fields(cls, data_fields=("x", "y"), meta_fields=("name",))
    step = partax.filter_jit(lambda tree: jax.tree.leaves(tree)[0])
    for _ in range(2):
        with pytest.raises(TypeError, match=told) as found:
            step([pair(cls, name="".join(("long", " name")))])
        assert str(found.value).startswith("`tree[0]`: ")
        assert "data_fields=('x', 'y') and meta_fields=('name',)" in str(found.value)


def test_what_cannot_be_declared() -> None:
    cls: Any = pair_class()
    cls.z = property(lambda self: 3)
    for of, data, static, error, told in [
        (cls, "xy", (), TypeError, "expected a tuple of names"),
        (cls, ("x", "y"), ("x",), ValueError, "expected each once"),
        (pair(cls), ("x",), (), TypeError, "expected a class"),
        (type("Unknown", (), {}), ("x",), (), TypeError, "register_pytree_node"),
        (dict, (), (), TypeError, "partax reads itself"),
        (cls, ("x", "z"), (), TypeError, "found `z` of `Pair` elsewhere"),
    ]:
        with pytest.raises(error, match=told):
            partax.register_fields(of, data_fields=data, meta_fields=static)
    partax.register_fields(cls, data_fields=("x", "y"), meta_fields=("name",))
    with pytest.raises(ValueError, match=r"expected what was said before: data_fields=\('x', 'y'\)"):
        partax.register_fields(cls, data_fields=("y", "x"), meta_fields=("name",))


@pytest.mark.parametrize("items", [tuple, list, iter], ids=lambda items: items.__name__)
def test_children_come_in_any_form_and_each_function_is_called_once(items: Any) -> None:
    step = partax.filter_jit(add_one)
    node = made(pair_class(lambda it: (items((it.x, it.y)), None)), x=array(2), y={"b": array(3), "a": array(1)})
    step(node)
    expected = jax.jit(add_one)(node)
    LOG.clear()
    found = step(node)
    assert LOG == ["flatten", "unflatten"]
    assert type(found) is type(node)
    np.testing.assert_array_equal(found.x, expected.x)
    np.testing.assert_array_equal(found.y["a"], expected.y["a"])
    np.testing.assert_array_equal(partax.combine(*partax.partition(node, partax.is_array)).x, node.x)
