"""What the result of a code object depends on, and not where it stands."""

import hashlib
import operator
import struct
import types
from typing import Any

from partax._families.objects import cached_by_identity


def number_content(value: "float | complex") -> tuple[str, str]:
    """A number by its bits: the sign of a NaN is not in its text."""
    number = complex(value)
    return type(value).__name__, struct.pack("dd", number.real, number.imag).hex()


@cached_by_identity
def code_digest(code: types.CodeType) -> bytes:
    return digest_of(_content(code))


def digest_of(value: Any) -> bytes:
    """A digest of plain values, which is the same in any process."""
    return hashlib.blake2b(repr(value).encode("utf-8", "surrogatepass"), digest_size=20).digest()


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
