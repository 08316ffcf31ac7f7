"""filter_checkpoint: less memory for a gradient, for more work."""

from collections.abc import Callable, Sequence
from typing import Any

import jax

from partax._transforms.on_arrays import joined, on_arrays
from partax._transforms.wrapper import Transformed, transformation, wrapped

_Policy = Callable[..., Any] | str | None


class _Checkpoint(Transformed[..., Any]):
    """What `filter_checkpoint` returns."""

    _name = "filter_checkpoint"
    _is_called_as_wrapped = True

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        prevent_cse, policy, names = self._options
        if names:
            policy = jax.checkpoint_policies.save_only_these_names(*names)
        elif isinstance(policy, str):
            policy = getattr(jax.checkpoint_policies, policy)
        run, arrays = on_arrays(self.__wrapped__, args, kwargs)
        return joined(jax.checkpoint(run, prevent_cse=prevent_cse, policy=policy)(arrays))


@transformation
def filter_checkpoint(
    fun: Callable[..., Any] | None = None,
    *,
    prevent_cse: bool = True,
    policy: _Policy = None,
    names: Sequence[str] = (),
) -> Any:
    """`jax.checkpoint` for any trees: the gradient computes intermediate values again instead of keeping them.

    Example:
      >>> @partax.filter_checkpoint
      ... def layer(model, x):
      ...     return model["activation"](model["weight"] * x)
      >>> loss = lambda model, x: layer(model, x).sum()
      >>> partax.filter_grad(loss)({"weight": jnp.ones(2), "activation": jax.nn.relu}, jnp.array([1.0, 2.0]))
      {'activation': None, 'weight': Array([1., 2.], dtype=float32)}

    Args:
      fun: a function of any trees, with any result.
      prevent_cse: as of `jax.checkpoint`; False inside of a scan, which needs no such care.
      policy: which intermediate values to keep: a policy of `jax.checkpoint_policies`, or its name, such as
        `"dots_saveable"`. None: none.
      names: instead of a policy, the values to keep by the names that `jax.ad_checkpoint.checkpoint_name` gave them.

    Returns:
      A function of the same arguments with the same result. Without `fun`, a decorator.

    Raises:
      TypeError: `fun` is not callable, or `names` is a string.
      ValueError: `policy` is no name of a policy, or there are a policy and names.
    """
    if isinstance(names, str):
        raise TypeError(f"filter_checkpoint: found names={names!r}, expected a sequence of names")
    if names and policy is not None:
        raise ValueError("filter_checkpoint: found a policy and names, expected one of the two")
    if isinstance(policy, str) and not hasattr(jax.checkpoint_policies, policy):
        known = ", ".join(name for name in dir(jax.checkpoint_policies) if not name.startswith("_"))
        raise ValueError(f"filter_checkpoint: found the policy {policy!r}, expected one of {known}")
    return wrapped(_Checkpoint, (prevent_cse, policy, tuple(names)), fun)
