"""Guards the promise that the built-in predicates tell arrays, array-likes and inexact arrays apart
exactly: jax, tracers, NumPy with extension dtypes, scalars, `__jax_array__`, keys and refs."""

import fractions

import equinox as eqx
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import partax
from older_jax import IS_OLDER
from partax import _core

PREDICATES = ("is_array", "is_array_like", "is_inexact_array", "is_inexact_array_like")


class JaxArrayProtocol:
    """Not an array, but convertible: JAX's own protocol."""

    def __init__(self, value):
        self.value = value

    def __jax_array__(self):
        return self.value


class ModuleWithProtocol(eqx.Module):
    """A node, yet array-like when asked itself (as with `is_leaf`)."""

    value: jax.Array
    __jax_array__ = JaxArrayProtocol.__jax_array__


class ArraySubclass(np.ndarray):
    pass


class IntSubclass(int):
    pass


# Each row: what it is, the value, then the answers in the order of PREDICATES.
ARRAY, INEXACT, LIKE, INEXACT_LIKE, NOTHING = (
    (True, True, False, False),
    (True, True, True, True),
    (False, True, False, False),
    (False, True, False, True),
    (False, False, False, False),
)
CASES = {
    "jax float32": (lambda: jnp.ones(3), INEXACT),
    "jax bfloat16": (lambda: jnp.ones(3, jnp.bfloat16), INEXACT),
    "jax complex64": (lambda: jnp.ones(3, jnp.complex64), INEXACT),
    "jax int32": (lambda: jnp.ones(3, jnp.int32), ARRAY),
    "jax typed key": (lambda: jax.random.key(0), ARRAY),
    "jax float0": (lambda: jax.vjp(lambda x: x * 1, jnp.ones(2, int))[1](np.zeros(2, jax.dtypes.float0))[0], ARRAY),
    "numpy float64": (lambda: np.ones(3), INEXACT),
    "numpy subclass": (lambda: np.ones(3).view(ArraySubclass), INEXACT),
    "numpy int4": (lambda: np.ones(3, ml_dtypes.int4), ARRAY),
    "np.float32 scalar": (lambda: np.float32(1), INEXACT),
    "np.complex64 scalar": (lambda: np.complex64(1), INEXACT),
    "bool": (lambda: True, LIKE),
    "int": (lambda: 3, LIKE),
    "int subclass": (lambda: IntSubclass(3), LIKE),
    "float": (lambda: 3.0, INEXACT_LIKE),
    "complex": (lambda: 3j, INEXACT_LIKE),
    "__jax_array__ of floats": (lambda: JaxArrayProtocol(jnp.ones(2)), INEXACT_LIKE),
    "__jax_array__ of ints": (lambda: JaxArrayProtocol(jnp.ones(2, int)), LIKE),
    "module with __jax_array__": (lambda: ModuleWithProtocol(jnp.ones(2)), INEXACT_LIKE),
    "None": (lambda: None, NOTHING),
    "str": (lambda: "1.0", NOTHING),
    "function": (lambda: jnp.sin, NOTHING),
    "jax.Array class": (lambda: jax.Array, NOTHING),
    "ShapeDtypeStruct": (lambda: jax.ShapeDtypeStruct((3,), jnp.float32), NOTHING),
}


def answers(value):
    return tuple(getattr(_core, name)(value) for name in PREDICATES)


@pytest.mark.parametrize("name", CASES)
def test_answer_is_the_table_s_and_a_true_bool(name):
    make, expected = CASES[name]
    got = answers(make())
    assert got == expected
    assert all(type(answer) is bool for answer in got)


@pytest.mark.parametrize("name", ["jax float32", "jax bfloat16", "jax int32", "jax typed key"])
def test_tracers_answer_by_their_dtype(name):
    make, expected = CASES[name]
    seen = []
    function = lambda x: (seen.append((isinstance(x, jax.core.Tracer), answers(x))), x)[1]
    jax.jit(function)(make())
    jax.vmap(function)(make()[None])
    assert seen == [(True, expected)] * 2


def test_refs_are_no_arrays_as_in_equinox():
    # filter_jit traces a ref, but it holds an array and is none: it cannot be differentiated.
    seen = []

    @jax.jit
    def function(ref):
        seen.append(answers(ref))
        return ref[...]

    ref = jax.new_ref(jnp.ones(2))
    np.testing.assert_array_equal(function(ref), [1.0, 1.0])
    assert answers(ref) == tuple(getattr(eqx, p)(ref) for p in PREDICATES) == NOTHING
    assert seen == [NOTHING] or IS_OLDER  # for which a traced ref is an array


def raises(*_):
    raise OSError("no array today")


@pytest.mark.parametrize("protocol", [raises, property(raises)], ids=["call", "look-up"])
@pytest.mark.parametrize("name", PREDICATES)
def test_an_error_of_the_protocol_is_the_user_s(name, protocol):
    value = type("Raises", (), {"__jax_array__": protocol})()
    predicate = getattr(_core, name)
    asks = {"is_inexact_array_like"} if protocol is raises else {"is_array_like", "is_inexact_array_like"}
    if name not in asks:
        assert predicate(value) == (name == "is_array_like")
        return
    for ask in (lambda: predicate(value), lambda: partax.partition([1, value], predicate)):
        with pytest.raises(OSError, match="no array today"):
            ask()


def test_a_class_is_as_like_an_array_as_hasattr_says():
    class Meta(type):
        __jax_array__ = property(lambda cls: lambda: jnp.ones(2))

    class OfMeta(metaclass=Meta):
        pass

    tree = [int, JaxArrayProtocol, fractions.Fraction, OfMeta, type, Meta, eqx.nn.Linear, JaxArrayProtocol, int]
    assert [partax.is_array_like(x) for x in tree] == [hasattr(x, "__jax_array__") for x in tree]
