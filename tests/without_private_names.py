"""Run by test_jax_private.py: takes names of jax away before partax is imported, then does what users do."""

from __future__ import annotations

import ast
import builtins
import collections
import contextlib
import dataclasses
import functools
import importlib.machinery
import importlib.util
import io
import itertools
import json
import logging
import os
import pathlib
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.export
import jax.numpy as jnp
import numpy as np

_FILE = "partax._jax.private"
_TOLD = tuple(f"/jax/core/compile/{it}_duration" for it in ("jaxpr_trace", "backend_compile"))
_asked: set[str] = set()  # the names that were asked for, and are gone


def private_names(*sources: str) -> list[str]:
    """All private names that the files use, by the text of their calls and their event names."""
    names: list[str] = []
    for node in (node for source in sources for node in ast.walk(ast.parse(source))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("_name", "_attribute"):
            named = node.args[0 if node.func.id == "_name" else 1]
            assert isinstance(named, ast.Constant), ast.unparse(node)
            names.append(named.value)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("/jax/"):
            names.append(node.value)
    return list(dict.fromkeys(names))


def take_away(names: list[str]) -> set[str]:
    """Hides names from all of partax, which is not imported yet; returns, as it goes on, those that were asked for."""
    asked = _asked
    by_attribute = {name.rpartition(".")[2]: name for name in names if not name.startswith("/")}

    def blind_getattr(owner: Any, name: str, *default: Any) -> Any:
        if name in by_attribute:
            asked.add(by_attribute[name])
            if default:
                return default[0]
            raise AttributeError(name)
        return builtins.getattr(owner, name, *default)

    class Loader(importlib.machinery.SourceFileLoader):
        def exec_module(self, module: Any) -> None:
            module.getattr = blind_getattr
            super().exec_module(module)

    class Finder:
        @staticmethod
        def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
            if name != _FILE:
                return None
            file = os.path.join(path[0], "private.py")
            return importlib.util.spec_from_loader(name, Loader(name, file))

    sys.meta_path.insert(0, Finder())  # type: ignore[arg-type]

    def renamed(listener: Callable[..., None]) -> Callable[..., None]:
        def hear(event: str, *args: Any, **kwargs: Any) -> None:
            if event in names:
                asked.add(event)
                event = f"/new{event}"
            listener(event, *args, **kwargs)

        return hear

    for register in ("register_event_duration_secs_listener", "register_event_listener"):
        real = getattr(jax.monitoring, register)
        setattr(jax.monitoring, register, lambda listener, real=real: real(renamed(listener)))

    return asked


# --- what users do: each gives what it has found, which is compared with what jax and Python say


class Layer(eqx.Module):
    weight: Any
    scale: float = eqx.field(static=True)
    name: Any = "layer"

    def __call__(self, x: Any) -> Any:
        return self.weight * x * self.scale


class Unset(eqx.Module):
    given: Any
    absent: Any


def unset(given: Any) -> Unset:
    made = object.__new__(Unset)
    object.__setattr__(made, "given", given)
    return made


class Point(NamedTuple):
    x: Any
    y: Any


class Swapped(NamedTuple):  # registered, with its fields the other way round
    first: Any
    second: Any


jax.tree_util.register_pytree_with_keys(
    Swapped,
    lambda it: ((("second", it.second), ("first", it.first)), None),
    lambda _, children: Swapped(children[1], children[0]),
    lambda it: ((it.second, it.first), None),
)


@jax.tree_util.register_pytree_with_keys_class
class Box:
    def __init__(self, content: Any, label: Any):
        self.content, self.label = content, label

    def tree_flatten_with_keys(self) -> Any:
        return ((jax.tree_util.GetAttrKey("content"), self.content),), self.label

    def tree_flatten(self) -> Any:
        return (self.content,), self.label

    @classmethod
    def tree_unflatten(cls, label: Any, children: Any) -> Any:
        return cls(children[0], label)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Pair:
    left: Any
    right: Any
    kind: str = dataclasses.field(metadata={"static": True}, default="plain")


class Late:
    def __init__(self, value: Any):
        self.value = value


_numbers = itertools.count()


def ticking(body: Callable[..., Any]) -> tuple[Callable[..., Any], str]:
    """A function that counts its traces in the standard library, and the name of the count."""
    name = f"ticks.{next(_numbers)}"
    records: list[Any] = []
    logging.getLogger(name).addFilter(lambda record: records.append(record) or False)

    @functools.wraps(body)
    def ticks(*args: Any, **kwargs: Any) -> Any:
        logging.getLogger(name).critical("")
        return body(*args, **kwargs)

    ticks.traces = lambda: len(records)
    return ticks, name


def same(a: Any, b: Any) -> None:
    """The same trees: type by type, and number by number."""
    assert jax.tree.structure(a) == jax.tree.structure(b), (a, b)
    for left, right in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert type(left) is type(right), (left, right)
        if isinstance(left, jax.Array) and jnp.issubdtype(left.dtype, jax.dtypes.prng_key):
            left, right = jax.random.key_data(left), jax.random.key_data(right)
        assert np.array_equal(left, right), (left, right)


def trees() -> list[Any]:
    x = jnp.arange(3.0)
    return [
        Layer(x, 2.0),
        {"b": x, "a": (x, None)},
        Point(x, [x]),
        Swapped(x, jnp.ones(2)),
        Box(x, ("label", 1)),
        Box({"in": Box(x, [1, 2])}, {"unhashable": 1}),
        Pair(x, Point(x, x), "other"),
        unset(x),
        eqx.filter_vmap(Layer(x, 2.0)),
        collections.OrderedDict(z=x, y=x),
        jax.random.key(0),
    ]


def doubled(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf * 2, tree)


def calls_of_each_family() -> None:
    import partax

    everything = trees()
    dynamic, static = eqx.partition(everything, eqx.is_array)
    expected = eqx.combine(jax.jit(doubled)(dynamic), static)
    body, _ = ticking(lambda them: eqx.combine(doubled(eqx.filter(them, eqx.is_array)), them))
    f = partax.filter_jit(body)
    for again in (everything, everything, trees()):
        same(f(again), expected)
    assert body.traces() == 1 and f.cache_info()[:4] == (1, 1, 2, 1)
    changed = [tree if not isinstance(tree, Box) else Box(tree.content, "another") for tree in everything]
    assert f(changed)[4].label == "another" and body.traces() == 2
    same(f(trees()), expected)
    assert body.traces() == 2
    ref = jax.new_ref(jnp.zeros(()))

    def add(ref: Any) -> None:
        ref[...] += 1

    f = partax.filter_jit(add)
    f(ref), f(ref)
    assert ref[...] == 2


def a_class_registered_later() -> None:
    import partax

    body, _ = ticking(lambda it, x: (x * 2, jax.tree.leaves(it)))
    f = partax.filter_jit(body)
    late, x = Late(2), jnp.arange(2.0)
    assert f(late, x)[1] == [late] and f(late, x)[1] == [late] and body.traces() == 1
    assert partax.partition(late, partax.is_array)[1] is late
    jax.tree_util.register_pytree_node(Late, lambda it: ((it.value,), None), lambda _, children: Late(children[0]))
    late.value = jnp.ones(2)
    same(f(late, x)[1], [late.value])
    late.value = late.value + 1
    same(f(late, x)[1], [late.value])
    assert body.traces() == 2
    same(partax.partition(late, partax.is_array)[0].value, late.value)


def aux_data_of_its_own() -> None:
    """A result's static part is the caller's own, also where jax's treedef holds another."""
    import partax

    f = partax.filter_jit(lambda box: box)
    first, second = Box(jnp.ones(2), [1, [2]]), Box(jnp.ones(2), [1, [2]])
    for box in (first, second):
        found = f(box)
        assert type(found) is Box and found.label == [1, [2]]
    assert f(second).label is second.label


def donation_and_shardings() -> None:
    import partax

    body, _ = ticking(lambda model, x: (Layer(model.weight + x, model.scale), x))
    f = partax.filter_jit(body, donate=("model",), max_traces=1)
    weight, x = jnp.ones(3), jnp.arange(3.0)
    found, same_x = f(Layer(weight, 2.0), x)
    assert weight.is_deleted() and same_x is x and body.traces() == 1, body.traces()
    np.testing.assert_array_equal(found.weight, 1 + np.arange(3.0))
    found, _ = f(found, x)
    np.testing.assert_array_equal(found.weight, 1 + 2 * np.arange(3.0))
    assert body.traces() == 1

    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("i",))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i"))
    body, _ = ticking(lambda x: {"y": x * 2, "n": 3})
    f = partax.filter_jit(body, out_shardings=split)
    for _ in range(2):
        found = f(jnp.arange(4.0))
        assert found["n"] == 3 and found["y"].sharding.is_equivalent_to(split, 1)
    assert body.traces() == 1
    f(jnp.arange(6.0))
    assert body.traces() == 2
    moved = partax.filter_shard({"a": jnp.arange(4.0), "b": 1}, split)
    assert moved["a"].sharding.is_equivalent_to(split, 1) and moved["b"] == 1
    inside = partax.filter_jit(lambda tree: partax.filter_shard(tree, split))(moved)
    assert inside["a"].sharding.is_equivalent_to(split, 1)
    host = partax.filter_jit(lambda a, b: (a, b * 2))(np.arange(3.0, dtype="float32"), moved["a"])[0]
    assert host.sharding.device_set == split.device_set
    free = partax.filter_jit(lambda a, b: (a, b * 2))(np.arange(3.0, dtype="float32"), jnp.ones(2))[0]
    assert not free.committed


