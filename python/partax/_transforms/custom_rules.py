"""Derivative rules of one's own: filter_custom_jvp and filter_custom_vjp."""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero, zero_from_primal
from jax.tree_util import keystr, tree_leaves_with_path

from partax._pytree.filters import is_array, is_inexact_array, is_inexact_array_like
from partax._transforms.objects import Objects
from partax._transforms.on_arrays import (
    Rest,
    joined,
    on_split,
    or_zero,
    split,
    tangent_leaves,
    tree_of,
)
from partax._transforms.wrapper import Transformed, check_callable, check_first, names_of_arguments

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Rule = TypeVar("_Rule", bound=Callable[..., Any])
_ZERO: Any = SymbolicZero  # jax does not tell the types of its attributes


class filter_custom_jvp(Transformed[_P, _R]):
    """Give a function its own derivative. Same as `jax.custom_jvp`, for any pytree.

    Example:
      >>> power = partax.filter_custom_jvp(lambda x, n: x**n)
      >>> @power.def_jvp
      ... def power_jvp(primals, tangents):
      ...     (x, n), (dx, _) = primals, tangents
      ...     return x**n, None if dx is None else n * x ** (n - 1) * dx
      >>> partax.filter_grad(power)(jnp.float32(3), 2)
      Array(6., dtype=float32)

    `def_jvp` sets the rule, called as `rule(primals, tangents, **kwargs)`: the arguments by position, for each a tree
    like it with None for a leaf without a tangent (also an array that is not differentiated; zeros, if one of your
    nodes refuses None), and the arguments by name, which cannot be differentiated. It returns the result and a tree of
    tangents like it, with None for a leaf without one.

    Args:
      fn: A function of any trees, with any result.

    Raises:
      TypeError: `fn` is not callable.
      AttributeError: When called: the rule is not set.
      ValueError, TypeError: When called: an argument by name is differentiated, or a tangent that the rule returned
        does not fit; the message has the path.

    See Also:
      The guide "Transformations of any tree".
    """

    _name = "filter_custom_jvp"
    _children = ("_jvp",)

    def __init__(self, fn: Callable[_P, _R], _jvp: Callable[..., Any] | None = None) -> None:
        self._jvp = _jvp
        super().__init__(fn)

    def def_jvp(self, rule: _Rule) -> _Rule:
        """Set the rule. Works as a decorator.

        Example:
          >>> square = partax.filter_custom_jvp(lambda x: x**2)
          >>> @square.def_jvp
          ... def square_jvp(primals, tangents):
          ...     (x,), (dx,) = primals, tangents
          ...     return x**2, 2 * x * dx
          >>> jax.grad(square)(jnp.float32(3))
          Array(6., dtype=float32)

        Args:
          rule: A function that is called as `rule(primals, tangents, **kwargs)`.

        Returns:
          The rule.

        Raises:
          TypeError: `rule` is not callable.
        """
        check_callable(rule, "def_jvp")
        self._jvp = rule
        return rule

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        rule = self._jvp
        if rule is None:
            raise AttributeError(f"{self.__name__}() under filter_custom_jvp has no rule; give one by def_jvp")
        objects = Objects.of_call(self._name, self.__wrapped__, args, kwargs)
        arrays, rest = split((args, kwargs))
        run = jax.custom_jvp(on_split(objects.refuse_changes(self.__wrapped__), rest))

        def run_rule(primals: Any, tangents: Any) -> Any:
            positional, named = joined((primals[0], rest))
            leaves, structure = jax.tree.flatten(positional)
            along = [
                tangent if is_inexact_array_like(primal) and not isinstance(tangent, SymbolicZero) else None
                for tangent, primal in zip(tangents[0], primals[0], strict=True)
            ]
            for (path, _), tangent in zip(tree_leaves_with_path(named), along[len(leaves) :], strict=True):
                if tangent is not None:
                    raise ValueError(
                        f"`{path[0].key}{keystr(path[1:])}`: found an argument by name that is differentiated, which "
                        f"{self.__name__}() under filter_custom_jvp cannot do; pass it by position"
                    )
            along = along[: len(leaves)]
            directions = tree_of(structure, along, list(map(or_zero, along, leaves)))

            def on_primals(*primals: Any, **named: Any) -> Any:
                return rule(primals, directions, **named)

            out, slope = objects.refuse_changes(on_primals, operator.itemgetter(0))(*positional, **named)
            slopes = tangent_leaves(slope, out, "the result", "tangent")
            pairs = list(zip(jax.tree.leaves(out), slopes, strict=True))
            # JAX runs a rule on the numbers themselves if no array has been made of them: it may return numbers.
            has_tangent = [is_array(leaf) or slope is not None for leaf, slope in pairs]
            values, rest_of_out = split(out, has_tangent)
            along = [
                None if value is None else zero_from_primal(leaf, symbolic_zeros=True) if slope is None else slope
                for value, (leaf, slope) in zip(values, pairs, strict=True)
            ]
            return (values, rest_of_out), (along, rest_of_out)

        run.defjvp(run_rule, symbolic_zeros=True)
        return joined(run(arrays))


