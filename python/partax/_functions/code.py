"""What a code object reads by name: globals with their attributes, and modules that it imports; what it only counts."""

import collections
import dis
import types
from collections.abc import Iterator
from typing import NamedTuple

from partax._functions.objects import asked_once

_IDLE = {"CACHE", "PRECALL", "EXTENDED_ARG", "NOP", "NOT_TAKEN", "PUSH_NULL", "RESUME", "COPY_FREE_VARS", "MAKE_CELL"}
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD"}
_GLOBALS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_CELLS = {"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
_STORES = {"LOAD_DEREF": "STORE_DEREF", "LOAD_GLOBAL": "STORE_GLOBAL"}
_COUNTED = {int, float, list, set, dict, collections.deque, collections.Counter, collections.defaultdict}
_LOADS = {
    *("LOAD_CONST", "LOAD_SMALL_INT", "LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK", "LOAD_DEREF", "LOAD_GLOBAL"),
}
_ADDING = {"append", "appendleft", "extend", "add", "update"}


class Names(NamedTuple):
    """What a code object, with the code objects inside it, reads by name."""

    chains: tuple[tuple[str, ...], ...]
    """Globals, each with the attributes that are read of it at once: `("jax", "numpy")`."""
    imports: tuple[tuple[str, str], ...]
    """Modules and the names that are imported from them, or an empty name for the module itself."""
    counters: frozenset[str]
    """Globals and variables of enclosing functions that are only counted up, appended to or given items."""
    has_relative_import: bool
    mentioned: frozenset[str]
    """All names and strings of the code: what it may read by name of any object."""


@asked_once
def names_of(code: types.CodeType) -> Names:
    chains: dict[tuple[str, ...], None] = {}
    uses: dict[str, bool] = {}  # whether a variable is more than counted
    imports: dict[tuple[str, str], None] = {}
    mentioned = set[str]()
    is_relative = False
    for part in _nested_codes(code):
        mentioned.update(part.co_names, (it for it in part.co_consts if type(it) is str))
        steps = [step for step in dis.get_instructions(part) if step.opname not in _IDLE]
        for i, step in enumerate(steps):
            if step.opname in _GLOBALS:
                chains[step.argval, *_attributes_after(steps, i)] = None
            elif step.opname == "IMPORT_NAME":
                level, names = steps[i - 2].argval, steps[i - 1].argval
                is_relative = is_relative or level != 0
                imports |= dict.fromkeys((step.argval, name) for name in names or ("",))
            elif step.opname == "STORE_DEREF":  # one that is assigned and not read
                uses.setdefault(step.argval, False)
            if step.opname in _GLOBALS or step.opname in _CELLS:
                uses[step.argval] = uses.get(step.argval, False) or not _is_counted(steps, i)
    counters = frozenset(name for name, is_read in uses.items() if not is_read)
    return Names(tuple(chains), tuple(imports), counters, is_relative, frozenset(mentioned))


def is_counter(names: Names, name: str, value: object) -> bool:
    return name in names.counters and type(value) in _COUNTED


def _nested_codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested_codes(constant)


def _attributes_after(steps: list[dis.Instruction], at: int) -> Iterator[str]:
    for step in steps[at + 1 :]:
        if step.opname not in _ATTRIBUTES:
            return
        yield step.argval


def _is_counted(steps: list[dis.Instruction], at: int) -> bool:
    """Whether a variable is loaded only to be counted up (`n += 1`), appended to, or given an item (`d[k] = v`,
    `d[k] += 1`): what the code does with it is a side effect of tracing.
    """
    following = steps[at + 1 : at + 10]
    names = [step.opname for step in following]
    if names[:1] and names[0] in _ATTRIBUTES:
        return following[0].argval in _ADDING
    if names[:1] and names[0] not in _LOADS:
        return False
    is_same = len(following) > 2 and following[2].argval == steps[at].argval
    if names[1:3] == ["BINARY_OP", _STORES.get(steps[at].opname, "")]:
        return is_same and following[0].opname in ("LOAD_CONST", "LOAD_SMALL_INT")
    if names[1:2] == ["STORE_SUBSCR"]:
        return True
    is_item = names[1:3] == ["COPY", "COPY"] and "BINARY_OP" in names[3:6] and "STORE_SUBSCR" in names[6:]
    return is_item and following[4].opname in ("LOAD_CONST", "LOAD_SMALL_INT")
