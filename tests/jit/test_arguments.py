"""filter_jit takes arguments as the function does: position and keyword share one trace, and thousands of arrays, which
jax gets as one tuple, are as any others."""

import functools
import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from conftest import TraceCounter
from odd_values import Unhashable
from partax import filter_jit
from partax._jit.build_target import _MANY
from trees import array, assert_same


def test_position_and_keyword_share_one_trace_and_a_default_left_out_has_its_own(traces: TraceCounter) -> None:
    f, x = filter_jit(lambda x, n=2, *, shift=1: traces.seen(x) * n + shift), array(2)
    for y in (f(x, 2), f(x, n=2), f(n=2, x=x), f(x, 2)):
        assert_same(y, x * 2 + 1)
    assert traces.count == 1 and f.cache_info().static_keys == 1
    for y in (f(x), f(x=x)):
        assert_same(y, x * 2 + 1)
    assert traces.count == 2
    assert_same(f(x, n=3), x * 3 + 1)
    assert_same(f(x, 3), x * 3 + 1)
    assert traces.count == 3


def test_wrong_arguments_are_a_type_error_that_names_them() -> None:
    f = filter_jit(lambda x, n, k=0: (x, n, k), reuse_equal_functions=False)
    for args, kwargs, message in (
        ((), {"n": 1}, "'x'"),
        ((1, 2, 3, 4), {}, "positional argument"),
        ((1, 2), {"x": 1}, "'x'"),
        ((1, 2), {"other": 1}, "'other'"),
    ):
        with pytest.raises(TypeError, match=message):
            f(*args, **kwargs)
    assert f.cache_info().static_keys == 0 and f(1, n=2) == (1, 2, 0)


def original(x: Any, n: int = 2, *, shift: int = 1) -> Any:
    return x * n + shift


def wrapping(wrapper: Any) -> Any:
    return functools.wraps(original)(wrapper)


class CallsWithMore:
    """An instance with the signature of what it wraps, which it calls with one argument more."""

    __wrapped__ = staticmethod(original)

    def __call__(self, x: Any, extra: Any = 5, **more: Any) -> Any:
        return original(x, extra, **more)


class Made:
    def __init__(self, x: Any, n: int = 2) -> None:
        self.x, self.n = x, n


jax.tree_util.register_dataclass(Made, ["x", "n"], [])


WRAPPERS: dict[str, Any] = {
    "adds": wrapping(lambda extra, x, n=4, *, shift=0: (extra, original(x, n, shift=shift))),
    "keyword only": wrapping(lambda *, x, n=3: original(x, n)),
    "position only": lambda x, /, n=2, **more: (x, n, more),
    "anything": wrapping(lambda *args, **kwargs: (args, kwargs)),
    "anything by name": wrapping(lambda **kwargs: kwargs),
    "first and the rest": wrapping(lambda first, *args, **kwargs: (first, args, kwargs)),
    "partial of a wrapper": functools.partial(wrapping(lambda value, times: (value, times)), times=3),
    "instance": CallsWithMore(),
    "class": Made,
    "jax.jit": jax.jit(original, static_argnums=(), static_argnames=()),
    "jax.vmap": jax.vmap(original),
    "eqx.filter_vmap": eqx.filter_vmap(original),
}
# How many by position, and what by name.
CALLS: list[tuple[int, dict[str, int]]] = [
    *((count, {}) for count in range(4)),
    *((1, named) for named in ({"n": 2}, {"x": 1}, {"shift": 3}, {"other": 2})),
    *((0, named) for named in ({"x": 1}, {"n": 2, "x": 1}, {"value": 1, "times": 2}, {"extra": 1, "x": 2})),
]


def like(plain: Any, f: Any, args: Any, kwargs: Any) -> bool:
    """Whether the call gives a result, which is the same for both, rather than an error of one kind."""
    try:
        expected = plain(*args, **kwargs)
    except Exception as error:
        with pytest.raises(type(error)):
            f(*args, **kwargs)
        return False
    assert_same(jax.tree.map(jnp.asarray, f(*args, **kwargs)), jax.tree.map(jnp.asarray, expected))
    return True


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapper_is_called_by_its_own_parameters(name: str) -> None:
    plain = WRAPPERS[name]
    f = filter_jit(plain)
    calls = [([*range(1, count + 1)], named) for count, named in CALLS]
    arrays = jax.tree.map(lambda n: array(1, start=n), calls)
    assert sum(like(plain, f, args, kwargs) for args, kwargs in arrays) > 0


BAD = [Unhashable()]


def test_what_a_wrapper_takes_has_the_names_of_its_signature() -> None:
    f = filter_jit(WRAPPERS["anything"])
    for args, kwargs, path in (
        ((1, BAD), {}, "n[0]"),
        ((1,), {"shift": BAD}, "shift[0]"),
        ((), {"other": BAD}, "other[0]"),
    ):
        with pytest.raises(TypeError, match=re.escape(f"`{path}`")):
            f(*args, **kwargs)


def test_any_number_of_parameters() -> None:
    names = [f"p{i}" for i in range(65)]
    for parameters in (names, ["*", *names], [f"{name}=0" for name in names], [*names[:32], "*rest", *names[32:]]):
        plain = eval(f"lambda {', '.join(parameters)}: ({', '.join(names)})")
        f = filter_jit(plain)
        for count, named in ((32, names[32:]), (0, names[::-1]), (32, names[32:-1]), (65, ["p0"]), (0, [*names, "q"])):
            like(plain, f, range(count), {name: names.index(name) if name in names else 1 for name in named})


@pytest.fixture
def arrays() -> list[jax.Array]:
    """So many that jax gets them as one tuple."""
    return [array(2, start=float(i)) for i in range(_MANY + 1)]


def scaled(arrays: list[Any], n: float) -> Any:
    return [x * n for x in arrays[:3]], {"rest": arrays[3:]}, n


def test_results_traces_and_what_comes_back(arrays: list[jax.Array], traces: TraceCounter) -> None:
    f = filter_jit(lambda arrays, n: scaled(traces.seen(arrays), n))
    for n in (2.0, 3.0, 2.0, 3.0):
        found = f(arrays, n)
        assert_same(found, scaled(arrays, n))
        assert all(a is b for a, b in zip(found[1]["rest"], arrays[3:], strict=True))
    assert traces.count == 2
    f([array(3), *arrays[1:]], 2.0)
    assert traces.count == 3


def test_errors_name_the_array(arrays: list[jax.Array]) -> None:
    f = filter_jit(scaled)
    compiled = f.lower(arrays, 2.0).compile()
    f(arrays, 2.0)
    with pytest.raises(TypeError, match=r"`arrays\[7\]`: compiled for float32\[2\], called with float32\[3\]"):
        compiled([*arrays[:7], array(3), *arrays[8:]], 2.0)
    arrays[10].delete()
    with pytest.raises(RuntimeError, match="deleted") as error:
        f(arrays, 2.0)
    assert error.value.__notes__ == ["partax: it is `arrays[10]`, which the function returns"]
    with pytest.raises(TypeError, match=rf"`arrays\[{len(arrays)}\]`"):
        f([*arrays, Unhashable()], 2.0)
    with pytest.raises(jax.errors.TracerBoolConversionError, match=r"the argument arrays\[7\]"):
        filter_jit(lambda arrays: bool(arrays[7][0]))(arrays[:10] + arrays[11:])
