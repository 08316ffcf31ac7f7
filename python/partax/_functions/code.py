"""What a code object reads by name: globals with their attributes, and modules that it imports; what it only counts."""

import collections
import dis
import itertools
import types
from collections.abc import Iterator
from typing import NamedTuple

from partax._families.objects import cached_by_identity

_IDLE = {"CACHE", "PRECALL", "EXTENDED_ARG", "NOP", "NOT_TAKEN", "PUSH_NULL", "RESUME", "COPY_FREE_VARS", "MAKE_CELL"}
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD"}
_GLOBALS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_CELLS = {"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
_COUNTED = {int, float, list, set, dict, collections.deque, collections.Counter, collections.defaultdict}
_CONSTANTS = {"LOAD_CONST", "LOAD_SMALL_INT"}
_ADDING = {"append", "appendleft", "extend", "add", "update"}
_READING_ALL = {"vars", "__dict__", "asdict", "astuple"}


class Names(NamedTuple):
    """What a code object, with the code objects inside it, reads by name."""

    chains: tuple[tuple[str, ...], ...]  # globals with the attributes read of them at once: `("jax", "numpy")`
    imports: tuple[tuple[str, ...], ...]  # modules, each alone or with a name that is imported from it
    counters: frozenset[str]  # globals and closure variables that are only counted up, appended to or given items
    mentioned: frozenset[str]  # all names and strings: what it may read of any object; anything, with "getattr"


@cached_by_identity
def names_of(code: types.CodeType) -> Names:
    chains: dict[tuple[str, ...], None] = {}
    uses: dict[str, bool] = {}  # whether a variable is more than counted
    imports: dict[tuple[str, ...], None] = {}
    mentioned = set[str]()
    for part in _nested_codes(code):
        mentioned.update(part.co_names, (constant for constant in part.co_consts if type(constant) is str))
        steps = [step for step in dis.get_instructions(part) if step.opname not in _IDLE]
        for i, step in enumerate(steps):
            if step.opname in _GLOBALS:
                attributes = itertools.takewhile(lambda following: following.opname in _ATTRIBUTES, steps[i + 1 :])
                chains[step.argval, *(attribute.argval for attribute in attributes)] = None
            elif step.opname == "IMPORT_NAME":
                level, names = steps[i - 2].argval, steps[i - 1].argval
                module = level * "." + step.argval
                imports |= dict.fromkeys([(module, name) for name in names or ()] or [(module,)])
            elif step.opname == "STORE_DEREF":  # one that is assigned and not read
                uses.setdefault(step.argval, False)
            elif step.opname == "MATCH_CLASS":  # which reads attributes by the class's `__match_args__`
                mentioned.add("getattr")
            if step.opname in _GLOBALS or step.opname in _CELLS:
                uses[step.argval] = uses.get(step.argval, False) or not _is_counted(steps, i)
    counters = frozenset(name for name, is_read in uses.items() if not is_read)
    if not mentioned.isdisjoint(_READING_ALL):
        mentioned.add("getattr")
    return Names(tuple(chains), tuple(imports), counters, frozenset(mentioned))


def is_counter(names: Names, name: str, value: object) -> bool:
    return name in names.counters and type(value) in _COUNTED


def _nested_codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested_codes(constant)


def _is_counted(steps: list[dis.Instruction], at: int) -> bool:
    """Whether a load only counts up (`n += 1`), appends, or gives an item (`d[k] = v`): a side effect of tracing."""
    following = steps[at + 1 : at + 6]
    first, *rest = (step.opname for step in following)
    if first in _ATTRIBUTES:
        return following[0].argval in _ADDING
    if first.count("LOAD_") != 1:  # what loads nothing, or two values
        return False
    if rest[:2] == ["BINARY_OP", steps[at].opname.replace("LOAD", "STORE")]:
        return first in _CONSTANTS and following[2].argval == steps[at].argval
    is_item_counted = rest[:2] == ["COPY", "COPY"] and rest[3] in _CONSTANTS
    return is_item_counted or rest[:1] == ["STORE_SUBSCR"]
