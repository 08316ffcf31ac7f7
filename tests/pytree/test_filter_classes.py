"""Guards the promise that a class as filter, `is_array_like` and Equinox's predicates take just the leaves that
isinstance, hasattr and Equinox's own functions name, leaf by leaf, also while classes and predicates change."""

import abc
import collections.abc
import itertools
import types
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import equinox._filters as equinox_filters
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from partax import is_array_like
from partition_reference import any_of, not_, takes

pytestmark = pytest.mark.filterwarnings("ignore:a filter takes no leaf")  # on purpose

EQUINOX = ("is_array", "is_array_like", "is_inexact_array", "is_inexact_array_like")
NUMBERS_AND_ARRAYS = (jax.Array, np.ndarray, np.generic, bool, int, float, complex)


def is_like(x: Any) -> bool:
    return issubclass(type(x), NUMBERS_AND_ARRAYS) or hasattr(x, "__jax_array__")


# Classes that answer isinstance by themselves: by their metaclass's hook, by the instance alone, or by what may be
# another answer each time, which the metaclass or the class itself has.
asked_often = lambda cls, other: getattr(other, "asked_often", False) is True
Abstract = abc.ABCMeta("Abstract", (), {})
HOOK = classmethod(lambda cls, other: "hooked" in vars(other) or NotImplemented)
Hooked = abc.ABCMeta("Hooked", (), {"__subclasshook__": HOOK})
ByInstance = type("ByInstance", (type,), {"__instancecheck__": lambda cls, x: len(type(x).__name__) == 3})
Odd = ByInstance("Odd", (), {})
Often = type("AskedOften", (abc.ABCMeta,), {"__subclasscheck__": asked_often})("Often", (), {})
OnItself = abc.ABCMeta("OnItself", (), {"__subclasscheck__": classmethod(asked_often)})


def convert(self: Any = None) -> jax.Array:
    return jnp.ones(2)


def absent(self: Any) -> Any:
    raise AttributeError("__jax_array__")


class Target:
    pass


Other = type("Other", (Target,), {})
ARRAY = property(lambda self: np.ndarray)  # what it tells to be
Lying = type("Lying", (Target,), {"__class__": ARRAY, "dtype": np.dtype(np.float32)})
get = object.__getattribute__
# What a class has beside its base.
HAS: dict[str, dict[str, Any]] = {
    "": {},
    "method": {"__jax_array__": convert},
    "absent": {"__jax_array__": property(absent)},
    "getattr": {"__getattr__": lambda self, name: convert if name == "__jax_array__" else absent(self)},
    "getattribute": {"__getattribute__": lambda self, name: convert if name == "__jax_array__" else get(self, name)},
    "class": {"__class__": property(lambda self: Target)},
    "class_array": {"__class__": ARRAY, "dtype": np.dtype(np.int32)},
}


def make_class(base: type, metaclass: type, slots: bool, has: str) -> type:
    return metaclass("Made", (base,), ({"__slots__": ()} if slots else {}) | HAS[has])


BASES = [object, int, float, str, Target, Abstract, types.SimpleNamespace]
METACLASSES = [type, abc.ABCMeta]
OURS = (Target, Abstract)
Change = Callable[[type, Any], None]


def set_base(new: type) -> Change:
    return lambda cls, x: setattr(cls, "__bases__", (new,))


def set_on_base(cls: type, x: Any) -> None:
    if cls.__mro__[1] in OURS:
        cls.__mro__[1].__jax_array__ = convert  # type: ignore[attr-defined]


def remove(cls: type, x: Any) -> None:
    if "__jax_array__" in vars(cls):
        del cls.__jax_array__  # type: ignore[attr-defined]
    _forget()


def register(cls: type, x: Any) -> None:
    Abstract.register(cls)


def nothing(cls: type, x: Any) -> None:
    pass


EVERY_CHANGE: list[Change] = [
    *(nothing, set_on_base, remove, register, set_base(Other), set_base(Lying)),
    lambda cls, x: setattr(cls, "__jax_array__", convert),
    lambda cls, x: setattr(cls, "asked_often", not getattr(cls, "asked_often", False)),
    lambda cls, x: setattr(cls, "hooked", True),
    lambda cls, x: vars(x).update(__jax_array__=convert),
]

