"""What a stored program is found by: a digest of all that it depends on, read of the call under way."""

import hashlib
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from partax import _core
from partax._jit.options import Options
from partax._pytree.call_site import file_text
from partax._store import placement
from partax._store.content import content_of
from partax._store.environment import environment
from partax._store.placement import Signature, UnstoredError

Proof = list[tuple[str, bytes]]
"""What a program depends on, in words, and a digest of each."""


class Key(NamedTuple):
    """What a stored program is found by.

    Attributes:
      group: how the names of all begin that are for such arguments, whatever the code was.
      name: of this one.
      proof: gives what the name is a digest of, one by one.
    """

    group: str
    name: str
    proof: Callable[[], Proof]


def key_of_call(options: Options, signature: Signature, takes_tuple: bool) -> Key:
    """The key of the call under way.

    Args:
      options: of its wrapper.
      signature: of its arrays.
      takes_tuple: whether the program takes them as one tuple.

    Returns:
      The key.

    Raises:
      UnstoredError: something that it depends on could not be proven in another process.
    """
    try:
        return _key(options, signature, takes_tuple)
    except (UnstoredError, MemoryError):
        raise
    except Exception as error:  # of whatever class of the user's that is looked at
        raise UnstoredError(f"it cannot be looked at: {error}") from error


def _key(options: Options, signature: Signature, takes_tuple: bool) -> Key:
    nodes, statics, _ = _core.describe_call()[0]
    classes = dict.fromkeys(node[1] for node in nodes if node[1] is not None)
    values = [held[0] for held in statics if held]
    function = _core.called_function()
    asked, devices = placement.of_options(options)
    content = content_of((function, options.without_shardings, *classes, *values))
    if content.unstored:
        raise UnstoredError(content.unstored)
    _, *given = _core.call_shape()  # which parameters the values are of
    named = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    arguments = (tuple(map(_node_text, nodes)), given, tuple(map(bool, statics)))
    group = _digest((named, arguments, signature.arrays, asked, takes_tuple)).hex()
    everywhere = environment(tuple(dict.fromkeys((*signature.devices, *devices))))

    def proof() -> Proof:
        found = [(name, _digest(value)) for name, value in everywhere.items()]
        return found + [(_text(content.place(i)), digest) for i, digest in enumerate(content.digests)]

    return Key(group, f"{group}-{_digest((content.digest, everywhere)).hex()}", proof)


def what_changed(earlier: Sequence[Proof], now: Proof) -> str:
    """The first thing that is another than in the nearest of some proofs, in words; empty if there is none."""
    if not earlier:
        return ""

    def differing(before: Proof) -> list[str]:
        return [text for (_, known), (text, digest) in zip(before, now, strict=False) if known != digest]

    changed = min(map(differing, earlier), key=len)
    return (changed[0] if changed else "") or "what its code reads"


def _digest(value: Any) -> bytes:
    return hashlib.blake2b(repr(value).encode("utf-8", "surrogatepass"), digest_size=20).digest()


def _text(place: types.CodeType | str) -> str:
    if isinstance(place, str):
        return place
    return f"{file_text(place.co_filename)}:{place.co_firstlineno} {place.co_name}"


def _node_text(node: tuple[Any, ...]) -> tuple[Any, ...]:
    kind, cls, *others = node
    return kind, None if cls is None else (cls.__module__, cls.__qualname__), *others
