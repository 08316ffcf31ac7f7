"""What the result of a code object depends on, and not where it stands; whether it reads sets in an order of hashes."""

import dis
import hashlib
import operator
import struct
import types
from typing import Any

from partax._guards.bytecode import steps_of
from partax._guards.user_objects import asked_once

# Methods of dictionaries that give what may become a set, and what only goes through it.
_VIEWS = {"keys", "items"}
_THROUGH = {"GET_ITER", "GET_YIELD_FROM_ITER", "LIST_EXTEND", "UNPACK_SEQUENCE", "CONTAINS_OP"}
_LOOPING = {"dict", "enumerate", "iter", "len", "list", "max", "min", "reversed", "sorted", "sum", "tuple"}
_LOADS = {"LOAD_GLOBAL", "LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_DEREF"}
# Attributes that give a hash, or a set of what is none.
_OF_HASHES = {"__hash__", *(f"__{side}{it}__" for it in ("or", "xor", "and", "sub") for side in ("", "r"))}
_BUILD_SET = dis.opmap["BUILD_SET"]


def number_content(value: "float | complex") -> tuple[str, str]:
    """A number by its bits: the sign of a zero or a NaN is not in its text."""
    number = complex(value)
    return type(value).__name__, struct.pack("dd", number.real, number.imag).hex()


@asked_once
def code_digest(code: types.CodeType) -> bytes:
    """Of all of a code object that its result depends on; not of where it stands."""
    return digest_of(_content(code))


def digest_of(value: Any) -> bytes:
    """Of plain values: equal ones have equal digests in any process."""
    return hashlib.blake2b(repr(value).encode("utf-8", "surrogatepass"), digest_size=20).digest()


# Of a code object all that counts, but for its constants.
_PARTS = operator.attrgetter(
    *("co_name", "co_qualname", "co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_argcount"),
    *("co_posonlyargcount", "co_kwonlyargcount", "co_flags", "co_exceptiontable"),
)


def _content(code: types.CodeType) -> Any:
    return *_PARTS(code), list(map(_constant, code.co_consts))


def _constant(value: Any) -> Any:
    cls = type(value)
    if cls is types.CodeType:
        return _content(value)
    if cls is float or cls is complex:
        return number_content(value)
    if cls is slice:
        return "slice", *map(_constant, (value.start, value.stop, value.step))
    if cls is tuple:
        return "tuple", *map(_constant, value)
    if cls is frozenset:  # of which code may only ask what is in it
        return "frozenset", sorted(map(repr, map(_constant, value)))
    return cls.__name__, repr(value)


@asked_once
def reads_hashes(code: types.CodeType) -> bool:
    """Whether a code object, or one inside of it, may read a set in the order of its hashes, or a hash itself.

    Those of texts have a seed in each process, those of functions and classes are where these lie in memory.
    """
    if not _OF_HASHES.isdisjoint(code.co_names):
        return True
    inner = (it for it in code.co_consts if type(it) is types.CodeType)
    sets = (it for it in code.co_consts if type(it) is frozenset)
    if any(map(reads_hashes, inner)) or not all(_only_asked(code, it) for it in sets):
        return True
    if _BUILD_SET not in code.co_code[::2] and _VIEWS.isdisjoint(code.co_names):
        return False
    steps = steps_of(code)
    makes = any(step.opname == "BUILD_SET" and not _is_asked(steps, i) for i, step in enumerate(steps))
    return makes or not all(_goes_through(steps, i) for i, step in enumerate(steps) if _is_view(step))


def _is_view(step: dis.Instruction) -> bool:
    return step.opname in ("LOAD_ATTR", "LOAD_METHOD") and step.argval in _VIEWS


def _goes_through(steps: list[dis.Instruction], at: int) -> bool:
    """Whether a view that a step asks a dictionary for is looped over at once: by code, or as all that it gives to a
    function of Python's that does no more, as in `sorted(a.b.items())`. Another function may join it with a set.
    """
    call, then = steps[at + 1], steps[at + 2]
    if (call.opname, call.arg) != ("CALL", 0):
        return False
    if then.opname in _THROUGH:
        return True
    while steps[at].opname in ("LOAD_ATTR", "LOAD_METHOD"):
        at -= 1
    is_given = (then.opname, then.arg) == ("CALL", 1) and steps[at].opname in _LOADS
    return is_given and steps[at - 1].opname == "LOAD_GLOBAL" and steps[at - 1].argval in _LOOPING


def _only_asked(code: types.CodeType, constant: frozenset[Any]) -> bool:
    """Whether code asks of a constant set only what is in it, as in `x in {1, 2}`."""
    steps = steps_of(code)
    return all(_is_asked(steps, i) for i, step in enumerate(steps) if step.argval is constant)


def _is_asked(steps: list[dis.Instruction], at: int) -> bool:
    return [step.opname for step in steps[at + 1 : at + 2]] == ["CONTAINS_OP"]
