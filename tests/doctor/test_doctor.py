"""`partax.doctor` examines any function from arrays or shapes, runs and allocates nothing, and tells what fails."""

import pickle
import resource
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import partax
from partax.reports import Diagnosis, Finding

W, X = jnp.ones((8, 8)), jnp.ones((4, 8))


class Model(eqx.Module):
    weight: Any
    layers: int = eqx.field(static=True)

    def __call__(self, x: Any) -> Any:
        for _ in range(self.layers):
            x = jnp.tanh(x @ self.weight)
        return x


def apply(model: Any, x: Any, scale: float = 1.0) -> Any:
    return model(x) * scale


def static_scale(model: Any, scale: float, *rest: Any, **named: Any) -> Any:
    return model["w"] * scale + rest[0] + named["last"][0]


MODEL = ["model.weight", "x"]
KINDS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], list[str]]] = {
    "function": (apply, (Model(W, 40), X), {}, MODEL),
    "filter_jit": (partax.filter_jit(apply), (Model(W, 40), X), {"scale": 2.0}, MODEL),
    "equinox": (eqx.filter_jit(apply), (Model(W, 40), X), {}, MODEL),
    "jax.jit": (jax.jit(static_scale, static_argnums=1, donate_argnums=0), ({"w": W}, 2.0, W), {"last": [W]},
        ["model['w']", "rest[0]", "last[0]"]),
    "of jax": (jnp.cumsum, (X,), {}, ["a"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_function_has_its_arguments_by_path(kind: str) -> None:
    function, args, kwargs, paths = KINDS[kind]
    diagnosis = partax.doctor(function, *args, **kwargs)
    assert diagnosis.program is not None
    assert [leaf.path for leaf in diagnosis.program.arguments] == paths
    arrays = [array for array in jax.tree.leaves((args, kwargs)) if eqx.is_array(array)]
    assert diagnosis.figures["argument_bytes"] == sum(array.nbytes for array in arrays)
    assert [leaf.donated for leaf in diagnosis.program.arguments] == [kind == "jax.jit"] + [False] * (len(paths) - 1)


def test_flax_functions() -> None:
    nnx = pytest.importorskip("flax.nnx", reason="Flax is not here")
    model = nnx.Linear(8, 8, rngs=nnx.Rngs(0))
    for jit in (nnx.jit, partax.nnx.jit):
        diagnosis = partax.doctor(jit(lambda model, x: model(x)), model, X)
        assert diagnosis.program is not None
        assert [leaf.path for leaf in diagnosis.program.arguments] == ["model.bias.value", "model.kernel.value", "x"]


def test_shapes_stand_for_arrays_and_nothing_is_allocated_or_run() -> None:
    ran: list[Any] = []

    def huge(weights: Any, rows: Any) -> Any:
        jax.debug.callback(ran.append, 1)
        return jnp.tanh(rows @ weights).sum()

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((8_563,), (54_203, 8_563))]
    diagnosis = partax.doctor(huge, *shapes)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert diagnosis.figures["argument_bytes"] == 4 * 8_563 * (1 + 54_203) > 10 * grown
    assert not ran


def test_the_method_of_a_wrapper_is_the_same() -> None:
    wrapped = partax.filter_jit(apply)
    by_method, by_function = wrapped.doctor(Model(W, 40), X), partax.doctor(wrapped, Model(W, 40), X)
    assert by_method.findings == by_function.findings
    assert [it.kind for it in by_method.findings] == ["repeat"]
    assert wrapped.cache_info().hits == 0


def test_compiling_gives_the_seconds_and_no_other_findings() -> None:
    plain, compiled = partax.doctor(apply, Model(W, 40), X), partax.doctor(apply, Model(W, 40), X, compile=True)
    assert float(compiled.figures["compile_seconds"]) > 0 and float(compiled.figures["lower_seconds"]) > 0
    assert "compile_seconds" not in plain.figures
    assert [it.kind for it in compiled.findings] == [it.kind for it in plain.findings]


def test_it_is_data_and_text() -> None:
    diagnosis = partax.doctor(apply, Model(W, 40), X)
    again = pickle.loads(pickle.dumps(diagnosis.findings))
    assert again == diagnosis.findings and type(again[0]) is Finding
    it, text = diagnosis.findings[0], str(diagnosis)
    assert all(part in text for part in (it.message, it.advice, it.severity, it.kind, it.where))
    assert isinstance(diagnosis, Diagnosis) and it.figures["repetitions"] == 40


def test_a_healthy_program_has_no_finding_and_says_so() -> None:
    diagnosis = partax.doctor(lambda x: jnp.tanh(x).sum(), X)
    assert diagnosis.findings == ()
    assert str(diagnosis).endswith("2 equations, nothing found")


def test_no_function() -> None:
    with pytest.raises(TypeError, match="found int, expected a function"):
        partax.doctor(3)  # type: ignore[arg-type]


def reads(x: Any) -> Any:
    return x if float(x[0, 0]) > 0 else -x


@pytest.mark.parametrize(
    ("function", "args", "error", "words"),
    [(reads, (X,), jax.errors.ConcretizationTypeError, "traced array"), (apply, (X, X, X, X), TypeError, "positional")],
)
def test_what_fails_to_trace_is_named_and_has_its_cause(function: Any, args: Any, error: Any, words: str) -> None:
    told = rf"`{function.__name__}` raised {error.__name__} when it was traced, which a call would raise too: .*{words}"
    with pytest.raises(TypeError, match=told) as raised:
        partax.doctor(function, *args)
    assert isinstance(raised.value.__cause__, error) and words in str(raised.value.__cause__)


def test_a_side_effect_on_an_argument_is_refused_as_in_a_call() -> None:
    def changes(state: dict[str, Any], x: Any) -> Any:
        state["x"] = x * 2
        return x

    state = {"x": X}
    partax.doctor(changes, state, X)
    assert state["x"] is X
