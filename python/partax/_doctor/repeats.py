"""Finds a sub-program that is there many times, in a row (a Python loop) or scattered (a function called at k places).

Equations are compared as tokens: the primitive, how deep it is nested, and the types of its results. A loop is a run in
which each token is that of one period before; what is called in many places is a sequence of tokens that is there again
and again.
"""

import itertools
import timeit
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal, Var, jaxpr_as_fun
from numpy.lib.stride_tricks import sliding_window_view

from partax._doctor.equations import Equations
from partax._doctor.examined import Examined
from partax._doctor.finding import Figures, Finding, Severity, finding_at
from partax._doctor.lines import Line, loop_around, stack_of

# A loop of fewer turns, or of less code, compiles in well under a second: 64 layers of three equations take 1.8 s in a
# loop and 0.4 s scanned, 8 take 0.3 s and 0.3 s.
_FEWEST_TURNS = 8
_FEWEST_EQUATIONS = 64
_FEWEST_PLACES = 8
_FEWEST_UNROLLED = 32  # turns: up to 16 are common for cells of recurrent networks
_SHORTEST_BLOCK = 12  # equations of a function that is called in many places
_SMALLEST_SHARE = 0.2  # of the program; below, something else makes it slow
_SMALLEST_SHARE_SCATTERED = 0.4  # the eight norms of a healthy model's four blocks are a quarter of its training step
# What operates on single elements is fused, and costs the compiler a tenth of what the others cost.
_FEWEST_CHEAP = 1000
_FEWEST_TOLD, _FEWEST_TURNS_TOLD = 500, 100  # from which it is told, as it may grow
# Ten small layers with their gradients are about 100 equations and compile in 0.12 s, whatever their share is.
_MEDIUM_EQUATIONS, _HIGH_EQUATIONS = 300, 1000
_MOST_PERIODS = 40  # that are tried
# Tokens that must agree for two places to hint at a period: few, as a turn may be short, and more than a short turn
# has, as it may hold the few several times.
_CONTEXTS = (4, 16)
_SAMPLED = 64  # equations of a period whose lines are looked at

_COSTLY = {
    "dot_general", "conv_general_dilated", "scan", "while", "cond", "sort", "scatter", "scatter-add", "gather",
    "cumsum", "fft", "cholesky", "triangular_solve", "lu", "qr", "eigh", "svd", "reduce_window", "custom_jvp_call",
    "custom_vjp_call", "jit", "pjit", "closed_call", "checkpoint", "dynamic_slice", "dynamic_update_slice",
    "reduce_sum", "reduce_max", "random_bits", "threefry2x32", "argmax", "select_and_scatter_add",
}  # fmt: skip


class Repeat(NamedTuple):
    starts: Sequence[int]  # where each begins, in the program's equations
    length: int  # how many equations one has
    in_a_row: bool  # whether each begins where the one before ends
    same_shapes: bool = True

    @property
    def equations(self) -> int:
        return len(self.starts) * self.length

    def is_worth_it(self, equations: Equations) -> bool:
        """Whether it takes the compiler long."""
        one = equations.names[self.starts[0] : self.starts[0] + self.length]
        return not _COSTLY.isdisjoint(one) or self.equations >= _FEWEST_CHEAP

    def is_told(self, _: Equations) -> bool:
        """Whether it is told though it does not."""
        return self.in_a_row and len(self.starts) >= _FEWEST_TURNS_TOLD and self.equations >= _FEWEST_TOLD


_Wanted = Callable[[Repeat, Equations], bool]


