"""Guards what a type checker sees of partax: this file is checked (pyright, strict), never run.

`assert_type` fails the check where the type is another; `# pyright: ignore[rule]` where the error is missing.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from typing import Any, NamedTuple, assert_type

import jax

import partax


class Model:
    scale: jax.Array

    @partax.filter_jit
    def __call__(self, x: jax.Array, *, times: int = 1) -> jax.Array:
        return self.scale * x * times

    @partax.filter_jit(donate=("x",))
    def in_place(self, x: jax.Array) -> jax.Array:
        return self.scale * x


class Affine:
    def __call__(self, x: jax.Array, *, times: int = 1) -> jax.Array:
        return x * times


@partax.filter_jit
def bare(x: jax.Array, n: int = 1) -> tuple[jax.Array, int]:
    return x, n


@partax.filter_jit(donate="all-except-first", inline=True, cache_size=16)
def with_options(model: Model, state: dict[str, jax.Array], *, train: bool) -> dict[str, jax.Array]:
    return state


def the_signature_survives(model: Model, x: jax.Array) -> None:
    assert_type(bare(x, 2), tuple[jax.Array, int])
    assert_type(bare(x, n=2), tuple[jax.Array, int])
    assert_type(with_options(model, {"x": x}, train=True), dict[str, jax.Array])
    bare()  # pyright: ignore[reportCallIssue]
    bare(x, "two")  # pyright: ignore[reportArgumentType]
    partax.filter_jit(bare, cache_size="many")  # pyright: ignore[reportCallIssue, reportArgumentType]


def methods_are_bound(model: Model, x: jax.Array) -> None:
    assert_type(model.in_place(x), jax.Array)
    assert_type(Model.in_place(model, x), jax.Array)
    assert_type(model.in_place.cache_info(), partax.stages.CacheInfo)
    model.in_place()  # pyright: ignore[reportCallIssue]


def a_wrapper_has_stages(x: jax.Array) -> None:
    assert_type(partax.filter_jit(Affine())(x, times=2), jax.Array)
    assert_type(bare.cache_info().traces, int)
    assert_type(bare.trace(x), partax.stages.Traced)
    assert_type(bare.lower(jax.ShapeDtypeStruct((), "float32"), n=2), partax.stages.Lowered)
    assert_type(bare.lower(x).compile(), partax.stages.Compiled)
    assert_type(bare.__wrapped__(x), tuple[jax.Array, int])


def annotations(step: partax.stages.Wrapper[[jax.Array], int], serve: partax.stages.Bound[int], x: jax.Array) -> None:
    assert_type(step(x), int)
    assert_type(step.bind(x), partax.stages.Bound[int])
    assert_type(serve(), int)


def groups(model: Model) -> None:
    named = {"scale": partax.by_path("scale"), 1: partax.is_array}
    assert_type(partax.tree.labels(model, named, default="rest"), Any)
    partax.tree.labels(model, {}, default=[])  # pyright: ignore[reportArgumentType]

    table = partax.tree.summary(model, depth=None)
    assert_type(table, partax.tree.Summary)
    assert_type(table.rows, tuple[partax.tree.SummaryRow, ...])
    partax.tree.summary(model, depth="2")  # pyright: ignore[reportArgumentType]


def limiting(model: Model, x: jax.Array) -> None:
    @partax.filter_jit
    @partax.debug.assert_max_traces(max_traces=1)
    def step(model: Model, x: jax.Array, n: int = 1) -> tuple[jax.Array, int]:
        return model(x), n

    assert_type(step(model, x, n=2), tuple[jax.Array, int])
    assert_type(partax.debug.get_num_traces(step), int)
    step(model)  # pyright: ignore[reportCallIssue]
    partax.debug.assert_max_traces(len)  # pyright: ignore[reportCallIssue]


def walking(model: Model, arrays: dict[str, jax.Array]) -> None:
    assert_type(partax.tree.at(lambda m: m.scale, model, 1), Model)
    assert_type(partax.tree.equal(model, arrays, rtol=1e-3), bool | jax.Array)
    partax.tree.at(lambda m: m.nothing, model, 1)  # pyright: ignore[reportAttributeAccessIssue]
    partax.tree.equal(model, rtolerance=1)  # pyright: ignore[reportCallIssue]


def scaled(model: Model, x: jax.Array, *, times: int = 1) -> dict[str, jax.Array]:
    return {"y": model(x, times=times)}


def loss_of(model: Model, x: jax.Array, *, times: int = 1) -> jax.Array:
    return model(x, times=times).sum()


def loss_and_aux(model: Model, x: jax.Array) -> tuple[jax.Array, str]:
    return loss_of(model, x), "aux"


class Transformed:
    @partax.filter_vmap(in_axes=(None, 0))
    def each(self, x: jax.Array, n: int = 1) -> tuple[jax.Array, int]:
        return x, n

    @partax.filter_grad
    def slope(self, x: jax.Array) -> jax.Array:
        return x


def gradients_keep_parameters(model: Model, x: jax.Array) -> None:
    partax.filter_grad(loss_of)(model, x, times=2)
    partax.filter_value_and_grad(has_aux=True)(loss_and_aux)(model, x)
    Transformed().slope(x)
    partax.filter_grad(loss_of)(x, x)  # pyright: ignore[reportArgumentType]


def wrappers_keep_parameters_and_results(model: Model, x: jax.Array) -> None:
    assert_type(partax.filter_vmap(scaled)(model, x, times=2), dict[str, jax.Array])
    assert_type(partax.filter_vmap(in_axes={"x": 1}, out_axes=0)(scaled)(model, x), dict[str, jax.Array])
    assert_type(Transformed().each(x, n=2), tuple[jax.Array, int])
    checkpointed = partax.filter_checkpoint(policy=jax.checkpoint_policies.dots_saveable)(scaled)
    assert_type(checkpointed(model, x), dict[str, jax.Array])
    assert_type(partax.filter_shard_map(scaled, out_specs=None)(model, x), dict[str, jax.Array])
    assert_type(partax.filter_custom_jvp(scaled)(model, x, times=1), dict[str, jax.Array])
    assert_type(partax.filter_custom_vjp(scaled)(model, x), dict[str, jax.Array])
    assert_type(partax.filter_closure_convert(scaled, model, x)(model, x), dict[str, jax.Array])
    assert_type(partax.filter_eval_shape(scaled, model, x), dict[str, jax.Array])
    assert_type(partax.filter_make_jaxpr(scaled)(model, x)[1], dict[str, jax.Array])
    partax.filter_vmap(scaled)(model)  # pyright: ignore[reportCallIssue]


def derivatives_have_the_types_of_arguments_and_results(model: Model, x: jax.Array) -> None:
    assert_type(partax.filter_jvp(scaled, (model, x), (model, None)), tuple[dict[str, jax.Array], dict[str, jax.Array]])
    out, pull = partax.filter_vjp(scaled, model, x)
    pull(out)
    partax.filter_jacrev(loss_of)(model, x, times=3)
    partax.filter_hessian(loss_of)("model", x)  # pyright: ignore[reportArgumentType]


class State(NamedTuple):
    x: jax.Array
    name: str


def x_of(state: State) -> jax.Array:
    return state.x


def same(state: State, x: jax.Array | None = None) -> State:
    return state


def loops(state: State, x: jax.Array) -> None:
    def step(state: State, x: jax.Array) -> tuple[State, dict[str, jax.Array]]:
        return state, {"x": x}

    def body(index: int, state: State) -> State:
        return state

    assert_type(partax.filter_scan(step, state, x, reverse=True), tuple[State, dict[str, jax.Array]])
    assert_type(partax.filter_while_loop(lambda state: True, same, state), State)
    assert_type(partax.filter_fori_loop(0, 3, body, state, unroll=2), State)
    assert_type(partax.filter_map(x_of, state, batch_size=2), jax.Array)
    partax.filter_scan(step, state, "x")  # pyright: ignore[reportArgumentType]
    partax.filter_map(x_of, 1)  # pyright: ignore[reportArgumentType]


def branches(state: State, x: jax.Array) -> None:
    def other(state: State, x: jax.Array) -> State:
        return State(x, state.name)

    assert_type(partax.filter_cond(True, other, other, state, x), State)
    assert_type(partax.filter_switch(x, [same, other], state, x), State)
    partax.filter_cond(True, other, other, state, "x")  # pyright: ignore[reportArgumentType]


def layers(first: Affine, second: Affine, x: jax.Array) -> None:
    def with_aux(layer: Affine, x: jax.Array) -> tuple[jax.Array, State]:
        return layer(x), State(x, "x")

    assert_type(partax.tree.stack([first, second]), Affine)
    assert_type(partax.tree.unstack(first), tuple[Affine, ...])
    partax.scan_layers(first, x, call=with_aux, has_aux=True, remat=jax.checkpoint_policies.dots_saveable, unroll=True)
    partax.scan_layers(first)  # pyright: ignore[reportCallIssue]
    partax.scan_layers(first, x, remat="all")  # pyright: ignore[reportArgumentType]
