"""Donation gives away exactly the buffers that were promised, by mode or by argument name."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from odd_values import gone
from partax import filter_jit
from trees import array, assert_same


def deleted(*trees: Any) -> list[bool]:
    """Whether all arrays of each tree are gone; they must share one fate."""
    fates = [{x.is_deleted() for x in jax.tree.leaves(tree) if isinstance(x, jax.Array)} for tree in trees]
    assert all(len(fate) == 1 for fate in fates)
    return [fate.pop() for fate in fates]


def three(a: Any, b: Any, c: Any) -> Any:
    return a + 1, {"b": [x * 2 for x in b]}, c - 1


MODES: list[tuple[dict[str, Any], list[bool]]] = [
    ({}, [False, False, False]),
    ({"donate": "none"}, [False, False, False]),
    ({"donate": "all"}, [True, True, True]),
    ({"donate": "all-except-first"}, [False, True, True]),
    ({"donate": "b"}, [False, True, False]),
    ({"donate": ["c", "a"]}, [True, False, True]),
    ({"donate": ()}, [False, False, False]),
]


@pytest.mark.parametrize(("options", "gone"), MODES, ids=str)
def test_modes_and_names(options: dict[str, Any], gone: list[bool]) -> None:
    f = filter_jit(three, **options)
    for by_name in (False, True, False):
        a, b, c = array(4), [array(5), array(6)], array(7)
        out = f(c=c, b=b, a=a) if by_name else f(a, b, c)
        assert_same(out, (array(4) + 1, {"b": [array(5) * 2, array(6) * 2]}, array(7) - 1))
        assert deleted(a, b, c) == gone


class Owner(eqx.Module):
    weight: jax.Array

    def step(self, x: jax.Array) -> Any:
        return x - 1, Owner(self.weight + 1)


@pytest.mark.parametrize(
    ("donate", "is_bound", "fate"),
    [
        ("all", False, [True, True]),
        (("self",), False, [True, False]),
        ("all-except-first", True, [True, False]),  # the object of a bound method is not an argument, but is donated
        (("x",), True, [False, True]),
    ],
)
def test_self_of_a_method_is_an_argument(donate: Any, is_bound: bool, fate: list[bool]) -> None:
    made = type("Made", (Owner,), {"jitted": filter_jit(Owner.step, donate=donate)})
    owner, x = made(array(100)), array(100)
    y, after = filter_jit(owner.step, donate=donate)(x) if is_bound else owner.jitted(x)
    assert_same((y, after.weight), (array(100) - 1, array(100) + 1))
    assert deleted(owner, x) == fate


@pytest.mark.parametrize("donate", ["all", ("model", "x")])
def test_a_forwarded_leaf_is_not_donated(donate: Any) -> None:
    @filter_jit(donate=donate)
    def f(first: Any, model: Any, x: jax.Array) -> Any:
        return {"frozen": model["frozen"], "w": model["w"] + first}, x * 2, model["frozen"]

    model = {"frozen": array(100), "w": array(4)}
    for i in range(3):
        x, old = array(5), model
        model, y, again = f(jnp.ones(()), model, x)
        assert model["frozen"] is old["frozen"] and old["w"].is_deleted() and x.is_deleted()
        assert_same((y, again, model), (array(5) * 2, array(100), {"frozen": array(100), "w": array(4) + i + 1}))


MISSPELLED = r"found 'modle' in donate, expected names of arguments of .*: x, kwargs$"
WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"donate": None}, ValueError, "found donate="),
    ({"donate": ("a", 1)}, ValueError, "found donate="),
    ({"donate": "modle"}, ValueError, MISSPELLED),
    ({"donate": ("x", "modle")}, ValueError, MISSPELLED),
    ({"donate_argnums": 0}, TypeError, "filter_jit: found donate_argnums=0, expected donate="),
    ({"static_argnames": "x"}, TypeError, "filter_jit: found static_argnames='x', expected no such option"),
    ({"x": 1}, TypeError, "filter_jit: found x=1, expected one of donate, inline"),
]


@pytest.mark.parametrize(("options", "error", "message"), WRONG, ids=str)
def test_wrong_options_are_named(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        filter_jit(lambda x, **kwargs: x + 1, **options)


USED = "Attempt to use a buffer that was previously donated"
TWICE = "Attempt to donate the same buffer twice"
GONE = r"Array has been deleted with shape=float32\[3\]\."


def refused(f: Any, *args: Any, match: str) -> None:
    """With an error of the right kind, and all arrays that are there left alone."""
    living = [x for x in jax.tree.leaves(args) if isinstance(x, jax.Array) and not x.is_deleted()]
    of_jax = type(f) is type(jax.jit(forwards))  # which raises another type if its native dispatch is under way
    kinds = (RuntimeError,) if "deleted" in match else (jax.errors.JaxRuntimeError, *of_jax * (ValueError,))
    with pytest.raises(kinds, match=match):
        f(*args)
    assert not any(x.is_deleted() for x in living)


def forwards(state: Any, ema: Any, other: Any) -> Any:
    return jax.tree.map(lambda x: x + 1, state), ema, other * 2


@pytest.mark.parametrize(
    ("donate", "numbers", "match"), [(("state", "other"), (0, 2), USED), ("all", (0, 1, 2), TWICE)]
)
def test_an_array_that_is_donated_and_returned(donate: Any, numbers: Any, match: str) -> None:
    ours, theirs = filter_jit(forwards, donate=donate), jax.jit(forwards, donate_argnums=numbers)
    for f in (theirs, ours, ours.lower(array(3), array(3), array(3)).compile()):
        x, other = array(3), array(3)
        for _ in range(2):
            refused(f, x, x, other, match=match)
        assert_same(f(x, array(3), other)[0], array(3) + 1)


@pytest.mark.parametrize("donate", ["none", "all", ("ema",)])
def test_a_deleted_array_that_is_returned(donate: Any) -> None:
    f, key = filter_jit(forwards, donate=donate), jax.random.key(0)
    key.delete()
    for ema in (gone(3), [array(3), {"x": gone(3)}], key, gone(3)):
        refused(f, array(3), ema, array(3), match=GONE if ema is not key else "Array has been deleted")
    compiled = f.lower(array(3), array(3), array(3)).compile()
    for call in (compiled, f):
        refused(call, array(3), gone(3), array(3), match=GONE)


def test_inside_another_program_nothing_is_donated() -> None:
    f, x = filter_jit(forwards, donate=("state",)), array(3)
    expected = array(3) + 1, array(3), array(3) * 2
    for outer in (jax.jit(lambda y: f(y, y, x)), jax.jit(lambda y: f(x, x, y)), filter_jit(lambda y: f(y, y, y))):
        assert_same(outer(x), expected)
    with jax.disable_jit():
        assert_same(f(x, x, x), expected)
    assert not x.is_deleted()
    deleted_one = gone(3)
    with pytest.raises(RuntimeError, match="Array has been deleted"):
        jax.jit(lambda y: f(y, deleted_one, y))(x)


def add_to(model: Any, x: jax.Array) -> Any:
    return jax.tree.map(lambda leaf: leaf + x.sum(), model)


class Model(eqx.Module):
    layers: list[Owner]


def new_model(*weights: jax.Array) -> Model:
    return Model([Owner(weight) for weight in (*weights, array(3), array(3))[:2]])


def giving(donate: Any, is_compiled: bool) -> Any:
    f = filter_jit(add_to, donate=donate)
    return f.lower(new_model(), array(3)).compile() if is_compiled else f


def note_of(f: Any, *args: Any) -> str:
    """What partax says of the error of a call, which is jax's own one."""
    with pytest.raises((RuntimeError, ValueError), match=r"donate|deleted") as caught:
        f(*args)
    (note,) = [note for note in caught.value.__notes__ if note.startswith("partax: ")]
    return note.removeprefix("partax: ")


