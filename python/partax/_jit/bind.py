"""A wrapper with arguments that are read, checked and kept once."""

import operator
from typing import Any, NoReturn

import numpy as np

from partax import _core
from partax._core import BoundFunction, JitFunction
from partax._families.describe import is_frozen
from partax._jax import programs
from partax._jax.nodes import flatten_one_level, one_level
from partax._jit.options import ANY_SIGNATURE, signature_of
from partax._pytree.short_text import short_text
from partax._pytree.spec_data import leaf_paths


def bind(self: JitFunction[..., Any], /, *args: Any, **kwargs: Any) -> BoundFunction[Any]:
    """Reads, checks and keeps some arguments once, for calls that pass the others.

    Example:
      >>> @partax.filter_jit
      ... def predict(model, x):
      ...     return model["weight"] * x
      >>> serve = predict.bind({"weight": jnp.full(2, 3.0)})
      >>> serve(jnp.ones(2))
      Array([3., 3.], dtype=float32)

    A call looks at the arguments that are free alone. The trees and arrays that are bound count as they were when they
    were bound, and a function or another static value as in any call: a change of what it holds is seen. Of the objects
    of Flax that `partax.nnx.jit` changes in place, the Variables count as they are: new values by the function and by
    others; attributes that others set, as `model.eval()` does, once you bind anew, or a call in another mode has seen
    them. A callable object, and the instance of a method, are no arguments: they count as in any call. A call under a
    trace of jax's, and one with settings of jax that make its dispatch do more, is an ordinary one. It can be pickled.

    Args:
      args: the leading arguments.
      kwargs: others by their names.

    Returns:
      What is called with the remaining arguments. Its `rebind` puts others in the place of what is bound.

    Raises:
      TypeError: the function does not take them. When called: an argument is given that is bound.
      ValueError: when called, the call would give away an array that is bound, as `donate` says.
      RuntimeError: when called, an array that is bound has been deleted.
    """
    signature = signature_of(self.__wrapped__) or ANY_SIGNATURE
    try:
        signature.bind_partial(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{self.__name__}{signature} cannot be bound so: {error}") from None
    return _bound(self, args, kwargs)


def _bound(wrapper: JitFunction[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> BoundFunction[Any]:
    changes_objects = wrapper._options.graph is not None
    names = [*(signature_of(wrapper.__wrapped__) or ANY_SIGNATURE).parameters]
    args = tuple(_kept(names[min(i, len(names) - 1)], it, changes_objects) for i, it in enumerate(args))
    kwargs = {name: _kept(name, it, changes_objects) for name, it in kwargs.items()}
    callables = wrapper._function, wrapper.__self__
    keeps_callable = all(_as_now(it, changes_objects) is it for it in callables)  # else each call looks at them
    return _core.make_bound_function(wrapper, args, kwargs, keeps_callable)


def _kept(name: str, value: Any, changes_objects: bool) -> Any:
    try:
        return _as_now(value, changes_objects)
    except RecursionError:
        text = f"`{name}`: found a tree that is nested too deeply or contains itself, expected a finite, flatter tree"
        raise RecursionError(text) from None


def _as_now(value: Any, changes_objects: bool) -> Any:
    """A tree with containers, objects and arrays of its own where these may be changed; else the very same. Objects
    that the function itself changes count as they are.
    """
    if isinstance(value, np.ndarray):
        return value.copy()
    if type(value) is dict:
        return {key: _as_now(child, changes_objects) for key, child in value.items()}
    if type(value) is list:
        return [_as_now(child, changes_objects) for child in value]
    is_object = changes_objects and any(it.__module__.startswith("flax.nnx") for it in type(value).__mro__)
    level = None if is_object else flatten_one_level(value)
    if level is None:
        return value
    children = [_as_now(child, changes_objects) for child in level[0]]
    is_same = all(map(operator.is_, children, level[0]))
    if is_same and (value is None or is_frozen(type(value))):
        return value
    return one_level(value).unflatten(children)


def rebind(self: BoundFunction[Any], /, *args: Any, **kwargs: Any) -> BoundFunction[Any]:
    """The same with other values in the place of some that are bound.

    Example:
      >>> scale = partax.filter_jit(lambda by, x: by * x).bind(jnp.ones(2))
      >>> scale.rebind(by=jnp.full(2, 4.0))(jnp.ones(2))
      Array([4., 4.], dtype=float32)

    It does not trace where the static part is the same.

    Args:
      args: in the place of the leading ones.
      kwargs: by name, whether they were bound by name or by position.

    Returns:
      Another function; this one stays as it is.

    Raises:
      TypeError: what is named is not bound.
    """
    bound, keywords = list(self.args), self.keywords
    if len(args) > len(bound):
        raise TypeError(f"found {len(args)} arguments, expected at most {len(bound)}, as many as are bound")
    bound[: len(args)] = args
    signature = signature_of(self.func.__wrapped__) or ANY_SIGNATURE
    names = [it.name for it in signature.parameters.values() if it.kind <= it.POSITIONAL_OR_KEYWORD][: len(bound)]
    for name, value in kwargs.items():
        if name in names[: len(args)]:
            raise TypeError(f"found {name!r} by name and by position, expected one of both")
        if name in keywords:
            keywords[name] = value
        elif name in names:
            bound[names.index(name)] = value
        else:
            known = ", ".join(f"`{it}`" for it in (*names, *keywords)) or "none"
            raise TypeError(f"found {name!r}, expected the name of an argument that is bound: {known}")
    return _bound(self.func, tuple(bound), keywords)


def text(self: BoundFunction[Any]) -> str:
    given = [short_text(it) for it in self.args] + [f"{name}={short_text(it)}" for name, it in self.keywords.items()]
    return f"{self.func!r}.bind({', '.join(given)})"


def reduced(self: BoundFunction[Any]) -> Any:
    return _bound, (self.func, self.args, self.keywords)


def direct_run(target: Any, stored: Any, takes_tuple: bool, leaves: tuple[Any, ...], free: tuple[int, ...]) -> Any:
    """What `programs.direct_run` gives of the program that a call has run, which has given away what it donates. Called
    by the native wrapper after it.
    """
    if not programs.runs_compiled(leaves):
        return None
    arguments = (leaves,) if takes_tuple else leaves
    try:
        program = target.trace(*arguments).lower().compile() if stored is None else stored.choose(arguments)
    except RuntimeError:  # jax has run a program of other types, as for one that knew an unpickled array of weak type
        return None
    return programs.direct_run(program, leaves, free)


def refuse_donated(index: int) -> NoReturn:
    """Raises for a call that would give away a bound array, by its index. Called by the native wrapper before it."""
    described, _ = _core.describe_call()
    raise ValueError(
        f"`{leaf_paths(described)[index]}`: found an array that is bound and that the call would give away, expected "
        f"options that donate what is free alone; name it in `donate`"
    )
