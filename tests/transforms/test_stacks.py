"""Guards the promise that the transformations compose: random stacks of three on random trees give what jax gives on
the trees' arrays."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from hypothesis import example, given, settings
from hypothesis import strategies as st

import partax
from random_trees import thorough
from transformed import assert_close_trees
from trees import Bag, Cell, Layer, Pair

# A function from a tree to one like it: for partax of trees that hold anything, for jax of lists of arrays. What makes
# another such function of it has the functions of the library, and what of a tree is differentiated and what is left.
Function = Callable[[Any], Any]
is_inexact = partax.is_inexact_array


def with_rest(changed: Any, tree: Any) -> Any:
    """A gradient or tangent, with what of the tree has none."""
    return partax.combine(changed, partax.filter(tree, is_inexact, inverse=True))


def inexact(tree: Any) -> Any:
    return partax.filter(tree, is_inexact)


def total(tree: Any) -> Any:
    return sum((jnp.sum(leaf) for leaf in jax.tree.leaves(inexact(tree))), jnp.float32(0))


def on_arrays(fun: Function, tree: Any) -> Any:
    return jax.tree.map(lambda leaf: fun(leaf) if eqx.is_array(leaf) else leaf, tree)


def of_two(vmap: Any) -> Callable[[Function], Function]:
    """On two of it at once; the second."""
    pair = lambda leaf: jnp.stack([leaf + 1, leaf])
    return lambda f: lambda tree: on_arrays(lambda leaf: leaf[1], vmap(f)(on_arrays(pair, tree)))


def our_custom(f: Function) -> Function:
    """The derivative is twice what it is."""
    custom = partax.filter_custom_jvp(lambda tree, n: f(tree))

    @custom.def_jvp
    def _(primals: Any, tangents: Any) -> Any:
        out, along = partax.filter_jvp(f, primals[:1], tangents[:1])
        return out, jax.tree.map(lambda x: 2 * x, along)

    return lambda tree: custom(tree, "static")


def plain_custom(f: Function) -> Function:
    custom = jax.custom_jvp(f)

    @custom.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        out, along = jax.jvp(f, primals, tangents)
        return out, jax.tree.map(lambda x: 2 * x, along)

    return custom


def our_backward(f: Function) -> Function:
    """The cotangent is three times what it is."""
    custom = partax.filter_custom_vjp(lambda tree, n: f(tree))
    custom.def_fwd(lambda perturbed, tree, n: partax.filter_vjp(f, tree))
    custom.def_bwd(lambda pull, cotangent, *_: jax.tree.map(lambda x: 3 * x, pull(cotangent)[0]))
    return lambda tree: custom(tree, "static")


def plain_backward(f: Function) -> Function:
    custom = jax.custom_vjp(f)
    custom.defvjp(
        lambda arrays: jax.vjp(f, arrays), lambda pull, cotangent: (jax.tree.map(lambda x: 3 * x, pull(cotangent)[0]),)
    )
    return custom


def transformations(of: Callable[[str], Any], part: Any, rest: Any) -> dict[str, Callable[[Function], Function]]:
    scalar = lambda name: lambda f: lambda t: rest(of(name)(lambda t: total(f(t)))(t), t)
    return {
        "jit": of("jit"),
        "vmap": of_two(of("vmap")),
        "jvp": lambda f: lambda t: rest(of("jvp")(f, (t,), (part(t),))[1], t),
        "vjp": lambda f: lambda t: rest(of("vjp")(f, t)[1](part(t))[0], t),
        "linearize": lambda f: lambda t: rest(of("linearize")(f, t)[1](part(t)), t),
        **{name: scalar(name) for name in ("grad", "jacfwd", "jacrev")},
        "checkpoint": of("checkpoint"),
    }


OURS = transformations(lambda name: getattr(partax, f"filter_{name}"), inexact, with_rest) | {
    "closure_convert": lambda f: lambda t: partax.filter_closure_convert(f, t)(t),
    "custom_jvp": our_custom,
    "custom_vjp": our_backward,
}
PLAIN = transformations(lambda name: getattr(jax, name), lambda t: t, lambda changed, _: changed) | {
    "closure_convert": lambda f: f,
    "custom_jvp": plain_custom,
    "custom_vjp": plain_backward,
}
FORWARD = {"jvp", "linearize", "jacfwd", "custom_jvp"}


def allowed(names: list[str]) -> bool:
    """jax cannot differentiate a custom_vjp forward."""
    return not any(name in FORWARD and "custom_vjp" in names[:i] for i, name in enumerate(names))


stacks = st.lists(st.sampled_from(sorted(OURS)), min_size=3, max_size=3).filter(allowed)
arrays = st.sampled_from([jnp.float32(2), jnp.array([0.5, 2.0]), jnp.array([[1.0, 3.0]])])
statics = st.sampled_from([None, 1, 2.5, True, "s", len])
leaves = st.one_of(arrays, statics)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, inner),
        st.lists(inner, max_size=2),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
        st.builds(Pair, inner, inner),
        st.builds(Cell, inner, inner, statics),
        st.builds(lambda a, b: Layer(a, b, rate="s"), inner, inner),
        st.builds(lambda *items: Bag(*items, label="l"), inner, inner),
    ),
    max_leaves=4,
)


def body(weights: list[Any]) -> Any:
    """Every number by all others."""
    scale = total([jnp.tanh(leaf) for leaf in weights])
    return [jnp.sin(leaf) * scale for leaf in weights]


@example((2.5, 1), ["checkpoint", "vmap", "custom_jvp"], jnp.float32(2))
@settings(thorough, max_examples=max(6, thorough.max_examples // 8))
@given(trees, stacks, arrays)
def test_stacks_of_three_equal_jax_on_arrays(rest: Any, names: list[str], first: Any) -> None:
    tree = {"first": first, "rest": rest}

    def on_tree(tree: Any) -> Any:
        assert jax.tree.structure(partax.filter(tree, is_inexact, inverse=True)) == static
        numbers, structure = jax.tree.flatten(inexact(tree))
        return with_rest(jax.tree.unflatten(structure, body(numbers)), tree)

    static = jax.tree.structure(partax.filter(tree, is_inexact, inverse=True))
    ours = functools.reduce(lambda f, name: OURS[name](f), names, on_tree)
    plain = functools.reduce(lambda f, name: PLAIN[name](f), names, body)
    numbers, structure = jax.tree.flatten(inexact(tree))
    expected = with_rest(jax.tree.unflatten(structure, jax.jit(plain)(numbers)), tree)
    assert_close_trees(partax.filter_jit(ours)(tree), expected)
