"""Guards the promise that `filter_jit(..., dynamic=...)` traces the Python numbers that it names, and no others."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from partax import filter_jit, is_array, is_array_like
from trees import Layer, array, assert_same

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