def compiled_functions_as_statics() -> None:
    import partax

    def add(x: Any) -> Any:
        return x + 1

    body, _ = ticking(lambda g, x: g(x))
    f = partax.filter_jit(body)
    first, x = jax.jit(add), jnp.ones(2)
    for g in (first, first, jax.jit(add), jax.jit(add, keep_unused=True), first):
        same(f(g, x), x + 1)
    # Of one function and options, or told apart by identity where jax does not tell these.
    assert body.traces() in (2, 3), body.traces()


def the_command_line() -> None:
    import partax.__main__

    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder, "script.py")
        for command, told in (("explain", ("trace 1", "1 trace")), ("doctor", ("programs were compiled",))):
            function = f"lambda x: x * {len(command)}"
            script.write_text(f"import jax, partax\npartax.filter_jit({function})(jax.numpy.ones(2))\n")
            text = io.StringIO()
            with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text), contextlib.suppress(SystemExit):
                partax.__main__.main([command, str(script)])
            assert any(it in text.getvalue() for it in told) and "<lambda>" in text.getvalue(), text.getvalue()


def ahead_of_time() -> None:
    import partax

    body, _ = ticking(lambda tree, n: (tree.weight * n, n))
    f = partax.filter_jit(body)
    compiled = f.lower(Layer(jnp.ones(3), 2.0), 5).compile()
    for _ in range(3):
        value, n = compiled(Layer(jnp.ones(3), 2.0), 5)
        assert n == 5 and value.tolist() == [5.0, 5.0, 5.0]
    assert body.traces() == 1
    assert f.eval_shape(Layer(jnp.ones(3), 2.0), 5)[0].shape == (3,)
    with contextlib.suppress(TypeError):
        compiled(Layer(jnp.ones(3), 2.0), 6)
        raise AssertionError("another static value was taken")


