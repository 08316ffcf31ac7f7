"""Derivative rules of one's own: filter_custom_jvp and filter_custom_vjp."""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero, zero_from_primal

from partax._core import is_inexact_array_like
from partax._pytree.filters import is_array
from partax._transforms.objects import Objects
from partax._transforms.split import Split, on_split
from partax._transforms.tangents import build_tangent, tangents_by_path
from partax._transforms.wrapper import Transformed, check_callable, check_first, names_of_arguments

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Rule = TypeVar("_Rule", bound=Callable[..., Any])

_FIRST = "[0][0]"  # the path of the first argument in `(args, kwargs)`


def _argument_path(path: str, names: Sequence[str] = ()) -> str:
    """The path from an argument, of a path in `(args, kwargs)`; `names` are of the arguments by position."""
    key, _, rest = path[4:].partition("]")
    return (key[1:-1] if path.startswith("[1]") else names[int(key)]) + rest


class _CustomRules(Transformed[_P, _R]):
    _children = ("__wrapped__", "_rules")

    def __init__(self, fn: Callable[_P, _R], _rules: dict[str, Callable[..., Any]] | None = None) -> None:
        self._rules = _rules or {}
        super().__init__(fn)

    def _set(self, name: str, rule: _Rule) -> _Rule:
        check_callable(rule, f"def_{name}")
        self._rules = {**self._rules, name: rule}
        return rule

    def _rule(self, name: str, error: type[Exception]) -> Callable[..., Any]:
        if name not in self._rules:
            raise error(f"{self.__name__}() under {self._name} has no rule by def_{name}; give one")
        return self._rules[name]


