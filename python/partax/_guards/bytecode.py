"""What a code object reads by name: globals and attributes; and what it does with closure cells."""

import collections
import dis
import re
import types
from collections.abc import Iterator, Set
from typing import NamedTuple

from partax._guards.constants import OF_ENUM
from partax._guards.user_objects import asked_once, read

# Names between underscores that lead to nothing but what is written down of a value, or that Python calls by itself;
# not those that give an attribute by its name, or all of them, also of a module.
_SPECIAL = """
abs add aenter aexit aiter and anext await bool bytes call ceil class complex contains copy deepcopy delattr delete
delitem divmod enter eq exit float floor floordiv format func ge get getitem gt iadd iand index init instancecheck
int invert ior isub iter itruediv jax_array le len length_hint lshift lt matmul missing mod mul name ne neg new next or
pos post_init pow qualname radd rand reduce repr reversed rfloordiv rmatmul rmod rmul ror round rpow rshift rsub
rtruediv rxor set set_name setattr setitem setstate str sub subclasscheck truediv trunc version wrapped xor
init_subclass class_getitem build_class
"""
_KNOWN_SPECIAL = {f"__{name}__" for name in _SPECIAL.split()}
# What leads from a frame or a running generator to all that there is, or tells where code stands.
_OF_FRAMES = {
    *("ag_frame", "cr_frame", "f_back", "f_builtins", "f_globals", "f_locals", "gi_frame", "tb_frame"),
    *("ag_code", "cr_code", "gi_code", "tb_lasti", "tb_lineno"),
}
# What tells of the process: what jax has compiled or keeps, and when.
_OF_PROCESS = {"_cache_size", "is_ready", "live_arrays", "live_buffers", "live_executables", "memory_stats"}
_OF_TEXTS = {"format", "format_map"}  # methods that read attributes and items by names in a text
_LEADING = _OF_FRAMES | _OF_PROCESS | _OF_TEXTS | OF_ENUM
BY_NAME = {function.__name__: function for function in (getattr, setattr, hasattr, delattr)}
"""Functions that are given the name of an attribute: proven where code calls them itself, with a name that it has."""
BY_CODE = {**BY_NAME, "__import__": __import__}
"""Functions that code may have only as it calls them by itself."""
_IDLE = {"CACHE", "PRECALL", "EXTENDED_ARG", "NOP", "NOT_TAKEN", "PUSH_NULL", "RESUME"}
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR", "LOAD_SUPER_ATTR", "IMPORT_FROM"}
_GLOBALS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_CONSTANTS = {"LOAD_CONST", "LOAD_SMALL_INT"}
_LOADS = {*_CONSTANTS, *_GLOBALS, "LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_DEREF"}


class Named(NamedTuple):
    globals: tuple[tuple[str, ...], ...]  # each with the attributes that are read of it at once: ("jax", "numpy")
    attributes: frozenset[str]  # the names of all
    can_miss: bool  # whether it can do without one: it asks by `hasattr` or `getattr`, or handles errors
    imports: frozenset[str]  # modules
    unproven: str | None  # what it reads that has no such name


def leads_anywhere(name: str) -> bool:
    """Whether an attribute of this name may give what the code around it does not name."""
    return (name.startswith("__") and name.endswith("__") and name not in _KNOWN_SPECIAL) or name in _LEADING


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def steps_of(code: types.CodeType) -> list[dis.Instruction]:
    return [step for step in dis.get_instructions(code) if step.opname not in _IDLE]


@asked_once
def named_by(code: types.CodeType) -> Named:
    found: dict[tuple[str, ...], None] = {}
    attributes, imports = set[str](), set[str]()
    can_miss, unproven = False, None
    for part in _codes(code):
        chain: tuple[str, ...] = ()
        steps = steps_of(part)
        for i, step in enumerate(steps):
            unproven = unproven or _unproven(steps, i)
            is_annotation = step.argval == "__annotations__" or (step.opname, part.co_name) == ("COPY", "__annotate__")
            if is_annotation and type(steps[i - 1].argval) is str:
                unproven = unproven or "what dataclasses look up of a text that annotates a class"
            can_miss = can_miss or step.opname == "PUSH_EXC_INFO"
            if step.opname in _ATTRIBUTES:
                attributes.add(step.argval)
            if chain and step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                chain += (step.argval,)
                continue
            if chain:
                found[chain] = None
            chain = (step.argval,) if step.opname in _GLOBALS else ()
            if chain and step.argval in BY_NAME:
                attributes.add(_constant_name(steps, i) or "")
                can_miss = True
            elif step.opname == "IMPORT_NAME":
                imports |= {step.argval, step.argval.partition(".")[0]}
                found["__import__",] = None
            elif step.opname == "LOAD_BUILD_CLASS":
                found["__build_class__",] = None
    return Named(tuple(found), frozenset(attributes), can_miss, frozenset(imports), unproven)


