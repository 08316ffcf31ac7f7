"""The only file that uses names that are not public for Equinox, each by `_name`, with what serves where it is gone."""

import logging
import sys
from collections.abc import Callable
from typing import Any

from partax._jax.private import _name


def last_runtime_error() -> tuple[str, tuple[Any, ...]]:
    """The message of Equinox's last error at run time, and its stack: texts, and the ids of frames between them.
    Without it, an error has no stack of its own.
    """
    found = _name("equinox._jit.last_error_info")
    return (found[0], tuple(found[1])) if isinstance(found, tuple) and len(found) == 2 else ("", ())


def text_of_runtime_error(message: str, stack: str) -> str:
    """What Equinox's filter_jit says of an error at run time; without its words, in ours."""
    words = _name("equinox._jit._on_error_msg")
    if isinstance(words, str) and "{msg}" in words and "{stack}" in words:
        return words.format(msg=message, stack=stack)
    inside = f"\nThe stack inside of the jitted function, to where the error was checked for:\n{stack}" if stack else ""
    return (
        f"{message}\n{inside}\nSet EQX_ON_ERROR=breakpoint for a debugger where it is raised, or EQX_ON_ERROR=nan to "
        "go on with NaNs; see https://docs.kidger.site/equinox/api/errors/"
    )


def keep_from_log(of_callbacks: Callable[[logging.LogRecord], bool]) -> None:
    """Filters what jax logs of a callback that fails, which Equinox's errors are. Without it, they are logged too."""
    module = _name("jax._src.callback")
    if module is not None:
        logging.getLogger(module.__name__).addFilter(of_callbacks)


def jit_class() -> type | None:
    """The class of what `equinox.filter_jit` returns. Without it, only what is decorated while libraries are
    accelerated is.
    """
    found = _name("equinox._jit._JitWrapper")
    return found if isinstance(found, type) else None


def jit_module() -> Any:
    """The module of `equinox.filter_jit`, whose functions take arguments apart; None where Equinox is not imported."""
    found = jit_class() if "equinox" in sys.modules else None
    return None if found is None else sys.modules.get(found.__module__)


def jit_options(wrapper: Any) -> tuple[str, Any] | None:
    """What an instance of `jit_class` donates, as the option says, and its `jax.jit`; None where it does not tell."""
    own = getattr(wrapper, "__dict__", {})  # once, as a module takes its time for an attribute
    fields = [own.get(name) for name in ("donate_first", "donate_rest", "filter_warning", "_cached")]
    first, rest, is_quiet, jitted = fields
    if jitted is None or not all(isinstance(it, bool) for it in fields[:3]) or (first and not rest):
        return None
    if not rest:
        return "none", jitted
    return ("all" if is_quiet else "warn") + ("" if first else "-except-first"), jitted
