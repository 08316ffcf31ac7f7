"""Guards the promise that the doctor names operations that take a backend long, from the number on at which they do."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from examining import Call, floats, found_by, ints, marked

from partax._doctor.slow_operations import find

found = found_by(find)

X = floats(64, 64)


def scatters(count: int) -> Call:
    """Eight of them and a sum take a GPU 75 s."""

    def summed(x: Any, ix: Any) -> Any:
        for i in range(count):
            x = x.at[ix + i % 8].add(x[0] * (1.0 + i * 1e-4))  # here
        return jnp.sum(x)

    return summed, (X, ints())


def filled(count: int) -> Call:
    """A factorisation in a Python loop, 29 s."""

    def fill(x: Any) -> Any:
        for i in range(count):
            x = x.at[i % 60, i // 60].set(1.0 * i)  # here
        return x

    return fill, (X,)


def ladder(count: int) -> Call:
    def climb(x: Any, kind: Any) -> Any:
        chosen = x
        for i in range(count):
            chosen = jnp.where(kind == i, x * i, chosen)  # here
        return chosen

    return climb, (floats(100), ints(100))


def decomposed(decompose: Any, size: int = 4) -> Callable[[int], Call]:
    """Each of many small matrices by itself, in nested loops."""

    def make(count: int) -> Call:
        def each(matrices: Any) -> Any:
            return [decompose(matrices[i]) for i in range(count)]  # here

        return each, (floats(count, size, size),)

    return make


def switch(count: int) -> Call:
    branches = [lambda x, i=i: jnp.sin(x) + i for i in range(count)]

    def chosen(i: Any, x: Any) -> Any:
        return jax.lax.switch(i, branches, x)  # here

    return chosen, (ints(), floats())


def upsampled(kernel: int, stride: int) -> Call:
    def upsample(x: Any, weights: Any) -> Any:
        return jax.lax.conv_transpose(x, weights, strides=(stride, stride), padding="SAME")  # here

    return upsample, (floats(1, 8, 8, 16), floats(kernel, kernel, 16, 8))


def ordered(dtype: str) -> Callable[[int], Call]:
    def order(x: Any) -> Any:
        return jnp.argsort(x)  # here

    return lambda count: (order, (floats(count, dtype=dtype),))


# What is made of a number, the number from which it is found and of which severity, and the thread that shows it.
FOUND: list[tuple[Callable[[int], Call], int, str, int]] = [
    (scatters, 8, "medium", 39483), (scatters, 50, "high", 39483),
    (filled, 64, "medium", 2242), (ladder, 200, "medium", 20854),
    (decomposed(jnp.linalg.cholesky), 40, "medium", 20326), (decomposed(jnp.linalg.svdvals), 40, "medium", 20326),
    (switch, 48, "medium", 4453), (switch, 256, "high", 4453),
    (lambda kernel: upsampled(kernel, 16), 16, "low", 17464), (lambda stride: upsampled(16, stride), 8, "low", 17464),
    (ordered("int64"), 1 << 20, "low", 34912), (ordered("uint64"), 1 << 20, "low", 34912),
]  # fmt: skip


@pytest.mark.parametrize(("make", "fewest", "severity", "thread"), FOUND)
def test_each_is_found_from_a_number_on(make: Callable[[int], Call], fewest: int, severity: str, thread: int) -> None:
    with jax.enable_x64(True):
        (function, args), (one_less, others) = make(fewest), make(fewest - 1)
        (finding,), below = found(function, *args), found(one_less, *others)
    assert (finding.kind, finding.severity) == ("switch" if make is switch else "slow-op", severity)
    assert (finding.file, finding.line) == (__file__, marked(function))
    assert finding.figures["thread"] == f"https://github.com/jax-ml/jax/issues/{thread}"
    assert finding.figures.get("times", 1) == (fewest if thread not in (4453, 17464, 34912) else 1)
    assert [it.severity for it in below] == (["medium"] if severity == "high" else [])
    if make is switch:  # a sine and a sum each
        assert (finding.figures["branches"], finding.figures["equations"]) == (fewest, 2 * fewest)


SOUND: dict[str, Call] = {
    "scatters apart": (lambda x, ix: [x.at[ix + i].add(1.0) for i in range(20)], (X, ints())),
    "large matrices": decomposed(jnp.linalg.cholesky, 257)(40),
    "a batch": (jax.vmap(jnp.linalg.cholesky), (floats(40, 4, 4),)),
    "short integers": ordered("int32")(1 << 20),
    "floats": ordered("float64")(1 << 20),
}


@pytest.mark.parametrize("name", SOUND)
def test_what_is_none_of_them(name: str) -> None:
    function, args = SOUND[name]
    with jax.enable_x64(True):
        assert found(function, *args) == []


def test_a_solve_counts_what_is_compiled_of_it() -> None:
    def each(a: Any, b: Any) -> Any:
        return [jnp.linalg.solve(a[i], b[i]) for i in range(20)]

    (finding,) = found(each, floats(20, 4, 4), floats(20, 4, 4))
    # One factorisation and two triangular solves each; what their gradients would need is not compiled.
    assert finding.figures["times"] == 60
