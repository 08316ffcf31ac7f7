"""Guards what a type checker sees of control flow and layers: this file is checked (pyright, strict), never run."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from typing import NamedTuple, assert_type

import jax

import partax


class State(NamedTuple):
    x: jax.Array
    name: str


class Layer:
    weight: jax.Array

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.weight * x


def loops(state: State, x: jax.Array) -> None:
    def step(state: State, x: jax.Array) -> tuple[State, dict[str, jax.Array]]:
        return state, {"x": x}

    def body(index: int, state: State) -> State:
        return state

    def goes_on(state: State) -> bool:
        return True

    def same(state: State) -> State:
        return state

    def wrong(state: State) -> int:
        return 1

    assert_type(partax.filter_scan(step, state, x, reverse=True), tuple[State, dict[str, jax.Array]])
    assert_type(partax.filter_while_loop(goes_on, same, state), State)
    assert_type(partax.filter_fori_loop(0, 3, body, state, unroll=2), State)
    assert_type(partax.filter_map(step_of, state, batch_size=2), jax.Array)
    partax.filter_scan(step, state, "x")  # pyright: ignore[reportArgumentType]
    assert_type(partax.filter_scan(lambda state, _: (state, 1), state, length=3), tuple[State, int])
    partax.filter_scan(wrong, state, x)  # pyright: ignore[reportArgumentType]
    partax.filter_while_loop(goes_on, wrong, state)  # pyright: ignore[reportArgumentType]
    partax.filter_map(step_of, 1)  # pyright: ignore[reportArgumentType]
    partax.filter_scan(step)  # pyright: ignore[reportCallIssue]


def step_of(state: State) -> jax.Array:
    return state.x


def branches(state: State, x: jax.Array) -> None:
    def first(state: State, x: jax.Array) -> State:
        return state

    def second(state: State, x: jax.Array) -> State:
        return State(x, state.name)

    assert_type(partax.filter_cond(True, first, second, state, x), State)
    assert_type(partax.filter_switch(x, [first, second], state, x), State)
    partax.filter_cond(True, first, second, state)  # pyright: ignore[reportArgumentType]
    partax.filter_cond(True, first, second, state, "x")  # pyright: ignore[reportArgumentType]


def layers(first: Layer, second: Layer, x: jax.Array) -> None:
    def with_aux(layer: Layer, x: jax.Array) -> tuple[jax.Array, State]:
        return layer(x), State(x, "x")

    assert_type(partax.stack([first, second]), Layer)
    assert_type(partax.unstack(first), tuple[Layer, ...])
    assert_type(partax.fold([first, second], x), jax.Array)
    assert_type(partax.fold(first, x, remat=jax.checkpoint_policies.dots_saveable, unroll=True), jax.Array)
    assert_type(partax.fold(first, x, call=with_aux, has_aux=True), tuple[jax.Array, State])
    partax.fold(first)  # pyright: ignore[reportCallIssue]
    partax.fold(first, x, remat="all")  # pyright: ignore[reportArgumentType]
