"""Bad input gets a Python exception of the right kind, with the path, and the wrapper lives on."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

from deep_trees import WRAPS, nested, self_containing
from machine_model import Hooks, Touchy
from partax import filter_jit
from trees import Bag, Layer, array, assert_same


def check_works(f: Any) -> None:
    """The wrapper gives right results, twice, for an ordinary argument."""
    for start in (0, 1):
        got = f({"x": array(3, start=start), "n": 2})
        assert_same(got, {"n": 2, "x": array(3, start=start)})


def identity() -> Any:
    f = filter_jit(lambda tree: tree, reuse_equal_functions=False)  # with a cache of its own
    check_works(f)
    return f


@pytest.mark.parametrize("name", WRAPS)
def test_deep_arguments_and_results(name: str) -> None:
    wrap, tree = WRAPS[name], nested(WRAPS[name])
    f = filter_jit(lambda given: nested(wrap) if given is None else given)
    check_works(f)
    for _ in range(2):
        with pytest.raises(RecursionError, match="given"):
            f(tree)
        if name in ("list", "tuple", "dict", "registered"):  # the others CPython cannot free
            with pytest.raises(RecursionError):
                f(None)
    assert f.cache_info().static_keys == 1
    check_works(f)
    while not isinstance(tree, jax.Array):  # CPython's own deallocation is not under test
        tree = jax.tree.leaves(tree, is_leaf=lambda t, top=tree: t is not top)[0]


@pytest.mark.parametrize("name", self_containing())
def test_trees_that_contain_themselves(name: str) -> None:
    tree = self_containing()[name]
    f = filter_jit(lambda given: tree if given is None else given)
    check_works(f)
    for argument in (tree, None, [tree, tree], tree):
        with pytest.raises(RecursionError):
            f(argument)
    assert f.cache_info().static_keys == 1
    for method in (f.lower, f.trace, f.eval_shape):
        with pytest.raises(RecursionError):
            method(tree)
    check_works(f)


class Broken:
    """A node whose flatten function is another one when a test says so."""

    def __init__(self, *children: Any) -> None:
        self.children = children

    @staticmethod
    def flatten(node: "Broken") -> Any:
        return node.children, None


jax.tree_util.register_pytree_node(Broken, lambda node: Broken.flatten(node), lambda _, children: Broken(*children))


def raises_later(b: Broken) -> Any:
    def children() -> Iterator[Any]:
        yield from b.children
        raise KeyError("too late")

    return children(), None


NONSENSE: dict[str, Callable[[Broken], Any]] = {
    "a number": lambda _: 3,
    "no aux data": lambda b: (b.children,),
    "no children": lambda _: (None, None),
    "raises": lambda _: 1 / 0,
    "raises later": raises_later,
}


@pytest.mark.parametrize("form", NONSENSE)
def test_what_jax_refuses_of_a_flatten_function_is_refused_with_its_error_and_a_path(
    monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    f, tree = identity(), [1, Broken(array(2))]
    for _ in ("a new class", "one that has been read"):
        with monkeypatch.context() as patch:
            patch.setattr(Broken, "flatten", NONSENSE[form])
            with pytest.raises(Exception) as of_jax:
                jax.tree.leaves(tree)
            with pytest.raises(type(of_jax.value)) as of_partax:
                f(tree)
            assert str(of_partax.value) == str(of_jax.value)
            assert any("tree[1]" in note for note in of_partax.value.__notes__)
            check_works(f)
        assert_same(f(tree)[1].children, (array(2),))


@pytest.mark.parametrize("x", [np.array(["a"]), np.array([object()])], ids=["str", "object"])
def test_arrays_that_jax_does_not_know(x: Any) -> None:
    f = filter_jit(lambda tree: tree, reuse_equal_functions=False, donate="all")
    for _ in range(2):
        with pytest.raises(TypeError, match=rf"^`tree\['k'\]`: found a NumPy array of dtype {x.dtype}"):
            f({"k": x})
    assert_same(f({"k": array(2)}), {"k": array(2)})


@pytest.fixture(autouse=True)
def _nothing_is_left_to_do() -> Iterator[None]:
    yield
    Hooks.action = None


def touchy_trees() -> dict[str, tuple[Any, Callable[[], object]]]:
    """For each kind of node: a tree with a leaf that does something when it is compared, and what changes the tree."""
    lst: list[Any] = [Touchy(1), array(2), array(2), "x"]
    dct: dict[str, Any] = {"a": Touchy(1), "b": array(2), "c": "x"}
    layer = Layer(array(2, 2), array(2), rate=Touchy(1))
    bag = Bag(Touchy(1), array(2), label=[1, 2])
    return {
        "list": (lst, lst.clear),
        "dict": (dct, dct.clear),
        "module field": (layer, lambda: object.__delattr__(layer, "weight")),
        "registered": (bag, lambda: (setattr(bag, "items", ()), bag.label.clear())),
    }


@pytest.mark.parametrize("event", ["eq", "hash"])
@pytest.mark.parametrize("kind", touchy_trees())
def test_a_tree_that_changes_while_it_is_walked(kind: str, event: str) -> None:
    f = identity()
    for countdown in (1, 2):
        f(touchy_trees()[kind][0])  # so that there is a key to be compared with
        tree, change = touchy_trees()[kind]
        num_leaves = jax.tree.structure(tree).num_leaves
        Hooks.event, Hooks.countdown, Hooks.action = event, countdown, change
        try:
            result = f(tree)
        except RuntimeError as error:
            assert "changed" in str(error) + "".join(getattr(error, "__notes__", []))
        else:  # as it was, or as it is, and nothing in between
            assert jax.tree.structure(result).num_leaves in (num_leaves, jax.tree.structure(tree).num_leaves)
        check_works(f)
