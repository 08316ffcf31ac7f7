"""Guards what a type checker sees of partax: this file is checked (pyright, strict), never run.

`assert_type` fails the check where the type is another; `# pyright: ignore[rule]` where the error is missing.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from typing import Any, assert_type

import jax

from partax import (
    CacheInfo,
    Compiled,
    Lowered,
    Summary,
    SummaryRow,
    Traced,
    apply_updates,
    by_path,
    combine,
    debug,
    filter,
    filter_checkpoint,
    filter_closure_convert,
    filter_custom_jvp,
    filter_custom_vjp,
    filter_eval_shape,
    filter_grad,
    filter_hessian,
    filter_jacfwd,
    filter_jacrev,
    filter_jit,
    filter_jvp,
    filter_linearize,
    filter_make_jaxpr,
    filter_shard,
    filter_shard_map,
    filter_value_and_grad,
    filter_vjp,
    filter_vmap,
    if_array,
    is_array,
    is_inexact_array,
    labels,
    partition,
    summary,
    tree,
)


class Model:
    scale: jax.Array

    @filter_jit
    def __call__(self, x: jax.Array, *, times: int = 1) -> jax.Array:
        return self.scale * x * times

    @filter_jit(donate=("x",))
    def in_place(self, x: jax.Array) -> jax.Array:
        return self.scale * x


class Affine:
    def __call__(self, x: jax.Array, *, times: int = 1) -> jax.Array:
        return x * times


@filter_jit
def bare(x: jax.Array, n: int = 1) -> tuple[jax.Array, int]:
    return x, n


@filter_jit(donate="all-except-first", inline=True, cache_size=16)
def with_options(model: Model, state: dict[str, jax.Array], *, train: bool) -> dict[str, jax.Array]:
    return state


def the_signature_survives(model: Model, x: jax.Array) -> None:
    assert_type(bare(x, 2), tuple[jax.Array, int])
    assert_type(bare(x, n=2), tuple[jax.Array, int])
    assert_type(with_options(model, {"x": x}, train=True), dict[str, jax.Array])
    bare()  # pyright: ignore[reportCallIssue]
    bare(x, "two")  # pyright: ignore[reportArgumentType]
    bare(x, m=2)  # pyright: ignore[reportCallIssue]
    with_options(model, {"x": x})  # pyright: ignore[reportCallIssue]


def methods_are_bound(model: Model, x: jax.Array) -> None:
    assert_type(model.in_place(x), jax.Array)
    assert_type(Model.in_place(model, x), jax.Array)
    assert_type(model.in_place.cache_info(), CacheInfo)
    model.in_place()  # pyright: ignore[reportCallIssue]
    model.in_place("x")  # pyright: ignore[reportArgumentType]


def callables_of_other_kinds(x: jax.Array) -> None:
    assert_type(filter_jit(Affine())(x, times=2), jax.Array)
    assert_type(filter_jit(lambda: 1)(), int)
    assert_type(filter_jit(bare)(x), tuple[jax.Array, int])


def what_a_wrapper_has(x: jax.Array) -> None:
    assert_type(bare.__name__, str)
    assert_type(bare.cache_info().traces, int)
    assert_type(bare.trace(x), Traced)
    assert_type(bare.lower(jax.ShapeDtypeStruct((), "float32"), n=2), Lowered)
    assert_type(bare.lower(x).compile(), Compiled)
    assert_type(bare.lower(x).as_text(), str)
    assert_type(bare.__wrapped__(x), tuple[jax.Array, int])
    bare.clear_cache()


def wrong_options(x: jax.Array) -> None:
    filter_jit(bare, cache_size="many")  # pyright: ignore[reportCallIssue, reportArgumentType]
    filter_jit(bare, donates="all")  # pyright: ignore[reportCallIssue, reportArgumentType]


def gradients(model: Model, x: jax.Array) -> None:
    def loss(model: Model, x: jax.Array) -> jax.Array:
        return model(x).sum()

    @filter_value_and_grad(has_aux=True)
    def with_aux(model: Model, x: jax.Array) -> tuple[jax.Array, str]:
        return loss(model, x), "aux"

    gradient: Model = filter_grad(loss)(model, x)
    (value, aux), gradient = with_aux(model, x)
    model = apply_updates(model, gradient)
    print(value, aux)


def splitting(model: Model, x: jax.Array) -> None:
    arrays, static = partition(model, is_array)
    inexact = filter(model, is_inexact_array, inverse=True, is_leaf=lambda node: node is None)
    again: Any = combine(arrays, static, inexact)
    assert_type(is_array(x), bool)
    print(again)


def placing(model: Model, mesh: jax.sharding.Mesh) -> None:
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    placed: Model = filter_shard(model, everywhere)
    placed = filter_shard(model, jax.devices()[0])
    filter_shard(model)  # pyright: ignore[reportCallIssue]
    filter_shard(model, shardings=everywhere)  # pyright: ignore[reportCallIssue]
    print(placed)


def groups_for_training(model: Model, x: jax.Array) -> None:
    def loss(model: Model, x: jax.Array) -> jax.Array:
        return model(x).sum()

    @filter_grad(has_aux=True, wrt=Model)
    def with_aux(model: Model, x: jax.Array) -> tuple[jax.Array, str]:
        return loss(model, x), "aux"

    gradient: Model = filter_grad(loss, wrt=by_path("scale"))(model, x)
    value, gradient = filter_value_and_grad(loss, wrt=lambda leaf: leaf.ndim > 1)(model, x)
    filter_grad(loss, with_respect_to="scale")  # pyright: ignore[reportCallIssue]

    names: Model = labels(model, {"scale": by_path("scale"), 1: is_array}, default="rest")
    labels(model, [("scale", by_path("scale"))])  # pyright: ignore[reportArgumentType]
    labels(model, {}, default=[])  # pyright: ignore[reportArgumentType]

    table = summary(model, by_path("scale"), Model, names=("scale", "model"), depth=None)
    assert_type(table, Summary)
    assert_type(table.rows, tuple[SummaryRow, ...])
    assert_type(table.total.parameters, int)
    table.total.leaves = 1  # pyright: ignore[reportAttributeAccessIssue]
    summary(model, depth="2")  # pyright: ignore[reportArgumentType]
    print(with_aux(model, x), value, gradient, names)


def limiting(model: Model, x: jax.Array) -> None:
    @filter_jit
    @debug.assert_max_traces(max_traces=1)
    def step(model: Model, x: jax.Array, n: int = 1) -> tuple[jax.Array, int]:
        return model(x), n

    class Limited:
        @debug.assert_max_traces(max_traces=None)
        def method(self, n: int) -> str:
            return str(n)

    assert_type(step(model, x, n=2), tuple[jax.Array, int])
    assert_type(debug.assert_max_traces(len, max_traces=1)([]), int)
    assert_type(Limited().method(1), str)
    assert_type(debug.get_num_traces(step), int)
    step(model)  # pyright: ignore[reportCallIssue]
    debug.assert_max_traces(len)  # pyright: ignore[reportCallIssue]
    debug.assert_max_traces(len, max_traces="1")  # pyright: ignore[reportCallIssue, reportArgumentType]


def walking(model: Model, models: dict[int, Model], arrays: dict[str, jax.Array], numbers: list[int]) -> None:
    def size(x: jax.Array) -> int:
        return x.size

    assert_type(tree.map(size, arrays), dict[str, int])
    assert_type(tree.map(size, arrays["w"]), int)
    assert_type(tree.map(str, numbers), list[str])
    assert_type(tree.map(size, [model, arrays]), list[Any])
    assert_type(tree.map(size, models, models), dict[int, Any])
    assert_type(tree.map(size, arrays, is_leaf=lambda x: True), Any)
    assert_type(tree.leaves(model), list[Any])
    leaves, structure = tree.flatten(model, is_leaf=lambda x: x is None)
    assert_type(structure, tree.Structure)
    assert_type(structure.num_leaves, int)
    assert_type(tree.unflatten(structure, reversed(leaves)), Any)
    assert_type(tree.at(lambda m: m.scale, model, 1), Model)
    assert_type(tree.at(lambda m: (m.scale, m.scale), model, replace_fn=size), Model)
    assert_type(tree.equal(model, arrays, rtol=1e-3), bool | jax.Array)
    assert_type(tree.pformat(model, width=20), str)
    tree.at(lambda m: m.nothing, model, 1)  # pyright: ignore[reportAttributeAccessIssue]
    tree.map(1, model)  # pyright: ignore[reportCallIssue, reportArgumentType]
    tree.equal(model, rtolerance=1)  # pyright: ignore[reportCallIssue]


def scaled(model: Model, x: jax.Array, *, times: int = 1) -> dict[str, jax.Array]:
    return {"y": model(x, times=times)}


def loss_of(model: Model, x: jax.Array, *, times: int = 1) -> jax.Array:
    return model(x, times=times).sum()


def loss_and_aux(model: Model, x: jax.Array) -> tuple[jax.Array, str]:
    return loss_of(model, x), "aux"


class Transformed:
    @filter_vmap(in_axes=(None, 0))
    def each(self, x: jax.Array, n: int = 1) -> tuple[jax.Array, int]:
        return x, n

    @filter_grad
    def slope(self, x: jax.Array) -> jax.Array:
        return x


def gradients_have_the_type_of_the_first_argument(model: Model, x: jax.Array) -> None:
    assert_type(filter_grad(loss_of)(model, x, times=2), Model)
    assert_type(filter_grad(loss_and_aux, has_aux=True)(model, x), tuple[Model, str])
    assert_type(filter_value_and_grad(loss_of)(model, x), tuple[jax.Array, Model])
    assert_type(filter_value_and_grad(has_aux=True)(loss_and_aux)(model, x), tuple[tuple[jax.Array, str], Model])
    assert_type(filter_grad(wrt=by_path("scale"))(loss_of)(model, x), Model)
    assert_type(Transformed().slope(x), Transformed)
    filter_grad(loss_of)(x, x)  # pyright: ignore[reportArgumentType]
    filter_grad(loss_of)(model, x, n=2)  # pyright: ignore[reportCallIssue]
    filter_grad(loss_of, has_aux=True)  # pyright: ignore[reportArgumentType, reportCallIssue]


def wrappers_keep_parameters_and_results(model: Model, x: jax.Array) -> None:
    assert_type(filter_vmap(scaled)(model, x, times=2), dict[str, jax.Array])
    assert_type(filter_vmap(in_axes={"x": 1}, out_axes=if_array(0))(scaled)(model, x), dict[str, jax.Array])
    assert_type(Transformed().each(x, n=2), tuple[jax.Array, int])
    assert_type(filter_checkpoint(policy="dots_saveable")(scaled)(model, x), dict[str, jax.Array])
    assert_type(filter_shard_map(scaled, out_specs=None)(model, x), dict[str, jax.Array])
    assert_type(filter_custom_jvp(scaled)(model, x, times=1), dict[str, jax.Array])
    assert_type(filter_custom_vjp(scaled)(model, x), dict[str, jax.Array])
    assert_type(filter_closure_convert(scaled, model, x)(model, x), dict[str, jax.Array])
    assert_type(filter_eval_shape(scaled, model, x), dict[str, jax.Array])
    assert_type(filter_make_jaxpr(scaled)(model, x)[1], dict[str, jax.Array])
    filter_vmap(scaled)(model)  # pyright: ignore[reportCallIssue]
    filter_vmap(scaled, axes=0)  # pyright: ignore[reportCallIssue, reportArgumentType]
    filter_checkpoint(scaled)(model, "x")  # pyright: ignore[reportArgumentType]


def derivatives_have_the_types_of_arguments_and_results(model: Model, x: jax.Array) -> None:
    assert_type(filter_jvp(scaled, (model, x), (model, None)), tuple[dict[str, jax.Array], dict[str, jax.Array]])
    out, pull = filter_vjp(scaled, model, x)
    assert_type(out, dict[str, jax.Array])
    assert_type(pull(out), tuple[Model, jax.Array])
    assert_type(filter_vjp(loss_and_aux, model, x, has_aux=True)[2], str)
    _, push = filter_linearize(scaled, model, x)
    assert_type(push(model, x), dict[str, jax.Array])
    assert_type(filter_jacfwd(loss_and_aux, has_aux=True)(model, x), tuple[Any, str])
    filter_jacrev(loss_of)(model, x, times=3)
    filter_hessian(loss_of)("model", x)  # pyright: ignore[reportArgumentType]
    filter_vjp(scaled, x, x)  # pyright: ignore[reportArgumentType]
