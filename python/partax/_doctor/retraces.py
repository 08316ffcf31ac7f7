"""Finds what makes the next call trace or compile again: what comes back otherwise than it went in, and numbers.

A Python number is a part of the program, so that one which comes back as another one is another program in each call.
"""

from collections.abc import Iterator
from typing import Any

import jax

from partax._core import JitFunction
from partax._doctor.equations import traced_type, type_text
from partax._doctor.examined import Examined, Leaf, definition, names_text, wrapper_kind
from partax._doctor.finding import Figures, Finding, Severity, finding_at
from partax._doctor.returned import Returned, ReturnedArray, returned, returned_names
from partax._pytree.call_site import site_text
from partax._pytree.short_text import array_text
from partax._steps.places import Shape, parts_of, shape_of
from partax._transforms.carry import Difference, numbers_that_differ

# What counts in a loop and nothing else; `n`, `k`, `index` or `count` are as often a size that never changes.
_COUNTERS = {
    "i", "t", "it", "itr", "iter", "iteration", "step", "step_idx", "global_step", "current_step", "epoch", "counter",
    "batch_idx",
}  # fmt: skip
_DEEPEST = 2  # containers in which a part of an argument is looked for
_MANY_TRACES = 5  # of one function: a few shapes and modes are as they should be


def find(examined: Examined) -> Iterator[Finding]:
    # What a script has compiled is known by its traces.
    come_back = [] if examined.traced is None else returned(examined)
    yield from _changed_types(examined, come_back)
    yield from _uncommitted(examined, come_back)
    yield from _counters(examined)
    yield from _from_none(examined)
    yield from _numbers(examined)
    yield from _history(examined)


def _finding(examined: Examined, severity: Severity, path: str, figures: Figures, message: str, advice: str) -> Finding:
    return finding_at(definition(examined.function), "retrace", severity, message, advice, path, **figures)


def _comes_back(
    examined: Examined, is_each: bool, change: Difference, result: str, figure: str, count: int, advice: str
) -> Finding:
    """Something comes back as another one than it went in, and `count - 1` more of the same argument."""
    others, which = f", and {count - 1} more" if count > 1 else "", "each" if is_each else "the second"
    comes = f"goes in as {change.first} and comes back as {change.second} (in `{result}`)"
    message = f"`{change.path}` {comes}{others}: {which} call traces and compiles again."
    figures: Figures = {figure: count, "before": change.first, "after": change.second}
    return _finding(examined, "high" if is_each else "medium", change.path, figures, message, advice)


def _changed_types(examined: Examined, come_back: list[Returned]) -> Iterator[Finding]:
    """Arguments of which an array comes back with another dtype, shape or weak type."""
    updates = sum(pair.is_update for it in come_back for pair in it.arrays)
    for argument in come_back:
        changed = [pair for pair in argument.arrays if traced_type(pair.argument.aval) != traced_type(pair.result.aval)]
        # Where nothing stays as it is, this may be a function of one array, and not a step.
        is_grown = any(pair.is_grown for pair in changed)
        if changed and (argument.is_named or is_grown or updates > sum(pair.is_update for pair in changed)):
            first, grows = changed[0], changed[0].argument.aval.shape != changed[0].result.aval.shape
            change = Difference(first.argument.path, type_text(first.argument.aval), type_text(first.result.aval))
            yield _comes_back(examined, grows, change, first.result.path, "arrays", len(changed), _advice(first))


def _advice(pair: ReturnedArray) -> str:
    before, after = pair.argument.aval, pair.result.aval
    if before.shape != after.shape:
        advice = "Keep the shape: begin with an array of the final size, and write each part into it by "
        return f"{advice}`jax.lax.dynamic_update_slice` or `.at[...].set`."
    if getattr(before, "weak_type", False):
        dtype = getattr(after.dtype, "name", after.dtype)
        return f"Begin with an array of the type that comes back: `jnp.asarray(..., dtype=jnp.{dtype})`."
    if getattr(after, "weak_type", False):
        return "Return it with the dtype that it came with: `.astype(x.dtype)` makes a strong type of a weak one."
    return f"Return it as it came, by `.astype(jnp.{before.dtype})`, or begin with a {after.dtype} array."


def _uncommitted(examined: Examined, come_back: list[Returned]) -> Iterator[Finding]:
    """Arguments on no device in particular, beside those on one: the result is committed to that."""
    if not any(_is_committed(leaf) for leaf in examined.arguments):
        return
    for argument in come_back:
        given = [pair.argument for pair in argument.arrays if pair.argument.value is not None]
        loose = [leaf.path for leaf in given if not _is_committed(leaf)]
        if loose:
            message = f"`{loose[0]}` is on no device in particular, other arguments are committed to one, and so is "
            message += "what comes back: the second call compiles again."
            advice = f"Put it where it belongs before the first call: `jax.device_put({argument.name}, sharding)`."
            yield _finding(examined, "medium", loose[0], {"arrays": len(loose)}, message, advice)


def _is_committed(leaf: Leaf) -> bool:
    return isinstance(leaf.value, jax.Array) and leaf.value.committed


def _named_results(examined: Examined) -> dict[str, tuple[int, Any]]:
    """The elements of a tuple that is returned, with their places, by what the function calls them."""
    result = examined.out_info
    names = returned_names(examined.function) if type(result) is tuple else ()
    return dict(zip(names, enumerate(result), strict=True)) if names and len(names) == len(result) else {}


