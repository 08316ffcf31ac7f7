"""The only file that uses private names of Equinox and haliax, each with a fallback for a missing name."""

import functools
import logging
import sys
from typing import Any

from partax._jax.private import _name


def last_runtime_error() -> tuple[str, tuple[Any, ...]]:
    """The message of Equinox's last error at run time, and its stack, strings and ids of frames; empty if unknown."""
    info = _name("equinox._jit.last_error_info")
    return (info[0], tuple(info[1])) if isinstance(info, tuple) and len(info) == 2 else ("", ())


def text_of_runtime_error(message: str, stack: str) -> str:
    """The message of Equinox's `filter_jit` for an error at run time, or ours if its template is missing."""
    words = _name("equinox._jit._on_error_msg")
    if isinstance(words, str) and "{msg}" in words and "{stack}" in words:
        return words.format(msg=message, stack=stack)
    return f"{message}\n{stack}"


@functools.cache
def keep_from_log(error: str) -> None:
    """Keep errors of this class out of what jax logs when a callback fails: Equinox raises its errors in callbacks."""
    module = _name("jax._src.callback")
    if module is not None:
        logger = logging.getLogger(module.__name__)
        logger.addFilter(lambda record: not (record.exc_info and type(record.exc_info[1]).__name__ == error))


def jit_class() -> type | None:
    """The class of what `equinox.filter_jit` returns. Without it, only functions decorated later are accelerated."""
    return _name("equinox._jit._JitWrapper")


def jit_options(wrapper: Any) -> tuple[str, Any] | None:
    """The `donate` option of an instance of `jit_class`, and its `jax.jit`; None if it has other attributes."""
    own = getattr(wrapper, "__dict__", {})  # read once, since attribute access on a module is slow
    fields = [own.get(name) for name in ("donate_first", "donate_rest", "filter_warning", "_cached")]
    first, rest, is_quiet, jitted = fields
    if jitted is None or not all(isinstance(flag, bool) for flag in fields[:3]) or (first and not rest):
        return None
    if not rest:
        return "none", jitted
    return ("all" if is_quiet else "warn") + ("" if first else "-except-first"), jitted


def named_jit_class() -> type | None:
    """The class of what haliax's `named_jit` returns; None if haliax has not been imported."""
    partitioning = getattr(sys.modules.get("haliax"), "partitioning", None)  # which an import that fails leaves there
    return getattr(partitioning, "_NamedJitWrapper", None)


def named_jit_fields(wrapper: Any) -> list[Any] | None:
    """What an instance of `named_jit_class` has: the function and the options; None if it has other attributes."""
    own, resources = getattr(wrapper, "__dict__", {}), ("_axis", "_in_axis", "_out_axis")
    names = "_fn", *(f"{name}_resources" for name in resources), "_donate_args", "_donate_kwargs", "_pjit_args"
    return [own[name] for name in names] if own.keys() >= {*names} else None
