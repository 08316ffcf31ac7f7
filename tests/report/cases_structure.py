"""Guards the promise that another structure retraces, told by what came or went, and an equal one does not."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from retrace_case import OTHERS_WRONG, RAISES, Case, change

from counting import seen
from trees import Pair


class Twin(NamedTuple):
    left: Any
    right: Any


one = jnp.ones(())


def weighted(values: Any) -> Any:
    """A sum that tells the order."""
    return sum(i * value for i, value in enumerate(values))


CASES: list[Case] = [
    change("None -> array", lambda x, a: seen(x) + (a is None), None, one, "a: None -> float32"),
    change("array -> None, below", lambda x, a: seen(x) + (a["bias"] is None), {"bias": one}, {"bias": None},
        "a['bias']: float32 -> None"),
    change("longer list", lambda x, a: seen(x) + len(a), [one], [one, one], "a: list of 1 -> list of 2"),
    change("shorter list", lambda x, a: seen(x) + len(a), [one, one], [one], "a: list of 2 -> list of 1"),
    change("list -> tuple", lambda x, a: seen(x) + (type(a) is list), [one], (one,), "a: list of 1 -> tuple of 1"),
    change("`[]` -> `{}`", lambda x, a: seen(x) + (type(a) is list), [], {}, "a: list of 0 -> dict of 0"),
    change("a list in a list", lambda x, a: seen(x) + len(a) + len(jax.tree.leaves(a)), [one, one], [one, [one]],
        "a[1]: float32 -> list of 1"),
    change("keys of a dict in another order", lambda x, a: seen(x) + a["b"] - a["c"], {"b": one, "c": 2 * one},
        {"c": 2 * one, "b": one}),
    change("keys of an OrderedDict in another order", lambda x, a: seen(x) + weighted(a.values()),
        OrderedDict(b=one, c=2 * one), OrderedDict(c=2 * one, b=one),
        "a: OrderedDict in the order 'b', 'c' -> OrderedDict in the order 'c', 'b'"),
    change("dict -> defaultdict", lambda x, a: seen(x) + (type(a) is dict), {"b": one}, defaultdict(list, b=one),
        "a: dict of 1 -> defaultdict of 1"),
    change("a new key of a dict", lambda x, a: seen(x) + len(a), {"b": one}, {"b": one, "c": [one]},
        "a['c']: list of 1, which was not there"),
    change("a key of a dict is gone", lambda x, a: seen(x) + len(a), {"b": one, "c": one}, {"b": one},
        "a['c']: float32, which is there no more"),
    change("key 1 -> key '1' of a dict", lambda x, a: seen(x) + (1 in a), {1: one}, {"1": one},
        "a['1']: float32, which was not there; a[1]: float32, which is there no more"),
    change("key 1 -> key True of a dict", lambda x, a: seen(x) + len(repr(list(a))), {1: one}, {True: one},
        "a[True]: float32, which was not there; a[1]: float32, which is there no more", **OTHERS_WRONG),
    change("NamedTuple of another type", lambda x, a: seen(x) + isinstance(a, Pair), Pair(one, one), Twin(one, one),
        "a: Pair -> Twin"),
    change("array -> text, below", lambda x, a: seen(x) + isinstance(a["mode"], str), {"mode": one}, {"mode": "fast"},
        "a['mode']: float32 -> static str 'fast'", jax=RAISES),
]  # fmt: skip
