"""Guards the promise that a function made anew never gets another program's result, and that a proven one does not
retrace: random functions of several programs of the corpus, of which one after the other changes."""

import contextlib
import os
import pathlib
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from programs import ALWAYS_TRACED, WAYS, plain
from test_stale import ANEW, PROGRAMS

from counting import SEEN, seen
from short_programs import imported

EXAMPLES = int(os.environ.get("PARTAX_PROGRAMS_EXAMPLES", "60"))
X = jnp.float32(0.5)
# All but those that never give the same, or have a context that is left only if it was entered.
ALL = [name for name, source in PROGRAMS.items() if "EVER_OTHER" not in source and "__exit__" not in source]


def set_by(name: str) -> str:
    """The name, but one for all programs that set something of that name on what is everybody's."""
    return "mine" if "mine" in PROGRAMS[name] else name


def made_of(modules: list[types.ModuleType], noted: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """One function of those that programs make, each of which counts by another factor."""
    functions = [module.make() for module in modules]
    arguments = [getattr(module, "arguments", tuple)() for module in modules]

    def step(x: Any) -> Any:
        results = [function(x, *more) for function, more in zip(functions, arguments, strict=True)]
        return noted(sum(result * factor for factor, result in enumerate(results, start=1)))

    return step


def outcomes(names: list[str], changes: list[int], call: Any, folder: pathlib.Path, traced_once: bool) -> list[float]:
    """What two calls give before and after each change, of which the second must not trace with `traced_once`."""
    found: list[float] = []
    with contextlib.ExitStack() as stack:
        modules = [stack.enter_context(imported(PROGRAMS[name], folder)) for name in names]
        for change in (None, *changes):
            if change is not None:
                modules[change].change()
            functions = [made_of(modules, seen)]
            found.append(float(call(functions[0], X)))
            if not traced_once:
                del functions[0]
            functions.append(made_of(modules, seen))
            before = SEEN.count
            found.append(float(call(functions[-1], X)))
            assert SEEN.count == before or not traced_once, (names, change)
    return found


@pytest.mark.filterwarnings("ignore")
@given(
    names=st.lists(st.sampled_from(sorted(ANEW)) | st.sampled_from(ALL), min_size=1, max_size=4, unique_by=set_by),
    changes=st.permutations(range(4)),
    way=st.sampled_from(sorted(WAYS)),
    keeps=st.booleans(),
)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    derandomize=EXAMPLES < 1000,
)
def test_a_function_of_several_programs_gives_what_plain_python_gives(
    names: list[str], changes: list[int], way: str, keeps: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("programs")
    changes = [change for change in changes if change < len(names)]
    by_python = (lambda fun, x: jax.grad(fun)(x)) if way == "gradient" else plain
    try:
        right = outcomes(names, changes, by_python, folder, traced_once=False)
    except StopIteration:  # a program's iterator has an end
        reject()
    proven = ANEW - {"named: array"}  # which goes with the wrapper that a way has made
    traced_once = keeps and way not in ALWAYS_TRACED and proven.issuperset(names)
    found = outcomes(names, changes, WAYS[way](), folder, traced_once)
    assert found == pytest.approx(right, rel=1e-5), (names, way)
