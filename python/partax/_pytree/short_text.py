"""Values, names and records as one line of text; long ones are truncated with `...`."""

import dataclasses
import functools
import types
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from partax._families.objects import attribute_of
from partax._pytree.spec_data import repr_text

LONGEST = 120
"""The maximum length of the `repr` of an object of partax."""

_LONGEST_VALUE = 60
_DEEPEST = 6  # level of nested containers whose items are written
_BRACKETS = {tuple: "()", list: "[]", set: "{}", frozenset: ("frozenset({", "})"), dict: "{}"}


def printable(text: str) -> str:
    """Escape each character that cannot be printed, such as a line break."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def one_line(text: str, longest: int = LONGEST) -> str:
    """Replace line breaks by spaces, escape what cannot be printed, and truncate the end."""
    if len(text) > 10 * longest:
        text = text[: 10 * longest] + "..."
    text = printable(" ".join(text.split()))
    return text if len(text) <= longest else text[: longest - 3] + "..."


def angled(text: str) -> str:
    """One line in angle brackets, for the `repr` of an object without a public constructor."""
    return f"<{one_line(text, LONGEST - 2)}>"


def name_text(name: str, longest: int = LONGEST) -> str:
    """A qualified name in one line. A long one is truncated at its start, since its end is more specific."""
    text = one_line(name, max(len(name), 1) * 10)
    return text if len(text) <= longest else "..." + text[3 - longest :]


def short_text(value: Any, longest: int = _LONGEST_VALUE) -> str:
    """The `repr` of a value in one line, with arrays as their dtype and shape, or the type's name if the `repr` raises.
    Does not read array data, and runs the `repr` of only those items of a long container that fit.
    """
    try:
        return one_line(_text(value, longest, _DEEPEST), longest)
    except MemoryError:
        raise
    except Exception:  # a container that another thread changes, or a property that raises
        return one_line(f"<{type(value).__name__}>", longest)


def wrapper_text(kind: str, wrapper: Any, more: str = "") -> str:
    """The `repr` of a wrapper of a callable: `<partax.filter_jit of step>`, with `more` after the name."""
    wrapped = attribute_of(wrapper, "__wrapped__", wrapper)
    names = (attribute_of(wrapper, "__qualname__"), attribute_of(wrapper, "__name__"), type(wrapped).__qualname__)
    name = next(name for name in names if isinstance(name, str))
    return f"<partax.{kind} of {name_text(name, LONGEST - len(f'<partax.{kind} of {more}>'))}{more}>"


def record_text(self: Any) -> str:
    """The `repr` of a dataclass in one line: `Name(field=value, ...)`."""
    values = ((f"{field.name}=", getattr(self, field.name)) for field in dataclasses.fields(self))
    fields = ((name, float(f"{value:.4g}") if type(value) is float else value) for name, value in values)
    return one_line(_items(f"{type(self).__qualname__}(", fields, ")", LONGEST, _DEEPEST))


def _text(value: Any, longest: int, depth: int) -> str:
    kind: Any = type(value)
    if isinstance(value, (jax.Array, np.ndarray)):
        return array_text(value)
    if isinstance(value, (str, bytes)) and len(value) > longest:
        return repr_text(value[:longest]) + "..."
    if isinstance(value, types.FunctionType):
        return value.__qualname__
    if isinstance(value, functools.partial):
        bound = [("", item) for item in value.args] + [(f"{name}=", item) for name, item in value.keywords.items()]
        return _items(f"{kind.__name__}(", [("", value.func), *bound], ")", longest, depth - 1)
    if kind not in _BRACKETS or not value:
        return repr_text(value)
    start, end = _BRACKETS[kind]
    items: Any = value
    if depth <= 0:
        return f"{start}...{end}"
    if kind is dict:
        pairs = ((f"{_text(key, longest, depth - 1)}: ", item) for key, item in items.items())
        return _items(start, pairs, end, longest, depth)
    if kind is tuple and len(value) == 1:
        end = ",)"
    return _items(start, (("", item) for item in items), end, longest, depth)


def _items(start: str, items: Iterable[tuple[str, Any]], end: str, longest: int, depth: int) -> str:
    """The items that fit, each after its name, and `...` if there are more."""
    texts: list[str] = []
    room = longest - len(start) - len(end)
    for name, value in items:
        texts.append(name + _text(value, min(room - len(name) - len(", ..."), _LONGEST_VALUE), depth - 1))
        if len(", ".join(texts)) > room:
            while len(texts) > 1 and len(", ".join([*texts, "..."])) > room:
                texts.pop()
            texts.append("...")
            break
    return start + ", ".join(texts) + end


def array_text(array: Any) -> str:
    """The dtype and shape of an array or a typed PRNG key: `float32[3,2]`."""
    dtype: Any = array.dtype
    return f"{getattr(dtype, 'name', dtype)}[{','.join(map(str, array.shape))}]"
