"""Guards the promise that the tables of names on the "coming from" pages are whole and true: each name exists there and
here, none is missing on either side, and the pages show just these tables.

`python tests/docs/test_name_tables.py --write` writes them into the pages.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # when this file is run by itself

import partax.equinox
from flax_trees import HAS_FLAX
from page_tables import DOCS, read_table, table, write_table
from partax._core import JitFunction
from partax.equinox import OURS

EQUINOX = DOCS / "coming_from" / "equinox.md"
JAX_JIT = DOCS / "coming_from" / "jax_jit.md"
FLAX_NNX = DOCS / "coming_from" / "flax_nnx.md"

Rows = dict[str, tuple[str | None, str]]
"""By their name: ours, and what to say; None where there is nothing of ours."""
Groups = dict[tuple[str, ...], str]
"""Names that stay theirs, and what they are."""

# Equinox.

PASSED_ON: dict[str, Callable[..., Any]] = {
    "filter_jit": jax.jit,
    "filter_grad": jax.grad,
    "filter_value_and_grad": jax.value_and_grad,
    "filter_vmap": jax.vmap,
}
"""Where Equinox's `**kwargs` go."""

EQUINOX_INSTEAD: Rows = {
    "tree_equal": ("tree.equal", "gives a `bool`, and an array only inside a trace"),
    "tree_pprint": ("tree.pformat", "`print(partax.tree.pformat(tree))`"),
    "tree_serialise_leaves": ("save", "writes arrays alone, to a safetensors file, which other programs read"),
    "tree_deserialise_leaves": ("load", "reads such a file; an error names each leaf that does not fit"),
    "debug.assert_max_traces": ("debug.assert_max_traces", "the error says what is new, before anything is compiled"),
    "debug.get_num_traces": ("debug.get_num_traces", "of a callable in `partax.debug.assert_max_traces`"),
    "filter_pmap": ("filter_shard_map", "or `filter_jit` on arguments placed by `filter_shard`"),
    "internal.scan": ("filter_scan", "any trees as carry; Equinox's kinds of checkpointing stay its own"),
    "internal.while_loop": ("filter_while_loop", "likewise"),
}

EQUINOX_STAYS: Groups = {
    ("Module", "field", "static_field", "AbstractVar", "AbstractClassVar", "StrictConfig"): "modules and their fields",
    ("nn",): "layers, `nn.State`, `nn.make_with_state`, `nn.inference_mode`",
    ("Partial", "module_update_wrapper", "Enumeration"): "callables and enumerations that are trees",
    ("error_if", "branched_error_if", "EquinoxRuntimeError", "EquinoxTracetimeError"): "errors of a running program",
    ("default_serialise_filter_spec", "default_deserialise_filter_spec"): "how `tree_serialise_leaves` writes a leaf",
    ("tree_check", "tree_flatten_one_level", "tree_inference"): "small functions of trees",
    ("clear_caches",): "Equinox's own caches; a function of `partax.filter_jit` has `clear_cache`",
    ("debug.announce_transform", "debug.backward_nan", "debug.breakpoint_if"): "looking into a running program",
    ("debug.store_dce", "debug.inspect_dce"): "what the compiler leaves out",
    ("internal",): "what Equinox does not promise",
}

# jax.jit.

JIT_OPTIONS: Rows = {
    "fun": ("fun", "without it, a decorator: `@partax.filter_jit(donate=...)`"),
    "static_argnums": (None, "not needed: what is no array is static"),
    "static_argnames": (None, "not needed: what is no array is static"),
    "donate_argnums": ("donate", 'names in the place of numbers: `donate=("params",)`'),
    "donate_argnames": ("donate", 'the same names: `donate=("params",)`'),
    "in_shardings": ("in_shardings", "for all arguments in the order of the signature, also those given by keyword"),
    "out_shardings": ("out_shardings", "apply to the arrays of the result"),
    "keep_unused": ("keep_unused", ""),
    "inline": ("inline", ""),
    "compiler_options": ("compiler_options", ""),
    "device": ("device", "deprecated in jax"),
    "backend": ("backend", "deprecated in jax"),
}

JIT_OPTIONS_OF_OURS: dict[str, str] = {
    "donate": 'also modes: `"all"`, `"all-except-first"`',
    "trace": "which Python numbers are traced: names of arguments, or a predicate",
    "max_traces": "a limit, over which a call raises before it compiles",
    "cache_size": "how many static parts are kept",
    "callables": "when two functions are one static value",
    "store": "the folder for its compiled programs, as of `partax.store`; False for none",
}

JIT_METHODS: Rows = {
    "lower": ("lower", "a compiled program is called with the static values too, and checks them"),
    "trace": ("trace", "likewise"),
    "eval_shape": ("eval_shape", "what is no array comes back as it is"),
    "clear_cache": ("clear_cache", "also for other wrappers of an equal function with equal options"),
}