def exported_and_serialized() -> None:
    from jax.experimental import serialize_executable

    import partax

    scale = partax.filter_jit(lambda tree, by: {"twice": tree["x"] * by})
    x = jnp.ones(3)
    loaded = serialize_executable.deserialize_and_load(
        *serialize_executable.serialize(scale.lower({"x": x}, 2).compile()), execution_devices=jax.devices()[:1]
    )
    same(loaded({"x": x}, None), {"twice": x * 2})
    same(jax.export.export(scale)({"x": x}, 2).call({"x": x}, None), {"twice": x * 2})


def errors_with_paths() -> None:
    import partax

    class Unhashable:
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return self is other

    cases: list[tuple[Any, str]] = [
        ({"model": Box([Unhashable()], 1)}, "tree['model'].content[0]"),
        (Layer(jnp.ones(2), 1.0, [Unhashable()]), "tree.name[0]"),
        (Point(1, {"k": Unhashable()}), "tree.y['k']"),
        (Pair(Unhashable(), 1), "tree.left"),
        ([np.array(["text"])], "tree[0]"),
    ]
    for tree, path in cases:
        try:
            partax.filter_jit(lambda tree: tree)(tree)
        except TypeError as error:
            assert path in str(error), (path, str(error))
        else:
            raise AssertionError(path)


