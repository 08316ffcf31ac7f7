"""Guards that nothing lives for ever: what partax returns dies with the object that it holds and that holds it, and
chains of any length die on a small stack."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import pytest

import partax
from library_trees import HAS_FLAX
from partax import _core, filter_jit
from processes import python
from trees import Bag, array

Collect = Callable[[], None]


class Owner:
    """Known by identity, no pytree: keeps what is made of it."""

    def __init__(self) -> None:
        self.scale = 2.0

    def step(self, x: jax.Array) -> jax.Array:
        return (x * self.scale).sum()

    @filter_jit
    def method(self, x: jax.Array) -> jax.Array:
        return x * self.scale


class Held(NamedTuple):
    """A function and the arguments of a call of it, one of which holds the owner."""

    function: Callable[..., jax.Array]
    arguments: tuple[Any, ...]
    owner: Owner


def of_owner(x: jax.Array, owner: Owner) -> jax.Array:
    return (x * owner.scale).sum()


HOLDERS: dict[str, Callable[[Owner], Held]] = {
    "bound method": lambda owner: Held(owner.step, (array(3),), owner),
    "closure": lambda owner: Held(lambda x: of_owner(x, owner), (array(3),), owner),
    "static argument": lambda owner: Held(of_owner, (array(3), owner), owner),
}


def called(function: Callable[..., Any], held: Held) -> Any:
    """What was returned by partax has been called twice, and so has all that it keeps for its calls."""
    for _ in range(2):
        function(*held.arguments)
    return function


def run(compiled: partax.Compiled, held: Held) -> Any:
    """Also with arguments that it was not compiled for, which are looked at in another way."""
    with pytest.raises(TypeError, match="compiled"):
        compiled(array(4), *held.arguments[1:])
    return called(compiled, held)


def traced_of(held: Held) -> partax.Traced:
    return filter_jit(held.function).trace(*held.arguments)


def forgotten(held: Held) -> Any:
    """A compiled call whose entry no table has any more."""
    f = filter_jit(held.function)
    compiled = f.lower(*held.arguments).compile()
    f.clear_cache()
    return run(compiled, held)


def with_attribute(held: Held) -> Any:
    f = filter_jit(lambda x: x)
    f.owner, f.me = held.owner, [f]
    return called(f, Held(f, (array(3),), held.owner))


def with_stages(held: Held) -> Any:
    """What an object does that keeps its compiled step; and the result of that holds its arguments."""
    f = filter_jit(lambda *arguments: (held.function(*arguments), arguments))
    lowered = f.lower(*held.arguments)
    f.stages = lowered, called(lowered.compile(), held)
    return called(f, held)


def recursive(held: Held) -> Any:
    @filter_jit
    def f(n: int, *arguments: Any) -> Any:
        return held.function(*arguments) if n == 0 else f(n - 1, *arguments)

    f(2, *held.arguments)
    return f


def explained(held: Held) -> Any:
    f = filter_jit(held.function)
    with partax.explain() as report:
        called(f, held)
    return report


def with_jvp(held: Held) -> Any:
    function = partax.filter_custom_jvp(held.function)
    function.def_jvp(lambda primals, tangents: (held.function(*primals), tangents[0].sum() * held.owner.scale))
    return called(partax.filter_grad(function), held)


def with_vjp(held: Held) -> Any:
    function = partax.filter_custom_vjp(held.function)
    function.def_fwd(lambda perturbed, x, *rest: (held.function(x, *rest), x))
    function.def_bwd(lambda x, grad, perturbed, *args: x * grad * held.owner.scale)
    return called(partax.filter_grad(function), held)


PRODUCTS: dict[str, Callable[[Held], Any]] = {
    "filter_jit, called": lambda held: called(filter_jit(held.function), held),
    "bound wrapper, called": lambda held: called(held.owner.method, Held(of_owner, (array(3),), held.owner)),
    "bound arguments, called": lambda held: called(
        filter_jit(held.function).bind(*held.arguments), held._replace(arguments=())
    ),
    "attribute of a wrapper": with_attribute,
    "stages of a wrapper": with_stages,
    "recursive": recursive,
    "jax.jit of a wrapper": lambda held: jax.jit(filter_jit(held.function)),
    "Traced": traced_of,
    "Lowered": lambda held: traced_of(held).lower(),
    "Compiled, called": lambda held: run(traced_of(held).lower().compile(), held),
    "Compiled, of no table": forgotten,
    "eval_shape": lambda held: filter_jit(lambda *args: (args, held.owner)).eval_shape(*held.arguments),
    "Diagnosis, compiled": lambda held: partax.doctor(held.function, *held.arguments, compile=True),
    "explain": explained,
    "report": lambda held: (called(filter_jit(held.function), held), partax.report()),
    "PreparedCall": lambda held: _core.PreparedCall(filter_jit(held.function), held.arguments, {}, False),
    "filter_make_jaxpr, called": lambda held: partax.filter_make_jaxpr(held.function)(*held.arguments),
    "filter_closure_convert": lambda held: partax.filter_closure_convert(held.function, *held.arguments),
    "filter_grad": lambda held: called(partax.filter_grad(held.function), held),
    "filter_grad of filter_jit": lambda held: called(partax.filter_grad(filter_jit(held.function)), held),
    "filter_jit of filter_grad": lambda held: called(filter_jit(partax.filter_grad(held.function)), held),
    "filter_vmap": lambda held: called(partax.filter_vmap(held.function), held),
    "filter_checkpoint": lambda held: called(partax.filter_checkpoint(held.function), held),
    "filter_custom_jvp, called": with_jvp,
    "filter_custom_vjp, called": with_vjp,
    "filter_vjp": lambda held: partax.filter_vjp(held.function, *held.arguments)[1],
    "filter_linearize": lambda held: partax.filter_linearize(held.function, *held.arguments)[1],
    "Static": lambda held: partax.Static(held.owner),
    "FlatSpec": lambda held: partax.flat_partition([array(2), held.owner], partax.is_array, rest="static")[0],
    "partition": lambda held: partax.partition([array(2), held.owner], partax.is_array),
    "Structure": lambda held: partax.tree.structure(Bag(array(2), label=held.owner)),
    "flatten": lambda held: partax.tree.flatten(Bag(array(2), label=held.owner)),
    "TreeSpec": lambda held: _core.flatten([array(2), held.owner, held.function])[1],
    "any_of": lambda held: partax.any_of(lambda leaf: leaf is held.owner, partax.is_array),
    "not_": lambda held: partax.not_(lambda leaf: leaf is held.owner),
}
if HAS_FLAX:
    import partax.nnx

    PRODUCTS |= {
        "nnx.jit, called": lambda held: called(partax.nnx.jit(held.function), held),
        "nnx.jit, compiled": lambda held: partax.nnx.jit(held.function).lower(*held.arguments).compile(),
    }


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("product", PRODUCTS)
def test_what_partax_returns_dies_in_a_cycle(product: str, holder: str, collect: Collect) -> None:
    def make() -> weakref.ref[Owner]:
        owner = Owner()
        owner.product = PRODUCTS[product](HOLDERS[holder](owner))  # type: ignore[attr-defined]
        return weakref.ref(owner)

    alive = make()
    collect()
    assert alive() is None


class Equal(Owner):
    """Of equal ones one stands for all, so a key keeps it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal) and other.scale == self.scale

    def __hash__(self) -> int:
        return hash(self.scale)


