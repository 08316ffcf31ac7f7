"""Guards the promise that calls of every kind are stored: nnx in place, several devices, own folders."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec
from user_modules import run

import partax
import partax.equinox
import partax.nnx
from partax._store.folder import Folder
from partax._store.records import read_record
from stored import written

pytestmark = [pytest.mark.compiled_anew, pytest.mark.filterwarnings("ignore::partax.RetraceWarning")]


def assert_loads(step: Any, call: Callable[[], Any], folder: Path, programs: int = 1) -> list[Any]:
    """Calls as a first process does, then as a second one; the results are the same."""
    results: list[Any] = []
    for loads in (0, programs):
        step.clear_cache()
        with partax.store(folder):
            results.append(call())
            written()
        info = step.cache_info()
        assert info.loads == loads and (info.traces > 0) == (loads == 0), info
    jax.tree.map(np.testing.assert_array_equal, results[0], results[1])
    return results


@pytest.mark.parametrize("stage", ["trace", "lower", "eval_shape", "precompile"])
def test_what_was_traced_without_a_call_is_stored_by_the_call(stage: str, tmp_path: Path) -> None:
    step = partax.filter_jit(lambda x, name: ({name: x * 2}, x))

    def call() -> Any:
        if not any(tmp_path.iterdir()):  # in the first process alone
            arguments = jax.ShapeDtypeStruct((3,), "float32"), "a"
            getattr(step, stage)(*((arguments,) if stage == "precompile" else arguments))
        return step(jnp.ones(3), "a"), step(jnp.ones(4), "a")

    assert_loads(step, call, tmp_path, programs=2)


@pytest.mark.parametrize("new", [lambda x: jnp.zeros(3), lambda x: x * 2, lambda x: x, lambda x: (x, jnp.arange(4))])
def test_programs_that_a_forwarded_array_places(new: Any, tmp_path: Path, devices: list[Any]) -> None:
    mesh = jax.sharding.Mesh(np.array(devices[:4]), ("a",))
    model = jax.device_put(jnp.ones((8, 4)), NamedSharding(mesh, PartitionSpec("a")))
    step = partax.filter_jit(lambda model, x: (model, new(x), "name"))
    for result in assert_loads(step, lambda: step(model, jnp.ones(3))[:2], tmp_path):
        assert result[0] is model
        assert all(x.committed and x.devices() == model.devices() for x in jax.tree.leaves(result))


# ---- Flax nnx, in place.


class Net(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.first, self.norm = nnx.Linear(3, 4, rngs=rngs), nnx.BatchNorm(4, rngs=rngs)
        self.drop, self.last = nnx.Dropout(0.5, rngs=rngs), nnx.Linear(4, 1, rngs=rngs)
        self.calls = nnx.Variable(jnp.zeros((), int))

    def __call__(self, x: Any) -> Any:
        self.calls[...] += 1
        return self.last(self.drop(self.norm(nnx.relu(self.first(x)))))


def loss_of(net: Any, x: Any) -> Any:
    return (net(x) ** 2).mean()


def update(net: Any, optimizer: Any, x: Any) -> Any:
    loss, gradient = nnx.value_and_grad(loss_of)(net, x)
    optimizer.update(net, gradient)
    return loss, net


@pytest.mark.parametrize("donated", [pytest.param((), marks=pytest.mark.slow), ("net", "optimizer")])
def test_a_step_of_nnx_changes_its_objects_in_place(donated: tuple[str, ...], tmp_path: Path) -> None:
    step = partax.nnx.jit(update, donate_argnames=donated)

    def call(step: Any) -> Any:
        net = Net(nnx.Rngs(0))
        optimizer = nnx.Optimizer(net, optax.sgd(1e-2, momentum=0.9), wrt=nnx.Param)
        for i in range(3):
            _, given = step(net, optimizer, jnp.full((5, 3), float(i)))
            assert given is net
        assert int(net.calls[...]) == int(optimizer.step[...]) == 3
        return nnx.to_pure_dict(nnx.state((net, optimizer), nnx.Not(nnx.RngKey)))

    found, _ = assert_loads(step, lambda: call(step), tmp_path)
    right = call(update)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3), found, right)


def test_what_a_function_of_nnx_deletes_is_deleted(tmp_path: Path) -> None:
    @partax.nnx.jit
    def drop(net: Any) -> None:
        del net.drop
        net.note = "dropped"

    def call() -> Any:
        net = Net(nnx.Rngs(0))
        drop(net)
        assert not hasattr(net, "drop") and net.note == "dropped"

    assert_loads(drop, call, tmp_path)


def test_another_graph_of_nnx_is_another_program(tmp_path: Path) -> None:
    @partax.nnx.jit
    def add(a: Any, b: Any) -> Any:
        a[...] += 1
        return b[...] * 2

    def call() -> Any:
        one, other = nnx.Param(jnp.ones(2)), nnx.Param(jnp.ones(2))
        return add(one, other), add(one, one)

    (apart, shared), _ = assert_loads(add, call, tmp_path, programs=2)
    assert np.allclose(apart, 2) and np.allclose(shared, 6)


# ---- Devices.


def mesh(*sizes: int) -> jax.sharding.Mesh:
    devices = np.array(jax.devices()[: int(np.prod(sizes))]).reshape(sizes)
    return jax.sharding.Mesh(devices, ("a", "b")[: len(sizes)])


def on(*names: str | None, sizes: tuple[int, ...] = (4,)) -> NamedSharding:
    return NamedSharding(mesh(*sizes), PartitionSpec(*names))


SHARDINGS = {
    "one axis": lambda: on("a"),
    "two axes": lambda: on("b", "a", sizes=(2, 4)),
    "copies": lambda: on(),
    "other devices": lambda: NamedSharding(jax.sharding.Mesh(np.array(jax.devices()[4:]), ("a",)), PartitionSpec("a")),
    "one device": lambda: jax.sharding.SingleDeviceSharding(jax.devices()[3]),
}


def test_arrays_that_lie_otherwise_have_programs_of_their_own(tmp_path: Path) -> None:
    f = partax.filter_jit(lambda tree, x: {"y": x @ tree["w"] * tree["k"], "w": tree["w"]})

    def call() -> Any:
        results: list[Any] = []
        for made in SHARDINGS.values():
            x = jax.device_put(jnp.arange(64.0).reshape(8, 8), made())
            found = f({"w": x, "k": 2}, x)
            assert found["w"] is x and found["y"].sharding.device_set == x.sharding.device_set
            np.testing.assert_allclose(found["y"], np.asarray(x) @ np.asarray(x) * 2, rtol=1e-5)
            results.append(found)
        return results

    first, second = assert_loads(f, call, tmp_path, programs=len(SHARDINGS))
    assert [it["y"].sharding for it in first] == [it["y"].sharding for it in second]


@pytest.mark.parametrize("donate", ["none", "all"])
def test_shardings_that_are_asked_for(donate: Any, tmp_path: Path) -> None:
    @partax.filter_jit(in_shardings=(on("a"), None), out_shardings=(on(None, "a"), on("a"), None), donate=donate)
    def f(x: Any, tree: Any) -> Any:
        return x * tree["k"], x + 1, tree

    def call() -> Any:
        x, extra = jnp.arange(16.0).reshape(4, 4), jnp.ones(2)
        wide, tall, tree = f(x, {"k": 3, "extra": extra})
        assert (wide.sharding, tall.sharding, tree["k"]) == (on(None, "a"), on("a"), 3)
        assert tree["extra"].committed and tree["extra"].devices() == wide.devices()
        return wide, tall, tree

    assert_loads(f, call, tmp_path)
    with partax.store(None):  # what the loaded program stands for can be made all the same
        assert np.allclose(f(jnp.ones((8, 4)), {"k": 3, "extra": jnp.ones(2)})[1], 2)
        lowered = f.lower(jax.ShapeDtypeStruct((4, 4), "float32"), {"k": 3, "extra": jnp.ones(2)})
        assert lowered.compile()(jnp.ones((4, 4)), {"k": 3, "extra": jnp.ones(2)})[0].sharding == on(None, "a")


# ---- Ways in.


def test_equinox_s_own_filter_jit(tmp_path: Path) -> None:
    said: list[str] = []
    model = eqx.nn.MLP(2, 1, 4, 1, key=jax.random.key(0))
    predict = lambda model, x: jax.vmap(model)(x)
    with partax.equinox.accelerate():
        for _ in range(2):
            with partax.store(tmp_path), partax.explain(), pytest.MonkeyPatch.context() as patch:
                patch.setattr("partax._store.programs.report_line", lambda _, text: said.append(text))
                step = eqx.filter_jit(predict)
                step(model, jnp.ones((3, 2)))
                written()
                for cache in partax._core.caches():
                    cache.clear()
    assert len(said) == 1 and "loaded from the store" in said[0]


def test_a_wrapper_s_own_folder_and_none(tmp_path: Path) -> None:
    double = lambda x: x * 2
    never, own = partax.filter_jit(double, store=False), partax.filter_jit(double, store=tmp_path / "own")
    nets = partax.nnx.jit(double, store=str(tmp_path / "nets"))
    for traces in (1, 0):
        for step in (never, own, nets):
            step.clear_cache()
            with partax.store(tmp_path / "others"):
                step(jnp.ones(3))
            written()
        assert (never.cache_info().traces, own.cache_info().traces, nets.cache_info().traces) == (1, traces, traces)
    assert list((tmp_path / "others").iterdir()) == []
    assert len(list((tmp_path / "own").glob("*.partax"))) == len(list((tmp_path / "nets").glob("*.partax"))) == 1
    own.clear_cache()
    own(jnp.ones(3))  # the switch is off
    assert own.cache_info().loads == 1
    assert pickle.loads(pickle.dumps(own._options)) == own._options
    with pytest.raises(TypeError, match=r"store=3, expected a folder"):
        partax.filter_jit(double, store=3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="found a `list`, expected a folder"):
        partax.store([])  # type: ignore[arg-type]
    for size in (0, float("nan"), "2GB"):
        with pytest.raises(ValueError, match=f"max_bytes={size!r}, expected a positive"):
            partax.store(tmp_path, max_bytes=size)  # type: ignore[arg-type]


# ---- What is told.


def test_loads_are_counted_and_in_the_report(tmp_path: Path) -> None:
    step = partax.filter_jit(lambda x, by: x * by)
    for _ in range(2):
        step.clear_cache()
        with partax.store(tmp_path):
            step(jnp.ones(3), 2)
            step(jnp.ones(3), 2)
        written()
    info, report = step.cache_info(), step.report()
    assert info == (1, 0, 1, 1, 4096, 1)
    (load,) = report.loads
    assert "test_what_is_stored.py:" in load.site
    (file,) = tmp_path.glob("*.partax")
    record = read_record(Folder(tmp_path, 1 << 30), file.stem)
    assert record is not None and load.saves == record["seconds"] > 0 and load.seconds > 0
    assert "1 loaded" in str(report) and f"loaded at {load.site}" in str(report)
    assert [it["site"] for it in json.loads(report.to_json())["loads"]] == [load.site]


CHANGES = {
    "'FACTOR' (global of module_of_the_user": ("FACTOR = 2", "FACTOR = 3"),
    "'helper' (global of module_of_the_user": ("x * FACTOR", "FACTOR * x"),
    "the setting jax_default_matmul_precision": ("", ""),
}


@pytest.mark.parametrize("what", CHANGES)
def test_explain_says_what_has_changed(what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = "import jax\nFACTOR = 2\ndef helper(x): return x * FACTOR\ndef f(x): return helper(x)\nmake = lambda: f"
    run(source, tmp_path, tmp_path / "store")
    with partax.explain(), caplog.at_level("WARNING", "partax"):
        if what.startswith("the setting"):
            with jax.default_matmul_precision("high"):
                run(source, tmp_path, tmp_path / "store")
        else:
            run(source.replace(*CHANGES[what]), tmp_path, tmp_path / "store")
    assert f"f: traced, since {what}" in caplog.text


# ---- Meshes that the code names, or that are set around it.

SPEC = PartitionSpec("a")
MESHES = (jax.devices()[:4], jax.devices()[4:], jax.devices()[3::-1])
CONSTRAINED: dict[str, Callable[[Any], Any]] = {
    "the set mesh": lambda x: jax.lax.with_sharding_constraint(x * 2, SPEC),
    "a global": lambda x: jax.lax.with_sharding_constraint(x * 2, MESH_OF_TESTS),
}


@pytest.mark.parametrize("function", CONSTRAINED.values(), ids=CONSTRAINED)
def test_a_mesh_of_other_devices_is_another_program(function: Callable[..., Any], tmp_path: Path) -> None:
    global MESH_OF_TESTS
    step, loads = partax.filter_jit(function), 0
    for devices in MESHES * 2:
        made = jax.sharding.Mesh(np.array(devices), ("a",))
        MESH_OF_TESTS = NamedSharding(made, SPEC)
        step.clear_cache()
        with partax.store(tmp_path), jax.set_mesh(made):
            found = step(jnp.arange(8.0))
            written()
        assert found.sharding == NamedSharding(made, SPEC)
        for shard in found.addressable_shards:
            assert int(shard.data[0]) == 4 * devices.index(shard.device)
        loads += step.cache_info().loads
    assert loads == len(MESHES)


def test_a_call_within_a_mesh_of_the_old_kind_is_not_stored(tmp_path: Path) -> None:
    step = partax.filter_jit(CONSTRAINED["the set mesh"])
    step.clear_cache()
    with partax.store(tmp_path):
        with pytest.warns(DeprecationWarning, match="with mesh"), jax.sharding.Mesh(np.array(MESHES[1]), ("a",)):
            assert step(jnp.arange(8.0)).sharding.device_set == set(MESHES[1])
        written()
    assert not any(tmp_path.glob("*.partax"))