@pytest.mark.parametrize("is_compiled", [False, True])
def test_errors_of_donated_or_deleted_arrays_name_all_their_paths(is_compiled: bool) -> None:
    donates_all, donates_model = giving("all", is_compiled), giving(("model",), is_compiled)
    x, used = array(3), new_model()
    first, second = "`model.layers[0].weight`", "`model.layers[1].weight`"
    donates_model(used, array(3))
    rows: list[tuple[Any, Any, Any, str]] = [
        (donates_all, new_model(x, x), array(3), f"{first} and {second} are one array, and the call donates {first} "),
        (donates_all, new_model(x, x), x, f"{first}, {second} and `x` are one array, and the call donates {first}, "),
        (donates_model, new_model(array(3), x), x, f"{second} and `x` are one array, and the call donates {second}:"),
        (donates_model, used, array(3), f"{first} and {second} are deleted already"),
        (donates_model, new_model(), gone(3), "`x` is deleted already"),
    ]
    for f, model, second_argument, note in rows * 2:
        assert note_of(f, model, second_argument).startswith(note)
    donates_all(new_model(jnp.copy(x)), x)


def test_the_paths_of_many_arrays_and_of_a_shared_buffer() -> None:
    f = filter_jit(lambda arrays: [x + 1 for x in arrays], donate="all")
    assert "`arrays[3]`, `arrays[4]` and 5 more are deleted already" in note_of(f, [gone(3) for _ in range(10)])
    x = array(3)
    assert "`arrays[0]` and `arrays[1]` are one array" in note_of(f, [x, jax.device_put(x, x.sharding)])


def test_all_values_of_variadic_arguments_by_their_one_name() -> None:
    for donate, fate in (("args", [False, True, False, False]), (("args", "kw"), [False, True, True, True])):
        f = filter_jit(lambda x, *args, **kw: add_to((x, args, kw), jnp.ones(1)), donate=donate)
        for _ in range(2):
            x, a, y, z = array(3), [array(4), array(5)], [array(6)], array(7)
            f(x, *a, y=y, z=z)
            assert deleted(x, a, z, y) == fate
