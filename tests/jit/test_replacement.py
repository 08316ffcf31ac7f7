"""Guards the promise that a program of plain JAX has `partax.jit` without an edit, and libraries keep `jax.jit`."""

import inspect
import os
import pickle
from pathlib import Path
from typing import Any

import cloudpickle
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from partax._core import JitFunction
from partax._jit.replacement import replace_jax_jit
from processes import PACKAGE, python


def double(x: Any) -> Any:
    """Doubles."""
    return x * 2


def uses() -> dict[str, Any]:
    f, x = jax.jit(double), jnp.ones(2)
    sizes = [f._cache_size(), f(x).size and f._cache_size(), f(x[:1]).size and f._cache_size(), f.clear_cache()]
    with pytest.raises(TypeError) as error:
        jax.jit(3)
    return {
        "stages": (f.lower(x).compile()(x), str(f.trace(x).jaxpr), f.eval_shape(x), isinstance(f, jax.stages.Wrapped)),
        "the size of the cache": (*sizes, f._cache_size()),
        "attributes": [getattr(f, f"__{name}__") for name in ("name", "doc", "module")],
        "signatures": (str(inspect.signature(f)), str(inspect.signature(jax.jit))),
        "in others": (jax.jit(lambda x: f(x) + 1)(x), jax.vmap(jax.grad(f))(x)),
        "exported and pickled": (jax.export.export(f)(x).call(x), pickle.loads(cloudpickle.dumps(f))(x)),
        "jit itself": pickle.loads(pickle.dumps(jax.jit)) is jax.jit,
        "an error": str(error.value),
    }


@pytest.mark.filterwarnings("ignore:backend and device argument")
def test_what_users_do_with_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = jax.tree.map(np.asarray, uses())
    monkeypatch.setattr(jax, "jit", jax.jit)  # which it is again when the test ends
    replace_jax_jit()
    assert str(jax.tree.map(np.asarray, uses())) == str(expected)
    wrappers = jax.jit(optax.l2_loss), jax.jit(static_argnums=0)(double), jax.jit(double, backend="cpu")
    assert [isinstance(wrapper, JitFunction) for wrapper in wrappers] == [True, True, False]


FILES = {
    "train.py": """
import argparse, functools, sys
import jax, jax.numpy as jnp
import library, model
parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
options = parser.parse_args(sys.argv[-2:])
@functools.partial(jax.jit, static_argnames="power", donate_argnums=0)
def step(weights, x, *, power):
    return weights - options.rate * jax.grad(lambda w: (model.predict(w, x) ** power).sum())(weights)
weights = step(jnp.ones(3), jnp.ones(3), power=2)
print(weights, model.predict(weights, 2.0), *[type(f).__name__ for f in (step, model.predict, library.double)])
""",
    "model.py": "from jax import jit\n@jit\ndef predict(w, x): return w * x",
    "site-packages/library.py": "import jax\n@jax.jit(inline=True)\ndef double(x): return x * 2",
    "site-packages/sitecustomize.py": f"import site\nfor _ in 'ab': site.addsitedir({str(PACKAGE)!r})  # as in a venv",
    "conftest.py": "def pytest_addoption(parser): parser.addoption('--rate')",
    "test_train.py": "def test_step(): import train",
}
WAYS: dict[str, tuple[list[str], dict[str, str]]] = {
    "run": (["-m", "partax", "run", "train.py"], {"PARTAX_STORE": "programs"}),
    "PARTAX_JAX": (["train.py"], {"PARTAX_STORE": "programs", "PARTAX_JAX": "1"}),
    "pytest": (["-m", "pytest", "-qs", "-pno:logging", "-ppartax.pytest", "test_train.py"], {"PARTAX_STORE": ""}),
}


@pytest.mark.parametrize("way", [*WAYS][:1] + [pytest.param(way, marks=pytest.mark.slow) for way in [*WAYS][1:]])
def test_a_second_process_traces_nothing(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site-packages").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site-packages"), prepend=os.pathsep)
    arguments, environment = WAYS[way]
    for traces, loads in ((3, 0), (0, 2)):
        done = python(*arguments, "--rate", "0.5", cwd=tmp_path, PARTAX_EXPLAIN="1", **environment)
        assert "[0. 0. 0.] [0. 0. 0.] JitFunction JitFunction PjitFunction" in done.stdout
        assert (done.stderr.count(": trace "), done.stderr.count(": loaded from")) == (traces, loads), done.stderr
