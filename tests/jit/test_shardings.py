"""in_shardings and out_shardings are prefixes of the user's own arguments and result."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, SingleDeviceSharding

import partax.nnx
from conftest import TraceCounter
from meshes import has
from partax import filter_jit
from trees import array, assert_same, make_model


def plus(tree: Any) -> Any:
    return jax.tree.map(lambda x: x + 1, tree)


def test_a_single_sharding_holds_for_every_array(split: NamedSharding, traces: TraceCounter) -> None:
    f = filter_jit(lambda x, n, tree: (traces.seen(x) * n, plus(tree["a"]), tree["name"]), in_shardings=split)
    for _ in range(3):
        x, a, name = f(array(16), 3, {"a": array(8, 2), "name": "s"})
        assert has(x, split) and has(a, split)
        assert_same((x, a, name), (array(16) * 3, array(8, 2) + 1, "s"))
    assert traces.count == 1


def test_a_tuple_goes_by_position_in_the_signature(split: NamedSharding, everywhere: NamedSharding) -> None:
    f = filter_jit(lambda x, y, n=2: (x * n, y * n), in_shardings=(split, everywhere, None))
    for x, y in (f(array(8), array(8)), f(y=array(8), x=array(8)), f(array(8), n=2, y=array(8))):
        assert has(x, split) and has(y, everywhere)
        assert_same((x, y), (array(8) * 2, array(8) * 2))


def test_prefixes_go_into_containers_and_modules(split: NamedSharding, everywhere: NamedSharding) -> None:
    of_model = jax.tree.map(lambda leaf: everywhere if eqx.is_array(leaf) else None, make_model(1))

    @filter_jit(in_shardings=(of_model, {"x": split, "y": everywhere, "n": None}, [everywhere, split]))
    def f(model: Any, batch: Any, rest: Any) -> Any:
        return plus(model.layers[0].weight), batch["x"] + batch["n"], plus(batch["y"]), plus(rest)

    batch = {"x": array(8), "y": array(8), "n": 5}
    weight, x, y, (a, b) = f(make_model(1), batch, [array(8), (array(8), {"k": array(16)})])
    assert has(weight, everywhere) and has(x, split) and has(y, everywhere) and has(a, everywhere)
    assert has(b[0], split) and has(b[1]["k"], split)
    assert_same((x, y), (array(8) + 5, array(8) + 1))


@pytest.mark.parametrize(
    ("option", "make", "told"),
    [
        ("in_shardings", lambda s: (s, {"x": s}), "batch"),
        ("in_shardings", lambda s: ([s, s, s], None), "model"),
        ("in_shardings", lambda s: (None, (s, s)), "batch"),
        ("in_shardings", lambda s: (s,), "^in_shardings has 1 entry and none for the arrays of `batch`;"),
        ("in_shardings", lambda s: (s,) * 3, r"^in_shardings has 3 entries, expected at most .* \(model, batch\)$"),
        ("out_shardings", lambda s: (s, s, s), "the result"),
        ("out_shardings", lambda s: (s, {"x": s, "y": [s]}), "the result"),
    ],
)
def test_a_prefix_that_does_not_match_is_named(split: NamedSharding, option: str, make: Any, told: str) -> None:
    f = filter_jit(lambda model, batch: (model[0], batch), **{option: make(split)})
    for _ in range(2):
        with pytest.raises(ValueError, match=f"(?s)(?=.*{option}).*{told}" if "^" not in told else told):
            f([array(8), array(8)], {"x": array(8), "y": array(8)})


@pytest.mark.parametrize(
    "leaf",
    [array(3), np.ones(3), array(), jax.device_put(array(8), jax.devices()[-1])],
    ids=["indivisible", "indivisible, NumPy", "scalar", "committed elsewhere"],
)
@pytest.mark.parametrize("options", [{}, {"out_shardings": None}, {"donate": "all"}, {"donate": ("x",)}], ids=str)
def test_an_array_that_does_not_fit_is_named(split: NamedSharding, leaf: Any, options: dict[str, Any]) -> None:
    options = {name: split if value is None else value for name, value in options.items()}
    f = filter_jit(lambda tree, x: (tree, x), in_shardings=split, **options)
    tree = {"n": 1, "good": array(8), "w": array(16)}
    for _ in range(2):
        with pytest.raises(ValueError, match=r"^`tree\['w'\]`: found float\d+\[.*\], expected .*JAX says: ") as info:
            f({**tree, "w": leaf}, array(8))
        assert isinstance(info.value.__cause__, ValueError)
    assert_same(f(tree, array(8))[0]["w"], array(16))


def test_numbers_that_are_traced_and_shapes_that_do_not_fit_are_named(split: NamedSharding) -> None:
    with pytest.raises(ValueError, match=r"^`rate`: found float64\[\], expected "):
        filter_jit(lambda x, rate: x * rate, trace=("rate",), in_shardings=split)(array(8), 0.5)
    for out in (None, split):
        f = filter_jit(lambda tree: tree, in_shardings=split, out_shardings=out)
        with pytest.raises(ValueError, match=r"^`tree\['w'\]`: found float32\[3\], expected "):
            f.lower({"w": jax.ShapeDtypeStruct((3,), jnp.float32)})


@pytest.mark.parametrize("both", [False, True], ids=["in", "in and out"])
def test_errors_of_the_function_are_left_as_they_are(split: NamedSharding, devices: list[Any], both: bool) -> None:
    @filter_jit(in_shardings=split, out_shardings=split if both else None)
    def f(x: Any) -> Any:
        raise ValueError("its own")

    for x in (array(8), jax.device_put(array(8), devices[3])):
        with pytest.raises(ValueError, match=r"^its own(\n|$)"):
            f(x)


def test_a_prefix_of_the_result(split: NamedSharding, everywhere: NamedSharding) -> None:
    f = filter_jit(
        lambda x: (x + 1, 3, {"y": [x * 2, x * 3], "z": x}), out_shardings=(split, None, {"y": everywhere, "z": split})
    )
    first, n, rest = f(array(8))
    assert has(first, split) and n == 3 and has(rest["z"], split) and all(has(y, everywhere) for y in rest["y"])
    assert_same(first, array(8) + 1)


def test_only_a_result_without_sharding_is_forwarded(split: NamedSharding, devices: list[Any]) -> None:
    for sharding in (split, SingleDeviceSharding(devices[0])):
        f = filter_jit(lambda x, y: (x, y), out_shardings=(sharding, None))
        for _ in range(2):
            x, y = array(8), array(8, start=1)
            if sharding is not split:
                x, y = jax.device_put((x, y), devices[0])
            first, second = f(x, y)
            assert first is not x and has(first, sharding) and len(x.sharding.device_set) == 1
            assert second is y or sharding is split
            assert_same((first, second), (array(8), array(8, start=1)))


@pytest.mark.parametrize("jit", [filter_jit, partax.nnx.jit])
@pytest.mark.parametrize("kind", [tuple, list])
def test_a_tuple_for_a_single_result(jit: Any, kind: Any) -> None:
    told = rf"which has a `{kind.__name__}` with 1 child here; give its sharding without the `{kind.__name__}`"
    with pytest.raises(ValueError, match=rf"^`the result`: found float32\[8\], .* out_shardings, {told}"):
        jit(lambda x: x + 1, out_shardings=kind([None]))(array(8))
    with pytest.raises(ValueError, match=r"^`the result\['y'\]`: found an array, expected the structure of"):
        jit(lambda x: {"y": x + 1}, out_shardings={"y": kind([None])})(array(8))
    assert jit(lambda x: kind([x + 1]), out_shardings=kind([None]))(array(8))[0].shape == (8,)


@pytest.mark.parametrize("jit", [filter_jit, partax.nnx.jit])
@pytest.mark.parametrize("option", ["device", "backend"])
def test_the_options_that_jax_has_deprecated_work_and_say_so(option: str, jit: Any, devices: list[Any]) -> None:
    options = {option: devices[1] if option == "device" else "cpu"}

    def function(x: Any) -> Any:
        return x, x + 1, jnp.arange(3)

    with pytest.warns(DeprecationWarning, match="device_put"):
        theirs = jax.jit(function, **options)
    for make in (lambda: jit(function, **options), lambda: jit(**options)(function)):
        with pytest.warns(DeprecationWarning, match="SingleDeviceSharding") as told:
            ours = make()
        assert [warning.filename for warning in told] == [__file__]
    for x in (array(3), jax.device_put(array(3), devices[2])):
        for mine, its in zip(ours(x), theirs(x), strict=True):
            assert_same(mine, its)
            assert mine.devices() == its.devices() and mine.committed
    for other in ({"device": devices[0], "backend": "cpu"}, {"in_shardings": SingleDeviceSharding(devices[0])}):
        with pytest.raises(ValueError, match="expected one of them"):
            jit(function, **options | other)
