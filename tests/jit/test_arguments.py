"""filter_jit takes arguments as the function does: position and keyword share one trace, and thousands of arrays, which
jax gets as one tuple, are as any others; and
`filter_jit(..., dynamic=...)` traces the Python numbers that it names, and no others."""

import functools
import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conftest import TraceCounter
from odd_values import Unhashable
from partax import filter_jit, is_array, is_array_like
from partax._jit.build_target import _MANY
from trees import Layer, array, assert_same


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
    if name.startswith(("jax", "eqx")):
        calls = jax.tree.map(lambda n: array(1, start=n), calls)
    assert sum(like(plain, f, args, kwargs) for args, kwargs in calls) > 0


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


# ---- The option `dynamic`.


pytestmark = pytest.mark.filterwarnings("ignore::partax.RetraceWarning")  # the numbers are static on purpose


def seen(leaf: Any) -> str:
    """How a leaf looks inside a function."""
    return f"{leaf.aval.str_short()} {leaf.aval.weak_type}" if isinstance(leaf, jax.Array) else repr(leaf)


def looking(**options: Any) -> tuple[Any, list[Any]]:
    """A wrapper that gives back its first argument, and what its traces have seen."""
    looks: list[Any] = []

    def look(x: Any, y: Any = 2, *rest: Any, key: Any = 3, **more: Any) -> Any:
        looks.append(jax.tree.map(seen, (x, y, rest, key, more)))
        return x

    return filter_jit(look, reuse_equal_functions=False, **options), looks


@pytest.mark.parametrize("x", [1, True, 1.5, 1j, array(2), np.float32(1), [1, {"a": (2.0, None)}]], ids=str)
def test_array_like_leaves_are_traced_as_jax_jit_traces_them(x: Any) -> None:
    f, looks = looking(dynamic=is_array_like)
    result, expected = f(x), jax.jit(lambda x: x)(x)
    assert_same(result, expected)
    assert jax.tree.map(seen, result) == jax.tree.map(seen, expected) == looks[0][0]


def test_another_number_does_not_retrace_and_another_type_does() -> None:
    f, looks = looking(dynamic=is_array_like)
    for numbers, traces in (((1, 2, 3), 1), ((1.0, 2.5, float("nan"), -0.0), 2), ((True, False), 3), ((1j, 2j), 4)):
        for number in numbers:
            np.testing.assert_array_equal(f(number), number)
        assert len(looks) == traces
    assert f.cache_info().static_keys == 1
    f("text"), f(None)
    assert len(looks) == 6 and f.cache_info().static_keys == 3


@pytest.mark.parametrize(
    "predicate", [is_array, is_array_like, lambda leaf: isinstance(leaf, float), lambda leaf: leaf == 2]
)
def test_exactly_the_leaves_of_the_predicate_are_traced(predicate: Any) -> None:
    values = [1, True, 2, 2.0, 1.5, 1j, "a", array(2), Layer(array(2), rate=2.0)]
    for tree in (values, values[::-1], {"k": values}, (1, 2.0), (2.0, 1), (2.0, array(2))):
        f, looks = looking(dynamic=predicate)
        for _ in range(3):
            f(tree)
        assert len(looks) == 1
        for leaf, look in zip(jax.tree.leaves(tree), jax.tree.leaves(looks[0][0]), strict=True):
            assert ("[" in look) == (is_array(leaf) or bool(predicate(leaf))), (leaf, look)


def test_only_the_named_arguments_are_traced() -> None:
    f, looks = looking(dynamic=("y", "rest", "more"))
    for i in range(3):
        f(1, i, float(i), {"a": i}, key=3, more=i)
    for i in range(3):
        f(1, y=i)
    assert len(looks) == 2
    assert looks[0] == ("1", "int32[] True", ("float32[] True", {"a": "int32[] True"}), "3", {"more": "int32[] True"})
    f(2.0, 1)
    assert looks[-1][0] == "2.0"


def test_lowering_compiling_and_options(everywhere: Any) -> None:
    f = filter_jit(lambda x, n: (x * n, x), dynamic=is_array_like)
    compiled = f.lower(jax.ShapeDtypeStruct((2,), jnp.float32), 2).compile()
    for call, n in ((compiled, 2), (compiled, 3), (f, 5)):
        assert_same(call(array(2), n)[0], array(2) * n)
    with pytest.raises(TypeError, match="`n`"):
        compiled(array(2), 2.5)
    g = filter_jit(lambda x, n: x * n, dynamic=("n",), in_shardings=everywhere)
    for n in (5, 6):
        assert_same(g(array(2), n), array(2) * n)
    assert g.cache_info().traces == 1


def test_a_wrong_option_is_an_error() -> None:
    for wrong in (1, (), ("x", 2), {"x": 1}):
        with pytest.raises(ValueError, match="a predicate on leaves or a tuple of argument names"):
            filter_jit(lambda x: x, dynamic=wrong)
    with pytest.raises(ValueError, match=r"'z' in dynamic.*: x, y$"):
        filter_jit(lambda x, y: x, dynamic=("x", "z"))


def test_a_predicate_that_fails_or_asks_too_much_names_the_leaf() -> None:
    def fails(leaf: Any) -> bool:
        raise KeyError("no")

    with pytest.raises(KeyError) as caught:
        filter_jit(lambda tree: tree, dynamic=fails)({"a": [1]})
    assert "tree['a'][0]" in "".join(getattr(caught.value, "__notes__", []))
    with pytest.raises(TypeError, match=r"tree\['a'\]\[0\].*`str`"):
        filter_jit(lambda tree: tree, dynamic=lambda leaf: True)({"a": ["text"]})