def test_what_a_compiled_call_needs_is_not_cleared_with_its_table(collect: Collect) -> None:
    """The table of a callable that has changed is in a cycle with what is in a key, which the compiled call has too."""

    def make() -> tuple[weakref.ref[Owner], Any]:
        read, owner = Owner(), Equal()

        def function(x: jax.Array, owner: Owner) -> jax.Array:
            return (x * owner.scale * read.scale).sum()

        f = filter_jit(function)
        call = _core.PreparedCall(f, (array(3), owner), {}, False)
        compiled = call.compiled(call.run(lambda target, leaves: target.lower(*leaves)).compile())
        call.detach()
        owner.cache = f._cache  # type: ignore[attr-defined]
        read = Owner()
        f(array(3), Equal())
        assert f._cache is not owner.cache  # type: ignore[attr-defined]
        return weakref.ref(owner), compiled

    alive, compiled = make()
    collect()
    owner = alive()
    assert owner is not None and owner.cache is not None  # type: ignore[attr-defined]
    assert compiled(array(3), owner) == 12
    del owner, compiled
    collect()
    assert alive() is None


NESTS = """
import threading

import jax
import partax
from partax import _core, filter_jit

class Aux:
    def __init__(self, aux):
        self.aux = aux

jax.tree_util.register_pytree_node(Aux, lambda it: ((), it.aux), lambda aux, _: Aux(aux))
WRAPS = {
    "wrapper": filter_jit,
    "bound wrapper": filter_jit(lambda self: self).__get__,
    "attribute of a wrapper": lambda inner: setattr(f := filter_jit(len), "inner", inner) or f,
    "Static": partax.Static,
    "FlatSpec": lambda inner: partax.flat_partition([inner], partax.is_array, rest="static")[0],
    "Structure": lambda inner: partax.tree.structure(Aux(inner)),
    "TreeSpec": lambda inner: _core.flatten([inner])[1],
}
threading.stack_size(256 * 1024)
for name, wrap in WRAPS.items():
    nest = len
    for _ in range(10_000):
        nest = wrap(nest)
    held = [nest]
    del nest
    print(name)
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
print("all")
"""


