"""Functions that only check the types of arguments and results of another one: those of jaxtyping and beartype.

What makes such a function is not proven in code that calls it: it reads annotations, and names in texts.
"""

import sys
import types
from typing import Any

from partax._guards.pure import package_of
from partax._guards.shown import bare


def is_checker(function: types.FunctionType, is_pure_code: bool) -> bool:
    """Whether jaxtyping or beartype has made a function to check the arguments of the one that it wraps."""
    is_of_jaxtyping = is_pure_code and function.__globals__["__name__"].startswith("jaxtyping.")
    return hasattr(function, "__wrapped__") and (is_of_jaxtyping or _is_of_beartype(function))


def parts_of_checker(function: Any) -> tuple[Any, ...]:
    """What one shows: the function inside, the hints and what they stand for, and by what it checks."""
    bare(function)
    inner, hints = function.__wrapped__, function.__annotations__
    by, objects = _checked_by(function)
    texts = [hint for hint in hints.values() if isinstance(hint, str)]
    meant = tuple(_meant(hint, inner.__globals__, is_known=bool(objects)) for hint in texts)
    if any(map(_has_text, (*hints.values(), *meant))):
        raise TypeError("a text inside of a hint, as in list['T']")
    resolved = vars(function).get("__beartype_annotations")  # on Python 3.14
    return inner, hints, meant, objects, resolved, function.__code__.co_qualname, by


_UNCHECKED = ("nothing is checked",)


def _is_of_beartype(function: types.FunctionType) -> bool:
    return type((function.__kwdefaults__ or {}).get("__beartype_conf")).__module__.startswith("beartype.")


def _checked_by(function: types.FunctionType) -> tuple[Any, tuple[Any, ...]]:
    """The configuration of beartype as a text, or the checker that jaxtyping was given; and the types that it has."""
    if _is_of_beartype(function):
        known = function.__kwdefaults__ or {}
        types_of_hints = (value for name, value in known.items() if name.startswith("__beartype_object_"))
        return (_version(), repr(known["__beartype_conf"])), tuple(types_of_hints)
    inner = _cell(function, "wrapped_fn_impl")
    checker, checked = (_cell(inner, name) if inner is not None else None for name in ("typechecker", "full_fn"))
    by = _version() if checker is not None and package_of(checker) == "beartype" else checker
    if type(checked) is types.FunctionType and _is_of_beartype(checked):
        return by, _checked_by(checked)
    return by, _UNCHECKED if checker is None or by is not checker else ()


def _version() -> str:
    return f"beartype {sys.modules['beartype'].__version__}"


def _has_text(hint: Any) -> bool:
    return any(isinstance(it, str) or _has_text(it) for it in getattr(hint, "__args__", ()))


def _cell(function: types.FunctionType, name: str) -> Any:
    names = function.__code__.co_freevars
    return (function.__closure__ or ())[names.index(name)].cell_contents if name in names else None


def _meant(hint: str, scope: dict[str, Any], *, is_known: bool) -> Any:
    """What a hint that is a text stands for now; where only its function had the name, the checker must know it."""
    try:
        return eval(hint, scope)
    except NameError:
        if not is_known:
            raise
        return None
