"""Guards the promise that each case of the corpus is told in one way: a play of calls, the last of which is new."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

import partax
from counting import seen


class Outcome(StrEnum):
    """What becomes of the last call of a play, in the words of the table in docs/guides/retraces.md."""

    HIT = "same trace"
    TRACES = "retraces"
    WRONG = "wrong result"
    RAISES = "error"


HIT, TRACES, WRONG, RAISES = Outcome
# The outcome of both others, where it is not partax's.
OTHERS_TRACE: dict[str, Any] = {"jax": TRACES, "equinox": TRACES}
OTHERS_WRONG: dict[str, Any] = {"jax": WRONG, "equinox": WRONG}


@dataclass(frozen=True)
class Library:
    """One way to compile functions."""

    name: str  # `partax`, `jax`, `equinox`, or `plain` for none of them, which gives the right results
    filter_jit: Any  # its jit; None for `plain`
    grad: Callable[..., Any]

    def jit(self, fun: Any, *, static: tuple[str, ...] = (), **options: dict[str, Any]) -> Any:
        """Compiles a function. `static` is what jax.jit must be told; `options` has those of each library by name."""
        if self.filter_jit is None:
            return fun
        more = options.get(self.name, {})
        if self.name == "jax" and static:
            more = {"static_argnames": static, **more}
        return self.filter_jit(fun, **more)

    def compiled(self, fun: Any, *arguments: Any) -> Any:
        """Compiles what `jit` gave ahead of time."""
        return fun if self.filter_jit is None else fun.lower(*arguments).compile()


PLAIN = Library("plain", None, eqx.filter_grad)
PARTAX = Library("partax", partax.filter_jit, partax.filter_grad)
OTHERS = (Library("jax", jax.jit, jax.grad), Library("equinox", eqx.filter_jit, eqx.filter_grad))

Play = Callable[[Library], Iterator[Callable[[], Any]]]


@dataclass(frozen=True)
class Case:
    """One change between two calls."""

    name: str  # what changes, as a row of that table
    play: Play  # yields the calls, in order; each is made twice, and the last one is what the case is about
    # What partax must say of that, without the place and with `FILE:LINE` of functions; `...` is any text. Or None.
    line: str | None
    partax: Outcome  # what becomes of the last call
    jax: Outcome | None  # None if the calls cannot be made with it
    equinox: Outcome | None


X = jnp.ones((2, 3))


def played(
    name: str, line: str | None = None, *, partax: Outcome | None = None, **others: Outcome | None
) -> Callable[[Play], Case]:
    """Makes a case of a function that yields the calls; a line without an outcome means a trace."""
    outcome = partax or (HIT if line is None else TRACES)
    return lambda play: Case(name, play, line, outcome, others.get("jax", outcome), others.get("equinox", outcome))


def change(
    name: str,
    fun: Any,
    before: Any,
    now: Any,
    reason: str | None = None,
    *,
    make: Callable[[Any], Any] = lambda value: value,
    static: bool = False,
    **others: Outcome | None,
) -> Case:
    """A function of an array `x` that stays and of a value `a`, which `make` makes anew for each of two calls.

    `reason` is what partax must give for a trace, None for a hit; `static` whether jax.jit is told that `a` is; the
    others are `jax` and `equinox`, where the outcome is not partax's, None where it cannot be done.
    """

    def play(library: Library) -> Iterator[Callable[[], Any]]:
        f = library.jit(fun, static=("a",) if static else ())
        for value in (before, now):
            yield lambda value=value: f(X, make(value))

    return played(name, reason and f"<lambda>: trace 2, because {reason}", **others)(play)


def changed(
    name: str,
    reason: str,
    make: Callable[[Any], Any],
    change: Callable[[Any], object],
    held: Any,
    use: Callable[[Any, Any], Any],
    *,
    static: bool = False,
    others: dict[str, Any] = OTHERS_WRONG,
) -> Case:
    """A function `use` of an argument `a` that `make` makes of what it holds, called before and after a `change`."""

    def play(library: Library) -> Iterator[Callable[[], Any]]:
        own = copy.deepcopy(held)
        made = make(own)
        f = library.jit(lambda x, a, case=name: use(seen(x), a), static=("a",) if static else ())
        for _ in range(2):
            yield lambda: f(X, made)
            change(own)

    return played(name, f"<lambda>: trace 2, because {reason}", **others)(play)


def recreated(path: str, *nouns: str) -> str:
    """The reason of a trace due to a callable or object that was re-created, and what the text of it must name."""
    return "...".join([f"`{path}`: " if path else "", " was re-created and ", *nouns, ""])


def number(path: str, arrow: str, last: str | None = None) -> str:
    """The reason of a second trace that a static number has caused."""
    argument = path.partition(".")[0].partition("[")[0]
    return f'{path}: {arrow} (2 traces so far: pass jnp.asarray({last or path}), or dynamic=("{argument}",))'


def static_field(owner: str, name: str, arrow: str) -> str:
    """The reason of a second trace that a number in a static field has caused, which `dynamic=` cannot name."""
    advice = f"it is a static field of `{owner}`: make it one that holds an array"
    return f"{owner}.{name}: {arrow} (2 traces so far: {advice})"
