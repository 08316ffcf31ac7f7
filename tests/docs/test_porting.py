"""Guards the promise that the train scripts of the site's "coming from" pages train alike before and after: the one
after runs by partax, traces each program once, and differs from the one before only in what its page tells and shows.

`python tests/docs/test_porting.py --write` writes the differences into the pages.
"""

import difflib
import functools
import pathlib
import sys
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))  # when this file is run by itself

from library_trees import HAS_FLAX
from page_tables import DOCS, assert_shown, print_or_write
from partax._core import JitFunction
from short_programs import imported
from trees import assert_close, bits

OPTIONS = {
    "equinox": ["--steps", "6"],
    "jax_jit": ["--steps", "6", "--depth", "2"],
    "flax_nnx": ["--steps", "4", "--epochs", "2"],
}
# How often each compiled function of the script is called with something that has not been traced.
TRACES = {
    "equinox": {"train_step": 2, "accuracy": 1},  # all of the model is trained, then its last layer
    "jax_jit": {"train_step": 1, "accuracy": 1},
    "flax_nnx": {"train_step": 1, "eval_step": 1},
}

Outcome = dict[str, Any]


def source_of(name: str, which: str) -> str:
    return (DOCS / "porting" / f"{name}_{which}.py").read_text(encoding="utf-8")


def page_of(name: str) -> pathlib.Path:
    return DOCS / "coming_from" / f"{name}.md"


def difference(name: str) -> str:
    """What a page shows of the two scripts: not by Sphinx, which would put the directories of this machine into it."""
    texts = (source_of(name, which).splitlines() for which in ("before", "after"))
    lines = difflib.unified_diff(*texts, f"{name}_before.py", f"{name}_after.py", lineterm="")
    return "\n".join(["```diff", *(line.rstrip() for line in lines), "```"])


def wrappers(module: ModuleType) -> dict[str, JitFunction[..., Any]]:
    return {name: value for name, value in vars(module).items() if isinstance(value, JitFunction)}


def assert_alike(found: Outcome, expected: Outcome, exactly: bool) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
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
        expected, found = before.main(OPTIONS[name]), after.main(OPTIONS[name])
    infos = {key: wrapper.cache_info() for key, wrapper in wrappers(after).items()}
    assert {key: info.misses for key, info in infos.items()} == TRACES[name] and infos["train_step"].hits > 0
    # Only of jax.jit it is the same program: one of Equinox or nnx.jit returns more, so that XLA may fuse otherwise.
    assert_alike(found, expected, exactly=name == "jax_jit")


TABLES = {(page_of(name), "diff"): functools.partial(difference, name) for name in OPTIONS}


@pytest.mark.parametrize("name", OPTIONS)
def test_the_page_shows_the_difference(name: str) -> None:
    assert_shown(TABLES, page_of(name), "diff")


if __name__ == "__main__":
    print_or_write(TABLES)
