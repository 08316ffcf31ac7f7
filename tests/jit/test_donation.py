"""Donation gives away exactly the buffers that were promised, by mode or by argument name."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import partax.nnx
from odd_values import gone
from partax import filter_jit
from trees import array, assert_same

UNUSABLE = "Some donated buffers were not usable"


def deleted(*trees: Any) -> list[bool]:
    """Whether all arrays of each tree are gone; they must share one fate."""
    fates = []
    for tree in trees:
        fate = {x.is_deleted() for x in jax.tree.leaves(tree) if isinstance(x, jax.Array)}
        assert len(fate) == 1
        fates.append(fate.pop())
    return fates


def three(a: Any, b: Any, c: Any) -> Any:
    return a + 1, {"b": [x * 2 for x in b]}, c - 1


DEFAULT = object()
MODES: list[tuple[Any, list[bool]]] = [
    (DEFAULT, [False, False, False]),
    ("none", [False, False, False]),
    ("all", [True, True, True]),
    ("warn", [True, True, True]),
    ("all-except-first", [False, True, True]),
    ("warn-except-first", [False, True, True]),
    (("a",), [True, False, False]),
    (("b",), [False, True, False]),
    (("c", "a"), [True, False, True]),
    (["b", "c"], [False, True, True]),
    ((), [False, False, False]),
]


@pytest.mark.parametrize(("donate", "gone"), MODES)
@pytest.mark.parametrize("keywords", [False, True])
def test_modes_and_names(donate: Any, gone: list[bool], keywords: bool) -> None:
    f = filter_jit(three) if donate is DEFAULT else filter_jit(three, donate=donate)
    for _ in range(3):
        a, b, c = array(4), [array(5), array(6)], array(7)
        out = f(c=c, b=b, a=a) if keywords else f(a, b, c)
        assert_same(out, (array(4) + 1, {"b": [array(5) * 2, array(6) * 2]}, array(7) - 1))
        assert deleted(a, b, c) == gone


class Owner(eqx.Module):
    weight: jax.Array

    def step(self, x: jax.Array) -> Any:
        return x - 1, Owner(self.weight + 1)


@pytest.mark.parametrize(
    ("donate", "fate", "of_bound"),
    [
        ("all", [True, True], [True, True]),
        ("all-except-first", [False, True], [True, False]),  # a bound method is no argument, but it is donated from
        (("self",), [True, False], None),
        (("x",), [False, True], [False, True]),
    ],
)
def test_self_of_a_method_is_an_argument(donate: Any, fate: list[bool], of_bound: list[bool] | None) -> None:
    made = type("Made", (Owner,), {"jitted": filter_jit(Owner.step, donate=donate)})
    for is_bound in (False,) if of_bound is None else (False, True):
        owner, x = made(array(100)), array(100)
        y, after = filter_jit(owner.step, donate=donate)(x) if is_bound else owner.jitted(x)
        assert_same((y, after.weight), (array(100) - 1, array(100) + 1))
        assert deleted(owner, x) == (of_bound if is_bound else fate)


@pytest.mark.parametrize("donate", ["all", "all-except-first", ("model", "x")])
def test_a_forwarded_leaf_is_not_donated(donate: Any) -> None:
    @filter_jit(donate=donate)
    def f(first: Any, model: Any, x: jax.Array) -> Any:
        return {"frozen": model["frozen"], "w": model["w"] + first}, x * 2

    first, x = jnp.ones(()), array(5)
    model = {"frozen": array(100), "w": array(4)}
    for _ in range(3):
        old, (model, y) = model, f(first, model, x)
        assert model["frozen"] is old["frozen"] and not model["frozen"].is_deleted()
        assert old["w"].is_deleted() and x.is_deleted()
        first, x = jnp.ones(()), array(5)
        assert_same(y, array(5) * 2)
    assert_same(model, {"frozen": array(100), "w": array(4) + 3})


def test_a_leaf_returned_twice_survives_donation() -> None:
    f = filter_jit(lambda x, y: (x, x, y + 1), donate="all")
    for _ in range(2):
        x, y = array(4), array(5)
        first, second, third = f(x, y)
        assert first is x and y.is_deleted()
        assert_same((first, second, third), (array(4), array(4), array(5) + 1))


def unusable(x: Any, y: Any) -> Any:
    return jnp.sum(x) + jnp.sum(y)


@pytest.mark.parametrize(
    ("donate", "told"), [("none", 0), ("all", 0), ("all-except-first", 0), ("warn", 1), ("warn-except-first", 1)]
)
def test_warn_modes_warn_exactly_once_and_quiet_ones_never(donate: str, told: int) -> None:
    f = filter_jit(unusable, donate=donate)
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        for _ in range(2):
            assert float(f(array(3), array(10))) == 48
    assert [UNUSABLE in str(warning.message) for warning in record] == [True] * told


@pytest.mark.parametrize("donate", ["yes", "", "ALL", None, 1, True, ("a", 1), "a"])
def test_a_wrong_mode_is_a_value_error(donate: Any) -> None:
    with pytest.raises(ValueError, match="donate"):
        filter_jit(three, donate=donate)
    with pytest.raises(ValueError, match="donate"):
        filter_jit(donate=donate)(three)


USED = "Attempt to use a buffer that was previously donated"
TWICE = "Attempt to donate the same buffer twice"
GONE = r"Array has been deleted with shape=float32\[3\]\."


def refused(f: Any, *args: Any, match: str, kind: Any = None) -> Exception:
    """The error of a call that must leave all arrays that are there alone."""
    living = [x for x in jax.tree.leaves(args) if isinstance(x, jax.Array) and not x.is_deleted()]
    kind = kind or (RuntimeError if match == GONE else jax.errors.JaxRuntimeError)
    with pytest.raises(kind, match=match) as caught:
        f(*args)
    assert not any(x.is_deleted() for x in living)
    return caught.value


def forwards(state: Any, ema: Any, other: Any) -> Any:
    return jax.tree.map(lambda x: x + 1, state), ema, other * 2


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(
    ("donate", "numbers", "match"),
    [(("state",), 0, USED), (("state", "other"), (0, 2), USED), ("all", (0, 1, 2), TWICE)],
)
def test_an_array_that_is_donated_and_returned(donate: Any, numbers: Any, match: str, warm: bool) -> None:
    theirs, ours = jax.jit(forwards, donate_argnums=numbers), filter_jit(forwards, donate=donate)
    ours.clear_cache()
    # jax raises another type where its native dispatch is under way.
    for f, kind in ((theirs, (jax.errors.JaxRuntimeError, ValueError)), (ours, jax.errors.JaxRuntimeError)):
        if warm:
            f(array(3), array(3), array(3))
        x, other = array(3), array(3)
        refused(f, x, x, other, match=match, kind=kind)
        refused(f, x, x, other, match=match, kind=kind)
        assert_same(f(x, array(3), other)[0], array(3) + 1)


@pytest.mark.parametrize("donate", ["none", "all", ("state",), ("ema",), ("other",)])
@pytest.mark.parametrize("warm", [False, True])
def test_a_deleted_array_that_is_returned(donate: Any, warm: bool) -> None:
    f = filter_jit(forwards, donate=donate)
    f.clear_cache()
    if warm:
        f(array(3), array(3), array(3))
    for _ in range(2):
        refused(f, array(3), gone(3), array(3), match=GONE)
        refused(f, array(3), [array(3), {"x": gone(3)}], array(3), match=GONE)
    key = jax.random.key(0)
    key.delete()
    with pytest.raises(RuntimeError, match="Array has been deleted"):
        f(array(3), key, array(3))


@pytest.mark.parametrize("jit", [jax.jit, eqx.filter_jit, filter_jit])
def test_a_deleted_array_that_is_not_needed_is_no_error(jit: Any) -> None:
    assert_same(jit(lambda x, unused: x + 1)(array(3), gone(3)), array(3) + 1)
    assert_same(jit(lambda x, unused: x + unused.shape[0])(array(3), gone(3)), array(3) + 3)
    assert jax.eval_shape(jit(lambda x: x), gone(3)).shape == (3,)


def test_compiled_programs_refuse_too() -> None:
    compiled = filter_jit(forwards, donate=("state",)).lower(array(3), array(3), array(3)).compile()
    for _ in range(3):
        x = array(3)
        refused(compiled, x, x, array(3), match=USED)
        refused(compiled, x, gone(3), array(3), match=GONE)
        assert_same(compiled(x, array(3), array(3))[1], array(3))


def test_inside_another_program_nothing_is_donated() -> None:
    f = filter_jit(forwards, donate=("state",))
    x = array(3)
    for outer in (jax.jit(lambda y: f(y, y, x)), jax.jit(lambda y: f(x, x, y)), filter_jit(lambda y: f(y, y, y))):
        assert_same(outer(x), (array(3) + 1, array(3), array(3) * 2))
    with jax.disable_jit():
        assert_same(f(x, x, x), (array(3) + 1, array(3), array(3) * 2))
    assert not x.is_deleted()
    deleted_one = gone(3)
    with pytest.raises(RuntimeError, match="Array has been deleted"):
        jax.jit(lambda y: f(y, deleted_one, y))(x)


def add_to(model: Any, x: jax.Array) -> Any:
    return jax.tree.map(lambda leaf: leaf + x.sum(), model)


class Model(eqx.Module):
    layers: list[Owner]

    all_given = filter_jit(lambda self, x: add_to(self, x), donate="all")
    self_given = filter_jit(lambda self, x: add_to(self, x), donate=("self",))


def new_model(*weights: jax.Array) -> Model:
    return Model([Owner(weight) for weight in (*weights, array(3), array(3))[:2]])


def compiled(donate: Any) -> Any:
    call = filter_jit(add_to, donate=donate).lower(new_model(), array(3)).compile()
    return lambda model, x: call(model, x)


# What is called, giving away all or the model alone, and what it calls the model.
CALLED: dict[str, Callable[[bool], tuple[Any, str]]] = {
    "function": lambda all: (filter_jit(add_to, donate="all" if all else ("model",)), "model"),
    "method": lambda all: (Model.all_given if all else Model.self_given, "self"),
    "bound method": lambda all: ((lambda model, x: (model.all_given if all else model.self_given)(x)), "self"),
    "compiled": lambda all: (compiled("all" if all else ("model",)), "model"),
}


def note_of(f: Any, *args: Any) -> str:
    """What partax says of the error of a call, which is jax's own one."""
    with pytest.raises((RuntimeError, ValueError), match=r"donate|deleted") as caught:
        f(*args)
    (note,) = [note for note in caught.value.__notes__ if note.startswith("partax: ")]
    return note.removeprefix("partax: ")


