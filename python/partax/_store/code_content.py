"""What the result of a code object depends on, and not where it stands."""

import struct
import types
from typing import Any


def number_content(value: "float | complex") -> tuple[str, str]:
    """A number by its bits: the sign of a zero or a NaN is not in its text."""
    number = complex(value)
    return type(value).__name__, struct.pack("dd", number.real, number.imag).hex()


def code_content(code: types.CodeType) -> Any:
    """All of a code object that its result depends on; not where it stands."""
    return (
        *(code.co_name, code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars),
        *(code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags, code.co_exceptiontable),
        tuple(map(_constant, code.co_consts)),
    )


def _constant(value: Any) -> Any:
    cls = type(value)
    if cls is types.CodeType:
        return code_content(value)
    if cls is float or cls is complex:
        return number_content(value)
    if cls is slice:
        return "slice", *map(_constant, (value.start, value.stop, value.step))
    if cls is tuple:
        return cls.__name__, *map(_constant, value)
    if cls is frozenset:  # in an order of this process
        return cls.__name__, sorted(map(repr, map(_constant, value)))
    return cls.__name__, repr(value)