def partitions() -> None:
    import partax

    for tree in trees():
        for one, other in (
            (partax.partition(tree, partax.is_inexact_array), eqx.partition(tree, eqx.is_inexact_array)),
            (partax.partition(tree, lambda leaf: eqx.is_array(leaf)), eqx.partition(tree, eqx.is_array)),
        ):
            same(one[0], other[0])
            same(one[1], other[1])
        same(partax.combine(*partax.partition(tree, partax.is_array)), tree)
        spec, arrays, rest = partax.flat_partition(tree, partax.is_array)
        same(partax.flat_combine(spec, arrays, rest), tree)
        assert list(arrays) == [jax.tree_util.keystr(path) for path, _ in _array_paths(tree)]
        spec, arrays, _ = partax.flat_partition(tree, partax.is_array, separator="/")
        assert list(arrays) == [jax.tree_util.keystr(p, simple=True, separator="/") for p, _ in _array_paths(tree)]
    box = {"w": Box(jnp.ones(1), 1), "v": Box(jnp.ones(1), 2)}
    chosen, _ = partax.partition(box, partax.by_path("w/*"))
    assert chosen["v"].content is None and chosen["w"].content is not None


def _array_paths(tree: Any) -> list[Any]:
    return [(p, leaf) for p, leaf in jax.tree_util.tree_flatten_with_path(tree)[0] if isinstance(leaf, jax.Array)]


@contextlib.contextmanager
def _log() -> Iterator[io.StringIO]:
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    logging.getLogger("partax").addHandler(handler)
    try:
        yield text
    finally:
        logging.getLogger("partax").removeHandler(handler)


def explanations() -> None:
    import partax
    import partax.debug

    @partax.filter_jit
    def step(tree: Any, n: Any) -> Any:
        return doubled(tree), n

    with _log() as log, partax.explain():
        step(Box(jnp.ones(2) * 1, 1), 1)
        step(Box(jnp.ones(3) * 1, 1), 1)
        step(Box(jnp.ones(3) * 1, 1), 2)
        step(jax.device_put(Box(jnp.ones(3) * 1, 1), jax.devices()[1]), 2)
    lines = log.getvalue().splitlines()
    assert "float32[2] -> float32[3]" in lines[1] and "tree.content" in lines[1], lines
    assert "n: " in lines[2] and "1 -> 2" in lines[2].replace("static int ", ""), lines
    tells_traces, tells_compiles = (event not in _asked for event in _TOLD)
    assert not tells_compiles or "compiled again" in lines[3], lines
    report = partax.report()
    own = next(function for function in report.functions if function.name.endswith("step"))
    assert sum(len(key.traces) for key in own.keys) == 3
    assert all(trace.trace_seconds > 0 for trace in own.traces)
    assert not tells_compiles or sum(trace.executables for trace in own.traces) >= 3
    assert "Box" in str(report)
    with partax.debug.no_retrace():
        step(Box(jnp.ones(3) * 1, 1), 2)
        for argument in (Box(jnp.ones(4) * 1, 1), jax.device_put(Box(jnp.ones(2) * 1, 1), jax.devices()[1])):
            try:
                step(argument, 1)
            except partax.RetraceError:
                continue
            assert not tells_compiles, "no_retrace has let a trace pass"
    limited = partax.debug.assert_max_traces(jax.jit(lambda x: x + 1), max_traces=1)
    try:
        limited(jnp.ones(2)), limited(jnp.ones(2)), limited(jnp.ones(3))
    except RuntimeError as error:
        assert isinstance(error, partax.RetraceError) or not tells_traces
    else:
        raise AssertionError("assert_max_traces has let a trace pass")

    def inside(x: Any) -> Any:
        return partax.debug.assert_max_traces(lambda x: x * 2, max_traces=None)(x)

    assert jax.jit(inside)(2.0) == 4


def files() -> None:
    if importlib.util.find_spec("safetensors") is None:
        return
    import partax

    tree = {"a": Layer(jnp.arange(3.0), 2.0), "key": jax.random.key(3), "b": Box(jnp.ones(2, "bfloat16"), 1)}
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "it.safetensors")
        partax.save(name, tree)
        found = partax.load(name, tree)
    same(found, tree)
    assert not found["a"].weight.committed


