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

Sharding = NamedSharding


def plus(tree: Any) -> Any:
    return jax.tree.map(lambda x: x + 1, tree)


def test_a_single_sharding_holds_for_every_array(split: Sharding, traces: TraceCounter) -> None:
    @filter_jit(in_shardings=split)
    def f(x: Any, n: int, tree: Any) -> Any:
        traces.tick()
        return x * n, plus(tree["a"]), tree["name"]

    for _ in range(3):
        x, a, name = f(array(16), 3, {"a": array(8, 2), "name": "s"})
        assert has(x, split) and has(a, split)
        assert_same((x, a, name), (array(16) * 3, array(8, 2) + 1, "s"))
    assert traces.count == 1


def test_a_tuple_goes_by_position_in_the_signature(split: Sharding, everywhere: Sharding) -> None:
    @filter_jit(in_shardings=(split, everywhere, None))
    def f(x: jax.Array, y: jax.Array, n: int = 2) -> Any:
        return x * n, y * n

    for x, y in (f(array(8), array(8)), f(y=array(8), x=array(8)), f(array(8), n=2, y=array(8))):
        assert has(x, split) and has(y, everywhere)
        assert_same((x, y), (array(8) * 2, array(8) * 2))


def test_prefixes_go_into_containers_and_modules(split: Sharding, everywhere: Sharding) -> None:
    prefix = (make_model(1, start=1), {"x": split, "y": everywhere, "n": None}, [everywhere, split])
    model_prefix = jax.tree.map(lambda leaf: everywhere if eqx.is_array(leaf) else None, prefix[0])

    @filter_jit(in_shardings=(model_prefix, *prefix[1:]))
    def f(model: Any, batch: Any, rest: Any) -> Any:
        return plus(model.layers[0].weight), batch["x"] + batch["n"], plus(batch["y"]), plus(rest)

    batch = {"x": array(8), "y": array(8), "n": 5}
    weight, x, y, (a, b) = f(make_model(1), batch, [array(8), (array(8), {"k": array(16)})])
    assert has(weight, everywhere) and has(x, split) and has(y, everywhere) and has(a, everywhere)
    assert has(b[0], split) and has(b[1]["k"], split)
    assert_same((x, y), (array(8) + 5, array(8) + 1))


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda s: (s, {"x": s}), "batch"),
        (lambda s: ([s, s, s], None), "model"),
        (lambda s: (None, {"y": s, "x": s, "z": s}), "batch"),
        (lambda s: (None, (s, s)), "batch"),
    ],
)
def test_a_prefix_that_does_not_match_names_the_argument(split: Sharding, make: Any, name: str) -> None:
    f = filter_jit(lambda model, batch: plus(batch), in_shardings=make(split))
    for _ in range(2):
        with pytest.raises(ValueError, match=f"in_shardings(.|\n)*{name}|{name}(.|\n)*in_shardings"):
            f([array(8), array(8)], {"x": array(8), "y": array(8)})


@pytest.mark.parametrize(
    "leaf",
    [
        lambda devices: array(3),
        lambda devices: np.ones(3),
        lambda devices: array(),
        lambda devices: jax.device_put(array(8), devices[3]),
    ],
    ids=["indivisible", "indivisible, NumPy", "scalar", "committed elsewhere"],
)
@pytest.mark.parametrize("options", [{}, {"out_shardings": None}, {"donate": "all"}, {"donate": ("x",)}], ids=str)
def test_an_array_that_does_not_fit_is_named(
    split: Sharding, devices: list[Any], leaf: Any, options: dict[str, Any]
) -> None:
    if "out_shardings" in options:
        options = {"out_shardings": split}
    f = filter_jit(lambda tree, x: (tree, x), in_shardings=split, **options)
    bad = {"n": 1, "good": array(8), "w": leaf(devices)}
    for _ in range(2):
        with pytest.raises(
            ValueError, match=r"^`tree\['w'\]`: found float(32|64)\[.*\], expected .*JAX says: "
        ) as info:
            f(bad, array(8))
        assert isinstance(info.value.__cause__, ValueError)
    assert_same(f({**bad, "w": array(16)}, array(8))[0]["w"], array(16))


def test_numbers_that_are_traced_and_shapes_that_do_not_fit_are_named(split: Sharding) -> None:
    with pytest.raises(ValueError, match=r"^`rate`: found float64\[\], expected "):
        filter_jit(lambda x, rate: x * rate, trace=("rate",), in_shardings=split)(array(8), 0.5)
    for out in (None, split):
        f = filter_jit(lambda tree: tree, in_shardings=split, out_shardings=out)
        with pytest.raises(ValueError, match=r"^`tree\['w'\]`: found float32\[3\], expected "):
            f.lower({"w": jax.ShapeDtypeStruct((3,), jnp.float32)})


