"""Guards that nothing lives for ever: what partax returns dies with the object that it holds and that holds it, and
chains of any length die on a small stack."""

import weakref
from collections.abc import Callable
from typing import Any

import jax
import pytest

import partax
from library_trees import HAS_FLAX
from partax import filter_jit
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
    "closure": lambda owner: (lambda x: of_owner(x, owner), (array(3),)),
    "static argument": lambda owner: (of_owner, (array(3), owner)),
    "bound method": lambda owner: (owner.step, (array(3),)),
}


def called(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """What was returned by partax has been called twice, and so has all that it keeps for its calls."""
    for _ in range(2):
        function(*args)
    return function


def run(compiled: partax.stages.Compiled, args: tuple[Any, ...]) -> Any:
    """Also with arguments that it was not compiled for, which are looked at in another way."""
    with pytest.raises(TypeError, match="compiled"):
        compiled(array(4), *args[1:])
    return called(compiled, args)


def explained(f: Any, args: Any, owner: Owner) -> Any:
    with partax.explain() as report:
        called(filter_jit(f), args)
    return report


PRODUCTS: dict[str, Callable[[Any, tuple[Any, ...], Owner], Any]] = {
    "filter_jit, called": lambda f, args, owner: called(filter_jit(f), args),
    "bound wrapper, called": lambda f, args, owner: called(owner.method, args[:1]),
    "bound arguments, called": lambda f, args, owner: called(filter_jit(f).bind(*args), ()),
    "Traced": lambda f, args, owner: filter_jit(f).trace(*args),
    "Lowered": lambda f, args, owner: filter_jit(f).lower(*args),
    "Compiled, called": lambda f, args, owner: run(filter_jit(f).lower(*args).compile(), args),
    "eval_shape": lambda f, args, owner: filter_jit(lambda *args: (args, owner)).eval_shape(*args),
    "Diagnosis, compiled": lambda f, args, owner: partax.doctor(f, *args, compile=True),
    "explain": explained,
    "filter_closure_convert": lambda f, args, owner: partax.filter_closure_convert(f, *args),
    "filter_grad": lambda f, args, owner: called(partax.filter_grad(f), args),
    "filter_vjp": lambda f, args, owner: partax.filter_vjp(f, *args)[1],
}
if HAS_FLAX:
    import partax.nnx

    PRODUCTS |= {
        "nnx.jit, called": lambda f, args, owner: called(partax.nnx.jit(f), args),
        "nnx.jit, compiled": lambda f, args, owner: partax.nnx.jit(f).lower(*args).compile(),
    }


@pytest.mark.parametrize(
    ("product", "holder"),
    [*((product, "bound method") for product in PRODUCTS), *((next(iter(PRODUCTS)), it) for it in [*HOLDERS][:2])],
)
def test_what_partax_returns_dies_in_a_cycle(product: str, holder: str, collect: Collect) -> None:
    def make() -> weakref.ref[Owner]:
        owner = Owner()
        owner.product = PRODUCTS[product](*HOLDERS[holder](owner), owner)  # type: ignore[attr-defined]
        return weakref.ref(owner)

    alive = make()
    collect()
    assert alive() is None


NESTS = """
import os
import sys
import threading

import jax
import partax
from partax import filter_jit

class Aux:
    def __init__(self, aux):
        self.aux = aux

jax.tree_util.register_pytree_node(Aux, lambda it: ((), it.aux), lambda aux, _: Aux(aux))
WRAPS = {
    "wrapper": filter_jit,
    "bound wrapper": filter_jit(lambda self: self).__get__,
    "attribute of a wrapper": lambda inner: setattr(f := filter_jit(len), "inner", inner) or f,
    "FlatSpec": lambda inner: partax.flat_partition([inner], rest="static")[0],
}
kibibytes = 2048 if sys.version_info[:2] == (3, 13) else 256  # see *limitations*
if "libasan" in os.environ.get("LD_PRELOAD", ""):
    kibibytes *= 16  # the frames of AddressSanitizer are larger
threading.stack_size(kibibytes * 1024)
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
