"""Guards the promise that each wrong use of steps is an error that names the place, and what was expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax


def add(state: Any, batch: Any) -> Any:
    return {"w": state["w"] + batch}, batch


W = {"w": np.zeros(2, "f4")}
B = [np.ones(2, "f4")] * 4
WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no wrapper": (lambda: partax.steps(add, 2), TypeError, "`step`: found a `function`"),  # type: ignore[arg-type]
    "no size": (lambda: partax.steps(partax.filter_jit(add), 0), ValueError, "`size`: found 0"),
    "a float": (lambda: partax.steps(partax.filter_jit(add), 2.0), ValueError, "`size`: found 2.0"),  # type: ignore[arg-type]
    "shardings": (
        lambda: partax.steps(
            partax.filter_jit(add, out_shardings=jax.sharding.SingleDeviceSharding(jax.devices()[0])), 2
        ),
        ValueError,
        "filter_shard",
    ),
    "an unknown name in carry": (
        lambda: list(partax.steps(partax.filter_jit(add), 2, carry="model")(W, over=B)),
        ValueError,
        "found 'model' in carry, expected names .*`state`",
    ),
    "a place that is not there": (
        lambda: list(partax.steps(partax.filter_jit(add), 2, carry={"state": 3})(W, over=B)),
        ValueError,
        r"no `result\[3\]`",
    ),
    "a place of another structure": (
        lambda: list(partax.steps(partax.filter_jit(add), 2, carry={"state": 1})(W, over=B)),
        TypeError,
        "`state`",
    ),
    "one place for two": (
        lambda: list(
            partax.steps(partax.filter_jit(lambda a, b, x: (a, b)), 2, carry={"a": 0, "b": [0]})(W, W, over=B)
        ),
        ValueError,
        r"`result\[0\]` for `a` and `b`",
    ),
    "a carry of no names": (
        lambda: partax.steps(partax.filter_jit(add), 2, carry=(0,)),  # type: ignore[arg-type]
        TypeError,
        r"`carry`: found \(0,\), expected names",
    ),
    "a carry that is none": (
        lambda: partax.steps(partax.filter_jit(add), 2, carry=5),  # type: ignore[arg-type]
        TypeError,
        "`carry`: found 5, expected names",
    ),
    "a carry that has no one truth": (
        lambda: partax.steps(partax.filter_jit(add), 2, carry=np.ones(2)),  # type: ignore[arg-type]
        TypeError,
        r"`carry`: found .*float64\[2\].*, expected names",
    ),
    "nothing comes back": (
        lambda: list(partax.steps(partax.filter_jit(lambda state, batch: batch), 2)(W, over=B)),
        ValueError,
        "found nothing in the result",
    ),
    "another dtype comes back": (
        lambda: list(
            partax.steps(partax.filter_jit(lambda s, batch: ({"w": s["w"].astype("bfloat16"), "v": s["v"]}, 1)), 2)(
                {"w": jnp.ones(2), "v": jnp.ones(2)}, over=B
            )
        ),
        TypeError,
        r"`s\['w'\]`: float32\[2\] before a step, bfloat16\[2\] after",
    ),
    "a named one that does not come back": (
        lambda: list(partax.steps(partax.filter_jit(lambda s, b: ({"v": s["w"]}, 1)), 2, carry="s")(W, over=B)),
        ValueError,
        "structure of `s`, which is in carry",
    ),
    "an array alone": (
        lambda: list(partax.steps(partax.filter_jit(lambda s, b: (s + b, 1)), 2)(jnp.ones(2), over=B)),
        ValueError,
        "`s`, which is an array alone",
    ),
    "two places": (
        lambda: list(partax.steps(partax.filter_jit(lambda s, b: (s, {"w": s["w"] * 2})), 2)(W, over=B)),
        ValueError,
        r"`result\[0\]` and `result\[1\]` of the structure of `s`",
    ),
    "no parameter for the batch": (
        lambda: partax.steps(partax.filter_jit(add), 2)(W, B[0], over=B),
        TypeError,
        "expected one left for the batch",
    ),
    "an unknown argument": (
        lambda: partax.steps(partax.filter_jit(add), 2)(W, over=B, extra=1),
        TypeError,
        "'extra'",
    ),
    "values of *args": (
        lambda: partax.steps(partax.filter_jit(lambda s, *more: s), 2)(W, 1, over=B),
        TypeError,
        r"`\*more`",
    ),
    "all arrays alone, and a key beside": (
        lambda: list(
            partax.steps(partax.filter_jit(lambda key, a, b, x: (key, a + x, b + 1)), 2)(
                jax.random.key(0), jnp.ones(2), jnp.array(1), over=B
            )
        ),
        ValueError,
        r"as carry=\('key', 'a', 'b'\)",
    ),
    "no iterable": (lambda: partax.steps(partax.filter_jit(add), 2)(W, over=3), TypeError, "`over`: found a `int`"),
    "a dictionary": (lambda: partax.steps(partax.filter_jit(add), 2)(W, over=W), TypeError, "`over`: found a `dict`"),
    "a batch of another shape": (
        lambda: list(partax.steps(partax.filter_jit(add), 2)(W, over=[B[0], np.ones((1, 2), "f4")])),
        ValueError,
        r"batch 1: `batch\['batch'\]`: found float32\[1,2\], expected float32\[2\]",
    ),
    "a batch of another dtype": (
        lambda: list(partax.steps(partax.filter_jit(add), 2)(W, over=[B[0], np.ones(2, "f8")])),
        ValueError,
        "batch 1: .*float64",
    ),
    "a batch of weak type": (
        lambda: list(partax.steps(partax.filter_jit(add), 2)(W, over=[jnp.float32(1), jnp.asarray(1.0)])),
        ValueError,
        r"batch 1: .*: found float32\[\] of weak type, expected float32\[\], as in batch 0",
    ),
    "a batch of another structure": (
        lambda: list(partax.steps(partax.filter_jit(add), 2)(W, over=[B[0], (B[0], 1)])),
        TypeError,
        r"batch 1: `batch\['batch'\]`: found a `tuple`",
    ),
    "a batch that is no tuple": (
        lambda: list(partax.steps(partax.filter_jit(lambda s, x, y: s), 2)(W, over=B)),
        TypeError,
        "batch 0: found a `ndarray`, expected a tuple of 2: the step takes `x` and `y`",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_uses_are_named(name: str) -> None:
    use, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        use()