KINDS: list[Any] = [Target, Abstract, Hooked, Odd, Often, OnItself, np.ndarray, jax.Array, eqx.nn.Linear]
KINDS += [collections.abc.Hashable, Target | int | Abstract, (Target, Abstract, int)]
# What users give, beside what Python says of a leaf.
FILTERS: list[tuple[Any, Callable[[Any], bool]]] = [
    (is_array_like, is_like),
    (not_(is_array_like), lambda x: not is_like(x)),
    (any_of(Abstract, is_array_like), lambda x: isinstance(x, Abstract) or is_like(x)),
    *((kind, lambda x, kind=kind: isinstance(x, kind)) for kind in KINDS),
    *((getattr(eqx, name), getattr(eqx, name)) for name in EQUINOX),
]


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    _forget()


def _forget() -> None:
    for owner in OURS:
        if "__jax_array__" in vars(owner):
            del owner.__jax_array__  # type: ignore[attr-defined]


ORDINARY: list[Any] = [1, True, 2.5, 1j, "x", b"y", np.float32(1), np.ones(2), jax.lax.Precision.HIGH]
ORDINARY += [jnp.sin, len, int, Target, convert, slice]


@pytest.mark.parametrize("chosen", range(len(FILTERS)))
def test_each_kind_of_object_is_taken_as_python_says(chosen: int) -> None:
    f, says = FILTERS[chosen]
    tree = [*ORDINARY, *(make_class(*kind)() for kind in itertools.product(BASES, METACLASSES, [False, True], HAS))]
    for changed in (nothing, set_on_base, register):
        for x in tree:
            changed(type(x), x) if type(x).__name__ == "Made" else None
        assert takes(tree * 2, f) == [bool(says(x)) for x in tree * 2]


def test_a_metaclass_that_is_changed_answers_anew() -> None:
    Meta = type("Meta", (type,), {})
    Asked = Meta("Asked", (), {})
    tree = [1, "x", Asked()]
    assert takes(tree, Asked) == [False, False, True]
    Meta.__instancecheck__ = lambda cls, x: x == "x"  # type: ignore[attr-defined]
    assert takes(tree, Asked) == [isinstance(x, Asked) for x in tree] == [False, True, True]
    del Meta.__instancecheck__  # type: ignore[attr-defined]
    assert takes(tree, Asked) == [False, False, True]


def test_tracers_and_what_tells_to_be_an_array() -> None:
    Liar = type("Liar", (), {"__class__": type(jnp.ones(1))})
    kinds: list[Any] = [jax.Array, np.ndarray, (jax.Array, int)]

    @jax.jit
    def f(x: jax.Array) -> jax.Array:
        tree = [x, 1, Liar(), jax.ShapeDtypeStruct((2,), jnp.float32), np.ones(2), "x", x + 1]
        for kind in kinds:
            assert takes(tree, kind) == [isinstance(leaf, kind) for leaf in tree]
        assert takes(tree, eqx.is_array) == [eqx.is_array(leaf) for leaf in tree]
        return x

    f(jnp.ones(2))


def test_a_predicate_of_equinox_that_is_changed_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = [1, "x", jnp.ones(2), Target()]

    def agrees() -> bool:
        return all(takes(tree, getattr(eqx, name)) == [bool(getattr(eqx, name)(x)) for x in tree] for name in EQUINOX)

    assert agrees()
    plain = takes(tree, eqx.is_array)
    with monkeypatch.context() as changed:
        changed.setattr(equinox_filters, "_ARRAY_TYPES", (str,))
        changed.setattr(equinox_filters, "_NDARRAY_TYPES", ())
        assert agrees() and takes(tree, eqx.is_array) == [False, True, False, False]
    assert agrees() and takes(tree, eqx.is_array) == plain


def test_a_function_of_another_module_is_called() -> None:
    like_equinox = {**vars(equinox_filters), "_ARRAY_TYPES": (str,)}
    assert takes([1, "x", jnp.ones(2)], types.FunctionType(eqx.is_array.__code__, like_equinox)) == [False, True, False]