@pytest.mark.parametrize("calls", [0, 1, 2])
@pytest.mark.parametrize("kind", CALLED)
def test_errors_of_arrays_that_are_given_away_or_gone_name_all_their_paths(kind: str, calls: int) -> None:
    (gives_all, model), (gives_model, _) = CALLED[kind](True), CALLED[kind](False)
    for _ in range(calls):
        gives_all(new_model(), array(3))
        gives_model(new_model(), array(3))
    x, used = array(3), new_model()
    first, second = f"`{model}.layers[0].weight`", f"`{model}.layers[1].weight`"
    both, all_three = "are one array, and the call donates both:", "are one array, and the call donates all of them:"
    assert note_of(gives_all, new_model(x, x), array(3)).startswith(f"{first} and {second} {both}")
    assert note_of(gives_all, new_model(x), x).startswith(f"{first} and `x` {both}")
    assert note_of(gives_all, new_model(x, x), x).startswith(f"{first}, {second} and `x` {all_three}")
    told = f"{second} and `x` are one array, and the call donates {second}:"
    assert told in note_of(gives_model, new_model(array(3), x), x)
    gives_model(used, array(3))
    assert note_of(gives_model, used, array(3)).startswith(f"{first} and {second} are deleted already")
    assert note_of(gives_model, new_model(gone(3)), array(3)).startswith(f"{first} is deleted already")
    assert note_of(gives_model, new_model(), gone(3)).startswith("`x` is deleted already")
    gives_all(new_model(jnp.copy(x)), x)


