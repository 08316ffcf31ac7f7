"""Has libraries that import Equinox use partax, without a change of theirs, and reversibly."""

import functools
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import equinox

from partax._core import JitFunction
from partax._families.equinox import jitted_by_equinox
from partax._families.equinox_private import jit_class, jit_options
from partax._jax.private import jit_options as options_of
from partax._jit.filter_jit import filter_jit, wrapper_of
from partax._jit.options import Options
from partax._libraries.equinox.spellings import DONATE_MODES, partition
from partax._pytree import partition as _partition
from partax._pytree.as_equinox import at

_REPLACED: dict[str, Any] = {
    **{name: getattr(_partition, name) for name in ("apply_updates", "combine", "filter")},
    "partition": partition,
    "tree_at": at,
}
"""The functions that are replaced wherever a module has them. `filter_jit` is not: what it returns runs by partax."""

_TAKEN_OVER = ("inline", "keep_unused", "compiler_options_kvs")
_lock = threading.Lock()
_active: list["Accelerated"] = []
_undo: list[Callable[[], None]] = []
_jitted: dict[int, tuple[weakref.ref[Any], JitFunction[..., Any] | None]] = {}
"""For wrappers of Equinox's, by id: ours; None for one that stays as it is."""


class Accelerated:
    """What `accelerate` returns: active until `end` is called or the block is left.

    Example:
      >>> import equinox
      >>> accelerated = partax.equinox.accelerate()
      >>> equinox.combine is partax.combine
      True
      >>> accelerated.end()
      >>> equinox.combine is partax.combine
      False
    """

    def __repr__(self) -> str:
        return f"<partax.equinox.Accelerated: {'active' if self in _active else 'ended'}>"

    def __enter__(self) -> "Accelerated":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End it; without another active `accelerate`, Equinox has its own functions again.

        Example:
          >>> accelerated = partax.equinox.accelerate()
          >>> accelerated.end()
        """
        with _lock:
            if self not in _active:
                return
            _active.remove(self)
            if not _active:
                while _undo:
                    _undo.pop()()
                _jitted.clear()
                _shared_wrapper.cache_clear()


def accelerate() -> Accelerated:
    """Has Equinox, and every library that imports it, use partax from now on.

    Example:
      >>> import equinox
      >>> step = equinox.filter_jit(lambda x: x + 1)
      >>> with partax.equinox.accelerate():
      ...     y = step(jnp.ones(2))
      >>> y
      Array([2., 2.], dtype=float32)

    Functions that have been compiled by `equinox.filter_jit`, also before this call, run by `partax.filter_jit`;
    `partition`, `combine`, `filter`, `apply_updates` and `tree_at` are partax's in each module that has Equinox's. A
    program that Equinox has compiled is compiled once more. A call with an array in a static field, which partax
    refuses, runs by Equinox's own `filter_jit`, which takes the very same array for the same value; it warns.

    Returns:
      A context manager. Outside of a `with` it is active until its `end` is called.

    Raises:
      ImportError: Equinox is not installed.
    """
    accelerated = Accelerated()
    with _lock:
        _active.append(accelerated)
        if len(_active) == 1:
            _replace_calls()
            _replace([(getattr(equinox, name), ours) for name, ours in _REPLACED.items()])
    return accelerated


def _replace_calls() -> None:
    cls = jit_class()
    if cls is None:
        _replace([(equinox.filter_jit, filter_jit)])
        return
    before: Any = cls.__dict__["__call__"]

    def __call__(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        entry = _jitted.get(id(self))
        ours = entry[1] if entry is not None and entry[0]() is self else _ours(self)
        if ours is None:
            return before(self, *args, **kwargs)
        try:
            return ours(*args, **kwargs)
        except TypeError as error:
            if not _refuses_static_array(error):
                raise
            refusal = str(error)
        warnings.warn(
            f"{refusal}. This call runs by Equinox's own filter_jit, which tells such arrays apart by identity",
            stacklevel=2,
        )
        return before(self, *args, **kwargs)

    type.__setattr__(cls, "__call__", __call__)
    _undo.append(lambda: type.__setattr__(cls, "__call__", before))


def _refuses_static_array(error: TypeError) -> bool:
    """Whether a call of ours was refused for an array among its static values, before anything of it has run."""
    # Where the function has run, or one of a node, there is its frame.
    is_first = error.__traceback__ is None or error.__traceback__.tb_next is None
    return is_first and getattr(error, "is_of_static_array", False)


def _ours(wrapper: Any) -> JitFunction[..., Any] | None:
    """Our wrapper of what one of Equinox's wraps, which is remembered for as long as that lives."""
    equinox_options = jit_options(wrapper)
    ours: JitFunction[..., Any] | None = None
    options = None if equinox_options is None else _options(*equinox_options)
    if options is not None:
        fun = wrapper.__wrapped__
        ours = (_shared_wrapper if _holds_little(fun) else wrapper_of)(options, fun)
        code = getattr(ours._function, "__code__", None)
        if isinstance(code, types.CodeType):
            jitted_by_equinox.add(code)
    key = id(wrapper)
    _jitted[key] = weakref.ref(wrapper, lambda _: _jitted.pop(key, None)), ours
    return ours


