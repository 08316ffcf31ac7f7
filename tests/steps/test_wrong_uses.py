"""Guards the promise that each wrong use of steps is an error that names the place, and what was expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax

W = {"w": np.zeros(2, "f4")}
X = np.ones(2, "f4")


def add(state: Any, batch: Any) -> Any:
    return {"w": state["w"] + batch}, batch


def run(step: Any, *args: Any, over: Any = (X,) * 4, carry: Any = None, **kwargs: Any) -> Any:
    return list(partax.steps(partax.filter_jit(step), 2, carry=carry)(*args, over=over, **kwargs))


def to_bfloat16(state: Any, batch: Any) -> Any:
    return {"w": state["w"].astype("bfloat16"), "v": state["v"]}, 1


ONE_DEVICE = jax.sharding.SingleDeviceSharding(jax.devices()[0])
ADD: Any = partax.filter_jit(add)
WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no wrapper": (lambda: partax.steps(add, 2), TypeError, "`step`: found a `function`"),  # type: ignore[arg-type]
    "no size": (lambda: partax.steps(ADD, 0), ValueError, "`size`: found 0"),
    "a float": (lambda: partax.steps(ADD, 2.0), ValueError, "`size`: found 2.0"),  # type: ignore[arg-type]
    "shardings": (
        lambda: partax.steps(partax.filter_jit(add, out_shardings=ONE_DEVICE), 2),
        ValueError,
        "filter_shard",
    ),
    "an unknown name in carry": (
        lambda: run(add, W, carry="model"),
        ValueError,
        "found 'model' in carry, expected names .*`state`",
    ),
    "a place that is not there": (lambda: run(add, W, carry={"state": 3}), ValueError, r"no `result\[3\]`"),
    "a place of another structure": (lambda: run(add, W, carry={"state": 1}), TypeError, "`state`"),
    "one place for two": (
        lambda: run(lambda a, b, x: (a, b), W, W, carry={"a": 0, "b": [0]}),
        ValueError,
        r"`result\[0\]` for `a` and `b`",
    ),
    "a carry of no names": (lambda: run(add, W, carry=(0,)), TypeError, r"`carry`: found \(0,\), expected names"),
    "a carry that is none": (lambda: run(add, W, carry=5), TypeError, "`carry`: found 5, expected names"),
    "a carry that has no one truth": (
        lambda: run(add, W, carry=np.ones(2)),
        TypeError,
        r"`carry`: found .*float64\[2\].*, expected names",
    ),
    "nothing comes back": (lambda: run(lambda state, batch: batch, W), ValueError, "found nothing in the result"),
    "a static counter": (
        lambda: run(lambda s, b: ({**s, "n": s["n"] + "a"}, 1), {**W, "n": "b"}),
        TypeError,
        r"`s\['n'\]`: 'b' before a step, 'ba' after it, in `result\[0\]`",
    ),
    "another dtype comes back": (
        lambda: run(to_bfloat16, {"w": jnp.ones(2), "v": jnp.ones(2)}),
        TypeError,
        r"`state\['w'\]`: float32\[2\] before a step, bfloat16\[2\] after",
    ),
    "a named one that does not come back": (
        lambda: run(lambda s, b: ({"v": s["w"]}, 1), W, carry="s"),
        ValueError,
        "structure of `s`, which is in carry",
    ),
    "an array alone": (lambda: run(lambda s, b: (s + b, 1), jnp.ones(2)), ValueError, "`s`, which is an array alone"),
    "two places": (
        lambda: run(lambda s, b: (s, {"w": s["w"] * 2}), W),
        ValueError,
        r"`result\[0\]` and `result\[1\]` of the structure of `s`",
    ),
    "no parameter for the batch": (lambda: run(add, W, X), TypeError, "expected one left for the batch"),
    "an unknown argument": (lambda: run(add, W, extra=1), TypeError, "'extra'"),
    "values of *args": (lambda: run(lambda s, *more: s, W, 1), TypeError, r"`\*more`"),
    "all arrays alone, and a key beside": (
        lambda: run(lambda key, a, b, x: (key, a + x, b + 1), jax.random.key(0), jnp.ones(2), jnp.array(1)),
        ValueError,
        r"as carry=\('key', 'a', 'b'\)",
    ),
    "no iterable": (lambda: run(add, W, over=3), TypeError, "`over`: found a `int`"),
    "a dictionary": (lambda: run(add, W, over=W), TypeError, "`over`: found a `dict`"),
    "a batch of another shape": (
        lambda: run(add, W, over=[X, np.ones((1, 2), "f4")]),
        ValueError,
        r"batch 1: `batch\['batch'\]`: found float32\[1,2\], expected float32\[2\]",
    ),
    "a batch of another dtype": (lambda: run(add, W, over=[X, np.ones(2, "f8")]), ValueError, "batch 1: .*float64"),
    "a batch of weak type": (
        lambda: run(add, W, over=[jnp.float32(1), jnp.asarray(1.0)]),
        ValueError,
        r"batch 1: .*: found float32\[\] of weak type, expected float32\[\], as in batch 0",
    ),
    "a batch of another structure": (
        lambda: run(add, W, over=[X, (X, 1)]),
        TypeError,
        r"batch 1: `batch\['batch'\]`: found a `tuple`",
    ),
    "a batch that is no tuple": (
        lambda: run(lambda s, x, y: s, W),
        TypeError,
        "batch 0: found a `ndarray`, expected a tuple of 2: the step takes `x` and `y`",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_uses_are_named(name: str) -> None:
    use, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        use()
