"""filter_custom_jvp: a derivative rule of one's own, forward."""

import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero, zero_from_primal

from partax._pytree.filters import is_array, is_inexact_array, is_inexact_array_like
from partax._transforms.on_arrays import Rest, joined, on_split, split, tree_of
from partax._transforms.tangents import misfit, or_zero, tangent_leaves, value_text
from partax._transforms.wrapper import Transformed, check_callable

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Rule = TypeVar("_Rule", bound=Callable[..., Any])


class filter_custom_jvp(Transformed[_P, _R]):
    """`jax.custom_jvp` for any trees: what cannot be differentiated needs no mention.

    Example:
      >>> power = partax.filter_custom_jvp(lambda x, n: x**n)
      >>> @power.def_jvp
      ... def power_jvp(primals, tangents):
      ...     (x, n), (dx, _) = primals, tangents
      ...     return x**n, None if dx is None else n * x ** (n - 1) * dx
      >>> partax.filter_grad(power)(jnp.float32(3), 2)
      Array(6., dtype=float32)

    The rule is given by `def_jvp`. It is called as `rule(primals, tangents, **kwargs)`: the arguments by position, for
    each a tree like it with None for what has no tangent (also an array that is not being differentiated; zeros, if a
    node of yours refuses None), and the arguments by name, which cannot be differentiated. It returns the result and a
    tree like it, with None for what has no tangent.

    Args:
      fn: a function of any trees, with any result.

    Raises:
      TypeError: `fn` is not callable.
      AttributeError: when called, there is no rule.
      ValueError: when called, an argument by name is differentiated, or a tangent that the rule returned does not fit;
        the message has the path.
    """

    _name = "filter_custom_jvp"
    _is_called_as_wrapped = True
    _children = ("_jvp",)

    def __init__(self, fn: Callable[_P, _R], _jvp: Callable[..., Any] | None = None) -> None:
        self._jvp = _jvp
        super().__init__(fn)

    def def_jvp(self, rule: _Rule) -> _Rule:
        """Gives the rule; a decorator, which returns it.

        Example:
          >>> square = partax.filter_custom_jvp(lambda x: x**2)
          >>> @square.def_jvp
          ... def square_jvp(primals, tangents):
          ...     (x,), (dx,) = primals, tangents
          ...     return x**2, 2 * x * dx
          >>> jax.grad(square)(jnp.float32(3))
          Array(6., dtype=float32)

        Args:
          rule: what is called as `rule(primals, tangents, **kwargs)`.

        Returns:
          The rule.
        """
        check_callable(rule, "def_jvp")
        self._jvp = rule
        return rule

    def defjvp(self, rule: _Rule) -> _Rule:
        """As `def_jvp`, with zeros for the tangents of inexact arrays that are not being differentiated; deprecated.

        Args:
          rule: what is called as `rule(primals, tangents, **kwargs)`.

        Returns:
          The rule.
        """
        warnings.warn("filter_custom_jvp.defjvp is deprecated; use def_jvp", DeprecationWarning, stacklevel=2)

        def with_zeros(primals: Any, tangents: Any, **kwargs: Any) -> Any:
            return rule(primals, materialised(tangents, primals), **kwargs)

        self._jvp = with_zeros
        return rule

    def defjvps(self, *rules: Any) -> None:
        """Is not there, as in Equinox.

        Args:
          *rules: as of `jax.custom_jvp`.

        Raises:
          NotImplementedError: always.
        """
        raise NotImplementedError("filter_custom_jvp has no defjvps; use def_jvp")

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        rule = self._jvp
        if rule is None:
            raise AttributeError(f"{self.__name__}() under filter_custom_jvp has no rule; give one by def_jvp")
        arrays, static = split((args, kwargs))

        run = jax.custom_jvp(on_split(self.__wrapped__, static))

        def run_rule(primals: Any, tangents: Any) -> Any:
            positional, named = joined((primals[0], static))
            leaves, structure = jax.tree.flatten(positional)
            along = [
                tangent if is_inexact_array_like(primal) and not isinstance(tangent, SymbolicZero) else None
                for tangent, primal in zip(tangents[0], primals[0], strict=True)
            ]
            at = next((i for i, tangent in enumerate(along[len(leaves) :]) if tangent is not None), None)
            if at is not None:
                path = jax.tree_util.tree_leaves_with_path(named)[at][0]
                raise ValueError(
                    f"`{path[0].key}{jax.tree_util.keystr(path[1:])}`: found an argument by name that is "
                    f"differentiated, which {self.__name__}() under filter_custom_jvp cannot do; pass it by position"
                )
            del along[len(leaves) :]
            out, slopes = rule(positional, tree_of(structure, along, list(map(or_zero, along, leaves))), **named)
            given = tangent_leaves(slopes, out, "the result", "tangent", _check)
            leaves, structure = jax.tree.flatten(out)
            values: list[Any] = [None] * len(leaves)
            along = list(values)
            for i, (leaf, slope) in enumerate(zip(leaves, given, strict=True)):
                # jax runs a rule on the numbers themselves where no array has been made of them: it may return numbers.
                if is_array(leaf) or slope is not None:
                    values[i], leaves[i] = leaf, None
                    along[i] = zero_from_primal(leaf, symbolic_zeros=True) if slope is None else slope
            rest = Rest((leaves, structure))
            return (values, rest), (along, rest)

        run.defjvp(run_rule, symbolic_zeros=True)
        return joined(run(arrays))


filter_custom_jvp.__module__ = "partax"  # where users find it, and pickles too


def _check(path: str, primal: Any, tangent: Any) -> None:
    if not is_array(primal) and not is_inexact_array_like(primal):
        raise ValueError(f"`{path}`: found a tangent for {value_text(primal)}, which can have none; expected None")
    if jnp.shape(primal) != jnp.shape(tangent):
        raise ValueError(misfit(path, primal, tangent))


def materialised(tangents: Any, primals: Any) -> Any:
    """Tangents with zeros for the inexact arrays that have none."""
    leaves, structure = jax.tree.flatten(primals)
    given = tangent_leaves(tangents, primals, "the tangents", "tangent", lambda *_: None)
    needed = [tangent is None and is_inexact_array(leaf) for tangent, leaf in zip(given, leaves, strict=True)]
    filled = zip(needed, given, leaves, strict=True)
    return structure.unflatten([jnp.zeros_like(leaf) if need else tangent for need, tangent, leaf in filled])