def _counters(examined: Examined) -> Iterator[Finding]:
    """Static numbers that look as if each call had another one."""
    result, values, named = examined.out_info, examined.bound_arguments, _named_results(examined)
    in_place = dict(zip(values, result, strict=False)) if type(result) is tuple and len(result) > 1 else {}
    for name, value in values.items():
        if name not in examined.statics or type(value) not in (int, float):
            continue
        _, after = named.get(name, (0, None))
        if after is None and type(in_place.get(name)) is type(value) and abs(in_place[name] - value) == 1:
            after = in_place[name]
        is_returned = type(after) is type(value) and after != value
        if is_returned or (name in _COUNTERS and type(value) is int):
            comes_back = f", and comes back as {after!r}" if is_returned else ""
            again = "a call with another number traces and compiles again"
            message = f"`{name}` is {value!r}, which is part of the program{comes_back}: {again}."
            severity, advice = "high" if is_returned else "medium", _how_to_trace(examined, name)
            yield _finding(examined, severity, name, {"value": value}, message, advice)


def _how_to_trace(examined: Examined, name: str) -> str:
    kind, traced = wrapper_kind(examined.wrapper), f"filter_jit(trace={names_text((name,))})"
    if kind == "partax":
        return f"Trace it: `{traced}`, or pass `jnp.asarray({name})`."
    if kind == "equinox":
        return f"Pass `jnp.asarray({name})`, or use `partax.{traced}`."
    return f"Take `{name}` out of the static arguments, if only its value and no shape depends on it."


def _from_none(examined: Examined) -> Iterator[Finding]:
    """Arguments that are None and come back by their name as something else, such as an average that begins so."""
    missing = {name for name, value in examined.bound_arguments.items() if value is None}
    for name, (at, value) in _named_results(examined).items() if missing else ():
        arrays = [it for it in jax.tree.leaves(value) if isinstance(it, jax.ShapeDtypeStruct)]
        if name in missing and arrays:
            more = f" and {len(arrays) - 1} more" if len(arrays) > 1 else ""
            yield _differs(examined, [Difference(name, "None", array_text(arrays[0]) + more)], f"result[{at}]")


def _numbers(examined: Examined) -> Iterator[Finding]:
    """State that comes back with another Python number than it went in with, or with a value in the place of None."""
    is_traced = wrapper_kind(examined.wrapper) == "jax"  # all numbers are
    own = getattr(examined.function, "__self__", None)  # a method's object; a module is an argument of its own
    holder = {"self": own} if own is not None else {examined.name: examined.function}
    arguments = [it for name, value in {**holder, **examined.bound_arguments}.items() for it in _parts(value, name)]
    in_place = {name: f"result[{i}]" for i, name in enumerate(examined.bound_arguments)}
    taken: set[str] = set()
    for path, part in _parts(examined.out_info, "result"):
        if any(path.startswith(it) for it in taken):
            continue
        if any(argument.flat.spec == part.flat.spec for _, argument in arguments):
            taken.add(path)
            continue
        for name, argument in arguments:
            differences = [
                it
                for it in numbers_that_differ(argument.flat, part.flat, name)
                if not is_traced or it.note or "None" in (it.first, it.second)
            ]
            # Numbers alone that all become arrays are as often the point at which a gradient is taken.
            known = part.avals or path in ("result", in_place.get(name))  # as state is, and not a result of that form
            if differences and known and (argument.avals or not all(it.second.endswith("]") for it in differences)):
                taken.add(path)
                yield _differs(examined, differences, path)
                break


def _parts(tree: Any, name: str) -> list[tuple[str, Shape]]:
    """A tree that has keys or arrays, and the parts of containers at its top that have an array and more beside it."""
    found: list[tuple[str, Shape]] = []
    waiting = [(tree, name, 0)]
    for value, path, depth in waiting:
        try:
            shape = shape_of(value, name.partition("[")[0])
        except TypeError:  # a static value that is no key
            continue
        if (shape.avals or (depth < 2 and isinstance(value, dict))) and not shape.is_array:
            found.append((path, shape))
        if depth < _DEEPEST:
            waiting += [(it, f"{path}[{key!r}]", depth + 1) for key, it in (parts_of(value) or {}).items()]
    return found


def _differs(examined: Examined, differences: list[Difference], result: str) -> Finding:
    first = differences[0]
    is_each = not any(it in ("None", "True", "False") or it.endswith("]") for it in (first.first, first.second))
    field = first.path.rpartition(".")[2].rpartition("[")[2].strip("]'")
    begin = f"an array, which is traced: `jnp.asarray({first.first})`"
    if first.first == "None":
        begin = f"a value of the type that comes back, {first.second},"
    advice = f"Begin with {begin} for `{field}`{first.note}."
    return _comes_back(examined, is_each, first, result, "values", len(differences), advice)


def _history(examined: Examined) -> Iterator[Finding]:
    history = examined.wrapper._cache.history if isinstance(examined.wrapper, JitFunction) else None
    if history is not None and history.count > _MANY_TRACES:
        reasons = "; ".join(f"trace {it.number} at {site_text(it.site)}: {it.reason}" for it in history.records[-3:])
        message = f"`{examined.name}` has been traced {history.count} times; the latest: {reasons}."
        advice = "Pass arrays of the same types each time, and static values that stay."
        yield _finding(examined, "low", "", {"traces": history.count}, message, advice)
