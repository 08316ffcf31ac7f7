"""Guards the promise that the tables of names on the "coming from" pages are complete: each name exists on both sides,
and none is missing."""

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import partax.equinox
from library_trees import HAS_FLAX
from page_tables import DOCS, read_rows, read_table
from partax._core import JitFunction
from partax.equinox import OURS

EQUINOX = DOCS / "coming_from" / "equinox.md"
JAX_JIT = DOCS / "coming_from" / "jax_jit.md"
FLAX_NNX = DOCS / "coming_from" / "flax_nnx.md"
SPELLED = ("filter_jit", "filter_shard", "filter_pure_callback", "partition")  # as Equinox has their parameters
WITH_FLAX = pytest.mark.skipif(not HAS_FLAX, reason="Flax is not here")

# Where Equinox's `**kwargs` go.
PASSED_ON: dict[str, Callable[..., Any]] = {
    "filter_jit": jax.jit,
    "filter_grad": jax.grad,
    "filter_value_and_grad": jax.value_and_grad,
    "filter_vmap": jax.vmap,
}


def names_in(cell: str) -> list[str]:
    return re.findall(r"`([\w.]+)`", cell)


def listed_names(page: Path, name: str) -> list[str]:
    """The names in the first column of a table."""
    return [one for row in read_rows(page, name) for one in names_in(row[0])]


def ours_of(page: Path, name: str) -> dict[str, str]:
    """Our names by the names in the first column of a table; without those that have none."""
    return {names_in(row[0])[0]: names_in(row[1])[0] for row in read_rows(page, name) if names_in(row[1])}


def public(of: Any) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def names_of_parameters(function: Callable[..., Any]) -> set[str]:
    return {parameter.name for parameter in parameters(function)}


def methods(wrapper: Any) -> set[str]:
    return {name for name in public(type(wrapper)) if callable(getattr(type(wrapper), name))}


def visible(function: Callable[..., Any]) -> set[str]:
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {one.name for one in parameters(function) if one.kind not in kinds and not one.name.startswith("_")}


def test_the_table_of_same_names_has_each_with_the_parameters_that_differ() -> None:
    equinox = importlib.import_module("equinox")
    rows = {names_in(name)[0]: (ours, cell) for name, ours, cell in read_rows(EQUINOX, "same names")}
    assert rows.keys() == OURS.keys()
    for name, (ours, cell) in rows.items():
        assert names_in(ours) == [f"{OURS[name]}.{name.removeprefix('tree_')}"]
        theirs, mine = visible(getattr(equinox, name)), visible(getattr(partax.equinox, name))
        new = mine - theirs - names_of_parameters(PASSED_ON.get(name, lambda: None))
        assert new <= {*names_in(cell)} <= mine ^ theirs, name


def test_the_table_of_stages_has_their_names() -> None:
    def stages(wrapper: Any) -> list[Any]:
        traced = wrapper.trace(jnp.ones(2))
        return [traced, traced.lower(), traced.lower().compile()]

    rows = read_rows(JAX_JIT, "stages")
    for row, theirs, ours in zip(rows, stages(jax.jit(jnp.sin)), stages(partax.filter_jit(jnp.sin)), strict=True):
        assert names_in(row[0]) == [type(ours).__name__]
        assert {*names_in(row[1])} == public(theirs) & public(ours)
        assert {*names_in(row[2])} == public(ours) - public(theirs)


def public_names_of_equinox() -> Iterator[str]:
    """Without the modules of other libraries that it imports."""
    equinox = importlib.import_module("equinox")
    for name in public(equinox) - {"debug"}:
        if not inspect.ismodule(getattr(equinox, name)) or getattr(equinox, name).__name__.startswith("equinox"):
            yield name
    yield from (f"debug.{name}" for name in public(equinox.debug))


def test_each_name_of_equinox_is_in_one_table() -> None:
    names = [*OURS, *listed_names(EQUINOX, "other names"), *listed_names(EQUINOX, "stays")]
    assert len(names) == len({*names})
    assert {*names} - {"internal.scan", "internal.while_loop"} == {*public_names_of_equinox()}
    named = re.findall(r"`(nn\.\w+|tree_\w+)`", read_table(EQUINOX, "stays"))
    for name in [*names, *named]:
        assert resolve_name(f"equinox.{name}") is not None


def test_partax_equinox_has_the_names_of_the_first_table_and_equinox_those_of_the_others() -> None:
    equinox: Any = importlib.import_module("equinox")
    for name, module in OURS.items():
        ours = getattr(resolve_name(module), name.removeprefix("tree_"))
        assert getattr(partax.equinox, name) is not getattr(equinox, name)
        # Its parameters have the names of Equinox's there.
        assert getattr(partax.equinox, name) is ours or name in SPELLED
    for name in {*public_names_of_equinox()} - {*OURS}:
        first = name.partition(".")[0]
        assert first in dir(partax.equinox)
        assert getattr(partax.equinox, first) is getattr(equinox, first)


@pytest.mark.parametrize(("page", "name", "prefix"), [(EQUINOX, "other names", "equinox."), (JAX_JIT, "names", "")])
def test_names_lead_somewhere_there_and_here(page: Path, name: str, prefix: str) -> None:
    pairs = ours_of(page, name)
    assert pairs.keys() == {*listed_names(page, name)}
    assert all(callable(resolve_name(one)) for theirs, ours in pairs.items() for one in (f"{prefix}{theirs}", ours))
    if page == JAX_JIT:  # each filter function is beside what jax has
        filters = {f"partax.{name}" for name in partax.__all__ if name.startswith("filter_")}
        assert {*pairs.values()} == filters - {"partax.filter_jit"}


@pytest.mark.parametrize(
    ("page", "theirs", "ours"),
    [
        (JAX_JIT, "jax.jit", "partax.filter_jit"),
        pytest.param(FLAX_NNX, "flax.nnx.jit", "partax.nnx.jit", marks=WITH_FLAX),
    ],
)
def test_each_option_and_method_of_their_jit_and_of_ours_is_listed(page: Path, theirs: str, ours: str) -> None:
    jits = resolve_name(theirs), resolve_name(ours)
    options, more = (names_of_parameters(jit) - {"of_jax"} for jit in jits)  # which takes none
    same = ours_of(page, "options")
    assert {*listed_names(page, "options")} == options
    assert {*same.values(), *listed_names(page, "more options")} == more
    assert {name for name, mine in same.items() if mine != name} & more == set()
    wrappers = [jit(jnp.sin) for jit in jits]
    assert isinstance(wrappers[1], JitFunction)
    assert {*listed_names(page, "methods")} == methods(wrappers[0])
    assert {*ours_of(page, "methods").values(), *listed_names(page, "more methods")} == methods(wrappers[1])


@WITH_FLAX
def test_each_transform_of_nnx_is_listed() -> None:
    nnx: Any = importlib.import_module("flax.nnx")
    transforms = {
        name for name in public(nnx) if getattr(getattr(nnx, name), "__module__", "").startswith("flax.nnx.transforms")
    }
    same = ours_of(FLAX_NNX, "names")
    assert {*(name.removeprefix("nnx.") for name in same), *listed_names(FLAX_NNX, "stays")} == transforms
    assert all(callable(resolve_name(ours)) for ours in same.values())
