"""What a code object reads and writes by name: globals and their attributes, closure cells."""

import dis
import sys
import types
from collections.abc import Iterator

from partax._statics.libraries import is_installed, is_of_instance, reads_outside
from partax._statics.user_objects import asked_once, read

_CLOCKS = {"now", "utcnow", "today"}  # of datetime's classes
_READERS = {"open", "read_text", "read_bytes"}  # of paths, and of what else opens files
ABOUT_CLASS = {
    *("__dict__", "__weakref__", "__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__"),
    *("__classdictcell__", "__orig_bases__", "__parameters__", "__type_params__", "__abstractvars__"),
    *("__abstractclassvars__", "__dataclass_fields__", "__dataclass_params__"),
}
"""Entries of a class that its statement, and decorators of libraries, write about it: these are not written down."""
# What is written down of no function and no class, though it may be changed.
_REFLECTIONS = (ABOUT_CLASS - {"__dict__", "__weakref__"}) | {
    *("__doc__", "__module__", "__globals__", "__subclasses__"),
    *("f_back", "f_globals", "f_locals", "gi_frame", "tb_frame"),
}


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


_IDLE = {"CACHE", "PRECALL", "EXTENDED_ARG", "NOP", "PUSH_NULL", "RESUME"}


@asked_once
def global_names(code: types.CodeType) -> tuple[tuple[tuple[str, ...], ...], str | None]:
    """The global names that a code object and the code inside it read.

    Args:
      code: of a function.

    Returns:
      Each name followed by the attributes that are read of it at once, as `("jax", "numpy", "sin")`, and what it reads
      that has no such name, or None.
    """
    found: dict[tuple[str, ...], None] = {}
    unknown: str | None = None
    for part in _codes(code):
        chain: tuple[str, ...] = ()
        for step in dis.get_instructions(part):
            is_attribute = step.opname in ("LOAD_ATTR", "LOAD_METHOD")
            if is_attribute and step.argval in _READERS:
                unknown = f"a file by '.{step.argval}'"
            elif (is_attribute or (step.opname == "LOAD_CONST" and type(step.argval) is str)) and (
                step.argval in _REFLECTIONS  # by its name, or for `getattr`
            ):
                unknown = f"what '.{step.argval}' gives"
            if chain and is_attribute:
                chain += (step.argval,)
                continue
            if step.opname in _IDLE:
                continue
            if chain:
                found[chain] = None
                if chain[-1] in _CLOCKS:
                    unknown = f"the clock by {'.'.join(chain)!r}"
            chain = ()
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
                chain = (step.argval,)
            elif step.opname == "IMPORT_NAME":
                # `import os.path` gives the body `os`.
                known = [sys.modules.get(name) for name in (step.argval, step.argval.partition(".")[0])]
                if not is_installed(step.argval) or any(module and leads_outside(module, code) for module in known):
                    unknown = f"the import of {step.argval!r}"
    return tuple(found), unknown


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
    assigned, read = _cell_uses(code)
    return tuple(True if name in assigned else False if name in read else None for name in code.co_freevars)


_ADDING = {"append", "appendleft", "extend", "insert", "add", "update"}
_SIMPLE_LOADS = {"LOAD_CONST", "LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_SMALL_INT", "LOAD_DEREF"}


def _cell_uses(code: types.CodeType) -> tuple[set[str], set[str]]:
    """The free variables that a code object and the code inside it assign, and those that they read."""
    assigned: set[str] = set()
    read: set[str] = set()
    steps = [step for step in dis.get_instructions(code) if step.opname not in _IDLE]
    for step, after, third in zip(steps, [*steps[1:], None], [*steps[2:], None, None], strict=False):
        if step.opname in ("STORE_DEREF", "DELETE_DEREF"):
            assigned.add(step.argval)
        elif step.opname in ("LOAD_FROM_DICT_OR_DEREF", "LOAD_CLASSDEREF"):
            read.add(step.argval)
        elif step.opname == "LOAD_DEREF":
            adds = after is not None and after.opname in ("LOAD_ATTR", "LOAD_METHOD") and after.argval in _ADDING
            stores = after is not None and after.opname in _SIMPLE_LOADS
            if not adds and not (stores and third is not None and third.opname == "STORE_SUBSCR"):
                read.add(step.argval)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            inner_assigned, inner_read = _cell_uses(inner)
            assigned |= inner_assigned
            read |= inner_read
    free = set(code.co_freevars)  # else they are variables of this code
    return assigned & free, read & free


def leads_outside(module: types.ModuleType, code: types.CodeType) -> bool:
    """Whether code that has a module of a library may get from it what depends on more than its arguments.

    Args:
      module: the module.
      code: of a function; all attributes that it and the code inside it name are looked for in the module.

    Returns:
      Whether one of them is such a function, or a container that may change.
    """
    names = {name for part in _codes(code) for name in part.co_names}
    seen, pending = {id(module)}, [module]
    while pending:
        scope = pending.pop()
        if scope.__name__ == "datetime" and not names.isdisjoint(_CLOCKS):
            return True
        for value in [read(scope, name, 0) for name in names]:
            if isinstance(value, types.ModuleType):
                pending += [value] if id(value) not in seen else []
                seen.add(id(value))
            elif isinstance(value, type):
                continue
            elif hasattr(type(value), "__setitem__") or reads_outside(value) or is_of_instance(value):
                return True
    return False
