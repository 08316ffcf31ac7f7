"""Guards the promise that each wrong use of steps is an error that names the place, and what was expected."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import partax

W, X, ONE = {"w": np.zeros(2, "f4")}, np.ones(2, "f4"), jnp.ones(2)


def add(state: Any, batch: Any) -> Any:
    return {"w": state["w"] + batch}, batch


def two(state: Any, x: Any, y: Any) -> Any:
    return {"w": state["w"] + x + y}


def run(step: Any, *args: Any, over: Any = (X,) * 4, carry: Any = None, dynamic: Any = None, **kwargs: Any) -> Any:
    jitted = partax.filter_jit(step, dynamic=dynamic)
    return lambda: list(partax.scan_steps(jitted, 2, carry=carry)(*args, over=over, **kwargs))


def scan_steps(size: Any, step: Any = None, **options: Any) -> Any:
    return lambda: partax.scan_steps(partax.filter_jit(add, **options) if step is None else step, size)


# Uses by the message of the error.
SETTINGS: dict[str, Callable[[], Any]] = {
    "`size`: found 0": scan_steps(0),
    "filter_shard": scan_steps(2, out_shardings=ONE.sharding),
    "`step`: found a `function`, expected what": scan_steps(2, add),
    "`step`: found a `BoundFunction`, expected what": lambda: scan_steps(2, partax.filter_jit(add).bind(W))(),
    r"`carry`: found 's', expected a dictionary": run(add, W, carry="s"),
    "found 'model' in carry, expected names .*`state`": run(add, W, carry={"model": 0}),
    r"no `result\[3\]`": run(add, W, carry={"state": 3}),
    "'extra'": run(add, W, extra=1),
}
BATCHES: dict[str, Callable[[], Any]] = {
    "masked arrays": run(add, W, over=[X, np.ma.masked_array(X, [1, 0])]),
    "expected one for the batch": run(add, W, X),
    "`over`: found a `str`": run(add, W, over="abcd"),
    "batch 0: found {'x': .*, expected `x` and `y`": run(two, W, over=[{"x": X}]),
    r"batch 0: found .*float32\[2\].*, expected `x` and `y`": run(two, W),
    r"batch 0: found \(.*\), expected `x` and `y`": run(two, W, over=[(X, X, X)]),
    r"batch 1: `batch\['batch'\]`: found a `tuple`": run(add, W, over=[X, (X, 1)]),
    r"batch 1: `batch\['batch'\]`: found int32\[2\], expected float32\[2\]": run(add, W, over=[X, X.astype(int)]),
    r"batch 1: .*: found float32\[\] of weak type, expected float32\[\], as in batch 0": run(
        add, W, over=[jnp.float32(1), jnp.asarray(1.0)]
    ),
    r"function <lambda> at .*argument batch\['b'\]": run(lambda s, b: (s, 1 if b.sum() > 0 else 2), W),
}
# Results that are nearly an argument, which would be the same in each step.
CHANGED: dict[str, Callable[[], Any]] = {
    r"`carry\['state'\]`: .* before the step": run(add, W, carry={"state": 1}),
    r"`carry\['s'\]\['n'\]`: 'b' before the step, 'ba' after": run(
        lambda s, b: ({**s, "n": s["n"] + "a"}, 1), {**W, "n": "b"}, carry={"s": 0}
    ),
    "no part of the structure and types of `s`": run(lambda s, b: ({"w": s["w"].astype("bfloat16")}, 1), W),
    "no part of the structure and types of `a`.*carry={'o': 'o'}": run(
        lambda a, o, x: {"a": {**a, "b": x}, "o": o}, W, {"v": X}
    ),
    "no part of the structure and types of `state`": run(lambda state, batch: batch.sum(), W),
}
DOUBTS: dict[str, Callable[[], Any]] = {
    r"`result\[0\]` of the type of `s`, an array or scalars alone.*as carry=\{'s': 0, 'n': 1\}": run(
        lambda s, n, b: (s + b, 1), ONE, 1
    ),
    r"`result\[1\]` of the type of `rates`, an array or scalars alone": run(
        lambda s, rates, x: (s, [x.sum()]), W, [ONE[0]]
    ),
    r"`i`, an array or scalars alone, .* as carry=": run(
        lambda s, i, x: ({"w": s["w"] + i * x}, i + 1), W, 0, dynamic=("i",)
    ),
    r"`result\[0\]` and `result\[1\]` of the structure and types of `s`": run(lambda s, b: (s, {"w": s["w"] * 2}), W),
    r"and types of `a` or `b`.*as carry=\{'a': 0, 'b': 1\}": run(lambda a, b, x: (a, b), W, W),
    r"and types of `a` or `b`.*as carry=\{'a': 'a', 'b': 'b'\}": run(lambda a, b, x: {"a": a, "b": b}, W, W),
    "`result` of the structure and types of `a` or `b`": run(lambda a, b, x: a, W, W),
    r"`result\[0\]` and `result\[1\]\['a'\]` of the structure and types of `a`": run(lambda a, x: (a, {"a": a}), W),
}
USES = SETTINGS | BATCHES | CHANGED | DOUBTS


@pytest.mark.parametrize("message", USES)
def test_wrong_uses_are_named(message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        USES[message]()
