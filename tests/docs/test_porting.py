"""Guards the promise that the train scripts of the site's "coming from" pages train alike before and after: the one
after runs by partax, traces each program once, and differs from the one before only in what its page tells and shows.

`python tests/docs/test_porting.py --write` writes the differences into the pages.
"""

import contextlib
import difflib
import functools
import pathlib
import re
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))  # when this file is run by itself

import partax.equinox
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

Load = Callable[[str], ModuleType]
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


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Load]:
    """Imports a script of the given text."""
    with contextlib.ExitStack() as stack:
        yield lambda text: stack.enter_context(imported(text, tmp_path_factory.mktemp("script")))


@pytest.fixture(scope="module")
def before(load: Load, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Outcome]:
    """What the script before returns, which runs once, in a directory of its own for the files that it writes."""

    @functools.cache
    def run(name: str) -> Outcome:
        module = load(source_of(name, "before"))
        assert not wrappers(module)
        with contextlib.chdir(tmp_path_factory.mktemp(name)):
            return module.main(OPTIONS[name])

    return run


def wrappers(module: ModuleType) -> dict[str, JitFunction[..., Any]]:
    return {name: value for name, value in vars(module).items() if isinstance(value, JitFunction)}


def assert_alike(found: Outcome, expected: Outcome, exactly: bool) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        if jnp.issubdtype(jnp.asarray(b).dtype, jnp.floating) and not exactly:
            assert_close(jnp.asarray(a), b, terms=4096)  # one weight is off by what all steps before have rounded
        else:
            assert bits(jnp.asarray(a)) == bits(jnp.asarray(b))


WITH_FLAX = pytest.mark.skipif(not HAS_FLAX, reason="Flax is not here")
# The script after, or that before with another import alone, or accelerated. Only of jax.jit it is the same program:
# one of Equinox or nnx.jit returns more, so that XLA may fuse otherwise.
WAYS = [
    ("equinox", "after"),
    ("equinox", "another import"),
    ("equinox", "accelerated"),
    ("jax_jit", "after"),
    pytest.param("flax_nnx", "after", marks=WITH_FLAX),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "way"), WAYS)
def test_a_script_trains_alike_by_partax(
    name: str, way: str, load: Load, before: Callable[[str], Outcome], tmp_path: pathlib.Path
) -> None:
    expected, which = before(name), "after" if way == "after" else "before"
    text = source_of(name, which)
    if way == "another import":
        assert text.count("import equinox as eqx\n") == 1
        text = text.replace("import equinox as eqx\n", "import partax.equinox as eqx\n")
    module = load(text)
    accelerated = partax.equinox.accelerate() if way == "accelerated" else contextlib.nullcontext()
    with accelerated, contextlib.chdir(tmp_path):
        found = module.main(OPTIONS[name])
        if way == "accelerated":
            assert partax.filter_jit(module.accuracy.__wrapped__).cache_info().traces == 1
        else:
            infos = {key: wrapper.cache_info() for key, wrapper in wrappers(module).items()}
            assert {key: info.misses for key, info in infos.items()} == TRACES[name] and infos["train_step"].hits > 0
    assert_alike(found, expected, exactly=name == "jax_jit")


def without_labels(program: str) -> str:
    """A lowered program without the names that jax gives to what comes out, which XLA does not read."""
    return re.sub(r' \{jax\.result_info = "[^"]*"\}', "", program)


@pytest.mark.slow
def test_the_programs_of_jax_jit_are_the_same_before_and_after(load: Load) -> None:
    def lowered(which: str) -> str:
        script = load(source_of("jax_jit", which))
        config, optimizer = script.Config(depth=2), script.make_optimizer(1e-3, 4)
        params = script.init(config, jax.random.key(0))
        arguments = (params, optimizer.init(params), next(script.batches(script.load()[0], 8, 0)), jax.random.key(1))
        return script.train_step.lower(*arguments, 0.1, config=config, optimizer=optimizer).as_text()

    assert "tf.aliasing_output" in lowered("before")  # what is donated is part of it
    assert without_labels(lowered("after")) == without_labels(lowered("before"))


TABLES = {(page_of(name), "diff"): functools.partial(difference, name) for name in OPTIONS}


@pytest.mark.parametrize("name", OPTIONS)
def test_the_page_shows_the_difference(name: str) -> None:
    assert_shown(TABLES, page_of(name), "diff")


if __name__ == "__main__":
    print_or_write(TABLES)
