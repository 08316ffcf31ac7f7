"""Guards the promise that each wrong use of steps is an error that names the place, and what was expected."""

import collections
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax

W, X, ONE = {"w": np.zeros(2, "f4")}, np.ones(2, "f4"), jnp.ones(2)


def add(state: Any, batch: Any) -> Any:
    return {"w": state["w"] + batch}, batch


ADD: Any = partax.filter_jit(add)
ONE_DEVICE = jax.sharding.SingleDeviceSharding(jax.devices()[0])
NAMES: Any = collections.namedtuple("NAMES", "y z")


def run(step: Any, *args: Any, over: Any = (X,) * 4, carry: Any = None, dynamic: Any = None, **kwargs: Any) -> Any:
    return lambda: list(
        partax.scan_steps(partax.filter_jit(step, dynamic=dynamic), 2, carry=carry)(*args, over=over, **kwargs)
    )


# What the error says, and the use.
TYPES: dict[str, Callable[[], Any]] = {
    "found a masked array in a batch": run(add, W, over=[X, np.ma.masked_array(X, [1, 0])]),
    "expected one for the batch": run(add, W, X),
    "`step`: found a `BoundFunction`, .* what is bound to": lambda: partax.scan_steps(ADD.bind(W), 2),  # type: ignore[arg-type]
    "`state`": run(add, W, carry={"state": 1}),
    r"`carry`: found \(0,\), expected names": run(add, W, carry=(0,)),
    "`carry`: found 5, expected names": run(add, W, carry=5),
    r"`carry`: found .*float64\[2\].*, expected names": run(add, W, carry=np.ones(2)),
    r"`s\['n'\]`: 'b' before a step, 'ba' after it": run(lambda s, b: ({**s, "n": s["n"] + "a"}, 1), {**W, "n": "b"}),
    r"`s\['w'\]`: float32\[2\] before a step, bfloat16\[2\] after": run(
        lambda s, b: ({"w": s["w"].astype("bfloat16"), "v": s["v"]}, 1), {"w": ONE, "v": ONE}
    ),
    "'extra'": run(add, W, extra=1),
    "'int' object is not iterable": run(add, W, over=3),
    "`over`: found a `str`": run(add, W, over="abcd"),
    r"`carry`: found \{'s': \[\[0\]\]\}": run(add, W, carry={"s": [[0]]}),
    r"`s\['b'\]`: nothing before a step, float32\[2\] after": run(lambda s, x: ({**s, "b": x}, 1), W),
    r"`a\['b'\]`: nothing before .*`result\['a'\]`": run(lambda a, o, x: {"a": {**a, "b": x}, "o": o}, W, {"v": X}),
    r"`s\['b'\]`: None before a step, float32\[2\] after it": run(lambda s, x: {**s, "b": x}, {**W, "b": None}),
    "batch 0: found the names 'x', expected `x` and `y`": run(lambda s, x, y: s, W, over=[{"x": X}]),
    "batch 0: found the names 'y', 'z', expected": run(lambda s, x, y: s, W, over=[NAMES(X, X)]),
    "`over`: found a `dict`": run(add, W, over=W),
    r"batch 1: `batch\['batch'\]`: found a `tuple`": run(add, W, over=[X, (X, 1)]),
    "batch 0: found a `ndarray`, expected a tuple of 2, for `x` and `y`": run(lambda s, x, y: s, W),
    "batch 0: found a `tuple` of 3, expected a tuple of 2": run(lambda s, x, y: s, W, over=[(X, X, X)]),
    r"function <lambda> at .*argument batch\['b'\]": run(lambda s, b: (s, 1 if b.sum() > 0 else 2), W),
}
VALUES: dict[str, Callable[[], Any]] = {
    r"`batch\['n'\]`: found int32\[\] .*, expected an array with a leading axis": run(
        lambda s, n: s, W, over=[2] * 4, dynamic=("n",)
    ),
    "`size`: found 0": lambda: partax.scan_steps(ADD, 0),
    "`size`: found 2.0": lambda: partax.scan_steps(ADD, 2.0),  # type: ignore[arg-type]
    "filter_shard": lambda: partax.scan_steps(partax.filter_jit(add, out_shardings=ONE_DEVICE), 2),
    "found 'model' in carry, expected names .*`state`": run(add, W, carry="model"),
    r"no `result\[3\]`": run(add, W, carry={"state": 3}),
    r"`result\[0\]` for `a` and `b`": run(lambda a, b, x: (a, b), W, W, carry={"a": 0, "b": [0]}),
    "structure and types of `s`, expected what": run(lambda s, b: ({"v": s["w"]}, 1), W, carry="s"),
    "found nothing in the result": run(lambda state, batch: batch, W),
    "`result\\[0\\]` of the type of 's', an array or scalars alone.*as carry={'s': 0}": run(
        lambda s, n, b: (s + b, 1), ONE, 1
    ),
    r"`result\[0\]` and `result\[1\]` of the structure and types of `s`": run(lambda s, b: (s, {"w": s["w"] * 2}), W),
    "and types of `a` or `b`.*as carry={'a': 0, 'b': 1}": run(lambda a, b, x: (a, b), W, W),
    "`result` of the structure and types of `a` or `b`": run(lambda a, b, x: a, W, W),
    "`result\\[1\\]` of the type of 'rates', an array or scalars alone": run(
        lambda s, rates, x: (s, [x.sum()]), W, [ONE[0]]
    ),
    "and types of `a` or `c`": run(lambda a, c, x: (c, a), W, W, carry=("a", "c")),
    "and types of `a` or `b`.*as carry={'a': 'a', 'b': 'b'}": run(lambda a, b, x: {"a": a, "b": b}, W, W),
    r"`result\[0\]` and `result\[1\]\['a'\]` of the structure and types of `a`": run(lambda a, x: (a, {"a": a}), W),
    "and types of `j` or `k`": run(lambda j, k, x: (k, j), *jax.random.split(jax.random.key(0))),
    "`result` and .* of `c` or `a`": run(lambda a, b, c, x: (a, b), W, [ONE], (W, [ONE])),
    "as carry={'key': 0, 'a': 1, 'b': 2}": run(
        lambda key, a, b, x: (key, a + x, b + 1), jax.random.key(0), ONE, jnp.array(1)
    ),
    "batch 1: .*float64": run(add, W, over=[X, np.ones(2)]),
    r"batch 1: .*: found float32\[\] of weak type, expected float32\[\], as in batch 0": run(
        add, W, over=[jnp.float32(1), jnp.asarray(1.0)]
    ),
}


@pytest.mark.parametrize("message", [*TYPES, *VALUES])
def test_wrong_uses_are_named(message: str) -> None:
    with pytest.raises(TypeError if message in TYPES else ValueError, match=message):
        (TYPES | VALUES)[message]()
