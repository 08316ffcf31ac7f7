"""Values, names and records as one line of text, long ones truncated with `...`; and tables of these."""

import dataclasses
import functools
import itertools
import types
from collections.abc import Collection, Sequence
from typing import Any

import jax
import numpy as np

from partax._families.objects import attempt, attribute_of

LONGEST = 120
"""The maximum length of the `repr` of an object of partax."""

_LONGEST_VALUE = 60
_DEEPEST = 3  # level of nested containers whose items are written
_MOST_ITEMS = 10  # of one container
_MOST_LISTED = 5  # paths
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


def name_text(name: str, longest: int = LONGEST) -> str:
    """A qualified name in one line. A long one is truncated at its start, since its end is more specific."""
    text = one_line(name, max(len(name), 1) * 10)
    return text if len(text) <= longest else "..." + text[3 - longest :]


def repr_text(value: Any) -> str:
    """The `repr` of a value, or the name of its type if the `repr` raises."""
    return attempt(f"<{type(value).__name__}>", repr, value)


def short_text(value: Any, longest: int = _LONGEST_VALUE) -> str:
    """The `repr` of a value in one line. Does not read array data, nor all items of a long container."""
    # It raises for a container that another thread changes, or a property that raises.
    return one_line(attempt(f"<{type(value).__name__}>", _text, value, _DEEPEST), longest)


def wrapper_text(kind: str, wrapper: Any, more: str = "") -> str:
    """The `repr` of a wrapper of a callable: `<partax.filter_jit of step>`, with `more` after the name."""
    wrapped = attribute_of(wrapper, "__wrapped__", wrapper)
    names = (attribute_of(wrapper, "__qualname__"), attribute_of(wrapper, "__name__"), type(wrapped).__qualname__)
    name = next(name for name in names if isinstance(name, str))
    return f"<partax.{kind} of {name_text(name, LONGEST - len(f'<partax.{kind} of {more}>'))}{more}>"


def record_text(self: Any) -> str:
    """The `repr` of a dataclass in one line: `Name(field=value, ...)`."""
    values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
    values = {name: float(f"{value:.4g}") if type(value) is float else value for name, value in values.items()}
    fields = ", ".join(f"{name}={short_text(value)}" for name, value in values.items())
    return one_line(f"{type(self).__qualname__}({fields})")


def _text(value: Any, depth: int) -> str:
    kind: Any = type(value)
    if isinstance(value, (jax.Array, np.ndarray)):
        return array_text(value)
    if isinstance(value, types.FunctionType):
        return value.__qualname__
    if isinstance(value, (str, bytes)) and len(value) > LONGEST:
        return repr_text(value[:LONGEST]) + "..."
    if isinstance(value, functools.partial):
        start, end = "partial(", ")"
        items = [("", item) for item in (value.func, *value.args)]
        items += [(f"{name}=", item) for name, item in value.keywords.items()]
    elif kind not in _BRACKETS or not value:
        return repr_text(value)
    else:
        start, end = _BRACKETS[kind]
        container: Any = value
        names = (f"{_text(key, depth - 1)}: " for key in container) if kind is dict else itertools.repeat("")
        items = zip(names, container.values() if kind is dict else container, strict=False)
    if depth == 0:
        return f"{start}...{end}"
    first = list(itertools.islice(items, _MOST_ITEMS + 1))
    texts = [name + _text(item, depth - 1) for name, item in first[:_MOST_ITEMS]]
    texts += ["..."] * (len(first) > _MOST_ITEMS)
    return f"{start}{', '.join(texts)}{',' if kind is tuple and len(texts) == 1 else ''}{end}"


def array_text(array: Any) -> str:
    """The dtype and shape of an array or a typed PRNG key: `float32[3,2]`."""
    dtype: Any = array.dtype
    return f"{getattr(dtype, 'name', dtype)}[{','.join(map(str, array.shape))}]"


def table_lines(rows: Sequence[Sequence[str]], left: Collection[int]) -> list[str]:
    """A line for each row, the first with the headings; the columns `left` are aligned at the left, numbers at the
    right. What would move the text on a terminal is escaped, as a line break in a path.
    """
    texts = [list(map(printable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    signs = ["<" if i in left else ">" for i in range(len(widths))]
    form = "  ".join(f"{{:{sign}{width}}}" for sign, width in zip(signs, widths, strict=True))
    return [form.format(*row).rstrip() for row in texts]


def counted(count: int, noun: str) -> str:
    """`1 finding`, `2 findings`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(paths: Sequence[str]) -> str:
    """Paths in a sentence, the first few of many."""
    displayed = [f"`{path}`" for path in paths[:_MOST_LISTED]]
    if len(paths) > _MOST_LISTED:
        displayed.append(f"{len(paths) - _MOST_LISTED:,} more")
    return displayed[0] if len(displayed) == 1 else f"{', '.join(displayed[:-1])} and {displayed[-1]}"
