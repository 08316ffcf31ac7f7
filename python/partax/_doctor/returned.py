"""Which arguments come back in the result, as a training step's model does: the next call is made with them."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from partax._doctor.array_types import type_of
from partax._doctor.flat_program import ELEMENTWISE, IN_PLACE, LITERAL, LOOPS, FlatProgram, flat_program, scan_parts
from partax._doctor.lines import grouped
from partax._doctor.program import Leaf, Program, argument_name, kept

_FEWEST_ARRAYS = 4  # of a state that is known by its types alone
_MOST_ORIGINS = 8  # arguments that are noted of one value: Adam's new weights come from three
_ELEMENT = re.compile(r"result\[(\d+)\](.*)", re.DOTALL)


class ReturnedArray(NamedTuple):
    argument: Leaf
    result: Leaf  # what comes back in its place
    is_update: bool  # whether that is computed from it by element
    is_grown: bool  # whether that is itself with one more row, as a cache that a loop appends to


class Returned(NamedTuple):
    name: str  # of an argument that comes back
    arrays: Sequence[ReturnedArray]  # all of it, without what is returned unchanged


@kept
def returned(program: Program) -> list[Returned]:
    """The arguments that come back: with the arrays at the same paths, and computed from those of the argument.

    A single array that comes back as the only result is its own successor if it is the first argument. What is
    returned unchanged is none of them.
    """
    arguments, results = _by_name(program.arguments), _by_element(program)
    flat = flat_program(program)
    origins = _origins(flat, program)
    numbers = _result_numbers(program, flat)
    inputs = dict(zip((leaf.path for leaf in program.arguments), flat.inputs, strict=True))
    come_back: list[Returned] = []
    left = dict(arguments)
    for i, result in enumerate(results):
        name = _successor_of(i, result, left, list(arguments), len(results))
        pairs: list[ReturnedArray] = []
        for path, leaf in left[name].items() if name is not None else ():
            number = numbers.get(result[path].path)
            if number is not None:
                is_update = number != LITERAL and inputs[leaf.path] in origins[number]
                # By its place alone, an array may as well be one that is padded.
                is_grown = max(len(result), len(results)) > 1 and _has_one_more(flat, inputs[leaf.path], number)
                pairs.append(ReturnedArray(leaf, result[path], is_update, is_grown))
        if name is not None and any(pair.is_update or pair.is_grown for pair in pairs):
            come_back.append(Returned(name, pairs))
            del left[name]
    has_paths = program.traced is not None
    is_in_place = program.kind == "partax.nnx" or (program.kind == "nnx" and has_paths)
    if is_in_place or (not has_paths and any(it.path.startswith("output ") for it in program.results)):
        others = _in_place(program, flat, origins, set(numbers.values()) if has_paths else set())
        come_back += [it for it in others if has_paths or len(it.arrays) >= _FEWEST_ARRAYS]
    return come_back


def _has_one_more(flat: FlatProgram, given: int, number: int) -> bool:
    """Whether a value is a concatenation of an input and one row, or one number, that is not always the same."""
    at = flat.makers.get(number, -1)
    if at < 0 or flat.eqns[at].primitive.name != "concatenate" or flat.reads[at][0] != given:
        return False
    eqn, added = flat.eqns[at], flat.reads[at][-1]
    made_of = flat.reads[flat.makers[added]] if added in flat.makers else ()
    if added in flat.constants or set(made_of) == {LITERAL}:
        return False
    axis = eqn.params["dimension"]
    return bool(eqn.outvars[0].aval.shape[axis] == eqn.invars[0].aval.shape[axis] + 1)


def _by_name(leaves: Sequence[Leaf]) -> dict[str, dict[str, Leaf]]:
    """For each argument the arrays by their path inside of it."""
    groups = grouped(leaves, lambda leaf: argument_name(leaf.path))
    return {name: {leaf.path[len(name) :]: leaf for leaf in group} for name, group in groups.items()}


def _by_element(program: Program) -> list[dict[str, Leaf]]:
    """The same of the elements of a tuple, or of the only result."""
    whole = {leaf.path.removeprefix("result"): leaf for leaf in program.results}
    parts = [_ELEMENT.fullmatch(leaf.path) for leaf in program.results]
    is_argument = any(it.keys() == whole.keys() for it in _by_name(program.arguments).values())
    if is_argument or type(program.out_info) not in (tuple, list, type(None)) or None in parts:
        return [whole]
    elements = [(int(it[1]), it[2]) for it in parts if it is not None]
    count = len(program.out_info or ()) or 1 + max((at for at, _ in elements), default=-1)
    by_element = [dict[str, Leaf]() for _ in range(count)]
    for (at, rest), leaf in zip(elements, program.results, strict=True):
        by_element[at][rest] = leaf
    return by_element


def _is_like(argument: dict[str, Leaf], result: dict[str, Leaf]) -> bool:
    """Whether arrays are at the same paths; a single one has to have the same shape too."""
    if argument.keys() != result.keys():
        return False
    return len(result) > 1 or all(leaf.aval.shape == result[path].aval.shape for path, leaf in argument.items())


def _successor_of(
    index: int, result: dict[str, Leaf], left: dict[str, dict[str, Leaf]], names: list[str], count: int
) -> str | None:
    """Which argument an element of the result is for: by position, or by structure if that has arrays."""
    name = names[index] if index < len(names) and (count > 1 or index == 0) else ""
    if result and name in left and (_is_like(left[name], result) or (count > 1 and left[name].keys() == result.keys())):
        return name
    others = names if len(result) > 1 else []
    return next((it for it in others if it in left and _is_like(left[it], result)), None)


def _result_numbers(program: Program, flat: FlatProgram) -> dict[str, int]:
    """The number of each array of the result by its path; none of what is returned unchanged."""
    forwarded: set[str] = set()  # by partax, which are none of the program's results
    for leaf in (program.arguments[i] for i in program.forwarded):
        inside = leaf.path[len(argument_name(leaf.path)) :]
        alike = [it for it in program.results if it.path not in forwarded and type_of(it.aval) == type_of(leaf.aval)]
        forwarded.update(it.path for it in sorted(alike, key=lambda it: not it.path.endswith(inside))[:1])
    computed = [leaf for leaf in program.results if leaf.path not in forwarded]
    types = [type_of(var.aval) for var in program.jaxpr.jaxpr.outvars]
    # What nnx changes in place comes after these.
    if [type_of(leaf.aval) for leaf in computed] != types[: len(computed)]:
        return {}
    pairs = zip(computed, flat.results, strict=False)
    return {leaf.path: number for leaf, number in pairs if number not in flat.inputs}


def _in_place(
    program: Program, flat: FlatProgram, origins: list[tuple[int, ...]], computed: set[int]
) -> list[Returned]:
    """Arrays that the function has put into objects of its arguments instead of those that were there."""
    leaves = dict(zip(flat.inputs, program.arguments, strict=True))
    types = [var.aval for var in program.jaxpr.jaxpr.outvars]
    changed = [it for it in zip(flat.results, types, strict=True) if it[0] != LITERAL and it[0] not in computed]
    taken: dict[int, ReturnedArray] = {}
    for number, aval in sorted(changed, key=lambda it: len(origins[it[0]])):  # first the clear ones
        for origin in sorted(origins[number]):
            leaf = leaves[origin]
            if origin != number and origin not in taken and leaf.aval.dtype == aval.dtype:
                taken[origin] = ReturnedArray(leaf, Leaf(leaf.path, aval), is_update=True, is_grown=False)
                break
    by_name = grouped((taken[it] for it in sorted(taken)), lambda pair: argument_name(pair.argument.path))
    return [Returned(name, arrays) for name, arrays in by_name.items()]


def _origins(flat: FlatProgram, program: Program) -> list[tuple[int, ...]]:
    """For each value the inputs of its shape that it is computed from, element by element."""
    shapes = {number: leaf.aval.shape for number, leaf in zip(flat.inputs, program.arguments, strict=True)}
    origins: list[tuple[int, ...]] = [()] * (flat.values + 1)  # and last of literals, which come from none
    for number in flat.inputs:
        origins[number] = (number,)
    for eqn, reads, writes, treatment in zip(flat.eqns, flat.reads, flat.writes, flat.treatments, strict=True):
        name = eqn.primitive.name
        if treatment in (*ELEMENTWISE, IN_PLACE) or (treatment is None and name == "cond"):
            together = tuple(dict.fromkeys(it for number in reads for it in origins[number]))
            sources = [together] * len(writes)
        elif treatment is None and name in LOOPS:
            is_while = name == "while"
            consts = eqn.params["cond_nconsts"] + eqn.params["body_nconsts"] if is_while else scan_parts(eqn).consts
            sources = [origins[number] for number in reads[int(consts) :]]
        else:
            continue
        for number, var, inputs in zip(writes, eqn.outvars, sources, strict=False):
            origins[number] = tuple([it for it in inputs if shapes[it] == var.aval.shape][:_MOST_ORIGINS])
    return origins
