"""Guards the promise that the train scripts of the site's "coming from" pages train alike before and after: the one
after runs on partax, traces each program once, and differs from the one before only as the page shows."""

import difflib
import pathlib
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from library_trees import HAS_FLAX
from page_tables import DOCS, read_table
from partax._core import JitFunction
from short_programs import imported
from trees import assert_close, bits

OPTIONS = {
    "equinox": ["--steps", "6"],
    "jax_jit": ["--steps", "6", "--depth", "2"],
    "flax_nnx": ["--steps", "4", "--epochs", "2"],
}
# The traces of each compiled function of a script.
TRACES = {
    "equinox": {"train_step": 2, "accuracy": 1},  # all of the model is trained, then its last layer
    "jax_jit": {"train_step": 1, "accuracy": 1},
    "flax_nnx": {"train_step": 1, "eval_step": 1},
}


def source_of(name: str, which: str) -> str:
    return (DOCS / "porting" / f"{name}_{which}.py").read_text(encoding="utf-8")


def wrappers(module: ModuleType) -> dict[str, JitFunction[..., Any]]:
    return {name: value for name, value in vars(module).items() if isinstance(value, JitFunction)}


def assert_alike(results: dict[str, Any], expected: dict[str, Any], exactly: bool) -> None:
    assert jax.tree.structure(results) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(results), jax.tree.leaves(expected), strict=True):
        if jnp.issubdtype(jnp.asarray(b).dtype, jnp.floating) and not exactly:
            assert_close(jnp.asarray(a), b, terms=4096)  # one weight is off by what all steps before have rounded
        else:
            assert bits(jnp.asarray(a)) == bits(jnp.asarray(b))


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
def test_a_script_trains_alike_by_partax(name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "flax_nnx" and not HAS_FLAX:
        pytest.skip("Flax is not here")
    monkeypatch.chdir(tmp_path)
    with imported(source_of(name, "before"), tmp_path) as before, imported(source_of(name, "after"), tmp_path) as after:
        assert not wrappers(before)
        expected, results = before.main(OPTIONS[name]), after.main(OPTIONS[name])
    infos = {key: wrapper.cache_info() for key, wrapper in wrappers(after).items()}
    assert {key: info.misses for key, info in infos.items()} == TRACES[name] and infos["train_step"].hits > 0
    # Only of jax.jit it is the same program: one of Equinox or nnx.jit returns more, so that XLA may fuse otherwise.
    assert_alike(results, expected, exactly=name == "jax_jit")


@pytest.mark.parametrize("name", OPTIONS)
def test_the_page_shows_the_difference(name: str) -> None:
    """Not made by Sphinx, which would show the directories of its machine."""
    scripts = (source_of(name, which).splitlines() for which in ("before", "after"))
    lines = difflib.unified_diff(*scripts, f"{name}_before.py", f"{name}_after.py", lineterm="")
    difference = "\n".join(["```diff", *(line.rstrip() for line in lines), "```"])
    assert read_table(DOCS / "coming_from" / f"{name}.md", "diff") == difference