JIT_METHODS_OF_OURS: dict[str, str] = {
    "precompile": "compiles for some calls before the first of them, in threads",
    "bind": "reads, checks and keeps some arguments once, for calls that pass the others",
    "cache_info": "how many static parts, traces, hits and misses",
    "report": "what each trace has cost, and why it was made",
    "doctor": "why a call is slow to compile, or needs much memory",
}

JAX_NAMES: Rows = {
    "grad": ("filter_grad", "`wrt` says with respect to what"),
    "value_and_grad": ("filter_value_and_grad", ""),
    "jacfwd": ("filter_jacfwd", ""),
    "jacrev": ("filter_jacrev", ""),
    "hessian": ("filter_hessian", ""),
    "jvp": ("filter_jvp", ""),
    "vjp": ("filter_vjp", ""),
    "linearize": ("filter_linearize", ""),
    "vmap": ("filter_vmap", "`in_axes` may name arguments"),
    "checkpoint": ("filter_checkpoint", ""),
    "custom_jvp": ("filter_custom_jvp", ""),
    "custom_vjp": ("filter_custom_vjp", ""),
    "eval_shape": ("filter_eval_shape", ""),
    "make_jaxpr": ("filter_make_jaxpr", ""),
    "closure_convert": ("filter_closure_convert", ""),
    "pure_callback": ("filter_pure_callback", ""),
    "experimental.io_callback": ("filter_io_callback", ""),
    "shard_map": ("filter_shard_map", ""),
    "device_put": ("filter_shard", ""),
    "lax.with_sharding_constraint": ("filter_shard", "inside of a jitted function"),
    "lax.scan": ("filter_scan", "numbers and weak types in the carry settle by themselves"),
    "lax.while_loop": ("filter_while_loop", "likewise"),
    "lax.fori_loop": ("filter_fori_loop", "likewise"),
    "lax.map": ("filter_map", ""),
    "lax.cond": ("filter_cond", "operands and results are any trees"),
    "lax.switch": ("filter_switch", "likewise"),
}

# flax.nnx.jit.

NNX_OPTIONS: Rows = {
    "fun": ("fun", ""),
    "static_argnums": ("static_argnums", "accepted, and not needed"),
    "static_argnames": ("static_argnames", "accepted, and not needed"),
    "donate_argnums": ("donate_argnums", "what the function does not change stays alive"),
    "donate_argnames": ("donate_argnames", "likewise"),
    "in_shardings": ("in_shardings", "a Variable that the function does not change keeps the sharding that it has"),
    "out_shardings": ("out_shardings", ""),
    "graph": ("graph", ""),
    "graph_updates": ("graph_updates", ""),
    "keep_unused": ("keep_unused", ""),
    "inline": ("inline", ""),
    "device": ("device", "deprecated in jax"),
    "backend": ("backend", "deprecated in jax"),
}

NNX_OPTIONS_OF_OURS: dict[str, str] = {
    **JIT_OPTIONS_OF_OURS,
    "donate": "in the place of `donate_argnums` and `donate_argnames`, as of `filter_jit`",
    "compiler_options": "of XLA",
}

NNX_METHODS: Rows = {
    "lower": ("lower", ""),
    "trace": ("trace", ""),
    "eval_shape": ("eval_shape", "what is no array comes back as it is"),
}

NNX_METHODS_OF_OURS = {"clear_cache": "forgets all traces", **JIT_METHODS_OF_OURS}

NNX_NAMES: Rows = {
    "jit": ("nnx.jit", "the decorator, or the call, is all that changes"),
    "jit_partial": ("nnx.jit", "the objects are arguments of each call; nothing has to be bound for speed"),
}

NNX_STAYS: Groups = {
    ("grad", "value_and_grad", "DiffState", "jvp", "vjp", "custom_vjp"): "derivatives",
    ("vmap", "pmap", "shard_map", "StateAxes", "transform_metadata"): "many at once",
    ("scan", "while_loop", "fori_loop", "Carry"): "loops",
    ("cond", "switch"): "branches",
    ("remat", "checkify"): "what is recomputed, and what is checked",
    ("eval_shape", "make_jaxpr"): "shapes and programs",
    ("StateSharding",): "shardings of a state, which `partax.nnx.jit` takes",
}


# What is there.


def public(of: Any) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


def resolve(path: str) -> Any:
    """What a dotted name leads to, by import or attribute."""
    found: Any = importlib.import_module(path.partition(".")[0])
    for name in path.split(".")[1:]:
        if not hasattr(found, name):
            importlib.import_module(f"{found.__name__}.{name}")
        found = getattr(found, name)
    return found


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def methods(wrapper: Any) -> set[str]:
    return {name for name in public(type(wrapper)) if callable(getattr(type(wrapper), name))}


