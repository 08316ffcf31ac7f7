"""Which arguments come back in the result, as a training step's model does: the next call is made with them."""

import ast
import functools
import inspect
import re
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

from partax._doctor.equations import LOOPS, scan_parts, traced_type, type_of
from partax._doctor.examined import Examined, Leaf, argument_name, kept
from partax._doctor.flat_program import ELEMENTWISE, IN_PLACE, LITERAL, FlatProgram, flat_program
from partax._doctor.lines import grouped
from partax._jit.ahead_of_time import Traced

FEWEST_BYTES = 64 << 20  # of all arguments together, for which donating is worth a word: no program fails for less
_FEWEST_ARRAYS = 4  # of a state that is known by its types alone
_MOST_ORIGINS = 8  # arguments that are noted of one value: Adam's new weights come from three
_ELEMENT = re.compile(r"result\[(\d+)\](.*)", re.DOTALL)
_FRAMES = re.compile(r"^(new|next|updated)_|_(new|next|updated)$|_$")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_KEEPS_PLACES = (*ELEMENTWISE, IN_PLACE)


class ReturnedArray(NamedTuple):
    argument: Leaf
    result: Leaf  # what comes back in its place
    is_update: bool  # whether that is computed from it by element
    is_grown: bool  # whether that is itself with one more row, as a cache that a loop appends to


class Returned(NamedTuple):
    name: str  # of an argument that comes back
    arrays: Sequence[ReturnedArray]  # all of it, without what is returned as it came
    is_named: bool  # whether the function returns it by this name, or `new_` with it


@kept
def returned(examined: Examined) -> list[Returned]:
    """The arguments that come back: with the arrays at the same paths, and computed from those that came in.

    A single array that comes back as the only result is its own successor if it is the first argument. What is
    returned as it came is none of them.
    """
    arguments, results = _by_name(examined.arguments), _by_element(examined)
    if not _may_matter(examined, arguments, results):
        return []
    program = flat_program(examined)
    origins = _origins(program, examined)
    numbers = _result_numbers(examined, program)
    inputs = dict(zip((leaf.path for leaf in examined.arguments), program.inputs, strict=True))
    names = returned_names(examined.function)
    found: list[Returned] = []
    left = dict(arguments)
    for i, result in enumerate(results):
        called = names[i] if len(names) == len(results) else ""
        name = _successor_of(i, called, result, left, list(arguments), len(results))
        pairs: list[ReturnedArray] = []
        for path, leaf in left[name].items() if name is not None else ():
            number = numbers.get(result[path].path)
            if number is not None:
                is_update = number != LITERAL and inputs[leaf.path] in origins[number]
                # By its place alone, an array may as well be one that is padded.
                is_grown = (called == name or len(result) > 1) and _has_one_more(program, inputs[leaf.path], number)
                pairs.append(ReturnedArray(leaf, result[path], is_update, is_grown))
        if name is not None and any(pair.is_update or pair.is_grown for pair in pairs):
            is_named = called == name and isinstance(examined.out_info, (tuple, list, type(None)))
            found.append(Returned(name, pairs, is_named))
            del left[name]
    if _is_in_place(examined):
        known = set[int]() if examined.traced is None else set(numbers.values())
        fewest = _FEWEST_ARRAYS if examined.traced is None else 1
        found += [it for it in _in_place(examined, program, origins, known) if len(it.arrays) >= fewest]
    return found


def _has_one_more(program: FlatProgram, given: int, number: int) -> bool:
    """Whether a value is a concatenation of an input and one row, or one number, that is not always the same."""
    at = program.makers.get(number, -1)
    if at < 0 or program.eqns[at].primitive.name != "concatenate" or program.reads[at][0] != given:
        return False
    eqn, added = program.eqns[at], program.reads[at][-1]
    made_of = program.reads[program.makers[added]] if added in program.makers else ()
    if added in program.constants or set(made_of) == {LITERAL}:
        return False
    axis = eqn.params["dimension"]
    return bool(eqn.outvars[0].aval.shape[axis] == eqn.invars[0].aval.shape[axis] + 1)


def _may_matter(examined: Examined, arguments: dict[str, Any], results: list[dict[str, Leaf]]) -> bool:
    """Whether a walk over the program may find something: arrays of another type, on another device, or large ones."""
    if _is_in_place(examined) or sum(leaf.bytes for leaf in examined.arguments) >= FEWEST_BYTES:
        return True
    if examined.equations.named("concatenate") or any(getattr(it.value, "committed", 0) for it in examined.arguments):
        return True
    alike = ((it, result) for result in results for it in arguments.values() if _is_like(it, result))
    return any(traced_type(it[path].aval) != traced_type(result[path].aval) for it, result in alike for path in it)


def _by_name(leaves: tuple[Leaf, ...]) -> dict[str, dict[str, Leaf]]:
    """For each argument the arrays by their path inside of it."""
    found: dict[str, dict[str, Leaf]] = {}
    for leaf in leaves:
        name = argument_name(leaf.path)
        found.setdefault(name, {})[leaf.path[len(name) :]] = leaf
    return found


def _by_element(examined: Examined) -> list[dict[str, Leaf]]:
    """The same of the elements of a tuple, or of the only result."""
    whole = {leaf.path.removeprefix("result"): leaf for leaf in examined.results}
    parts = [_ELEMENT.fullmatch(leaf.path) for leaf in examined.results]
    is_argument = any(it.keys() == whole.keys() for it in _by_name(examined.arguments).values())
    if is_argument or type(examined.out_info) not in (tuple, list, type(None)) or None in parts:
        return [whole]
    elements = [(int(it[1]), it[2]) for it in parts if it is not None]
    count = len(examined.out_info or ()) or 1 + max((at for at, _ in elements), default=-1)
    found = [dict[str, Leaf]() for _ in range(count)]
    for (at, rest), leaf in zip(elements, examined.results, strict=True):
        found[at][rest] = leaf
    return found


