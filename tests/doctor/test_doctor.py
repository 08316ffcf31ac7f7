"""`partax.doctor` examines any function from arrays or shapes, runs and allocates nothing, and names what fails;
and a page of its findings is one whole file, in which each finding is text and not code, and which needs no network
and no script."""

import dataclasses
import html
import pickle
import re
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from flax import nnx

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


def of_flax(model: Any, x: Any) -> Any:
    return model(x)


LINEAR = nnx.Linear(8, 8, rngs=nnx.Rngs(0))
KINDS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "function": (apply, (Model(W, 40), X), {}),
    "filter_jit": (partax.filter_jit(apply), (Model(W, 40), X), {"scale": 2.0}),
    "Equinox": (eqx.filter_jit(apply), (Model(W, 40), X), {}),
    "jax.jit": (jax.jit(static_scale, static_argnums=1, donate_argnums=0), ({"w": W}, 2.0, W), {"last": [W]}),
    "nnx": (nnx.jit(of_flax), (LINEAR, X), {}),
    "partax.nnx": (partax.nnx.jit(of_flax), (LINEAR, X), {}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_function_is_examined(kind: str) -> None:
    function, args, kwargs = KINDS[kind]
    diagnosis = partax.doctor(function, *args, **kwargs)
    arrays = [array for array in jax.tree.leaves((args, kwargs)) if eqx.is_array(array)]
    assert diagnosis.figures["argument_bytes"] == sum(array.nbytes for array in arrays)
    assert diagnosis.name == function.__name__


def test_shapes_replace_arrays_and_nothing_is_allocated_or_run() -> None:
    runs: list[Any] = []

    def huge(weights: Any, rows: Any) -> Any:
        jax.debug.callback(runs.append, 1)
        return jnp.tanh(rows @ weights).sum()

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((8_563,), (54_203, 8_563))]
    diagnosis = partax.doctor(huge, *shapes)
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert diagnosis.figures["argument_bytes"] == 4 * 8_563 * (1 + 54_203) > 10 * growth
    assert not runs


def test_compiling_gives_the_seconds_and_no_other_findings() -> None:
    plain, compiled = partax.doctor(apply, Model(W, 40), X), partax.doctor(apply, Model(W, 40), X, compile=True)
    assert float(compiled.figures["compile_seconds"]) > 0 and float(compiled.figures["lower_seconds"]) > 0
    assert "compile_seconds" not in plain.figures
    assert [finding.kind for finding in compiled.findings] == [finding.kind for finding in plain.findings] == ["repeat"]


def test_a_diagnosis_is_data_and_text() -> None:
    diagnosis = partax.doctor(partax.filter_jit(apply), Model(W, 40), X)
    again = pickle.loads(pickle.dumps(diagnosis.findings))
    assert again == diagnosis.findings and type(again[0]) is Finding
    (finding,), text = diagnosis.findings, str(diagnosis)
    assert all(
        part in text for part in (finding.message, finding.advice, finding.severity, finding.kind, finding.where)
    )
    assert isinstance(diagnosis, Diagnosis) and finding.figures["repetitions"] == 40


def reads(x: Any) -> Any:
    return x if float(x[0, 0]) > 0 else -x


@pytest.mark.parametrize(
    ("function", "args", "error", "words"),
    [(reads, (X,), jax.errors.ConcretizationTypeError, "traced array"), (apply, (X, X, X, X), TypeError, "positional")],
)
def test_what_fails_to_trace_is_named_and_has_its_cause(function: Any, args: Any, error: Any, words: str) -> None:
    with pytest.raises(TypeError, match=rf"`{function.__name__}` raised {error.__name__}.*{words}") as raised:
        partax.doctor(function, *args)
    assert isinstance(raised.value.__cause__, error)


# ---- The page.


HOSTILE = '<script>alert("1")</script> & {{ 7 * 7 }} \x00 \ud800'
FINDINGS = (
    Finding("repeat", "high", __file__, 3, "x = f(x)", "", {"count": 6, "share": 0.935}, "6 times.", "Use `scan`."),
    Finding("donation", "medium", "", 0, "", f"ws['{HOSTILE}']", {"saved_bytes": 98304}, HOSTILE, f"Mend {HOSTILE}."),
    Finding("host", "low", f"/a/{HOSTILE}.py", 3, HOSTILE, "x", {"note": HOSTILE}, "x" * 500, "Cast it."),
)


def source_and_text(diagnosis: Diagnosis, folder: Path) -> tuple[str, str]:
    """A page, which needs no network and no script, and its text without style and without the marks of code."""
    diagnosis.html(folder / "page.html")
    source = (folder / "page.html").read_text(encoding="utf-8")
    assert re.search(r"<(script|link|iframe|img)\b|<[^>]*\s(src|href|srcset|on\w+)=", source) is None
    text = re.sub(r"<style>.*?</style>|</?(code|strong)\b[^>]*>", "", source, flags=re.DOTALL)
    return source, " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())


def test_each_finding_is_there_as_text_the_worst_first(tmp_path: Path) -> None:
    diagnosis = partax.doctor(lambda x: x + 1, jnp.ones(256))
    diagnosis = dataclasses.replace(diagnosis, findings=FINDINGS, name=f"step {HOSTILE}")
    source, words = source_and_text(diagnosis, tmp_path)
    for finding in FINDINGS:
        for part in (finding.message, finding.advice, finding.source, finding.severity, finding.kind, finding.path):
            # Without what no page may hold, and without the marks of code.
            text = part.replace("\x00", "\ufffd").replace("\ud800", "\ufffd").replace("`", "")
            assert " ".join(text.split()) in words, part
    assert f"{Path(__file__).name}:3 " in words and "argument bytes: 1 KiB" in words
    assert "share: 94%" in words and "saved bytes: 96 KiB" in words
    assert re.findall(r'<article class="card (\w+)"', source) == ["high", "medium", "low"]


def test_a_healthy_program_has_no_finding_and_says_so(tmp_path: Path) -> None:
    diagnosis = partax.doctor(lambda x: jnp.tanh(x).sum(), X)
    assert diagnosis.findings == () and str(diagnosis).endswith("2 equations, nothing found")
    assert "Nothing was found" in source_and_text(diagnosis, tmp_path)[1]