def test_the_paths_of_many_arrays_and_of_a_shared_buffer() -> None:
    f = filter_jit(lambda arrays: [x + 1 for x in arrays], donate="all")
    assert "`arrays[3]`, `arrays[4]` and 5 more are deleted already" in note_of(f, [gone(3) for _ in range(10)])
    x = array(3)
    assert "`arrays[0]` and `arrays[1]` are one array" in note_of(f, [x, jax.device_put(x, x.sharding)])


def test_errors_of_the_function_itself_name_no_argument() -> None:
    for text in ("my array has been deleted", "Attempt to donate"):

        def fails(x: Any, text: str = text) -> Any:
            raise RuntimeError(text)

        with pytest.raises(RuntimeError, match=text) as caught:
            filter_jit(fails, donate="all")(array(3))
        assert not any(note.startswith("partax: `") for note in getattr(caught.value, "__notes__", ()))


@pytest.mark.parametrize("calls", [0, 1, 2])
def test_the_paths_in_nnx_objects(calls: int) -> None:
    class Two(nnx.Module):
        def __init__(self, *arrays: jax.Array) -> None:
            self.a, self.b = (nnx.Param(x) for x in arrays)

    def step(model: Two, x: jax.Array) -> jax.Array:
        model.a[...] += x
        model.b[...] += x
        return model.a[...] * 2

    for donated, whole in (((0, 1), "both"), (0, "`model.a.value`")):
        f = partax.nnx.jit(step, donate_argnums=donated)
        for _ in range(calls):
            f(Two(array(3), array(3)), array(3))
        x = array(3)
        note = note_of(f, Two(x, array(3)), x)
        assert note.startswith(f"`model.a.value` and `x` are one array, and the call donates {whole}:")
        assert note_of(f, Two(array(3), gone(3)), array(3)).startswith("`model.b.value` is deleted already")


