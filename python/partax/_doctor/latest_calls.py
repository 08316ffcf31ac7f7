"""The call that jax compiles a program for, and in what it differs from the one before it: why a function is traced."""

import inspect
import sys
import weakref
from typing import Any, NamedTuple

import jax
import numpy as np

from partax import _core
from partax._doctor.entries import entries_of
from partax._doctor.lines import USERS, rank, running_line
from partax._doctor.program import Kind
from partax._jax.private import configuration
from partax._jax.watched import MISS, static_arguments
from partax._transforms.wrapper import names_of_arguments

# The file and the function that make such a call, and which of its variables is what was called.
_FRAMES: dict[Kind, tuple[str, str, str]] = {
    "jax": (*MISS, "fun"),
    "equinox": ("equinox/_jit.py", "_call", "jit_wrapper"),
    "nnx": ("flax/nnx/transforms/compilation.py", "__call__", "self"),
}
_SHOWN = 2  # differences that a reason names
RECREATED = "the function was created again, for arguments of the same types"
CLOSES_OVER = "closes over other values of "
CLEARED = "its program was dropped, as `jax.clear_caches()` does"
ANOTHER = "it is another function of the same code, and the earlier ones live on"  # such as those of a list


class Call(NamedTuple):
    kind: Kind
    compiled: Any  # what the caller keeps as long as the compiled function
    function: Any
    arguments: dict[str, Any]
    leaves: list[Any]  # what jax passes to the program


def call_in_progress() -> Call | None:
    """The call for which jax compiles now, as the user has made it: of a library's jit, if that is around jax's."""
    call, static, leaves = None, set[Any](), list[Any]()
    frame = sys._getframe(1)
    while frame is not None and rank(frame.f_code.co_filename) != USERS:
        for kind, (file, name, variable) in _FRAMES.items():
            if frame.f_code.co_name != name or not frame.f_code.co_filename.replace("\\", "/").endswith(file):
                continue
            args, kwargs = frame.f_locals["args"], frame.f_locals["kwargs"]
            if kind == "jax":
                static = set(static_arguments(frame.f_locals))
                dynamic = [it for i, it in enumerate(args) if not {i, i - len(args)} & static]
                leaves = jax.tree.leaves((dynamic, {k: it for k, it in kwargs.items() if k not in static}))
            compiled = frame.f_locals[variable]
            function = inspect.unwrap(compiled)
            names = names_of_arguments(function, len(args))
            arguments = {**dict(zip(names, args, strict=True)), **kwargs}
            if kind != "equinox":  # which leaves numbers static; others make arrays of those that are not
                fixed = {name for i, name in enumerate(names) if {i, i - len(args)} & static} | static
                arguments = {name: it if name in fixed else _with_arrays(it) for name, it in arguments.items()}
            call = Call(kind, compiled, function, arguments, leaves)
        frame = frame.f_back
    return call


def _with_arrays(tree: Any) -> Any:
    return jax.tree.map(lambda it: np.asarray(it) if isinstance(it, (bool, int, float, complex)) else it, tree)


class LatestCalls:
    """The latest call of each function, as far as a trace depends on it, as texts: they keep nothing alive."""

    def __init__(self) -> None:
        self._texts: dict[Any, dict[str, str]] = {}
        self._closed_over: dict[Any, dict[str, int]] = {}
        self._alive: dict[Any, list[weakref.ref[Any]]] = {}  # what was compiled of each function

    def reason(self, call: Call) -> str:
        """What differs in a call, for which a function is traced, from the one before for which it was; empty where
        that is not known.
        """
        code = getattr(call.function, "__code__", None) or type(call.function)
        # Operations of jax's by themselves share a function: those of one line are compared.
        key = code if rank(getattr(code, "co_filename", "")) else (code, running_line())
        trees = [entries_of(value, name) for name, value in call.arguments.items()]
        texts = {path: entry.identity for entries in trees for path, entry in entries.items()}
        texts.update((f"the setting {name} of jax", str(it)) for name, it in configuration().items())
        before, closed_before = self._texts.get(key), self._closed_over.get(key, {})
        self._texts[key] = texts
        closed = self._closed_over[key] = _closed_over(call.function) if key is code else {}
        alive = [it() for it in self._alive.get(key, ())]
        is_compiled = any(it is call.compiled for it in alive)
        if not is_compiled:
            self._alive[key] = [weakref.ref(it) for it in (*alive, call.compiled) if it is not None]
            if alive and None not in alive and key is code:
                return ANOTHER
        if before is None:
            return ""
        paths = [path for path in {**texts, **before} if texts.get(path) != before.get(path)]
        if paths:
            more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
            return ", ".join(_difference(path, before, texts) for path in paths[:_SHOWN]) + more
        others = [f"`{name}`" for name, it in closed.items() if it != closed_before.get(name, it)]
        return CLEARED if is_compiled else RECREATED + (f", and {CLOSES_OVER}{', '.join(others)}" if others else "")


def _difference(path: str, before: dict[str, str], after: dict[str, str]) -> str:
    """Without the addresses of objects, which are compared but say nothing."""
    old, new = ((texts.get(path) or "nothing").partition(" at 0x")[0] for texts in (before, after))
    prefix = next((f"static {it} " for it in ("int", "float", "str", "bool") if old.startswith(f"static {it} ")), "")
    return f"{path}: {new} is new" if old == new else f"{path}: {old} -> {new.removeprefix(prefix)}"


def _closed_over(function: Any) -> dict[str, int]:
    """The addresses of the values that a function closes over, by name; not of functions, which say little."""
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    pairs = zip(names, getattr(function, "__closure__", None) or (), strict=False)
    return {name: id(it.cell_contents) for name, it in pairs if not callable(it.cell_contents)}


def partax_kind(history: Any) -> Kind:
    """Whose jit a call of partax's in progress is, by the history of its traces."""
    options = next((cache.options for cache in _core.caches() if cache.history is history), None)
    return "partax" if options is None or options.graph is None else "partax.nnx"
