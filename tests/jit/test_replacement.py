"""Guards the promise that a program of plain JAX has `partax.jit` without an edit, and libraries keep `jax.jit`."""

import functools
import inspect
import os
import pickle
from collections.abc import Callable
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


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "jit", jax.jit)  # which it is again when the test ends
    replace_jax_jit()


def double(x: Any) -> Any:
    """Doubles."""
    return x * 2


double.unit = "m"  # type: ignore[attr-defined]


class Scaled:
    def by(self, x: Any) -> Any:
        return x * 3


def in_module(name: str, code: str) -> Any:
    scope: dict[str, Any] = {"__name__": name, "double": double}
    exec(code, scope)
    return scope["f"]


MADE: dict[str, tuple[bool, Callable[[], Any]]] = {
    "plain": (True, lambda: jax.jit(double)),
    "options": (True, lambda: jax.jit(static_argnums=0)(double)),
    "partial": (True, lambda: functools.partial(jax.jit, static_argnames="x")(double)),
    "a function of a library": (True, lambda: jax.jit(optax.l2_loss)),
    "from jax import jit": (True, lambda: in_module("of_user", "from jax import jit\n@jit\ndef f(x): return x")),
    "in a library": (False, lambda: in_module("optax.own", "import jax\nf = jax.jit(double)")),
    "in a library, with options": (False, lambda: in_module("optax", "import jax\nf = jax.jit(inline=True)(double)")),
    "an option that partax.jit does not have": (False, lambda: jax.jit(double, backend="cpu")),
}


@pytest.mark.parametrize("name", MADE)
@pytest.mark.filterwarnings("ignore:backend and device argument")
@pytest.mark.usefixtures("replaced")
def test_whose_function_it_is(name: str) -> None:
    assert isinstance(MADE[name][1](), JitFunction) == MADE[name][0]


def generate(x: Any) -> Any:
    yield x


def error_of(fun: Any, static_argnums: Any) -> str:
    with pytest.raises((TypeError, ValueError)) as error:
        jax.jit(fun, static_argnums=static_argnums)
    return str(error.value)


def cache_size(f: Any) -> list[int]:
    sizes = [f(jnp.ones(2)).size and f._cache_size(), f(jnp.ones(3)).size and f._cache_size()]
    f.clear_cache()
    return [*sizes, f._cache_size()]


USES: dict[str, Callable[[], Any]] = {
    "compiled": lambda: jax.jit(double).lower(1.0).compile()(2.0),
    "the trace": lambda: str(jax.jit(double).trace(jnp.ones(2)).jaxpr),
    "eval_shape": lambda: jax.jit(double).eval_shape(jnp.ones(2)).shape,
    "the size of the cache": lambda: cache_size(jax.jit(lambda x: x * 3)),
    "Wrapped": lambda: isinstance(jax.jit(double), jax.stages.Wrapped),
    "attributes": lambda: [getattr(jax.jit(double), f"{name}") for name in ("__name__", "__doc__", "unit")],
    "the signature": lambda: str(inspect.signature(jax.jit(double))),
    "in another one": lambda: jax.jit(lambda x: jax.jit(double)(x) + 1)(2.0),
    "grad and vmap": lambda: jax.vmap(jax.grad(jax.jit(double)))(jnp.ones(2)),
    "a static self": lambda: jax.jit(Scaled.by, static_argnums=0)(Scaled(), 2.0),
    "a method": lambda: jax.jit(Scaled().by)(2.0),
    "pickled": lambda: pickle.loads(cloudpickle.dumps(jax.jit(double)))(2.0),
    "exported": lambda: jax.export.export(jax.jit(double))(jnp.ones(2)).call(jnp.ones(2)),
    "wrong options": lambda: [error_of(*wrong) for wrong in ((3, None), (generate, None), (double, 3), (double, "y"))],
    "jit itself": lambda: (pickle.loads(pickle.dumps(jax.jit)) is jax.jit, str(inspect.signature(jax.jit))),
}


@pytest.mark.parametrize("name", USES)
def test_what_users_do_with_the_result(name: str, request: pytest.FixtureRequest) -> None:
    expected = USES[name]()
    request.getfixturevalue("replaced")
    assert str(jax.tree.map(np.asarray, USES[name]())) == str(jax.tree.map(np.asarray, expected))


FILES = {
    "train.py": """
import argparse, functools
import jax, jax.numpy as jnp
import library, model

@functools.partial(jax.jit, static_argnames="power", donate_argnums=0)
def step(weights, x, *, power):
    return weights - options.rate * jax.grad(lambda w: (model.predict(w, x) ** power).sum())(weights)

def main(arguments=None):
    global options
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float)
    options = parser.parse_args(arguments)
    weights = step(jnp.ones(3), jnp.ones(3), power=2)
    print(weights, model.predict(weights, 2.0), *[type(f).__name__ for f in (step, model.predict, library.double)])

if __name__ == "__main__":
    main()
""",
    "model.py": "from jax import jit\n@jit\ndef predict(w, x): return w * x",
    "site-packages/library.py": "import jax\n@jax.jit\ndef double(x): return x * 2",
    "site-packages/sitecustomize.py": f"import site\nfor _ in 'ab': site.addsitedir({str(PACKAGE)!r})  # as in a venv",
    "test_train.py": "import train\ndef test_step(): train.main(['--rate', '0.5'])",
}
WAYS: dict[str, tuple[list[str], dict[str, str]]] = {
    "run": (["-m", "partax", "run", "train.py", "--rate", "0.5"], {"PARTAX_STORE": "programs"}),
    "PARTAX_JAX": (["train.py", "--rate", "0.5"], {"PARTAX_STORE": "programs", "PARTAX_JAX": "1"}),
    "pytest": (["-m", "pytest", "-qs", "-pno:logging", "-ppartax.pytest", "test_train.py"], {"PARTAX_STORE": ""}),
}


@pytest.mark.parametrize("way", [*WAYS][:1] + [pytest.param(way, marks=pytest.mark.slow) for way in [*WAYS][1:]])
def test_a_second_process_traces_nothing(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site-packages"), prepend=os.pathsep)
    arguments, environment = WAYS[way]
    for traces, loads in ((3, 0), (0, 2)):
        done = python(*arguments, cwd=tmp_path, PARTAX_EXPLAIN="1", **environment)
        assert "[0. 0. 0.] [0. 0. 0.] JitFunction JitFunction PjitFunction" in done.stdout
        assert (done.stderr.count(": trace "), done.stderr.count(": loaded from")) == (traces, loads), done.stderr