def names_of(rows: Rows) -> set[str]:
    return {ours for ours, _ in rows.values() if ours is not None}


def flat(groups: Groups) -> list[str]:
    return [name for names in groups for name in names]


# What the pages show.


def differing_parameters(name: str) -> str:
    """Which parameters a function of Equinox's has otherwise in partax."""
    theirs, ours = (
        parameters(getattr(module, name)) for module in (importlib.import_module("equinox"), partax.equinox)
    )
    renamed = {
        b.name: a.name
        for a, b in zip(theirs, ours, strict=False)
        if a.name != b.name and {a.kind, b.kind} <= {a.POSITIONAL_ONLY, a.POSITIONAL_OR_KEYWORD}
    }
    known = {p.name for p in theirs} | {*renamed} | {p.name for p in parameters(PASSED_ON.get(name, lambda: None))}
    more = [
        f"*{p.name}" if p.kind is p.VAR_POSITIONAL else p.name
        for p in ours
        if p.name not in known and not p.name.startswith("_") and p.kind is not p.VAR_KEYWORD
    ]
    told = [f"`{theirs}` is called `{ours}`" for ours, theirs in renamed.items()]
    return "; ".join(told + (["also " + ", ".join(f"`{parameter}`" for parameter in more)] if more else []))


def same_of_equinox() -> str:
    rows = [
        (f"`{name}`", f"`{OURS[name]}.{name.removeprefix('tree_')}`", differing_parameters(name))
        for name in sorted(OURS)
    ]
    return table(["Equinox", "partax", "parameters"], rows)


def pairs(head: str, rows: Rows, module: str = "", ours: str = "") -> str:
    made = [
        (f"`{module}{name}`", "none" if mine is None else f"`{ours}{mine}`", note)
        for name, (mine, note) in rows.items()
    ]
    return table([head, "partax", "what changes"], made)


def listed(head: str, rows: dict[str, str]) -> str:
    return table([head, "what for"], [(f"`{name}`", note) for name, note in rows.items()])


def staying(head: str, groups: Groups) -> str:
    return table(
        [head, "what for"], [(", ".join(f"`{name}`" for name in names), note) for names, note in groups.items()]
    )


def stages() -> tuple[list[Any], list[Any]]:
    """What `trace`, `lower` and `compile` give, in jax and here."""

    def of(wrapper: Any) -> list[Any]:
        traced = wrapper.trace(jnp.ones(2))
        return [traced, traced.lower(), traced.lower().compile()]

    return of(jax.jit(jnp.sin)), of(partax.filter_jit(jnp.sin))


def stages_table() -> str:
    rows = []
    for theirs, ours in zip(*stages(), strict=True):
        both, more = public(theirs) & public(ours), public(ours) - public(theirs)
        rows.append(
            [f"`{type(ours).__name__}`", *(", ".join(f"`{name}`" for name in sorted(names)) for names in (both, more))]
        )
    return table(["", "as in jax", "only here"], rows)


TABLES: dict[tuple[Path, str], Callable[[], str]] = {
    (EQUINOX, "same names"): same_of_equinox,
    (EQUINOX, "other names"): lambda: pairs("Equinox", EQUINOX_INSTEAD, ours="partax."),
    (EQUINOX, "stays"): lambda: staying("stays Equinox's", EQUINOX_STAYS),
    (JAX_JIT, "options"): lambda: pairs("option of `jax.jit`", JIT_OPTIONS),
    (JAX_JIT, "more options"): lambda: listed("option of `partax.filter_jit`", JIT_OPTIONS_OF_OURS),
    (JAX_JIT, "methods"): lambda: pairs("method", JIT_METHODS),
    (JAX_JIT, "more methods"): lambda: listed("method", JIT_METHODS_OF_OURS),
    (JAX_JIT, "stages"): stages_table,
    (JAX_JIT, "names"): lambda: pairs("jax", JAX_NAMES, "jax.", "partax."),
    (FLAX_NNX, "options"): lambda: pairs("option of `nnx.jit`", NNX_OPTIONS),
    (FLAX_NNX, "more options"): lambda: listed("option of `partax.nnx.jit`", NNX_OPTIONS_OF_OURS),
    (FLAX_NNX, "methods"): lambda: pairs("method", NNX_METHODS),
    (FLAX_NNX, "more methods"): lambda: listed("method", NNX_METHODS_OF_OURS),
    (FLAX_NNX, "names"): lambda: pairs("Flax", NNX_NAMES, "nnx.", "partax."),
    (FLAX_NNX, "stays"): lambda: staying("stays Flax's", NNX_STAYS),
}


