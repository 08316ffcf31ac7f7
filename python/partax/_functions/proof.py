"""Whether a re-created function, or another callable, is the same as an earlier one; called by the native module.

A proof is what the earlier one could read when its trace began. A re-created function is the same if it reads the same.
"""

import itertools
import os
import types
from typing import Any

from partax._families.installed import is_installed
from partax._families.objects import unwrapped
from partax._functions.classes import kind_text
from partax._functions.reader import Reader, UnprovableError


class Proof:
    """What a callable could read; or, if that cannot be proven unchanged, why."""

    __slots__ = ("globals", "identities", "num_array_bytes", "reason", "tokens")

    def __init__(self, value: Any) -> None:
        """Records what a callable can read. Called by the native module when a key is made, before its trace."""
        reader = Reader()
        self.reason = _unprovable_text(reader, value)
        self.globals = tuple(reader.globals) if reader.is_simple else ()
        self.tokens = reader.tokens
        self.identities = reader.identities
        self.num_array_bytes = reader.num_array_bytes


def is_same(proof: Proof, value: Any) -> bool:
    """Whether a re-created callable reads what the proof has. Called by the native module."""
    reader = Reader()
    if _unprovable_text(reader, value) or reader.tokens != proof.tokens:
        return False
    return None not in [identity() for identity in proof.identities]


def difference_text(proof: Proof, value: Any) -> str:
    """Why a re-created callable is not the same, in words. Called by the native module."""
    return f"{callable_text(value)} was re-created and {proof.reason or _first_difference(proof.tokens, value)}"


def _unprovable_text(reader: Reader, value: Any) -> str:
    """Why a value cannot be proven unchanged; empty if it can."""
    try:
        reader.read(value)
    except MemoryError:
        raise
    except UnprovableError as error:
        return unprovable_text(reader.place, str(error))
    except Exception as error:  # whatever a user's object raises
        return unprovable_text(reader.place, f"an object whose reading raised a {type(error).__name__}")
    return ""


def _first_difference(tokens: list[Any], value: Any) -> str:
    """What another callable reads otherwise, such as `'cfg.lr' (global of train.py), which has changed`."""
    reader = Reader()
    if text := _unprovable_text(reader, value):
        return text
    pairs = enumerate(zip(tokens, reader.tokens, strict=False))
    end = min(len(tokens), len(reader.tokens))
    i = next((i for i, (old, new) in pairs if old != new), end)
    place = place_text(reader.places[min(i, len(reader.places) - 1)][1])
    if not place:
        return "has other code" if isinstance(value, types.FunctionType) else "is another object"
    old, new = (tokens[i] if i < end else None for tokens in (tokens, reader.tokens))
    return f"reads {place}, which {_change_text(old, new)}"


_PLAIN: set[Any] = {type(None), bool, int, float, complex, str, bytes}


def _change_text(old: Any, new: Any) -> str:
    """How a token has changed, with the values if they are short."""
    if type(old) is int or type(new) is int:  # known by identity
        return "is another object"
    pairs = [token for token in (old, new) if type(token) is tuple and len(token) == 2]
    if len(pairs) < 2 or not all(cls in _PLAIN for cls, _ in pairs):
        return "has changed"
    texts = [value if cls in (float, complex) else repr(value) for cls, value in pairs]
    return f"changed from {texts[0]} to {texts[1]}" if max(map(len, texts)) <= 40 else "has changed"


def callable_text(value: Any) -> str:
    """A callable and where it is defined: `<lambda> at model.py:12`."""
    inner = unwrapped(value)
    if type(inner) is types.FunctionType:
        code = inner.__code__
        text = f"{inner.__name__} at {os.path.basename(code.co_filename)}:{code.co_firstlineno}"
        return text if inner is value or type(value) is types.MethodType else f"{kind_text(value)} of {text}"
    return kind_text(value)


def unprovable_text(place: tuple[Any, ...], what: str) -> str:
    where = place_text(place)
    return f"{f'reads {where}, {what},' if where else f'is {what},'} which cannot be proven unchanged"


def place_text(place: tuple[Any, ...]) -> str:
    """The innermost variable of the user's code with its attributes and items: `'cfg.lr' (global of train.py)`."""
    variables = [i for i, segment in enumerate(place) if isinstance(segment, tuple)]
    if not variables:
        return f"'{''.join(place)}'" if place else ""
    of_user = [i for i in variables if not is_installed(place[i][2].__globals__.get("__name__"))]
    at = (of_user or variables)[-1]
    kind, name, function = place[at]
    path = "".join(itertools.takewhile(lambda segment: isinstance(segment, str), place[at + 1 :]))
    if kind == "default":
        return f"a default{path} of {function.__name__}"
    file = os.path.basename(function.__code__.co_filename)
    owner = f" in {function.__name__}" if at > variables[0] else ""
    where = f"global of {file}{owner}" if kind == "global" else f"closure of {function.__qualname__}"
    return f"'{name}{path}' ({where})"
