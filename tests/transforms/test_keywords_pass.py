"""Guards the promise that every wrapper passes on every keyword, also one that is called as a parameter of our own,
looks like what it wraps, and is a pytree of it."""

from __future__ import annotations

import ast
import inspect
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import partax
import partax.debug
from trees import Layer, array

PACKAGE = Path(partax.__file__).parent
# Every name of a signature of ours that takes others' keywords, and some that one might have.
NAMES = sorted(
    {
        argument.arg
        for file in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.Lambda)) and node.args.kwarg is not None
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    }
    | {"self", "cls", "fun", "f", "args", "kwargs", "name", "options", "over", "function", "instance", "leaves"}
)
X = jnp.ones(2)


def custom_vjp(fun: Any) -> Any:
    made = partax.filter_custom_vjp(fun)
    made.def_fwd(lambda perturbed, x, **more: (fun(x, **more), None))
    made.def_bwd(lambda residuals, g, perturbed, x, **more: g * jnp.ones(2))
    return made


def custom_jvp(fun: Any) -> Any:
    made = partax.filter_custom_jvp(fun)
    made.def_jvp(lambda primals, tangents, **more: (fun(*primals, **more), jnp.float32(0)))
    return made


# What makes a wrapper; and what its call takes beside the function's own keywords.
ENTRIES: dict[str, Callable[[Any], Any]] = {
    "filter_jit": partax.filter_jit,
    "filter_grad": partax.filter_grad,
    "filter_value_and_grad": partax.filter_value_and_grad,
    "filter_jacfwd": partax.filter_jacfwd,
    "filter_jacrev": partax.filter_jacrev,
    "filter_hessian": partax.filter_hessian,
    "filter_checkpoint": partax.filter_checkpoint,
    "filter_custom_vjp": custom_vjp,
    "filter_custom_jvp": custom_jvp,
    "filter_vmap": lambda fun: partax.filter_vmap(fun, in_axes=None, axis_size=2),
    "filter_make_jaxpr": partax.filter_make_jaxpr,
    "assert_max_traces": lambda fun: partax.debug.assert_max_traces(fun, max_traces=100_000),
    "trace": lambda fun: partax.filter_jit(fun).trace,
    "eval_shape": lambda fun: partax.filter_jit(fun).eval_shape,
    "a method": lambda fun: type("C", (), {"m": partax.filter_jit(lambda owner, x, /, **more: fun(x, **more))})().m,
    "a bound function": lambda fun: partax.filter_jit(fun).bind(X),
}
TAKES_NOTHING = ("a bound function",)


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_keyword_reaches_the_function(entry: str) -> None:
    received: list[list[str]] = []

    def fun(x: Any, /, **more: Any) -> Any:
        received.append(sorted(more))
        return (x**2).sum()

    wrapped = ENTRIES[entry](fun)
    given = () if entry in TAKES_NOTHING else (X,)
    wrapped(*given, **dict.fromkeys(NAMES, entry))  # a value that no other entry has had traced
    assert sorted(NAMES) in received


def plain(x: Any, *, flag: bool = False) -> Any:
    """A function with a docstring."""
    return x


@pytest.mark.parametrize("entry", [name for name in ENTRIES if name.startswith("filter_") and "custom" not in name])
def test_a_wrapper_looks_like_what_it_wraps_and_is_a_pytree_of_it(entry: str) -> None:
    wrapped, of_layer = ENTRIES[entry](plain), ENTRIES[entry](Layer(array(2, 2)))
    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        assert getattr(wrapped, name) == getattr(plain, name)
    assert wrapped.__wrapped__ is plain and inspect.signature(wrapped) == inspect.signature(plain)
    assert repr(wrapped) == f"<partax.{entry} of plain>" and repr(of_layer) == f"<partax.{entry} of Layer>"
    for again in (jax.tree.map(lambda leaf: leaf, wrapped), pickle.loads(pickle.dumps(wrapped))):
        assert type(again) is type(wrapped) and jax.tree.structure(again) == jax.tree.structure(wrapped)
    arrays = [leaf for leaf in jax.tree.leaves(of_layer) if partax.is_array(leaf)]
    assert [leaf is of_layer.__wrapped__.weight for leaf in arrays] == [True]


def test_a_compiled_program_takes_every_keyword() -> None:
    def fun(x: Any, /, **more: Any) -> Any:
        return x, sorted(more)

    for name in ("self", "args", "kwargs", "x", "fun", "leaves"):
        compiled = partax.filter_jit(fun).lower(X, **{name: "a"}).compile()
        assert compiled(X, **{name: "a"})[1] == [name]


def test_a_closure_that_is_converted_takes_every_keyword() -> None:
    closed = partax.filter_closure_convert(lambda x, **more: x * 2, X, self="a")
    assert closed(X, self="a")[0] == 2