class filter_custom_jvp(_CustomRules[_P, _R]):
    """Give a function its own derivative. Same as `jax.custom_jvp`, for any pytree.

    Example:
      >>> triple = partax.filter_custom_jvp(lambda x, name: 3 * x)
      >>> _ = triple.def_jvp(lambda primals, tangents: (3 * primals[0], 3 * tangents[0]))
      >>> partax.filter_grad(triple)(jnp.float32(2), "name")
      Array(3., dtype=float32)

    `def_jvp` sets the rule, called as `rule(primals, tangents, **kwargs)`: the arguments by position, for each a tree
    like it with None for a leaf without a tangent (zeros, if one of your nodes refuses None), and the arguments by
    name, which cannot be differentiated. It returns the result and a tree like it of tangents or None.

    Args:
      fn: A function of any trees, with any result.

    Raises:
      AttributeError: When called: the rule is not set.
      ValueError, TypeError: When called: an argument by name is differentiated, or a tangent does not fit.

    See Also: The guide "Transformations of any tree".
    """

    _name = "filter_custom_jvp"

    def def_jvp(self, rule: _Rule) -> _Rule:
        """Set the rule. Works as a decorator.

        Example:
          >>> square = partax.filter_custom_jvp(lambda x: x**2)
          >>> _ = square.def_jvp(lambda primals, tangents: (primals[0] ** 2, 2 * primals[0] * tangents[0]))
          >>> jax.grad(square)(jnp.float32(3))
          Array(6., dtype=float32)

        Args:
          rule: A function that is called as `rule(primals, tangents, **kwargs)`.

        Returns:
          The rule.
        """
        return self._set("jvp", rule)

    def __call__(self, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        rule = self._rule("jvp", AttributeError)
        objects = Objects.of_call(self._name, self.__wrapped__, args, kwargs)
        run = jax.custom_jvp(on_split(objects.refuse_changes(self.__wrapped__)))

        def run_on_splits(primals: tuple[Split], tangents: tuple[Split]) -> tuple[Split, Split]:
            (call,), (slopes,) = primals, tangents
            along: dict[str, Any] = {}
            for path, tangent in slopes.leaves.items():
                if isinstance(tangent, SymbolicZero) or not is_inexact_array_like(call.leaves[path]):
                    continue
                along[path] = tangent
                if path.startswith("[1]"):
                    raise ValueError(
                        f"`{_argument_path(path)}`: found an argument by name that is differentiated, which "
                        f"{self.__name__}() under filter_custom_jvp cannot do; pass it by position"
                    )
            directions, _ = build_tangent(call, along)
            run_rule = objects.refuse_changes(
                lambda *args, **more: rule(args, directions, **more), operator.itemgetter(0)
            )
            args, kwargs = call.tree
            out, slope = run_rule(*args, **kwargs)
            slopes = tangents_by_path(slope, out, "the result", "tangent")
            # JAX runs a rule on the numbers themselves if no array has been made of them: it may return numbers.
            result = Split.of(out, True)
            result = result.only(path for path, leaf in result.leaves.items() if is_array(leaf) or path in slopes)
            constants = {path: leaf for path, leaf in result.leaves.items() if path not in slopes}
            return result, result.update(slopes | zero_from_primal(constants, symbolic_zeros=True))

        run.defjvp(run_on_splits, symbolic_zeros=True)
        return run(Split.of((args, kwargs))).tree


filter_custom_jvp.__module__ = "partax"  # where users find it, and pickles too


class filter_custom_vjp(_CustomRules[_P, _R]):
    """Give a function its own derivative by its first argument. Same as `jax.custom_vjp`, for any pytree.

    Example:
      >>> clip_gradient = partax.filter_custom_vjp(lambda x, limit: x)
      >>> _ = clip_gradient.def_fwd(lambda perturbed, x, limit: (x, None))
      >>> _ = clip_gradient.def_bwd(lambda residuals, g, perturbed, x, limit: jnp.clip(g, -limit, limit))
      >>> jax.grad(lambda x: 10 * clip_gradient(x, 1.0))(jnp.float32(3))
      Array(1., dtype=float32)

    - `def_fwd` sets `fwd(perturbed, vjp_arg, *args, **kwargs)`, which returns `(result, residuals)`. `perturbed` is a
      tree like `vjp_arg` with True for the arrays that are being differentiated and False for other leaves (a list of
      its leaves, if one of your nodes refuses bools); the residuals are any tree.
    - `def_bwd` sets `bwd(residuals, cotangent, perturbed, vjp_arg, *args, **kwargs)`, which returns a tree like
      `vjp_arg` of cotangents or None. `cotangent` is such a tree like the result; with zeros, if a node refuses None.

    Args:
      fn: A function of any trees, with any result.

    Raises:
      RuntimeError: When called: a rule is missing, another argument is differentiated, or a cotangent does not fit.

    See Also: The guide "Transformations of any tree".
    """

    _name = "filter_custom_vjp"

    def def_fwd(self, rule: _Rule) -> _Rule:
        """Set the rule for the forward pass. Works as a decorator.

        Example:
          >>> square = partax.filter_custom_vjp(lambda x: x**2)
          >>> _ = square.def_fwd(lambda perturbed, x: (x**2, x))

        Args:
          rule: A function that is called as `fwd(perturbed, vjp_arg, *args, **kwargs)`.

        Returns:
          The rule.
        """
        return self._set("fwd", rule)

    def def_bwd(self, rule: _Rule) -> _Rule:
        """Set the rule for the backward pass. Works as a decorator.

        Example:
          >>> square = partax.filter_custom_vjp(lambda x: x**2)
          >>> _ = square.def_bwd(lambda x, cotangent, *_: 2 * x * cotangent)

        Args:
          rule: A function that is called as `bwd(residuals, cotangent, perturbed, vjp_arg, *args, **kwargs)`.

        Returns:
          The rule.
        """
        return self._set("bwd", rule)

    def __call__(self, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        fwd, bwd, name = self._rule("fwd", RuntimeError), self._rule("bwd", RuntimeError), self.__name__
        check_first(self, args)
        objects = Objects.of_call(self._name, self.__wrapped__, args, kwargs)
        names = names_of_arguments(self.__wrapped__, len(args))
        run = jax.custom_vjp(on_split(objects.refuse_changes(self.__wrapped__)))

        def run_fwd(primals: Split) -> Any:
            for path, leaf in primals.leaves.items():
                if leaf.perturbed and not path.startswith(_FIRST):
                    raise RuntimeError(
                        f"`{_argument_path(path, names)}`: found an array that is differentiated, but {name}() under "
                        f"filter_custom_vjp differentiates only `{names[0]}`; pack both into one tuple"
                    )
            # The value of a primal may be the number that JAX was called with.
            call = primals.replace(jnp.asarray(leaf.value) for leaf in primals.leaves.values())
            marks = {
                path: is_inexact_array_like(leaf) and path in call.leaves and primals.leaves[path].perturbed
                for path, leaf in call.values.items()
                if path.startswith(_FIRST)
            }
            try:
                perturbed = call.build(call.values | marks)[0][0]
            except Exception:  # a user's node refuses them
                perturbed = list(marks.values())
            forward = objects.refuse_changes(functools.partial(fwd, perturbed), operator.itemgetter(0))
            args, kwargs = call.tree
            out, residuals = forward(*args, **kwargs)
            return Split.of(out), (call, Split.of((residuals, perturbed)))

        def run_bwd(saved: tuple[Split, Split], cotangents: Split) -> tuple[Split]:
            call, more = saved
            (args, kwargs), (residuals, perturbed) = call.tree, more.tree
            nonzero = {path: leaf for path, leaf in cotangents.leaves.items() if not isinstance(leaf, SymbolicZero)}
            rule = functools.partial(bwd, residuals, build_tangent(cotangents, nonzero), perturbed)
            gradient = objects.refuse_changes(rule, lambda _: None)(*args, **kwargs)
            try:
                # A rule may return anything for a leaf that cannot have a cotangent, as in Equinox.
                leaves = tangents_by_path(gradient, args[0], names[0], "cotangent", ignore_others=True)
            except (TypeError, ValueError) as error:
                raise RuntimeError(f"what the rule of def_bwd of {name}() returned does not fit: {error}") from error
            by_path = {_FIRST + path: leaf for path, leaf in leaves.items()}
            return (call.replace(map(by_path.get, call.leaves)),)

        run.defvjp(run_fwd, run_bwd, symbolic_zeros=True)
        return run(Split.of((args, kwargs))).tree


filter_custom_vjp.__module__ = "partax"  # where users find it, and pickles too
