"""The slow model of one wrapper whose function, cache and arguments change between calls: it remembers programs. And
user code that does something within a call."""

import inspect
from collections.abc import Callable, Hashable
from typing import Any

import jax

from reference import abstract, canonical, dynamic_leaves, static_key, to_jax


class WrapperModel:
    """What each call has to give, and how often it may trace.

    A program is known from its trace on until the cache is cleared: then the next call traces again. Where a call has
    failed or the cache was cleared on the way, the program may be there or not; then so says ``maybe``.
    """

    def __init__(self) -> None:
        self.known: dict[Hashable, dict[Hashable, bool]] = {}  # by state of the function: program -> surely there

    def program(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable:
        given = inspect.signature(function).bind(*args, **kwargs).arguments  # a default that is left out is no value
        values = list(given.values())
        return tuple(given), static_key(values), tuple(abstract(x) for _, x in dynamic_leaves(values))

    def result(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args, kwargs = to_jax((args, kwargs))
        return to_jax(function(*args, **kwargs))

    def bounds(self, state: Any, program: Hashable) -> tuple[int, int]:
        """The least and the greatest number of traces that a call may make."""
        surely = self.known.get(canonical(state), {}).get(program)
        return (1, 1) if surely is None else (0, 0) if surely else (0, 1)

    def called(self, state: Any, program: Hashable, surely: bool = True) -> None:
        programs = self.known.setdefault(canonical(state), {})
        programs[program] = surely

    def cleared(self) -> None:
        self.known.clear()

    def forgotten(self) -> None:
        """Nothing is sure any more: the function was made anew, or the cache was cleared within a call."""
        for programs in self.known.values():
            programs.update(dict.fromkeys(programs, False))


class Hooks:
    """What user code does once, at the n-th of its events within a call."""

    event = ""
    countdown = 0
    action: Callable[[], None] | None = None

    @classmethod
    def fire(cls, event: str) -> None:
        if cls.action is None or event != cls.event:
            return
        cls.countdown -= 1
        if cls.countdown <= 0:
            action, cls.action = cls.action, None
            action()


class Touchy:
    """Static by value, with hooks in `==` and hash."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        Hooks.fire("eq")
        return isinstance(other, Touchy) and other.value == self.value

    def __hash__(self) -> int:
        Hooks.fire("hash")
        return hash(self.value)


class Hooked:
    """A node with hooks in its flatten and unflatten functions."""

    def __init__(self, children: Any, label: Any) -> None:
        self.children = children
        self.label = label


def _flatten(node: Hooked) -> Any:
    Hooks.fire("flatten")
    return (node.children,), node.label


def _unflatten(label: Any, children: Any) -> Hooked:
    Hooks.fire("unflatten")
    return Hooked(children[0], label)


class Expected(Exception):
    """Raised by user code."""


jax.tree_util.register_pytree_node(Hooked, _flatten, _unflatten)
