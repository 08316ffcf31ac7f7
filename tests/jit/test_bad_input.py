"""Bad input gets a Python exception of the right kind, with the path, and the wrapper lives on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

from deep_trees import DEPTH, WRAPS, Link, nested, self_containing
from partax import _core, filter_jit
from trees import Bag, Cell, Layer, array, assert_same


def check_works(f: Any) -> None:
    """The wrapper gives right results, twice, for an ordinary argument."""
    for start in (0, 1):
        got = f({"x": array(3, start=start), "n": 2})
        assert_same(got, {"n": 2, "x": array(3, start=start)})


def identity() -> Any:
    f = filter_jit(lambda tree: tree, callables="identity")  # with a cache of its own
    check_works(f)
    return f


def text_of(error: BaseException | None) -> str:
    """The message, the notes, and those of the causes."""
    words = []
    while error is not None:
        words += [type(error).__name__, str(error), *getattr(error, "__notes__", [])]
        error = error.__cause__ or error.__context__
    return "\n".join(words)


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


def test_aux_data_that_is_too_deep() -> None:
    f = identity()
    for value in (functools.reduce(lambda it, _: {"k": it}, range(DEPTH), 1), (1, self_containing()["list"])):
        for node in (Bag(array(1), label=value), Cell(array(1), mode=value)):
            with pytest.raises(RecursionError, match="tree"):
                f([node])
    check_works(f)


class Broken:
    """A node whose functions do something else when told to."""

    flatten: Callable[[Broken], Any] | None = None
    unflatten_error: BaseException | None = None

    def __init__(self, child: Any) -> None:
        self.child = child


def _flatten(b: Broken) -> Any:
    return ((b.child,), None) if Broken.flatten is None else Broken.flatten(b)


def _unflatten(_: Any, children: Any) -> Any:
    if Broken.unflatten_error is not None:
        raise Broken.unflatten_error
    return Broken(*children)


jax.tree_util.register_pytree_node(Broken, _flatten, _unflatten)


@pytest.fixture
def broken() -> Any:
    yield Broken
    Broken.flatten = Broken.unflatten_error = None


def raises(_: Broken) -> Any:
    raise ZeroDivisionError("flatten broke")


def raises_later(b: Broken) -> Any:
    def children() -> Iterator[Any]:
        yield b.child
        raise KeyError("too late")

    return children(), None


NONSENSE: dict[str, Callable[[Broken], Any]] = {
    "nothing": lambda _: None,
    "a number": lambda _: 3,
    "an empty tuple": lambda _: (),
    "a list": lambda b: [(b.child,), None],
    "no aux data": lambda b: ((b.child,),),
    "four": lambda b: ((b.child,), None, 1, 2),
    "no children": lambda _: (None, None),
    "a number as children": lambda _: (3, None),
    "raises": raises,
    "raises later": raises_later,
}


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("form", NONSENSE)
def test_what_jax_refuses_of_a_flatten_function_is_refused_with_its_error_and_a_path(
    broken: type[Broken], form: str, known: bool
) -> None:
    f, tree = identity(), [1, Broken(array(2))]
    if known:
        f(tree)
    broken.flatten = NONSENSE[form]
    with pytest.raises(Exception) as of_jax:
        jax.tree.leaves(tree)
    for _ in range(2):
        with pytest.raises(type(of_jax.value)) as found:
            f(tree)
        assert str(found.value) == str(of_jax.value)
        assert any("tree[1]" in note for note in found.value.__notes__)
    check_works(f)
    broken.flatten = None
    assert_same(f(tree)[1].child, array(2))


def test_a_node_that_cannot_be_read_in_a_single_walk_is_named(broken: type[Broken]) -> None:
    walks = 0

    def flatten(node: Broken, at: int) -> Any:
        nonlocal walks
        walks += 1
        return raises(node) if walks == at else ((node.child,), None)

    named: list[str] = []
    for at in range(1, 12):  # two more walks where Flax is there
        walks, broken.flatten = 0, functools.partial(flatten, at=at)
        try:
            filter_jit(lambda tree: tree, callables="identity")([1, Broken(array(2))])
        except ZeroDivisionError as error:  # some walks are of values that are looked at again
            named.append(error.__notes__[0].rpartition(" at ")[2])
    assert set(named) == {"`tree[1]`", "`the result[1]`"} and len(named) > 3, named


def test_an_unflatten_function_that_raises(broken: type[Broken]) -> None:
    f, tree = identity(), [1, Broken(array(2))]
    error = ZeroDivisionError("unflatten broke")
    broken.unflatten_error = error
    with pytest.raises(ZeroDivisionError, match="unflatten broke"):
        f(tree)  # while the argument is made again for the function
    assert f.cache_info().static_keys == 1
    broken.unflatten_error = None
    f(tree)
    broken.unflatten_error = error
    with pytest.raises(ZeroDivisionError, match="unflatten broke"):
        f(tree)  # while the result is made
    broken.unflatten_error = None
    assert_same(f(tree)[1].child, array(2))
    check_works(f)


@pytest.mark.parametrize("options", [{}, {"donate": "all"}, {"out_shardings": True}], ids=str)
@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.array(["a"]), r"^`tree\['k'\]`: found a NumPy array of dtype <U1, expected numbers"),
        (np.array([object()]), r"^`tree\['k'\]`: found a NumPy array of dtype object, expected numbers"),
        # A scalar of such a type may get to jax before partax has met one.
        (np.datetime64(3, "s"), "not a valid JAX type|found a NumPy array of dtype datetime64"),
    ],
    ids=["str", "object", "time"],
)
def test_arrays_that_jax_does_not_know(x: Any, message: str, options: dict[str, Any]) -> None:
    if "out_shardings" in options:
        options = {"out_shardings": jax.sharding.SingleDeviceSharding(jax.devices()[0])}
    f = filter_jit(lambda tree: tree, callables="identity", **options)
    for _ in range(2):
        with pytest.raises(TypeError, match=message):
            f({"k": x})
    assert_same(f({"k": array(2)}), {"k": array(2)})


class Evil:
    """Runs something the moment it is compared or hashed."""

    def __init__(self) -> None:
        self.on_eq: Callable[[], object] = lambda: None
        self.on_hash: Callable[[], object] = lambda: None

    def __eq__(self, other: object) -> bool:
        self.on_eq()
        if isinstance(other, Evil):
            other.on_eq()
        return isinstance(other, Evil)

    def __hash__(self) -> int:
        self.on_hash()
        return 1


def evil_trees() -> dict[str, tuple[Any, Evil, Callable[[], object]]]:
    """For each kind of node: a tree, the leaf inside, and what changes the tree."""
    e = [Evil() for _ in range(7)]
    lst: list[Any] = [e[0], array(2), array(2), "x"]
    dct: dict[str, Any] = {"a": e[1], "b": array(2), "c": "x"}
    layer = Layer(array(2, 2), array(2), rate=e[2])
    module = Link([Link(e[3]), array(2)])
    bag = Bag(e[4], array(2), label=[1, 2])
    cell = Cell([e[5], array(2)], array(2))
    aux: list[Any] = [e[6], 1, 2]
    in_aux = Bag(array(2), label=aux)
    return {
        "list": (lst, e[0], lst.clear),
        "dict": (dct, e[1], dct.clear),
        "module field": (layer, e[2], lambda: object.__delattr__(layer, "weight")),
        "module list": (module, e[3], lambda: module.next.clear()),
        "registered": (bag, e[4], lambda: (setattr(bag, "items", ()), bag.label.clear())),
        "dataclass": (cell, e[5], lambda: (cell.weight.clear(), setattr(cell, "bias", 3))),
        "aux list": (in_aux, e[6], aux.clear),
    }


@pytest.mark.parametrize("when", ["on_eq", "on_hash"])
@pytest.mark.parametrize("kind", evil_trees())
def test_a_tree_that_changes_while_it_is_walked(kind: str, when: str) -> None:
    f = identity()
    for _ in range(3):
        f(evil_trees()[kind][0])  # so that there is a key to be compared with
        tree, evil, change = evil_trees()[kind]
        setattr(evil, when, change)
        changed: list[int] = []

        def disturb(changed: list[int] = changed, change: Callable[[], object] = change) -> None:
            changed.append(1)
            change()

        leaves = [jax.tree.structure(tree).num_leaves]
        setattr(evil, when, disturb)
        try:
            got = f(tree)
        except RuntimeError as error:
            assert "changed" in text_of(error)
        else:
            leaves.append(jax.tree.structure(tree).num_leaves)
            assert jax.tree.structure(got).num_leaves in leaves  # as it was, or as it is, and nothing in between
        assert changed
        setattr(evil, when, lambda: None)
        check_works(f)
    assert_same(f([Evil(), array(2)])[1], array(2))


@pytest.mark.parametrize("when", ["on_eq", "on_hash"])
@pytest.mark.parametrize("action", ["call", "clear_cache", "cache_info", "other keys"])
def test_a_wrapper_that_is_entered_again_while_it_compares(when: str, action: str) -> None:
    f = filter_jit(lambda tree: tree, cache_size=2)
    check_works(f)
    ran: list[int] = []

    def again() -> None:
        ran.append(1)
        if len(ran) > 20:
            return
        if action == "call":
            f({"x": array(3), "n": 2})
        elif action == "other keys":
            for n in range(4):
                f({"x": array(3), "n": n})
        else:
            getattr(f, action)()

    for _ in range(3):
        f([Evil(), array(2)])
        evil = Evil()
        setattr(evil, when, again)
        assert_same(f([evil, array(2, start=1)])[1], array(2, start=1))
    assert ran and f.cache_info().static_keys <= 2
    check_works(f)


class Flickering:
    """A node of two arrays and a thousand static leaves, or of as many as a test says in one of the walks over it."""

    walks = 0
    at = 0
    count, statics = 2, 1000

    def __init__(self) -> None:
        self.arrays = [array(2), array(2, start=1), array(2, start=2)]

    def children(self) -> tuple[Any, ...]:
        type(self).walks += 1
        count, statics = (self.count, self.statics) if self.walks == self.at else (2, 1000)
        return (*self.arrays[:count], *["static"] * statics)


jax.tree_util.register_pytree_node(Flickering, lambda node: (node.children(), None), lambda _, children: list(children))


@pytest.mark.parametrize("donate", ["none", ("last",)])
@pytest.mark.parametrize(("count", "statics"), [(1, 1000), (3, 1000), (2, 1)])
def test_a_tree_that_is_another_one_in_a_single_walk(count: int, statics: int, donate: Any) -> None:
    outcomes: list[str] = []
    for at in range(1, 9):
        f = filter_jit(lambda node, last: (node, last + 1), donate=donate, callables="identity")
        Flickering.walks, Flickering.at, Flickering.count, Flickering.statics = 0, at, count, statics
        node, last = Flickering(), array(2)
        try:
            got = f(node, last)
        except RuntimeError as error:
            assert "changed" in text_of(error)
            outcomes.append("refused")
        else:
            outcomes.append(f"{len(got[0])} leaves")
            assert_same(got[1], array(2) + 1)
        Flickering.at = 0
        assert not any(it.is_deleted() for it in node.arrays), "only what is named may be donated"
        assert_same(f(node, array(2)), ([*node.arrays[:2], *["static"] * 1000], array(2) + 1))
    usual = {"refused", "1002 leaves"}
    assert usual <= {*outcomes} <= usual | {f"{count + statics} leaves"}, outcomes


def test_a_prepared_call_that_was_let_go_of_says_so() -> None:
    call = _core.PreparedCall(filter_jit(lambda x: x + 1), (array(3),), {}, True)
    call.detach()
    for ask in (lambda: call.leaves, lambda: call.run(lambda target, leaves: None), call.described):
        with pytest.raises(RuntimeError, match="has let go of its arguments"):
            ask()
    assert call.rebind((array(3),), {}) is not None
