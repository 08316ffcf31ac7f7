"""Guards that nothing lives for ever: what partax returns dies with the object that it holds and that holds it, and
chains of any length die on a small stack."""

import ctypes
import weakref
from collections.abc import Callable
from typing import Any

import jax
import pytest

import partax
from library_trees import HAS_FLAX
from partax import _core, filter_jit
from processes import python
from trees import array

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


def of_owner(x: jax.Array, owner: Owner) -> jax.Array:
    return (x * owner.scale).sum()


# A function, and the arguments of a call of it, one of which holds the owner.
HOLDERS: dict[str, Callable[[Owner], tuple[Any, tuple[Any, ...]]]] = {
    "bound method": lambda owner: (owner.step, (array(3),)),
    "closure": lambda owner: (lambda x: of_owner(x, owner), (array(3),)),
    "static argument": lambda owner: (of_owner, (array(3), owner)),
}


def called(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """What was returned by partax has been called twice, and so has all that it keeps for its calls."""
    for _ in range(2):
        function(*args)
    return function


def run(compiled: partax.Compiled, args: tuple[Any, ...]) -> Any:
    """Also with arguments that it was not compiled for, which are looked at in another way."""
    with pytest.raises(TypeError, match="compiled"):
        compiled(array(4), *args[1:])
    return called(compiled, args)


def forgotten(f: Any, args: Any, owner: Owner) -> Any:
    """A compiled call whose entry no table has any more."""
    jitted = filter_jit(f)
    compiled = jitted.lower(*args).compile()
    jitted.clear_cache()
    return run(compiled, args)


def with_attribute(f: Any, args: Any, owner: Owner) -> Any:
    jitted = filter_jit(lambda x: x)
    jitted.owner, jitted.me = owner, [jitted]
    return called(jitted, args[:1])


def with_stages(f: Any, args: Any, owner: Owner) -> Any:
    """What an object does that keeps its compiled step; and the result of that holds its arguments."""
    jitted = filter_jit(lambda *args: (f(*args), args))
    lowered = jitted.lower(*args)
    jitted.stages = lowered, called(lowered.compile(), args)
    return called(jitted, args)


def recursive(f: Any, args: Any, owner: Owner) -> Any:
    jitted = filter_jit(lambda n, *args: f(*args) if n == 0 else jitted(n - 1, *args))
    jitted(2, *args)
    return jitted


def explained(f: Any, args: Any, owner: Owner) -> Any:
    with partax.explain() as report:
        called(filter_jit(f), args)
    return report


def with_jvp(f: Any, args: Any, owner: Owner) -> Any:
    function = partax.filter_custom_jvp(f)
    function.def_jvp(lambda primals, tangents: (f(*primals), tangents[0].sum() * owner.scale))
    return called(partax.filter_grad(function), args)


def with_vjp(f: Any, args: Any, owner: Owner) -> Any:
    function = partax.filter_custom_vjp(f)
    function.def_fwd(lambda perturbed, x, *rest: (f(x, *rest), x))
    function.def_bwd(lambda x, grad, perturbed, *args: x * grad * owner.scale)
    return called(partax.filter_grad(function), args)


PRODUCTS: dict[str, Callable[[Any, tuple[Any, ...], Owner], Any]] = {
    "filter_jit, called": lambda f, args, owner: called(filter_jit(f), args),
    "bound wrapper, called": lambda f, args, owner: called(owner.method, args[:1]),
    "bound arguments": lambda f, args, owner: filter_jit(f).bind(*args),
    "bound arguments, called": lambda f, args, owner: called(filter_jit(f).bind(*args), ()),
    "attribute of a wrapper": with_attribute,
    "stages of a wrapper": with_stages,
    "recursive": recursive,
    "jax.jit of a wrapper": lambda f, args, owner: jax.jit(filter_jit(f)),
    "Traced": lambda f, args, owner: filter_jit(f).trace(*args),
    "Lowered": lambda f, args, owner: filter_jit(f).lower(*args),
    "Compiled": lambda f, args, owner: filter_jit(f).lower(*args).compile(),
    "Compiled, called": lambda f, args, owner: run(filter_jit(f).lower(*args).compile(), args),
    "Compiled, of no table": forgotten,
    "eval_shape": lambda f, args, owner: filter_jit(lambda *args: (args, owner)).eval_shape(*args),
    "Diagnosis, compiled": lambda f, args, owner: partax.doctor(f, *args, compile=True),
    "explain": explained,
    "report": lambda f, args, owner: (called(filter_jit(f), args), partax.report()),
    "PreparedCall": lambda f, args, owner: _core.PreparedCall(filter_jit(f), args, {}, False),
    "filter_make_jaxpr, called": lambda f, args, owner: partax.filter_make_jaxpr(f)(*args),
    "filter_closure_convert": lambda f, args, owner: partax.filter_closure_convert(f, *args),
    "filter_grad": lambda f, args, owner: called(partax.filter_grad(f), args),
    "filter_grad of filter_jit": lambda f, args, owner: called(partax.filter_grad(filter_jit(f)), args),
    "filter_jit of filter_grad": lambda f, args, owner: called(filter_jit(partax.filter_grad(f)), args),
    "filter_vmap": lambda f, args, owner: called(partax.filter_vmap(f), args),
    "filter_hessian": lambda f, args, owner: called(partax.filter_hessian(f), args),
    "filter_checkpoint": lambda f, args, owner: called(partax.filter_checkpoint(f), args),
    "filter_custom_jvp, called": with_jvp,
    "filter_custom_vjp, called": with_vjp,
    "filter_vjp": lambda f, args, owner: partax.filter_vjp(f, *args)[1],
    "filter_linearize": lambda f, args, owner: partax.filter_linearize(f, *args)[1],
    "Static": lambda f, args, owner: partax.Static(owner),
    "FlatSpec": lambda f, args, owner: partax.flat_partition([owner, f], partax.is_array, rest="static")[0],
    "partition": lambda f, args, owner: partax.partition([array(2), owner], partax.is_array),
    "TreeSpec": lambda f, args, owner: _core.flatten([array(2), owner, f])[1],
    "any_of": lambda f, args, owner: partax.any_of(lambda leaf: leaf is owner, partax.is_array),
    "not_": lambda f, args, owner: partax.not_(lambda leaf: leaf is owner),
}
if HAS_FLAX:
    import partax.nnx

    PRODUCTS |= {
        "nnx.jit": lambda f, args, owner: partax.nnx.jit(f),
        "nnx.jit, called": lambda f, args, owner: called(partax.nnx.jit(f), args),
        "nnx.jit, compiled": lambda f, args, owner: partax.nnx.jit(f).lower(*args).compile(),
    }


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("product", PRODUCTS)
def test_what_partax_returns_dies_in_a_cycle(product: str, holder: str, collect: Collect) -> None:
    def make() -> weakref.ref[Owner]:
        owner = Owner()
        owner.product = PRODUCTS[product](*HOLDERS[holder](owner), owner)  # type: ignore[attr-defined]
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
    """A table that was cleared is in a cycle with what is in a key, which the compiled call has too."""

    def make() -> tuple[weakref.ref[Owner], Any]:
        read, owner = Owner(), Equal()
        f = filter_jit(lambda x, owner: (x * owner.scale * read.scale).sum())
        call = _core.PreparedCall(f, (array(3), owner), {}, False)
        compiled = call.compiled(call.run(lambda target, leaves: target.lower(*leaves)).compile())
        call.detach()
        owner.cache = f._cache  # type: ignore[attr-defined]
        f.clear_cache()
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


@pytest.mark.slow
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
