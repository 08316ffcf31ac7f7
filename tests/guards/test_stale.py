"""Guards the promise that no function gets a result from before a change of something that it sees, and that none is
traced again where all of it is proven to be as it was.

The corpus is one table of programs, `PROGRAMS`; plain Python says what is right. It is run in two ways: with functions
made anew, and, where the function itself holds what changes, with the same object.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import stale_callables
import stale_classes
import stale_libraries
import stale_modules
import stale_values
from programs import OF_ONE_FUNCTION, WAYS, Holder, Load, answers, jitted, plain, program

import partax

__all__ = ["program"]

FILES = [stale_callables, stale_libraries, stale_classes, stale_values, stale_modules]
KINDS = {kind: programs for file in FILES for kind, programs in file.KINDS.items()}
PROGRAMS = {f"{kind}: {name}": source for kind, programs in KINDS.items() for name, source in programs.items()}
OTHER_WAYS = [way for way in WAYS if way != "direct"]
# Each program in one other way too.
EACH = [(name, OTHER_WAYS[i % len(OTHER_WAYS)]) for i, name in enumerate(PROGRAMS)]
# As arguments of one function these are equal for Python and for Equinox, whatever has changed in them.
EACH = [(name, way) for name, way in EACH if not (name.startswith(("method", "tree")) and way in OF_ONE_FUNCTION)]
# Most of them at night alone: by day each way comes to some.
BY_DAY = [
    pytest.param(name, way, marks=[pytest.mark.nightly] * (i % 4 > 0), id=f"{name}-{way}")
    for i, (name, way) in enumerate(EACH)
]


def assert_right(found: list[float], right: list[float], name: str) -> None:
    if "EVER_OTHER" in PROGRAMS[name]:
        assert found[0] != found[1]
    else:
        assert found == pytest.approx(right, rel=1e-6)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_change_is_seen(name: str, program: Load) -> None:
    right = answers(program(PROGRAMS[name]), plain)
    assert right[0] != right[1]  # else the program would say nothing
    assert_right(answers(program(PROGRAMS[name]), WAYS["direct"]()), right, name)


@pytest.mark.nightly
@pytest.mark.parametrize("name", PROGRAMS)
def test_jax_jit_sees_it_too(name: str, program: Load) -> None:
    assert_right(answers(program(PROGRAMS[name]), jitted), answers(program(PROGRAMS[name]), plain), name)


@pytest.mark.parametrize(("name", "way"), BY_DAY)
def test_a_change_is_seen_in_other_ways(name: str, way: str, program: Load) -> None:
    right = answers(program(PROGRAMS[name]), (lambda f, *args: jax.grad(f)(*args)) if way == "gradient" else plain)
    assert_right(answers(program(PROGRAMS[name]), WAYS[way](), is_kept=True), right, name)


X = jnp.float32(0.5)


def jit_of(make: Callable[[Any], Any]) -> Callable[[], Callable[[Any], tuple[Any, Any]]]:
    return lambda: lambda fun: (partax.filter_jit(make(fun)), (X,))


def one_jit(run: Callable[..., Any], *given: Callable[[Any], Any]) -> Callable[[], Callable[[Any], tuple[Any, Any]]]:
    def make() -> Callable[[Any], tuple[Any, Any]]:
        step = partax.filter_jit(lambda *args: run(*args))
        return lambda fun: (step, tuple(it(fun) for it in given))

    return make


# What is called, and with what, whose traces can be counted.
COUNTED = {
    "direct": jit_of(lambda fun: fun),
    "partial": jit_of(functools.partial),
    "argument": one_jit(lambda fun, x: fun(x), lambda fun: fun, lambda _: X),
    "field": one_jit(lambda holder: holder.fun(holder.weight), lambda fun: Holder(X, fun)),
}


def in_each_way(names: list[str]) -> list[Any]:
    """Each of these programs in each way, by day in one of them alone."""
    return [
        pytest.param(name, way, marks=[pytest.mark.nightly] * (i % len(COUNTED) != j), id=f"{name}-{way}")
        for i, name in enumerate(names)
        for j, way in enumerate(COUNTED)
    ]


ANEW = {f"held: {name}" for name in stale_values.GOES_ON_ANEW}
ANEW |= {f"{kind}: {name}" for kind in ("named", "made of") for name in KINDS[kind]}


def traced(called: tuple[Any, Any], right: Any) -> int:
    """How often a call traces, which must give what plain Python gives."""
    jit, arguments = called
    before = jit.cache_info().traces
    assert float(jit(*arguments)) == pytest.approx(float(right), rel=1e-6)
    return jit.cache_info().traces - before


@pytest.mark.parametrize(("name", "way"), in_each_way([name for name in PROGRAMS if name in ANEW]))
def test_a_function_made_anew_is_traced_once_for_each_of_its_states(name: str, way: str, program: Load) -> None:
    module, call = program(PROGRAMS[name]), COUNTED[way]()
    for _ in range(2):
        functions = [module.make() for _ in range(3)]
        calls = [call(fun) for fun in functions]  # which live, as their traces may hold an array
        found = [traced(called, fun(X)) for called, fun in zip(calls, functions, strict=True)]
        assert found[1:] == [0, 0]  # the first may have had its like in another module
        module.change()


@pytest.mark.parametrize(("name", "way"), in_each_way([name for name in PROGRAMS if name.startswith("held: ")]))
def test_the_same_function_is_traced_once_for_each_state_of_what_it_holds(name: str, way: str, program: Load) -> None:
    module, call = program(PROGRAMS[name]), COUNTED[way]()
    fun = module.make()
    for _ in range(2):
        assert [traced(call(fun), fun(X)) for _ in range(2)][1:] == [0]
        module.change()


@pytest.mark.parametrize("name", ["number", "list in place", "helper", "class attribute"])
def test_globals_of_the_same_function_are_not_looked_at_as_in_jax(name: str, program: Load) -> None:
    module = program(PROGRAMS[f"named: {name}"])
    fun = module.make()
    ours, theirs, right = partax.filter_jit(fun), jax.jit(fun), float(fun(X))
    for _ in range(2):
        assert float(ours(X)) == float(theirs(X)) == right
        module.change()
