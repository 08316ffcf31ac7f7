"""What a code object reads by name: globals, attributes, closure cells that it writes to."""

import collections
import dis
import re
import types
from collections.abc import Iterator
from typing import NamedTuple

from partax._guards.user_objects import asked_once

# Names between underscores that lead to nothing but what is written down of a value, or that Python calls by itself;
# not those that give an attribute by its name, or all of them, also of a module.
_SPECIAL = """
abs add aenter aexit aiter and anext await bool bytes call ceil class complex contains copy deepcopy delattr delete
delitem divmod enter eq exit float floor floordiv format func ge get getitem gt hash iadd iand index init instancecheck
int invert ior isub iter itruediv jax_array le len length_hint lshift lt matmul missing mod mul name ne neg new next or
pos post_init pow qualname radd rand reduce repr reversed rfloordiv rmatmul rmod rmul ror round rpow rshift rsub
rtruediv rxor set set_name setattr setitem setstate str sub subclasscheck truediv trunc version wrapped xor
init_subclass class_getitem build_class
"""
_KNOWN_SPECIAL = {f"__{name}__" for name in _SPECIAL.split()}
# What leads from a frame or a running generator to all that there is.
_OF_FRAMES = {"ag_frame", "cr_frame", "f_back", "f_builtins", "f_globals", "f_locals", "gi_frame", "tb_frame"}
_OF_TEXTS = {"format", "format_map"}  # methods that read attributes and items by names in a text
BY_NAME = {function.__name__: function for function in (getattr, setattr, hasattr, delattr)}
"""Functions that are given the name of an attribute: proven where code calls them itself, with a name that it has."""
BY_CODE = {**BY_NAME, "__import__": __import__}
"""Functions that code may have only as it calls them by itself."""
_IDLE = {"CACHE", "PRECALL", "EXTENDED_ARG", "NOP", "PUSH_NULL", "RESUME"}
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR", "LOAD_SUPER_ATTR", "IMPORT_FROM"}
_MISSING = {"MATCH_CLASS", "PUSH_EXC_INFO"}
_GLOBALS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_SIMPLE_LOADS = {"LOAD_CONST", "LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_SMALL_INT", "LOAD_DEREF"}


class Named(NamedTuple):
    """What code reads by name.

    Attributes:
      globals: each name followed by the attributes that are read of it at once, as `("jax", "numpy", "sin")`.
      attributes: the names of all attributes.
      can_miss: whether it can do without one: it asks by `hasattr` or `getattr`, matches, or handles errors.
      asks_registrations: whether it matches what is registered with an abstract class of the standard library.
      imports: modules that it imports, each after as many dots as it goes up from the package of the code.
      unproven: what it reads that has no such name, or None.
    """

    globals: tuple[tuple[str, ...], ...]
    attributes: frozenset[str]
    can_miss: bool
    asks_registrations: bool
    imports: frozenset[str]
    unproven: str | None


def leads_anywhere(name: str) -> bool:
    """Whether an attribute of this name may give what the code around it does not name."""
    special = name.startswith("__") and name.endswith("__") and name not in _KNOWN_SPECIAL
    return special or name in _OF_FRAMES or name in _OF_TEXTS


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _steps(code: types.CodeType) -> list[dis.Instruction]:
    return [step for step in dis.get_instructions(code) if step.opname not in _IDLE]


@asked_once
def named_by(code: types.CodeType) -> Named:
    """What a code object and the code inside it read by name."""
    found: dict[tuple[str, ...], None] = {}
    attributes, imports = set[str](), set[str]()
    can_miss = asks_registrations = False
    unproven: str | None = None
    for part in _codes(code):
        chain: tuple[str, ...] = ()
        steps = _steps(part)
        for i, step in enumerate(steps):
            if step.opname in _ATTRIBUTES:
                attributes.add(step.argval)
                if step.argval in _OF_TEXTS and not _is_plain_format(steps[i - 1], step):
                    unproven = unproven or f"what '.{step.argval}' may read by names in a text"
            can_miss = can_miss or step.opname in _MISSING
            if chain and step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                chain += (step.argval,)
                continue
            if chain:
                found[chain] = None
            chain = ()
            if step.opname in _GLOBALS:
                chain = (step.argval,)
                unproven = "what '__import__' gives" if step.argval == "__import__" else unproven
                if step.argval in BY_NAME:
                    name = _constant_name(steps, i)
                    attributes |= {name} if name is not None else set()
                    can_miss = True
                    unproven = unproven if name is not None else f"an attribute by '{step.argval}', of a name made up"
            elif step.opname == "MATCH_CLASS":
                attributes |= set(steps[i - 1].argval)
            elif step.opname == "IMPORT_NAME":
                dots = "." * steps[i - 2].argval
                imports |= {dots + step.argval} | (set() if dots else {step.argval.partition(".")[0]})
                found["__import__",] = None
            elif step.opname in ("MATCH_SEQUENCE", "MATCH_MAPPING"):
                asks_registrations = True
    for name in attributes - _OF_TEXTS:
        if leads_anywhere(name):
            unproven = unproven or f"what '.{name}' gives"
    return Named(tuple(found), frozenset(attributes), can_miss, asks_registrations, frozenset(imports), unproven)


