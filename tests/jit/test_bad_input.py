"""Bad input gets a Python exception of the right kind, with the path, and the wrapper lives on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

from deep_trees import DEPTH, WRAPS, nested, self_containing
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

    unflatten_error: BaseException | None = None

    def __init__(self, child: Any) -> None:
        self.child = child

    @staticmethod
    def flatten(node: Broken) -> Any:
        return (node.child,), None

    @staticmethod
    def unflatten(_: Any, children: Any) -> Any:
        if Broken.unflatten_error is not None:
            raise Broken.unflatten_error
        return Broken(*children)


jax.tree_util.register_pytree_node(Broken, lambda node: Broken.flatten(node), Broken.unflatten)


def raises(_: Broken) -> Any:
    raise ZeroDivisionError("flatten broke")


def raises_later(b: Broken) -> Any:
    def children() -> Iterator[Any]:
        yield b.child
        raise KeyError("too late")

    return children(), None


NONSENSE: dict[str, Callable[[Broken], Any]] = {
    "a number": lambda _: 3,
    "a list": lambda b: [(b.child,), None],
    "no aux data": lambda b: ((b.child,),),
    "four": lambda b: ((b.child,), None, 1, 2),
    "no children": lambda _: (None, None),
    "raises": raises,
    "raises later": raises_later,
}


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("form", NONSENSE)
def test_what_jax_refuses_of_a_flatten_function_is_refused_with_its_error_and_a_path(
    monkeypatch: pytest.MonkeyPatch, form: str, known: bool
) -> None:
    f, tree = identity(), [1, Broken(array(2))]
    if known:
        f(tree)
    with monkeypatch.context() as patch:
        patch.setattr(Broken, "flatten", NONSENSE[form])
        with pytest.raises(Exception) as of_jax:
            jax.tree.leaves(tree)
        for _ in range(2):
            with pytest.raises(type(of_jax.value)) as found:
                f(tree)
            assert str(found.value) == str(of_jax.value)
            assert any("tree[1]" in note for note in found.value.__notes__)
        check_works(f)
    assert_same(f(tree)[1].child, array(2))


def test_a_node_that_cannot_be_read_in_a_single_walk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[str] = []
    for at in range(1, 12):  # two more walks where Flax is there
        walks = iter(range(1, 100))
        flatten = lambda node, walks=walks, at=at: raises(node) if next(walks) == at else ((node.child,), None)
        monkeypatch.setattr(Broken, "flatten", flatten)
        try:
            filter_jit(lambda tree: tree, callables="identity")([1, Broken(array(2))])
        except ZeroDivisionError as error:  # some walks are of values that are looked at again
            named.append(error.__notes__[0].rpartition(" at ")[2])
    assert set(named) == {"`tree[1]`", "`the result[1]`"} and len(named) > 3, named


def test_an_unflatten_function_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    f, tree = identity(), [1, Broken(array(2))]
    for _ in ("while the argument is made again for the function", "while the result is made"):
        monkeypatch.setattr(Broken, "unflatten_error", ZeroDivisionError("unflatten broke"))
        with pytest.raises(ZeroDivisionError, match="unflatten broke"):
            f(tree)
        monkeypatch.undo()
        assert_same(f(tree)[1].child, array(2))
    check_works(f)


TEXTS = r"^`tree\['k'\]`: found a NumPy array of dtype {}, expected numbers"


@pytest.mark.parametrize(
    "options",
    [{}, {"donate": "all"}, {"out_shardings": jax.sharding.SingleDeviceSharding(jax.devices()[0])}],
    ids=["", "donate", "out_shardings"],
)
@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.array(["a"]), TEXTS.format("<U1")),
        (np.array([object()]), TEXTS.format("object")),
        # A scalar of such a type may get to jax before partax has met one.
        (np.datetime64(3, "s"), "not a valid JAX type|found a NumPy array of dtype datetime64"),
    ],
    ids=["str", "object", "time"],
)
def test_arrays_that_jax_does_not_know(x: Any, message: str, options: dict[str, Any]) -> None:
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
    evil = Evil()
    lst: list[Any] = [evil, array(2), array(2), "x"]
    dct: dict[str, Any] = {"a": evil, "b": array(2), "c": "x"}
    layer = Layer(array(2, 2), array(2), rate=evil)
    bag = Bag(evil, array(2), label=[1, 2])
    cell = Cell([evil, array(2)], array(2))
    aux: list[Any] = [evil, 1, 2]
    return {
        "list": (lst, evil, lst.clear),
        "dict": (dct, evil, dct.clear),
        "module field": (layer, evil, lambda: object.__delattr__(layer, "weight")),
        "registered": (bag, evil, lambda: (setattr(bag, "items", ()), bag.label.clear())),
        "dataclass": (cell, evil, lambda: (cell.weight.clear(), setattr(cell, "bias", 3))),
        "aux list": (Bag(array(2), label=aux), evil, aux.clear),
    }


@pytest.mark.parametrize("when", ["on_eq", "on_hash"])
@pytest.mark.parametrize("kind", evil_trees())
def test_a_tree_that_changes_while_it_is_walked(kind: str, when: str) -> None:
    f = identity()
    for _ in range(3):
        f(evil_trees()[kind][0])  # so that there is a key to be compared with
        tree, evil, change = evil_trees()[kind]
        changed: list[int] = []
        as_it_was = jax.tree.structure(tree).num_leaves
        setattr(evil, when, lambda changed=changed, change=change: (changed.append(1), change()))
        try:
            got = f(tree)
        except RuntimeError as error:
            assert "changed" in text_of(error)
        else:  # as it was, or as it is, and nothing in between
            assert jax.tree.structure(got).num_leaves in (as_it_was, jax.tree.structure(tree).num_leaves)
        assert changed
        check_works(f)
    assert_same(f([Evil(), array(2)])[1], array(2))


@pytest.mark.parametrize("when", ["on_eq", "on_hash"])
@pytest.mark.parametrize(
    "action",
    [
        lambda f: f({"x": array(3), "n": 2}),
        lambda f: [f({"x": array(3), "n": n}) for n in range(4)],
        lambda f: f.clear_cache(),
        lambda f: f.cache_info(),
    ],
    ids=["call", "other keys", "clear_cache", "cache_info"],
)
def test_a_wrapper_that_is_entered_again_while_it_compares(when: str, action: Callable[[Any], Any]) -> None:
    f = filter_jit(lambda tree: tree, cache_size=2)
    check_works(f)
    ran: list[int] = []
    for _ in range(3):
        f([Evil(), array(2)])
        evil = Evil()
        setattr(evil, when, lambda: (ran.append(1), action(f) if len(ran) < 20 else None))
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