@pytest.mark.parametrize("both", [False, True], ids=["in", "in and out"])
def test_errors_of_the_function_are_left_as_they_are(split: Sharding, devices: list[Any], both: bool) -> None:
    @filter_jit(in_shardings=split, out_shardings=split if both else None)
    def f(x: Any) -> Any:
        raise ValueError("its own")

    for x in (array(8), jax.device_put(array(8), devices[3])):
        with pytest.raises(ValueError, match=r"^its own(\n|$)"):
            f(x)


def test_the_count_of_entries_is_that_of_the_user(split: Sharding) -> None:
    for length, told in (
        (1, "has 1 entry and none for the arrays of `x`;"),
        (4, r"has 4 entries, expected at most one for each argument \(n, x, m\)$"),
    ):
        f = filter_jit(lambda n, x, m=2: x * n * m, in_shardings=(split,) * length)
        for arguments in ((2, array(8)), (2, array(8), 3)):
            with pytest.raises(ValueError, match=f"^in_shardings {told}"):
                f(*arguments)


def test_a_prefix_of_the_result(split: Sharding, everywhere: Sharding) -> None:
    f = filter_jit(
        lambda x: (x + 1, 3, {"y": [x * 2, x * 3], "z": x}), out_shardings=(split, None, {"y": everywhere, "z": split})
    )
    first, n, rest = f(array(8))
    assert has(first, split) and n == 3 and has(rest["z"], split)
    assert has(rest["y"][0], everywhere) and has(rest["y"][1], everywhere)
    assert_same(first, array(8) + 1)


def test_only_a_result_without_sharding_is_forwarded(split: Sharding, devices: list[Any]) -> None:
    for sharding in (split, SingleDeviceSharding(devices[0])):
        f = filter_jit(lambda x, y: (x, y), out_shardings=(sharding, None))
        for _ in range(2):
            x, y = jax.device_put(array(8), devices[0]), jax.device_put(array(8, start=1), devices[0])
            if sharding is split:
                x, y = array(8), array(8, start=1)
            first, second = f(x, y)
            assert first is not x and has(first, sharding) and len(x.sharding.device_set) == 1
            assert second is y or sharding is split
            assert_same((first, second), (array(8), array(8, start=1)))


@pytest.mark.parametrize("bad", [lambda s: (s, s, s), lambda s: {"x": s}, lambda s: (s, [s, s])])
def test_an_out_prefix_that_does_not_match(split: Sharding, bad: Any) -> None:
    f = filter_jit(lambda x: (x + 1, x + 2), out_shardings=bad(split))
    for _ in range(2):
        with pytest.raises(ValueError, match="out_shardings"):
            f(array(8))


@pytest.mark.parametrize("jit", [filter_jit, partax.nnx.jit])
@pytest.mark.parametrize("kind", [tuple, list])
def test_a_tuple_for_a_single_result(jit: Any, kind: Any) -> None:
    name = kind.__name__
    message = (
        rf"^`the result`: found float32\[8\], expected the structure of out_shardings, which has a `{name}` with 1 "
        rf"child here; give its sharding without the `{name}`"
    )
    with pytest.raises(ValueError, match=message):
        jit(lambda x: x + 1, out_shardings=kind([None]))(array(8))
    with pytest.raises(ValueError, match=r"^`the result\['y'\]`: found an array, expected the structure of"):
        jit(lambda x: {"y": x + 1}, out_shardings={"y": kind([None])})(array(8))
    assert jit(lambda x: kind([x + 1]), out_shardings=kind([None]))(array(8))[0].shape == (8,)


@pytest.mark.parametrize("kind", [filter_jit, "nnx"])
@pytest.mark.parametrize("option", ["device", "backend"])
def test_the_options_that_jax_has_deprecated_work_and_say_so(option: str, kind: Any, devices: list[Any]) -> None:
    jit = pytest.importorskip("partax.nnx").jit if kind == "nnx" else kind
    value = devices[1] if option == "device" else "cpu"

    def function(x: Any) -> Any:
        return x, x + 1, jnp.arange(3)

    with pytest.warns(DeprecationWarning, match="device_put"):
        theirs = jax.jit(function, **{option: value})
    with pytest.warns(DeprecationWarning, match="SingleDeviceSharding") as told:
        ours = jit(function, **{option: value})
    assert [warning.filename for warning in told] == [__file__]
    with pytest.warns(DeprecationWarning, match="SingleDeviceSharding") as told:
        jit(**{option: value})(function)
    assert [warning.filename for warning in told] == [__file__]
    for x in (array(3), jax.device_put(array(3), devices[2]), jax.device_put(array(3), devices[1])):
        for mine, its in zip(ours(x), theirs(x), strict=True):
            assert_same(mine, its)
            assert mine.devices() == its.devices() and mine.committed
    with pytest.raises(ValueError, match="expected one of them"):
        jit(function, device=devices[0], backend="cpu")
    with pytest.raises(ValueError, match="expected one of them"):
        jit(function, in_shardings=SingleDeviceSharding(devices[0]), **{option: value})