def find(examined: Examined) -> Iterator[Finding]:
    equations = examined.equations
    yield from _unrolled(equations)
    if len(equations) < _FEWEST_EQUATIONS:
        return
    groups: list[_Group] = []
    repeats = [(not repeat.is_worth_it(equations), repeat) for repeat in repeats_of(equations)]
    for is_cheap, repeat in sorted(repeats, key=lambda it: (it[0], it[1].starts[0])):
        stacks = _stacks(equations, repeat)
        line = _line_of(stacks)
        if line is None or (is_cheap and not repeat.is_told(equations)):
            continue
        group = next((group for group in groups if group.has(repeat, line)), None)
        if group is None:
            groups.append(group := _Group(line, {at[:2] for stack in stacks for at in stack}, is_cheap, []))
        if is_cheap == group.is_cheap:
            group.repeats.append(repeat)
    for group in groups:
        yield from _finding(examined, group)


def _unrolled(equations: Equations) -> Iterator[Finding]:
    """Scans of which many turns are compiled one after the other."""
    found: dict[Line, Repeat] = {}
    for index in equations.named("scan"):
        params, inside = equations.eqns[index].params, equations.inside(index)
        turns = min(int(params["unroll"]), int(params["length"]))
        repeat = Repeat((inside.start,) * turns, len(inside), True)
        if turns >= _FEWEST_UNROLLED and repeat.equations >= 2 * _FEWEST_EQUATIONS and repeat.is_worth_it(equations):
            found.setdefault(equations.line(index), repeat)  # another one of the line is the gradient's
    for line, it in found.items():
        turns = len(it.starts)
        figures = {"repetitions": turns, "equations_each": it.length, "equations": it.equations}
        message = f"this scan is unrolled: {turns} turns of {it.length} equations are compiled one after the other"
        advice = "leave `unroll` as it is, or unroll a few turns, such as 4: more of them take longer to compile than "
        yield finding_at(line, "repeat", _severity(it.equations), message, f"{advice}they gain", **figures)


def _severity(equations: int) -> Severity:
    return "low" if equations < _MEDIUM_EQUATIONS else "medium" if equations < _HIGH_EQUATIONS else "high"


class _Group(NamedTuple):
    """What repeats because of one loop: its forward pass, and the backward pass that comes from lines inside of it."""

    line: Line
    inside: set[tuple[str, int]]
    is_cheap: bool
    repeats: list[Repeat]

    @property
    def is_optimiser(self) -> bool:
        """Whether it is an update for each array of a tree, which is as healthy as the number of arrays."""
        return any("optax" in Path(file).parts for file, _ in self.inside)

    def has(self, repeat: Repeat, line: Line) -> bool:
        is_as_often = abs(len(repeat.starts) - len(self.repeats[0].starts)) <= 1
        return line[:2] == self.line[:2] or (line[:2] in self.inside and is_as_often)


def repeats_of(equations: Equations) -> list[Repeat]:
    """All sub-programs that are there several times, none within another, the largest first."""
    tokens = equations.tokens
    free = np.ones(len(tokens), dtype=bool)
    found: list[Repeat] = []
    # A cheap loop within the turns of a costly one must not hide it, and is told only if there is no such.
    for wanted in (Repeat.is_worth_it, Repeat.is_told):
        found += _loops(equations, tokens, free, True, wanted)
    if np.count_nonzero(free) >= _FEWEST_EQUATIONS:
        loose = _loose_tokens(equations, tokens)
        for wanted in (Repeat.is_worth_it, Repeat.is_told):
            found += _loops(equations, loose, free, False, wanted)
        found += _scattered(tokens, free)
    return sorted(found, key=lambda repeat: -repeat.equations)


def _loose_tokens(equations: Equations, tokens: np.ndarray) -> np.ndarray:
    """The same, whatever the shapes are: each exact token is looked at once."""
    numbers: dict[Hashable, int] = {}
    loose = np.empty(len(equations.first_of_tokens), dtype=np.int64)
    for at, i in enumerate(equations.first_of_tokens):
        results = equations.eqns[i].outvars
        rank = len(getattr(results[0].aval, "shape", ())) if results else 0
        loose[at] = numbers.setdefault((equations.names[i], equations.depths[i], len(results), rank), len(numbers))
    return loose[tokens]