def test_all_values_of_variadic_arguments_by_their_one_name() -> None:
    def fun(x: Any, *args: Any, **kw: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf + 1, (x, args, kw))

    for donate, fate in (
        (("kw",), [False, False, True, True]),
        (("args",), [False, True, False, False]),
        (("args", "kw"), [False, True, True, True]),
        (("z", "x"), [True, False, True, False]),
        (("z", "kw", "y"), [False, False, True, True]),
    ):
        f = filter_jit(fun, donate=donate)
        for _ in range(2):
            x, a, y, z = array(3), [array(4), array(5)], [array(6)], array(7)
            f(x, *a, y=y, z=z)
            assert deleted(x, a, z, y) == fate


@pytest.mark.parametrize("names", [("modle",), ("x", "modle"), ("kwargs", "modle")])
def test_a_name_that_neither_the_function_nor_the_call_has(names: Any) -> None:
    f = filter_jit(lambda x, **kwargs: x + 1, donate=names)
    x = array(3)
    for call in (lambda: f(x), lambda: f(x, model=x), lambda: f.lower(x), lambda: f.eval_shape(x)):
        with pytest.raises(ValueError, match=r"'modle' in donate, .*nor passed as a keyword.*: kwargs, .*x$"):
            call()
    assert not x.is_deleted() and f.cache_info().static_keys == 0
    f(x, modle=array(3))
    assert x.is_deleted() == ("x" in names)


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ({"donate_argnums": 0}, "donate_argnums=0, expected donate="),
        ({"donate_argnames": "x"}, "donate_argnames='x', expected donate="),
        ({"static_argnums": (0, 1)}, "static_argnums=.*is static already"),
        ({"static_argnames": "x"}, "static_argnames='x', expected nothing in its place"),
        ({"donated": "x"}, "donated='x', which is no option; did you mean donate=.?"),
        ({"x": 1}, "x=1, which is no option$"),
    ],
)
def test_an_option_of_jax_is_an_error_that_names_ours(option: dict[str, Any], named: str) -> None:
    with pytest.raises(TypeError, match=f"filter_jit: found {named}"):
        partax.filter_jit(lambda x: x, **option)