filter_custom_jvp.__module__ = "partax"  # where users find it, and pickles too


class filter_custom_vjp(Transformed[_P, _R]):
    """Give a function its own derivative by its first argument. Same as `jax.custom_vjp`, for any pytree.

    Example:
      >>> clip_gradient = partax.filter_custom_vjp(lambda x, limit: x)
      >>> _ = clip_gradient.def_fwd(lambda perturbed, x, limit: (x, None))
      >>> @clip_gradient.def_bwd
      ... def backward(residuals, cotangent, perturbed, x, limit):
      ...     return jnp.clip(cotangent, -limit, limit)
      >>> jax.grad(lambda x: 10 * clip_gradient(x, 1.0))(jnp.float32(3))
      Array(1., dtype=float32)

    `def_fwd` and `def_bwd` set the rules. They are called as

    - `fwd(perturbed, vjp_arg, *args, **kwargs)`, which returns `(result, residuals)`. `perturbed` is a tree like
      `vjp_arg` with True for the arrays that are being differentiated and False for other leaves (a list of its leaves,
      if one of your nodes refuses bools); the residuals are any tree.
    - `bwd(residuals, cotangent, perturbed, vjp_arg, *args, **kwargs)`, which returns the cotangent of `vjp_arg`: a tree
      like it with None for zeros and for a leaf that is not an inexact array. `cotangent` is a tree like the result,
      with None for the same; with zeros, if one of your nodes refuses None.

    Args:
      fn: A function of any trees, with any result.

    Raises:
      TypeError: `fn` is not callable. When called: without a positional argument.
      RuntimeError: When called: a rule is missing, another argument than the first is differentiated, or the result of
        `bwd` does not fit; the message has the path.

    See Also:
      The guide "Transformations of any tree".
    """

    _name = "filter_custom_vjp"
    _children = ("_fwd", "_bwd")

    def __init__(
        self, fn: Callable[_P, _R], _fwd: Callable[..., Any] | None = None, _bwd: Callable[..., Any] | None = None
    ) -> None:
        self._fwd, self._bwd = _fwd, _bwd
        super().__init__(fn)

    def def_fwd(self, rule: _Rule) -> _Rule:
        """Set the rule for the forward pass. Works as a decorator.

        Example:
          >>> square = partax.filter_custom_vjp(lambda x: x**2)
          >>> @square.def_fwd
          ... def forward(perturbed, x):
          ...     return x**2, x  # the result, and what the backward pass needs

        Args:
          rule: A function that is called as `fwd(perturbed, vjp_arg, *args, **kwargs)`.

        Returns:
          The rule.

        Raises:
          TypeError: `rule` is not callable.
        """
        check_callable(rule, "def_fwd")
        self._fwd = rule
        return rule

    def def_bwd(self, rule: _Rule) -> _Rule:
        """Set the rule for the backward pass. Works as a decorator.

        Example:
          >>> same = partax.filter_custom_vjp(lambda x: x)
          >>> _ = same.def_fwd(lambda perturbed, x: (x, None))
          >>> _ = same.def_bwd(lambda residuals, cotangent, perturbed, x: -cotangent)
          >>> jax.grad(same)(jnp.float32(3))
          Array(-1., dtype=float32)

        Args:
          rule: A function that is called as `bwd(residuals, cotangent, perturbed, vjp_arg, *args, **kwargs)`.

        Returns:
          The rule.

        Raises:
          TypeError: `rule` is not callable.
        """
        check_callable(rule, "def_bwd")
        self._bwd = rule
        return rule

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        fwd, bwd, name = self._fwd, self._bwd, self.__name__
        if fwd is None or bwd is None:
            missing = "def_fwd" if fwd is None else "def_bwd"
            raise RuntimeError(f"{name}() under filter_custom_vjp has no rule by {missing}; give one")
        check_first(self, args)
        objects = Objects.of_call(self._name, self.__wrapped__, args, kwargs)
        inexact, exact, rest_of_first = split(args[0], is_inexact_array, is_array)
        constants, rest_of_constants = split((args[1:], kwargs))

        def call(fun: Any, inexact: Any, exact: Any, constants: Any) -> Any:
            positional, named = joined((constants, rest_of_constants))
            return fun(joined((inexact, exact, rest_of_first)), *positional, **named)

        @jax.custom_vjp
        def run(*arrays: Any) -> Any:
            return split(call(objects.refuse_changes(self.__wrapped__), *arrays), is_inexact_array, is_array)

        def run_fwd(*arrays: Any) -> Any:
            # An array may be represented by the number that JAX was called with.
            values = jax.tree.map(lambda leaf: leaf.value if is_array(leaf.value) else jnp.asarray(leaf.value), arrays)
            self._refuse_constants(arrays[2], args[1:], kwargs)
            marks = [leaf is not None and leaf.perturbed for leaf in arrays[0]]
            perturbed = tree_of(rest_of_first.value[1], marks)
            forward = objects.refuse_changes(functools.partial(fwd, perturbed), operator.itemgetter(0))
            out, residuals = call(forward, *values)
            result = split(out, is_inexact_array, is_array)
            return result, (split(residuals), values, Rest((perturbed, result[2].value[1])))

        def run_bwd(saved: Any, cotangents: Any) -> Any:
            residuals, values, rest = saved
            perturbed, structure = rest.value
            nonzero = [None if isinstance(leaf, SymbolicZero) else leaf for leaf in cotangents[0]]
            whole = [jnp.zeros(leaf.shape, leaf.dtype) if isinstance(leaf, _ZERO) else leaf for leaf in cotangents[0]]
            cotangent = tree_of(structure, nonzero, whole)
            rule = functools.partial(bwd, joined(residuals), cotangent, perturbed)
            gradient = call(objects.refuse_changes(rule, lambda _: None), *values)
            first = joined((*values[:2], rest_of_first))
            (name_of_first,) = names_of_arguments(self.__wrapped__, 1)
            try:
                # A rule may return anything for a leaf that cannot have a cotangent, as in Equinox.
                leaves = tangent_leaves(gradient, first, name_of_first, "cotangent", ignore_others=True)
            except (TypeError, ValueError) as error:
                raise RuntimeError(f"what the rule of def_bwd of {name}() returned does not fit: {error}") from error
            pairs = zip(values[0], leaves, strict=True)
            return [None if value is None else leaf for value, leaf in pairs], None, None

        run.defvjp(run_fwd, run_bwd, symbolic_zeros=True)
        return joined(run(inexact, exact, constants))

    def _refuse_constants(self, arrays: Sequence[Any], rest: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Raise a RuntimeError if another argument than the first is differentiated."""
        first, *names = names_of_arguments(self.__wrapped__, 1 + len(rest))
        for leaf, (path, _) in zip(arrays, tree_leaves_with_path((rest, named)), strict=True):
            if leaf is not None and leaf.perturbed:
                name = path[1].key if path[0].idx else names[path[1].idx]
                raise RuntimeError(
                    f"`{name}{keystr(path[2:])}`: found an array that is differentiated, but {self.__name__}() under "
                    f"filter_custom_vjp differentiates only `{first}`; pack both into one tuple"
                )


filter_custom_vjp.__module__ = "partax"  # where users find it, and pickles too