def _holds_little(fun: Any) -> bool:
    """Whether it is a function that holds numbers and texts alone, so that it may be kept."""
    if not isinstance(fun, types.FunctionType) or fun.__closure__ is not None:
        return False
    defaults = *(fun.__defaults__ or ()), *(fun.__kwdefaults__ or {}).values()
    return set(map(type, defaults)) <= {bool, int, float, str, types.NoneType}


_shared_wrapper = functools.lru_cache(maxsize=64)(wrapper_of)
"""Ours of functions that hold little, which the wrappers of a re-created module have in common."""

_options_of_jitted: "weakref.WeakKeyDictionary[Any, dict[str, Options | None]]" = weakref.WeakKeyDictionary()
"""What `_options` gives, by what is jitted, which such wrappers have in common too, and what they donate."""


def _options(donate: str, jitted: Any) -> Options | None:
    """The options that were given to Equinox's filter_jit, or None where there are some that ours does not have."""
    by_mode = _options_of_jitted.setdefault(jitted, {})
    if donate not in by_mode:
        values, defaults = options_of(jitted) or {}, options_of(_default_jitted()) or {}
        options = {name: values[name] for name in ("inline", "keep_unused") if values.get(name) != defaults.get(name)}
        options |= {"compiler_options": dict(values.get("compiler_options_kvs") or ()) or None}
        other_defaults = defaults and [
            name for name in values if name not in _TAKEN_OVER and values[name] != defaults.get(name)
        ]
        mode = DONATE_MODES.get(donate, donate)
        options |= {
            "donates_returned": donate != "none",
            "warns_of_donation": donate == "none" or donate in DONATE_MODES,
        }
        by_mode[donate] = None if other_defaults else Options(donate=mode, **options)
    return by_mode[donate]


@functools.cache
def _default_jitted() -> Any:
    equinox_options = jit_options(equinox.filter_jit(lambda: None))
    return None if equinox_options is None else equinox_options[1]


def _replace(pairs: list[tuple[Any, Any]]) -> None:
    """Replaces the first function of each pair by the second, and notes how to undo it, also in modules imported later.
    If a module had the second one before, it stays.
    """
    ours, theirs = ({id(one): other for one, other in each} for each in (pairs, [pair[::-1] for pair in pairs]))
    its_own = {(name, attribute) for name, attribute, _ in _places(theirs)}
    _set(_places(ours))
    _undo.append(lambda: _set([place for place in _places(theirs) if place[:2] not in its_own]))


def _places(replacements: dict[int, Any]) -> list[tuple[str, str, Any]]:
    """Where modules have a function that another one, found by its id, is to take the place of."""
    places: list[tuple[str, str, Any]] = []
    for name, module in list(sys.modules.items()):
        if isinstance(module, types.ModuleType) and name.partition(".")[0] != "partax":
            entries = dict(vars(module))  # a copy: threads may import
            places += [
                (name, key, replacements[id(value)]) for key, value in entries.items() if id(value) in replacements
            ]
    return places


def _set(places: list[tuple[str, str, Any]]) -> None:
    for name, attribute, value in places:
        setattr(sys.modules[name], attribute, value)