def _is_like(argument: dict[str, Leaf], result: dict[str, Leaf]) -> bool:
    """Whether arrays are at the same paths; a single one has to have the same shape too."""
    is_single = len(result) == 1
    return argument.keys() == result.keys() and not (
        is_single and any(leaf.aval.shape != result[path].aval.shape for path, leaf in argument.items())
    )


def _successor_of(
    index: int, called: str, result: dict[str, Leaf], left: dict[str, dict[str, Leaf]], names: list[str], count: int
) -> str | None:
    """Which argument an element of the result is for: by name, by position, or by structure if that has arrays."""
    if called in left and result and left[called].keys() == result.keys():
        return called
    in_place = names[index : index + 1] if count > 1 or index == 0 else []
    others = names if len(result) > 1 else []
    return next((it for it in (*in_place, *others) if it in left and result and _is_like(left[it], result)), None)


def _result_numbers(examined: Examined, program: FlatProgram) -> dict[str, int]:
    """The number of each array of the result by its path; none of what is returned as it came."""
    came = _forwarded(examined)
    computed = [leaf for leaf in examined.results if leaf.path not in came]
    inputs = set(program.inputs)
    types = [type_of(var.aval) for var in examined.jaxpr.jaxpr.outvars]
    # What nnx changes in place comes after these.
    if [type_of(leaf.aval) for leaf in computed] != types[: len(computed)]:
        return {}
    pairs = zip(computed, program.results, strict=False)
    return {leaf.path: number for leaf, number in pairs if number not in inputs}


def _forwarded(examined: Examined) -> set[str]:
    """The paths in the result of arrays that partax returns as they came, which are none of the program's results."""
    found: set[str] = set()
    for leaf in (examined.arguments[i] for i in examined.forwarded):
        inside = leaf.path[len(argument_name(leaf.path)) :]
        alike = [it for it in examined.results if it.path not in found and type_of(it.aval) == type_of(leaf.aval)]
        found.update(it.path for it in sorted(alike, key=lambda it: not it.path.endswith(inside))[:1])
    return found


def _is_in_place(examined: Examined) -> bool:
    """Whether results have no paths: where arguments are changed, and of what nnx or Equinox has compiled."""
    traced = examined.traced
    if traced is None:
        return any(leaf.path.startswith("output ") or ".states[" in leaf.path for leaf in examined.results)
    return isinstance(traced, Traced) and traced._program.wrapper._options.graph is not None


def _in_place(
    examined: Examined, program: FlatProgram, origins: list[tuple[int, ...]], known: set[int]
) -> list[Returned]:
    """Arrays that the function has put into objects of its arguments instead of those that were there."""
    leaves = dict(zip(program.inputs, examined.arguments, strict=True))
    types = [var.aval for var in examined.jaxpr.jaxpr.outvars]
    changed = [it for it in zip(program.results, types, strict=True) if it[0] != LITERAL and it[0] not in known]
    taken: dict[int, ReturnedArray] = {}
    for number, info in sorted(changed, key=lambda it: len(origins[it[0]])):  # first those of which there is no doubt
        for origin in sorted(origins[number]):
            leaf = leaves[origin]
            if origin != number and origin not in taken and leaf.aval.dtype == info.dtype:
                taken[origin] = ReturnedArray(leaf, Leaf(leaf.path, info), is_update=True, is_grown=False)
                break
    by_name = grouped((taken[it] for it in sorted(taken)), lambda pair: argument_name(pair.argument.path))
    return [Returned(name, arrays, is_named=True) for name, arrays in by_name.items()]


def _origins(program: FlatProgram, examined: Examined) -> list[tuple[int, ...]]:
    """For each value the inputs of its shape that it is computed from, element by element."""
    shapes = {number: leaf.aval.shape for number, leaf in zip(program.inputs, examined.arguments, strict=True)}
    origins: list[tuple[int, ...]] = [()] * (program.values + 1)  # and last of literals, which come from none
    for number in program.inputs:
        origins[number] = (number,)
    rows = zip(program.eqns, program.reads, program.writes, program.treatments, strict=True)
    for eqn, reads, made, treatment in rows:
        name = eqn.primitive.name
        if treatment in _KEEPS_PLACES or (treatment is None and name == "cond"):
            together = tuple(dict.fromkeys(it for number in reads for it in origins[number]))
            given = [together] * len(made)
        elif treatment is None and name in LOOPS:
            is_while = name == "while"
            consts = eqn.params["cond_nconsts"] + eqn.params["body_nconsts"] if is_while else scan_parts(eqn).consts
            given = [origins[number] for number in reads[int(consts) :]]
        else:
            continue
        for number, var, its in zip(made, eqn.outvars, given, strict=False):
            origins[number] = tuple([it for it in its if shapes[it] == var.aval.shape][:_MOST_ORIGINS])
    return origins


def returned_names(function: Any) -> tuple[str, ...]:
    """What a function calls the elements of the tuple that it returns, or its only result, without `new_` and the like;
    "" for no name.
    """
    while isinstance(function, functools.partial):
        function = function.func
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return ()
    found: tuple[str, ...] = ()
    left: list[ast.AST] = list(getattr(tree.body[0], "body", ())) if isinstance(tree.body[0], _FUNCTIONS) else []
    while left:
        node = left.pop()
        if isinstance(node, ast.Return) and node.value is not None:
            parts = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            found = tuple(_FRAMES.sub("", it.id) if isinstance(it, ast.Name) else "" for it in parts)
        elif not isinstance(node, (*_FUNCTIONS, ast.Lambda)):
            left += ast.iter_child_nodes(node)
    return found