def _unproven(steps: list[dis.Instruction], at: int) -> str | None:
    """What a step reads that has no name, or by a name that may give anything; None if it does not."""
    step, name = steps[at], steps[at].argval
    if step.opname == "MATCH_CLASS":
        return "a pattern of a class, which asks it by names of its own"
    if step.opname in _ATTRIBUTES and name in _OF_TEXTS:
        return None if _is_plain_format(steps[at - 1], step) else f"what '.{name}' may read by names in a text"
    if step.opname in _ATTRIBUTES and leads_anywhere(name):
        return f"what '.{name}' gives"
    if step.opname in _GLOBALS and name == "__import__":
        return "what '__import__' gives"
    if step.opname in _GLOBALS and name in BY_NAME and leads_anywhere(_constant_name(steps, at) or "__dict__"):
        return f"an attribute by '{name}', of a name made up or one that leads anywhere"
    if step.opname == "IMPORT_NAME" and steps[at - 2].argval != 0:
        return "a relative import"
    return None


_PART_IN_TEXT = re.compile(r"\{[^{}:!]*[.\[]")


def _is_plain_format(step: dis.Instruction, then: dis.Instruction) -> bool:
    """Whether a step loads a text that has no attribute or item of a value in it, and the next comes after no other."""
    text = step.argval if step.opname == "LOAD_CONST" and not then.is_jump_target else None
    return type(text) is str and not _PART_IN_TEXT.search(text)


def _constant_name(steps: list[dis.Instruction], at: int) -> str | None:
    """The name in `getattr(it, "name")` or `getattr(it, "name", default)`, whose function is loaded by step `at`.

    Only where all arguments are simple enough that it is plainly the second: else None.
    """
    end = next((i for i in range(at + 1, len(steps)) if steps[i].opname in ("CALL", "CALL_KW")), at)
    given = steps[at + 1 : end]
    has_default = steps[end].arg == 3 and bool(given) and given[-1].opname in _LOADS
    if len(given) < 2 or not (has_default or steps[end].arg == 2):
        return None
    *of, name = given[:-1] if has_default else given
    is_plain = bool(of) and of[0].opname in _LOADS and all(step.opname == "LOAD_ATTR" for step in of[1:])
    is_text = name.opname == "LOAD_CONST" and type(name.argval) is str
    return name.argval if is_plain and is_text else None


class CellUses(NamedTuple):
    """Free variables that code and the code inside it assign, whose value they can see, and that they give items."""

    assigned: Set[str]
    read: Set[str]
    given: Set[str]


_COUNTED = (int, float, list, set, dict, collections.deque)
_ADDING = {"append", "appendleft", "extend", "add", "update"}


def unseen_cells(function: types.FunctionType) -> tuple[bool, ...]:
    """Of each free variable of a function whether it is a number or a container that its code cannot see: it only
    assigns it, counts it up by a constant, or appends to it.
    """
    _, seen, given = cell_uses(function.__code__)
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)

    def is_unseen(name: str, cls: type) -> bool:  # of a list that is too short an item is refused
        return name not in seen and cls in _COUNTED and (name not in given or cls is dict)

    return tuple(is_unseen(name, type(read(cell, "cell_contents"))) for name, cell in cells)


def own_cells(function: types.FunctionType) -> tuple[bool, ...]:
    """Of each free variable whether the same function may find another value in it: it cannot see it, or assigns it
    itself. Called by C++.
    """
    assigned = cell_uses(function.__code__).assigned
    cells = zip(function.__code__.co_freevars, unseen_cells(function), strict=True)
    return tuple(name in assigned or is_unseen for name, is_unseen in cells)


@asked_once
def cell_uses(code: types.CodeType) -> CellUses:
    assigned, seen, given = set[str](), set[str](), set[str]()
    steps = steps_of(code)
    for i, step in enumerate(steps):
        if step.opname in ("STORE_DEREF", "DELETE_DEREF"):
            assigned.add(step.argval)
        elif step.opname in ("LOAD_DEREF", "LOAD_FROM_DICT_OR_DEREF", "LOAD_CLASSDEREF"):
            if _gives_item(steps, i):
                given.add(step.argval)
            elif not (_adds(steps, i) or _counts(steps, i)):
                seen.add(step.argval)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            inside = cell_uses(inner)
            assigned |= inside.assigned
            seen |= inside.read
            given |= inside.given
    free = set(code.co_freevars)  # else they are variables of this code
    return CellUses(assigned & free, seen & free, given & free)


def _adds(steps: list[dis.Instruction], at: int) -> bool:
    """Whether a container is loaded to be appended to."""
    return steps[at + 1].opname in ("LOAD_ATTR", "LOAD_METHOD") and steps[at + 1].argval in _ADDING


def _gives_item(steps: list[dis.Instruction], at: int) -> bool:
    """Whether a container is loaded to be given an item by a simple key."""
    return steps[at + 1].opname in _LOADS and [step.opname for step in steps[at + 2 : at + 3]] == ["STORE_SUBSCR"]


def _counts(steps: list[dis.Instruction], at: int) -> bool:
    """Whether a variable is loaded to be assigned again with a constant added or taken away: `n += 1`."""
    added, *then = steps[at + 1 : at + 4]
    if added.opname not in _CONSTANTS or [step.opname for step in then] != ["BINARY_OP", "STORE_DEREF"]:
        return False
    return then[0].argrepr.rstrip("=") in ("+", "-") and then[1].argval == steps[at].argval