def _hashes(tokens: np.ndarray, length: int) -> np.ndarray:
    """A number for each sequence of so many tokens; equal ones have the same."""
    if len(tokens) < length:
        return np.zeros(0, dtype=np.uint64)
    weights = np.random.default_rng(0).integers(1, 1 << 63, length, dtype=np.uint64)
    return sliding_window_view(tokens.astype(np.uint64) + np.uint64(1), length) @ weights  # modulo 2**64


def _loops(
    equations: Equations, tokens: np.ndarray, free: np.ndarray, same_shapes: bool, is_wanted: _Wanted
) -> Iterator[Repeat]:
    """Runs in which each token is that of one period before; takes those that are wanted from `free`."""
    for period in _periods(tokens):
        same = (tokens[period:] == tokens[:-period]) & free[period:] & free[:-period]
        edges = np.flatnonzero(np.diff(np.concatenate(([0], same.view(np.int8), [0]))))
        for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            turns = (end - begin) // period + 1
            span = range(begin, begin + turns * period, period)
            repeat = Repeat(span, period, True, same_shapes)
            if turns >= _FEWEST_TURNS and repeat.equations >= _FEWEST_EQUATIONS and is_wanted(repeat, equations):
                free[span.start : span.stop] = False
                yield repeat


def _periods(tokens: np.ndarray) -> list[int]:
    """The distances at which tokens most often come again, and the shorter of two that do so nearly as often."""
    found: dict[int, int] = {}
    for length in _CONTEXTS:
        contexts = _hashes(tokens, length)
        order = np.argsort(contexts, kind="stable")
        gaps = np.diff(order)[np.diff(contexts[order]) == 0]
        lengths, counts = np.unique(gaps, return_counts=True)
        is_enough = (counts * (_FEWEST_TURNS / (_FEWEST_TURNS - 1)) >= lengths * _FEWEST_TURNS * 0.5) & (counts >= 8)
        # Within turns that are loops themselves most come again sooner: those around one token are enough.
        is_enough |= counts >= (_FEWEST_TURNS - 1) * length
        for gap, count in zip(lengths[is_enough].tolist(), counts[is_enough].tolist(), strict=True):
            found[gap] = max(found.get(gap, 0), count)
    return sorted(found, key=lambda gap: (-found[gap], gap))[:_MOST_PERIODS]


def _scattered(tokens: np.ndarray, free: np.ndarray) -> Iterator[Repeat]:
    """Sequences that are there in many places; takes them from `free`."""
    hashes = _hashes(tokens, _SHORTEST_BLOCK)
    for _ in range(_MOST_PERIODS if len(hashes) else 0):
        at = np.flatnonzero(sliding_window_view(free, _SHORTEST_BLOCK).all(1))
        if len(at) < _FEWEST_PLACES:
            return
        _, inverse, counts = np.unique(hashes[at], return_inverse=True, return_counts=True)
        best = int(np.argmax(counts))
        if counts[best] < _FEWEST_PLACES:
            return
        starts: list[int] = []
        for start in at[inverse == best].tolist():
            if not starts or start - starts[-1] >= _SHORTEST_BLOCK:
                starts.append(start)
        earlier = _common_length(tokens[::-1], free[::-1], [len(tokens) - start for start in reversed(starts)], 0)
        starts = [start - earlier for start in starts]
        length = _common_length(tokens, free, starts, _SHORTEST_BLOCK + earlier)
        for start in starts:
            free[start : start + length] = False
        if len(starts) >= _FEWEST_PLACES:
            yield Repeat(tuple(starts), length, False)


def _common_length(tokens: np.ndarray, free: np.ndarray, starts: list[int], known: int) -> int:
    """How far the sequences that begin there agree, without one reaching into another; `known` is agreed already."""
    between = 0 if known else _SHORTEST_BLOCK  # what is agreed of the next one, when looking backwards
    most = min([b - a - between for a, b in itertools.pairwise(starts)] + [len(tokens) - starts[-1]])
    at = np.asarray(starts)
    length = min(known, most)
    while length < most and free[at + length].all() and (tokens[at + length] == tokens[at[0] + length]).all():
        length += 1
    return length