def stored_programs() -> None:
    from jax.experimental.compilation_cache import compilation_cache

    import partax

    def add(key: Any, x: Any) -> Any:
        return jax.random.key_data(key)[0] + x

    step, key, x = partax.filter_jit(add), jax.random.key(5), jnp.float32(2)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a program of jax's cache may be stored and not run
        compilation_cache.reset_cache()
        jax.config.update("jax_compilation_cache_dir", f"{folder}/jax")
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        for store in ("first", "second", "first", "second"):
            with partax.store(f"{folder}/{store}"):
                step.clear_cache()
                for _ in range(3):
                    same(step(key, x), add(key, x))
                for thread in threading.enumerate():
                    if thread.name == "partax store":
                        thread.join()
        jax.config.update("jax_compilation_cache_dir", None)
        compilation_cache.reset_cache()


def bound_arguments() -> None:
    import partax

    step, x = partax.filter_jit(lambda layer, x, by: (layer(x) * by, layer)), jnp.ones(3)
    layer = Layer(jnp.arange(3.0), 2.0)
    bound = step.bind(layer, by=3)
    for _ in range(3):
        same(bound(x), step(layer, x, 3))
        same(jax.vmap(lambda x: bound(x)[0])(jnp.ones((2, 3))), jnp.stack([layer(x) * 3] * 2))
    same(bound.rebind(layer=Layer(x, 2.0))(x), step(Layer(x, 2.0), x, 3))


def transformations() -> None:
    import partax

    def loss(layer: Any, x: Any) -> Any:
        return jnp.sum(layer(x) ** 2)

    layer, x = Layer(jnp.arange(3.0), 2.0), jnp.ones(3)
    same(partax.filter_grad(loss)(layer, x), eqx.filter_grad(loss)(layer, x))
    f = partax.filter_jit(lambda x: x * 2)
    same(jax.vmap(f)(x), x * 2)
    same(jax.jit(f)(x), x * 2)


def code_of_equinox() -> None:
    import partax.equinox

    def checked(x: Any) -> Any:
        return jnp.sin(eqx.error_if(x, x < 0, "x must be positive"))

    ours = partax.filter_jit(checked)
    assert ours(jnp.ones(())).shape == ()
    try:
        ours(-jnp.ones(()))
    except eqx.EquinoxRuntimeError as error:
        assert "x must be positive" in str(error)
    else:
        raise AssertionError("no error")

    theirs, x = eqx.filter_jit(lambda layer, x: layer(x)), jnp.ones(3)
    expected = theirs(Layer(x, 2.0), x)
    before = eqx.filter_jit, eqx.partition, vars(type(theirs))["__call__"]
    with partax.equinox.accelerate():
        assert eqx.partition is partax.partition
        for jitted in (theirs, eqx.filter_jit(lambda layer, x: layer(x))):
            for _ in range(2):
                same(jitted(Layer(x, 2.0), x), expected)
    assert before == (eqx.filter_jit, eqx.partition, vars(type(theirs))["__call__"])


SCENARIOS = (
    calls_of_each_family,
    a_class_registered_later,
    aux_data_of_its_own,
    donation_and_shardings,
    compiled_functions_as_statics,
    ahead_of_time,
    exported_and_serialized,
    errors_with_paths,
    partitions,
    explanations,
    files,
    stored_programs,
    bound_arguments,
    transformations,
    code_of_equinox,
    the_command_line,
)


def outcome(names: list[str]) -> dict[str, Any]:
    """Does it all without these names."""
    asked = take_away(names)
    failures: list[str] = []
    for scenario in SCENARIOS:
        try:
            scenario()
        except BaseException:
            failures.append(f"{scenario.__name__}\n{traceback.format_exc()}")
    return {"failures": failures, "asked": sorted(asked)}


def main() -> None:
    """Reads lists of names, one a line; answers each from a process of its own, forked before jax has done anything."""
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", message=".*fork.*")
    for line in sys.stdin:
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.close(reading)
            data = json.dumps(outcome(json.loads(line)))
            with os.fdopen(writing, "w") as pipe:
                pipe.write(data)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            answer = pipe.read()
        os.wait()
        print(answer or json.dumps({"failures": ["the process has died"], "asked": []}), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    main()