@pytest.mark.parametrize(("page", "name"), TABLES, ids=lambda value: value.stem if isinstance(value, Path) else value)
def test_a_page_shows_its_table(page: Path, name: str) -> None:
    text = TABLES[page, name]()
    assert read_table(page, name) == text, "write it by `python tests/docs/test_name_tables.py --write`"


def public_names_of_equinox() -> Iterator[str]:
    """But for the modules that it has imported of others."""
    equinox = importlib.import_module("equinox")
    for name in public(equinox) - {"debug"}:
        if not inspect.ismodule(getattr(equinox, name)) or getattr(equinox, name).__name__.startswith("equinox"):
            yield name
    yield from (f"debug.{name}" for name in public(equinox.debug))


def test_each_name_of_equinox_is_in_one_table() -> None:
    told = [*OURS, *EQUINOX_INSTEAD, *flat(EQUINOX_STAYS)]
    assert len(told) == len({*told})
    assert {*told} - {"internal.scan", "internal.while_loop"} == {*public_names_of_equinox()}
    named = re.findall(r"`(nn\.\w+|tree_\w+)`", " ".join(EQUINOX_STAYS.values()))
    for name in [*told, *named]:
        assert resolve(f"equinox.{name}") is not None


def test_partax_equinox_has_the_names_of_the_first_table_and_equinox_those_of_the_others() -> None:
    equinox: Any = importlib.import_module("equinox")
    for name, module in OURS.items():
        ours = getattr(resolve(module), name.removeprefix("tree_"))
        assert getattr(partax.equinox, name) is not getattr(equinox, name)
        # Its parameters have the names of Equinox's there.
        assert getattr(partax.equinox, name) is ours or name == "filter_shard"
    for name in {*public_names_of_equinox()} - {*OURS}:
        first = name.partition(".")[0]
        assert getattr(partax.equinox, first) is getattr(equinox, first)


@pytest.mark.parametrize(("module", "rows"), [("equinox", EQUINOX_INSTEAD), ("jax", JAX_NAMES)], ids=["equinox", "jax"])
def test_names_lead_somewhere_there_and_here(module: str, rows: Rows) -> None:
    for name, (ours, _) in rows.items():
        assert callable(resolve(f"{module}.{name}"))
        assert callable(resolve(f"partax.{ours}"))


def test_each_filter_function_is_beside_what_jax_has() -> None:
    assert {name for name in partax.__all__ if name.startswith("filter_")} - {"filter_jit"} == names_of(JAX_NAMES)


def test_each_option_of_jax_jit_and_of_ours_is_told() -> None:
    ours = {p.name for p in parameters(partax.filter_jit)} - {"of_jax"}  # which takes none
    assert {*JIT_OPTIONS} == {p.name for p in parameters(jax.jit)}
    assert names_of(JIT_OPTIONS) | {*JIT_OPTIONS_OF_OURS} == ours
    assert {name for name, (mine, _) in JIT_OPTIONS.items() if mine not in (None, name)} & ours == set()


def test_each_method_of_a_jitted_function_is_told() -> None:
    assert {*JIT_METHODS} == public(jax.jit(jnp.sin))
    assert names_of(JIT_METHODS) | {*JIT_METHODS_OF_OURS} == methods(partax.filter_jit(jnp.sin))


@pytest.mark.skipif(not HAS_FLAX, reason="Flax is not here")
def test_each_option_and_method_of_nnx_jit_and_of_ours_is_told() -> None:
    nnx, ours = importlib.import_module("flax.nnx"), importlib.import_module("partax.nnx")
    assert {*NNX_OPTIONS} == {p.name for p in parameters(nnx.jit)}
    assert names_of(NNX_OPTIONS) | {*NNX_OPTIONS_OF_OURS} == {p.name for p in parameters(ours.jit)}
    assert {*NNX_METHODS} == methods(nnx.jit(jnp.sin))
    assert isinstance(ours.jit(jnp.sin), JitFunction)
    assert names_of(NNX_METHODS) | {*NNX_METHODS_OF_OURS} == methods(ours.jit(jnp.sin))


@pytest.mark.skipif(not HAS_FLAX, reason="Flax is not here")
def test_each_transform_of_nnx_is_told() -> None:
    nnx: Any = importlib.import_module("flax.nnx")
    transforms = {
        name for name in public(nnx) if getattr(getattr(nnx, name), "__module__", "").startswith("flax.nnx.transforms")
    }
    assert {*NNX_NAMES, *flat(NNX_STAYS)} == transforms
    assert all(callable(resolve(f"partax.{ours}")) for ours in names_of(NNX_NAMES))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The tables of names of the site.")
    parser.add_argument("--write", action="store_true", help="write them into the pages; without it, they are printed")
    writes = parser.parse_args().write
    for (page, name), make in TABLES.items():
        if writes:
            write_table(page, name, make())
        else:
            print(f"{page.name}, {name}:\n\n{make()}\n")
