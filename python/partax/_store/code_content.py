"""What the result of a code object depends on, and not where it stands; whether it reads sets in an order of hashes."""

import dis
import hashlib
import operator
import struct
import types
from typing import Any

from partax._guards.bytecode import steps_of
from partax._guards.user_objects import asked_once

_OF_SETS = {"&", "|", "^", "-"}
_VIEWS = {"keys", "items"}
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
    return makes or _joins_views(steps)


def _joins_views(steps: list[dis.Instruction]) -> bool:
    """Whether a view of a dictionary may become a set: it is more than looped over, and there are its operators."""
    is_held = any(step.argval in _VIEWS and steps[i + 2].opname != "GET_ITER" for i, step in enumerate(steps[:-2]))
    return is_held and any(it.opname == "BINARY_OP" and it.argrepr.rstrip("=") in _OF_SETS for it in steps)


def _only_asked(code: types.CodeType, constant: frozenset[Any]) -> bool:
    """Whether code asks of a constant set only what is in it, as in `x in {1, 2}`."""
    steps = steps_of(code)
    return all(_is_asked(steps, i) for i, step in enumerate(steps) if step.argval is constant)


def _is_asked(steps: list[dis.Instruction], at: int) -> bool:
    return [step.opname for step in steps[at + 1 : at + 2]] == ["CONTAINS_OP"]