_PART_IN_TEXT = re.compile(r"\{[^{}:!]*[.\[]")


def _is_plain_format(step: dis.Instruction, then: dis.Instruction) -> bool:
    """Whether a step loads a text that has no attribute or item of a value in it, and the next comes after no other."""
    text = step.argval if step.opname == "LOAD_CONST" and not then.is_jump_target else None
    return type(text) is str and not _PART_IN_TEXT.search(text)


def _constant_name(steps: list[dis.Instruction], at: int) -> str | None:
    """The name in `getattr(it, "name")` or `getattr(it, "name", default)`, whose function is loaded by step `at`.

    Only where all arguments are simple enough that it is plainly the second: else None.
    """
    calls = ("CALL", "CALL_KW")
    end = next((i for i in range(at + 1, len(steps)) if steps[i].opname in calls), None)
    if end is None:
        return None
    given = steps[end].arg
    name = steps[end - 1] if given == 2 else steps[end - 2] if given == 3 and steps[end - 1].opname in _LOADS else None
    if name is None or name.opname != "LOAD_CONST" or type(name.argval) is not str:
        return None
    first = steps[at + 1 : end - (1 if given == 2 else 2)]
    is_plain = bool(first) and first[0].opname in _LOADS and all(step.opname == "LOAD_ATTR" for step in first[1:])
    return name.argval if is_plain and name.argval not in _OF_TEXTS else None


_LOADS = _SIMPLE_LOADS | {"LOAD_GLOBAL", "LOAD_NAME"}


@asked_once
def written_cells(code: types.CodeType) -> tuple[bool | None, ...]:
    """Which closure cells a code object and the code inside it write to.

    Args:
      code: of a function.

    Returns:
      For each of its free variables True if the code assigns it, as a counter; None if, where it is a container, the
      code only adds to it, as to a log; else False.
    """
    if not code.co_freevars:
        return ()
    assigned, read, _ = _cell_uses(code)
    return tuple(True if name in assigned else False if name in read else None for name in code.co_freevars)


_COUNTED = (int, float, list, set, dict, collections.deque)


def counters(function: types.FunctionType) -> frozenset[str]:
    """The free variables of a function whose values it cannot see: its code and the code inside it only assign them,
    count them up by a constant, or append to them.
    """
    _, read, stored = _cell_uses(function.__code__)
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return frozenset(name for name, cell in cells if name not in read | stored and _is_counted(cell))


def _is_counted(cell: types.CellType) -> bool:
    try:
        return type(cell.cell_contents) in _COUNTED
    except ValueError:  # it is empty
        return False


_ADDING = {"append", "appendleft", "extend", "insert", "add", "update"}


@asked_once
def _cell_uses(code: types.CodeType) -> tuple[set[str], set[str], set[str]]:
    """The free variables that a code object and the code inside it assign, that they read for more than to count them
    up, and those of which they only assign an item.
    """
    assigned: set[str] = set()
    read: set[str] = set()
    stored: set[str] = set()
    steps = _steps(code)
    for i, step in enumerate(steps):
        if step.opname in ("STORE_DEREF", "DELETE_DEREF"):
            assigned.add(step.argval)
        elif step.opname in ("LOAD_FROM_DICT_OR_DEREF", "LOAD_CLASSDEREF"):
            read.add(step.argval)
        elif step.opname == "LOAD_DEREF":
            if _assigns_item(steps, i):
                stored.add(step.argval)
            elif not _adds(steps, i) and not _counts(steps, i):
                read.add(step.argval)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            for uses, more in zip((assigned, read, stored), _cell_uses(inner), strict=True):
                uses |= more
    free = set(code.co_freevars)  # else they are variables of this code
    return assigned & free, read & free, stored & free


def _adds(steps: list[dis.Instruction], at: int) -> bool:
    after = steps[at + 1]
    return after.opname in ("LOAD_ATTR", "LOAD_METHOD") and after.argval in _ADDING


def _assigns_item(steps: list[dis.Instruction], at: int) -> bool:
    key, then = steps[at + 1], steps[at + 2 : at + 3]
    return key.opname in _SIMPLE_LOADS and [step.opname for step in then] == ["STORE_SUBSCR"]


def _counts(steps: list[dis.Instruction], at: int) -> bool:
    """Whether a variable is loaded to be assigned again with a constant added or taken away: `n += 1`."""
    rest = steps[at + 1 : at + 4]
    names = [step.opname for step in rest]
    if names[:1] not in (["LOAD_CONST"], ["LOAD_SMALL_INT"]) or names[1:] != ["BINARY_OP", "STORE_DEREF"]:
        return False
    return rest[1].argrepr.rstrip("=") in ("+", "-") and rest[2].argval == steps[at].argval
