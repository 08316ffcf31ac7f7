"""Guards the promise that a re-created function of which something cannot be proven unchanged counts by identity, as in
`jax.jit`, and that the reason names the function and what cannot be proven.
"""

import io
import itertools
import os
import random
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
from counting import TraceCounter
from functions_counted import Applied
from trees import assert_same

pytestmark = pytest.mark.filterwarnings("ignore::partax.RetraceWarning")
x = jnp.arange(3.0)
rng = np.random.default_rng(0)
numbers = itertools.count()
large = np.zeros(1 << 18)  # 2 MiB
stream = io.StringIO("1")
lock = threading.Lock()


class Lazy:
    def __getattr__(self, name: str) -> float:
        return 2.0


class Metaclass(type):
    pass


class Made(metaclass=Metaclass):
    lr = 1.0


lazy, made = Lazy(), Made()
UNPROVEN: dict[str, tuple[Callable[[], Any], str]] = {
    "a generator of random numbers": (lambda: lambda x: x + 0 * rng.normal(), "'rng'"),
    "chance": (lambda: lambda x: x + 0 * random.random(), "random"),
    "an iterator": (lambda: lambda x: x + 0 * next(numbers), "'numbers'"),
    "a file": (lambda: lambda x: x + len(stream.getvalue()), "'stream'"),
    "a lock": (lambda: lambda x: next(x for _ in [lock]), "'lock'"),
    "a large NumPy array": (lambda: lambda x: x + large[0], "'large'"),
    "an object that makes up attributes": (lambda: lambda x: x * lazy.lr, "'lazy'"),
    "an object of a metaclass": (lambda: lambda x: x * made.lr, "'made'"),
    "the environment": (lambda: lambda x: x + 0 * len(os.environ), "os.environ"),
    "all globals": (lambda: lambda x: x + 0 * len(globals()), "globals"),
}


@pytest.mark.parametrize(("make", "culprit"), UNPROVEN.values(), ids=UNPROVEN)
def test_what_cannot_be_proven_is_traced_for_each_function(make: Callable[[], Any], culprit: str) -> None:
    step, kept = Applied(), make()
    for _ in range(3):
        step(kept, x)
    assert step.traces.count == 1
    other = make()
    for _ in range(2):
        step(other, x)
    assert step.traces.count == 2
    parts = ("<lambda> at test_by_identity.py:", "re-created", culprit, "cannot be proven unchanged")
    assert all(part in step.reason for part in parts), step.reason


def test_the_same_function_is_the_same_whatever_it_holds() -> None:
    """As in `jax.jit`: nothing that it holds is compared."""

    def counted(x: Any) -> Any:
        counted.calls += 1  # type: ignore[attr-defined]
        content.append(1)
        return x * content[0]

    for jit in (partax.filter_jit, jax.jit):
        content = [2.0]
        counted.calls = 0  # type: ignore[attr-defined]
        compiled = jit(lambda x: counted(x))
        assert_same(compiled(x), x * 2.0)
        content[0] = 5.0
        assert_same(compiled(x), x * 2.0)
        assert counted.calls == 1  # type: ignore[attr-defined]


def test_the_option_turns_it_off() -> None:
    traces = TraceCounter()

    def step(fn: Any, x: Any) -> Any:
        traces.tick()
        return fn(x)

    compiled = partax.filter_jit(step, reuse_equal_functions=False)
    first, second = (lambda x: x + 1 for _ in range(2))
    for fn in (first, second, first, second):
        assert_same(compiled(fn, x), x + 1)
    assert traces.count == 2


@pytest.mark.parametrize("wrong", ["identity", None, 1])
def test_a_wrong_option_is_an_error(wrong: Any) -> None:
    with pytest.raises(TypeError, match="reuse_equal_functions"):
        partax.filter_jit(lambda x: x, reuse_equal_functions=wrong)


def test_a_module_that_is_declared_pure_is_not_read() -> None:
    module = types.ModuleType("user_ops")
    exec("import itertools\ncount = itertools.count()\ndef op(x):\n    next(count)\n    return x * 2", vars(module))
    sys.modules["user_ops"] = module
    try:
        step = Applied()
        for _ in range(2):
            step((lambda op: lambda x: op(x))(module.op), x)
        assert step.traces.count == 2
        partax.declare_pure("user_ops")
        for _ in range(3):
            step((lambda op: lambda x: op(x))(module.op), x)
        assert step.traces.count == 3
    finally:
        del sys.modules["user_ops"]


def test_objects_that_raise_are_no_error() -> None:
    class Hostile:
        def __eq__(self, other: object) -> bool:
            raise KeyError("eq")

        __hash__ = None  # type: ignore[assignment]

    endless: list[Any] = []
    endless.append(endless)
    for content in (Hostile(), endless):
        step = Applied()
        for _ in range(3):
            assert_same(step((lambda held: lambda x: (held, x)[1])(content), x), x)
        assert step.traces.count <= 3