def test_a_nest_of_any_depth_is_freed_on_a_small_stack() -> None:
    assert python("-c", NESTS).stdout.endswith("all\n")


# ---- What the collector has cleared, and what a destructor may still ask.

TP_CLEAR = 51  # of CPython's stable interface


def cleared(made: Any) -> Any:
    """As the collector leaves an object of a cycle that is garbage."""
    slot = ctypes.pythonapi.PyType_GetSlot
    slot.restype, slot.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_int]
    assert ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object)(slot(type(made), TP_CLEAR))(made) == 0
    return made


USES: dict[str, Callable[[Any], Any]] = {
    "call": lambda f: f(array(2)),
    "method": lambda f: f.__get__(1, int),
    "wrapped": lambda f: f.__wrapped__,
    "function": lambda f: f._function,
    "cache": lambda f: f._cache,
    "bind": lambda f: f.bind(array(2)),
    "lower": lambda f: f.lower(array(2)),
    "tree": jax.tree.leaves,
    "inside": lambda f: filter_jit(lambda x: f(x))(array(2)),
}
BOUND_USES: dict[str, Callable[[Any], Any]] = {
    "call": lambda bound: bound(),
    "func": lambda bound: bound.func,
    "args": lambda bound: bound.args,
    "keywords": lambda bound: bound.keywords,
    "rebind": lambda bound: bound.rebind(array(2)),
}
CLEARED = [pytest.param(filter_jit, use, id=name) for name, use in USES.items()]
CLEARED += [
    pytest.param(lambda f: filter_jit(f).bind(array(2)), use, id=f"bound, {name}") for name, use in BOUND_USES.items()
]


@pytest.mark.parametrize(("make", "use"), CLEARED)
def test_what_the_collector_has_cleared_raises(make: Callable[[Any], Any], use: Callable[[Any], Any]) -> None:
    with pytest.raises(ReferenceError):
        use(cleared(make(lambda x: x)))


def test_a_cleared_cache_serves_on() -> None:
    double = filter_jit(lambda x: x * 2)
    first = double(array(2))
    cleared(double._cache)
    assert (double(array(2)) == first).all()
