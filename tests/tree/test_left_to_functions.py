"""Guards that a class which does something else than partax knows of its family, or is registered otherwise, is what
its registered functions make of it, and that the doctor tells why it is left to them."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import pytest

import partax
from partax._families import equinox as equinox_family
from reference import assert_exact
from trees import Bag, array

nnx = pytest.importorskip("flax.nnx", reason="Flax is not here")
Patch = pytest.MonkeyPatch


def equinox_with_another_aux(patch: Patch) -> Any:
    """A module whose class has another registration than modules have today."""
    equinox_family._missing()  # of modules as they are
    register = jax.tree_util.register_pytree_with_keys

    def mark(flatten: Any) -> Any:
        return lambda node: (flatten(node)[0], ("mark", flatten(node)[1]))

    def register_marked(cls: Any, flatten_with_keys: Any, unflatten_func: Any, **_: Any) -> None:
        register(cls, mark(flatten_with_keys), lambda aux, children: unflatten_func(aux[1], children))

    patch.setattr(jax.tree_util, "register_pytree_with_keys", register_marked)

    class Layer(eqx.Module):
        weight: Any
        scale: float = eqx.field(static=True)

    return Layer(array(2), 2.0)


def pytree(**functions: Any) -> Any:
    """An object of a class of Flax's that has these functions."""

    def init(self: Any) -> None:
        self.a, self.b = nnx.data(array(1)), nnx.data(array(2))

    # Jax keeps it for ever, and without a module of its own it would count as a library's.
    return type("Newer", (nnx.Pytree,), {"__module__": __name__, "__init__": init, **functions})()


def reversed_flax(patch: Patch) -> Any:
    def flatten(self: Any) -> Any:
        children, aux = nnx.Pytree._pytree__flatten(self)
        return children[::-1], aux

    def unflatten(cls: Any, static: Any, children: Any) -> Any:
        return nnx.Pytree._pytree__unflatten.__func__(cls, static, children[::-1])

    return pytree(_pytree__flatten=flatten, _pytree__unflatten=classmethod(unflatten))


# What makes an object, and words of why it is left to its functions.
OTHERWISE: dict[str, Callable[[Patch], Any]] = {
    "Equinox, another aux": equinox_with_another_aux,
    "Flax, reversed": reversed_flax,
    "Flax, another class": lambda patch: pytree(_pytree__unflatten=type(pytree())._pytree__unflatten),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_an_object_is_what_the_functions_of_its_class_make_of_it(name: str, monkeypatch: Patch, traces: Any) -> None:
    it = OTHERWISE[name](monkeypatch)
    again = lambda tree: jax.tree.map(lambda leaf: leaf, tree)
    expected = again(again(it))  # once for the function, and once for its result
    step = partax.filter_jit(lambda tree: (traces.tick(), tree)[1])
    for _ in range(2):
        found = step([it, Bag(1)])[0]
        assert_exact(found, expected)
        assert list(vars(found)) == list(vars(expected))
    assert traces.count == 1 or name == "Flax, another class"
    assert_exact(partax.combine(*partax.partition(it, partax.is_array)), again(it))
