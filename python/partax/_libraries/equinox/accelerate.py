"""Make libraries that import Equinox use partax, reversibly."""

import contextlib
import functools
import sys
import threading
import types
import warnings
from collections.abc import Callable
from typing import Any

import equinox

from partax._core import JitFunction
from partax._families.equinox import jitted_by_equinox
from partax._families.equinox_private import jit_class, jit_options, named_jit_class
from partax._families.objects import cached_by_identity
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

_lock = threading.Lock()
_active: list["Accelerated"] = []
_undo: list[Callable[[], None]] = []


class Accelerated(contextlib.AbstractContextManager["Accelerated"]):
    """The result of `accelerate`: active until `end` is called or the block is left.

    Example:
      >>> import equinox
      >>> accelerated = partax.equinox.accelerate()
      >>> equinox.combine is partax.combine
      True
      >>> accelerated.end()
      >>> equinox.combine is partax.combine
      False
    """

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End the acceleration; without another active `accelerate`, Equinox has its own functions again.

        Example:
          >>> accelerated = partax.equinox.accelerate()
          >>> accelerated.end()
        """
        with _lock:
            if self not in _active:
                return
            _active.remove(self)
            while _undo and not _active:
                _undo.pop()()


def accelerate() -> Accelerated:
    """Make Equinox, and every library that imports it, use partax from now on.

    Example:
      >>> import equinox
      >>> step = equinox.filter_jit(lambda x: x + 1)
      >>> with partax.equinox.accelerate():
      ...     y = step(jnp.ones(2))
      >>> y
      Array([2., 2.], dtype=float32)

    Functions that `equinox.filter_jit` compiles or has compiled run by `partax.filter_jit`; `partition`, `combine`,
    `filter`, `apply_updates` and `tree_at` are partax's in each module that has Equinox's. A call with an array in a
    static field, which partax refuses, warns and runs by Equinox's own `filter_jit`.

    Returns:
      A context manager. Outside of a `with` it is active until its `end` is called.

    See Also: The page "Coming from Equinox".
    """
    accelerated = Accelerated()
    with _lock:
        _active.append(accelerated)
        if len(_active) == 1:
            cls = jit_class()
            if cls is None:
                _replace([(equinox.filter_jit, filter_jit)])
            else:
                _replace_calls(cls, _ours, "Equinox's own filter_jit")
            _replace([(getattr(equinox, name), ours) for name, ours in _REPLACED.items()])
            _replace_named_jit()
    return accelerated


def _replace_calls(cls: type, function_of: Callable[[Any], Callable[..., Any] | None], name: str) -> None:
    """Replace the calls of a class by those of functions of ours; a call without one, or refused, is made as before."""
    before: Any = cls.__dict__["__call__"]

    def __call__(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        ours = function_of(self)
        if ours is None:
            return before(self, *args, **kwargs)
        try:
            return ours(*args, **kwargs)
        except TypeError as error:
            # The traceback of an error in the user's function, unlike that of a refusal, has a frame of it.
            is_refusal = error.__traceback__ is None or error.__traceback__.tb_next is None
            if not (is_refusal and getattr(error, "is_of_static_array", False)):
                raise
            reason = f"This call runs by {name}, which tells such arrays apart by identity"
            warnings.warn(f"{error}. {reason}", stacklevel=2)
        return before(self, *args, **kwargs)

    type.__setattr__(cls, "__call__", __call__)
    _undo.append(lambda: type.__setattr__(cls, "__call__", before))


def _replace_named_jit() -> None:
    cls: Any = named_jit_class()
    if _active and cls is not None and cls.__dict__["__call__"].__module__ != __name__:
        from partax._libraries.equinox.named_jit import jit_function_of  # which imports haliax

        _replace_calls(cls, jit_function_of, "haliax's own named_jit")


def _module_update_wrapper(*args: Any, update: Any = equinox.module_update_wrapper, **kwargs: Any) -> Any:
    with _lock:  # each `named_jit` calls it, and haliax may have been imported after `accelerate`
        _replace_named_jit()
    return update(*args, **kwargs)


_REPLACED["module_update_wrapper"] = functools.wraps(equinox.module_update_wrapper)(_module_update_wrapper)


@cached_by_identity
def _ours(wrapper: Any) -> JitFunction[..., Any] | None:
    """Return our wrapper of what one of Equinox's wraps; None if that is left as it is."""
    options = _options(wrapper)
    ours = None if options is None else wrapper_of(options, wrapper.__wrapped__)
    code = getattr(getattr(ours, "_function", None), "__code__", None)
    if isinstance(code, types.CodeType):
        jitted_by_equinox.add(code)
    return ours


@functools.cache  # creating a wrapper takes Equinox longer than a call
def _default_values() -> dict[str, Any] | None:
    default = jit_options(equinox.filter_jit(lambda: None))
    return default and (options_of(default[1]) or {})


def _options(wrapper: Any) -> Options | None:
    """Return the options of a wrapper of Equinox's, or None if ours does not have one of them."""
    equinox_options, defaults = jit_options(wrapper), _default_values()
    if equinox_options is None or defaults is None:
        return None
    donate, jitted = equinox_options
    values = options_of(jitted) or {}
    changed = {name: value for name, value in values.items() if defaults and value != defaults.get(name)}
    if not changed.keys() <= {"inline", "keep_unused", "compiler_options_kvs"}:
        return None
    return _options_for(donate, tuple(changed.items()))


@functools.cache
def _options_for(donate: str, changed: tuple[tuple[str, Any], ...]) -> Options:
    of_jit = dict(changed)
    return Options(
        donate=DONATE_MODES.get(donate, donate),
        donates_returned=donate != "none",
        warns_of_donation=donate == "none" or donate in DONATE_MODES,
        compiler_options=dict(of_jit.pop("compiler_options_kvs", None) or ()) or None,
        **of_jit,
    )


def _replace(pairs: list[tuple[Any, Any]]) -> None:
    """Replace the first function of each pair by the second, and note how to undo it, also in modules imported later.
    If a module had the second one before, it stays.
    """
    unchanged_places = {place for place, _ in _places(pairs, 1)}
    for place, (_, new) in _places(pairs, 0):
        setattr(*place, new)

    def undo() -> None:
        for place, (old, _) in _places(pairs, 1):
            if place not in unchanged_places:
                setattr(*place, old)

    _undo.append(undo)


def _places(pairs: list[tuple[Any, Any]], index: int) -> list[tuple[tuple[types.ModuleType, str], tuple[Any, Any]]]:
    """The modules and attributes that hold the first or the second function of a pair, each with the pair."""
    by_id = {id(pair[index]): pair for pair in pairs}
    return [
        ((module, key), by_id[id(value)])
        for name, module in list(sys.modules.items())
        if isinstance(module, types.ModuleType) and name.partition(".")[0] != "partax"
        for key, value in vars(module).copy().items()  # threads may import
        if id(value) in by_id
    ]