def _stacks(equations: Equations, repeat: Repeat) -> list[tuple[Line, ...]]:
    """The lines of one turn, or of some of many: one in the middle, as the first may begin before the loop."""
    first = repeat.starts[len(repeat.starts) // 2]
    outer = equations.outermost(first, repeat.length)
    return [stack for i in outer[:: max(1, len(outer) // _SAMPLED)] if (stack := stack_of(equations.eqns[i]))]


def _line_of(stacks: list[tuple[Line, ...]]) -> Line | None:
    """The user's line that repeats: the innermost one in a loop that all equations of a turn come from.

    Where they come from several lines of one function, the first of those; and without a loop in the source, the
    innermost of all. None of what a library alone repeats, such as a solver's stages: its user can mend nothing.
    """
    if not stacks:
        return None
    common = 0
    while all(len(stack) > common and stack[common] == stacks[0][common] for stack in stacks):
        common += 1
    shared = [line for line in reversed(stacks[0][:common]) if line.is_users]
    inside = [stack[common] for stack in stacks if len(stack) > common]
    is_one_function = len({(line.file, line.function) for line in inside}) == 1 and len(inside) == len(stacks)
    first = [min(inside, key=lambda line: line.line)] if is_one_function and inside[0].is_users else []
    candidates = [*first, *shared]
    return next(filter(loop_around, candidates), candidates[0] if candidates else None)


def _finding(examined: Examined, group: _Group) -> Iterator[Finding]:
    """What repeats because of one loop, if it is much of the program."""
    largest = max(group.repeats, key=lambda repeat: repeat.equations)
    turns, covered = len(largest.starts), sum(repeat.equations for repeat in group.repeats)
    total = len(examined.equations)
    share = covered / total
    smallest = _SMALLEST_SHARE if largest.in_a_row else _SMALLEST_SHARE_SCATTERED
    if share < smallest or (group.is_optimiser and covered < _FEWEST_CHEAP):
        return
    figures: Figures = {
        "repetitions": turns, "equations_each": largest.length, "equations": covered, "share": round(share, 3),
    }  # fmt: skip
    if examined.measure and largest.in_a_row:
        figures.update(measured_seconds(examined.equations, largest.starts, largest.length))
    where = "in a row" if largest.in_a_row else "in different places"
    if len(group.repeats) > 1:
        first = (examined.equations.eqns[it.starts[0]].source_info for it in group.repeats)
        backward = ", such as its backward pass," if any("transpose" in str(it.name_stack) for it in first) else ""
        where += f", and others that come from the same code{backward} as often"
    cheap = ", each of which the compiler is soon done with" if group.is_cheap else ""
    counts = f"{covered} of {total} equations ({share:.0%}){cheap}"
    message = f"the same {largest.length} equations are there {turns} times {where}: {counts}"
    severity = "info" if group.is_cheap else "medium" if group.is_optimiser else _severity(covered)
    yield finding_at(group.line, "repeat", severity, message, _advice(group, largest), **figures)


def _advice(group: _Group, repeat: Repeat) -> str:
    if group.is_optimiser:
        return "the optimiser has an update for each array of the model: stacked layers (`partax.tree.stack`) have one"
    if not repeat.in_a_row:
        advice = f"let the compiler see `{group.line.function.rpartition('.')[2]}` once: stack its inputs and use "
        advice += "`jax.vmap`, `partax.filter_scan` or `jax.lax.map(batch_size=...)` over them; a nested "
        return f"{advice}`partax.filter_jit` of it is traced once, though XLA still compiles each call"
    if not repeat.same_shapes:
        advice = "this is a Python loop whose turns have other shapes: pad them to one shape, and let "
        return f"{advice}`partax.filter_scan` or `jax.lax.scan` compile one turn"
    advice = (
        "this is a Python loop: over layers, stack them (`partax.tree.stack`) and use `partax.fold`; over time steps "
    )
    advice += "or chunks, use `partax.filter_scan`, `jax.lax.scan` or `jax.lax.map(batch_size=...)`: one turn is "
    return f"{advice}compiled then"


_FEW, _MORE = 2, 8  # turns that are compiled; the difference is the price of six


def measured_seconds(equations: Equations, starts: Sequence[int], length: int) -> Figures:
    """Compiles a few turns of a loop, of so many equations from each start on, and one turn as the body of a scan.

    Returns:
      `measured_turns`, `turn_seconds` (what each further turn adds), `loop_seconds` (of all turns, by these) and
      `scan_seconds` (of a scan over all turns); nothing where a turn cannot be compiled by itself.
    """
    turns = [[equations.eqns[i] for i in equations.outermost(start, length)] for start in starts]
    measured = min(_MORE, len(turns))
    try:
        _compile_seconds(_program(turns[:_FEW]))  # the first in a process sets the compiler up
        few, more = (_compile_seconds(_program(turns[:count])) for count in (_FEW, measured))
        scanned = _compile_seconds(_scan(turns))
    except Exception:  # what only its own program can have: a mesh axis, a token, an effect
        return {}
    each = max(more - few, 0.0) / (measured - _FEW)
    return {
        "measured_turns": measured,
        "turn_seconds": round(each, 4),
        "loop_seconds": round(few + each * (len(turns) - _FEW), 3),
        "scan_seconds": round(scanned, 3),
    }


def _inputs_of(eqns: list[Any]) -> list[Any]:
    """The variables that equations read and none of them makes, in order."""
    made = {var for eqn in eqns for var in eqn.outvars}
    read = (var for eqn in eqns for var in eqn.invars if not isinstance(var, Literal) and var not in made)
    return list(dict.fromkeys(read))


def _closed(eqns: list[Any], results: list[Any]) -> Any:
    """A program of these equations; what jax knows of its arguments' names is that of an empty one."""
    inputs = _inputs_of(eqns)
    empty = jax.make_jaxpr(lambda *values: None)(*[jax.ShapeDtypeStruct((), "float32")] * len(inputs)).jaxpr
    return ClosedJaxpr(empty.replace(invars=inputs, outvars=results, eqns=eqns, effects=empty.effects), ())


def _program(turns: list[list[Any]]) -> Any:
    """The program of some turns one after the other; its results are those of the last equation."""
    eqns = [eqn for turn in turns for eqn in turn]
    return _closed(eqns, [var for var in eqns[-1].outvars if type(var) is Var])


def _scan(turns: list[list[Any]]) -> Any:
    """A scan of one turn: what the next turn reads of it is the carry, all else stays as it is."""
    inputs, inputs_of_next = _inputs_of(turns[0]), _inputs_of(turns[1])
    made = {var for eqn in turns[0] for var in eqn.outvars if type(var) is Var}
    pairs = enumerate(zip(inputs, inputs_of_next, strict=False))
    carried = {i: after for i, (before, after) in pairs if after in made and before.aval == after.aval}
    body = jaxpr_as_fun(_closed(turns[0], list(carried.values())))

    def scanned(*values: Any) -> Any:
        def turn(carry: Any, _: Any) -> Any:
            now = dict(enumerate(values)) | dict(zip(carried, carry, strict=True))
            return body(*now.values()), None

        return jax.lax.scan(turn, [values[i] for i in carried], None, length=len(turns))[0]

    return jax.make_jaxpr(scanned)(*[jax.ShapeDtypeStruct(var.aval.shape, var.aval.dtype) for var in inputs])


def _compile_seconds(program: Any) -> float:
    structs = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in program.in_avals]
    return timeit.timeit(jax.jit(jaxpr_as_fun(program)).lower(*structs).compile, number=1)
