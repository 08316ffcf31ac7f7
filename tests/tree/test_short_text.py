"""Guards the promise that the text of any value or structure is one line of a sensible length, that no `repr` of ours
raises, and that none of them reads the data of an array."""

import collections
import functools
import operator
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odd_values import gone
from partax import by_path, flat_partition, is_array
from partax._pytree.short_text import LONGEST, short_text
from partax.tree import Static
from trees import Cell, Config, Pair, array, double, make_model, samples


class Refuses:
    """Every question to it is an error."""

    def __repr__(self) -> str:
        raise ZeroDivisionError("no repr")

    __name__ = property(__repr__)


class Lies:
    def __repr__(self) -> Any:
        return 7


class Moves:
    def __repr__(self) -> str:
        return "a\x1b[2J\n\u202ereversed\tb\ud800"


def is_one_short_line(text: str, longest: int = LONGEST) -> bool:
    return 0 < len(text) <= longest and text.isprintable()


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)
VALUES: dict[str, Any] = {
    "a long text": "x" * 10_000,
    "a long list": list(range(100_000)),
    "deep": functools.reduce(lambda inner, _: (inner,), range(5000), ()),
    "in itself": ENDLESS,
    "refuses inside": [Refuses(), {"a": (Refuses(),)}],
    "lies": Lies(),
    "moves": Moves(),
    "a partial": functools.partial(double, array(2), key=Refuses()),
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("longest", [20, 60])
def test_any_value_has_a_text_of_one_line(name: str, longest: int) -> None:
    assert is_one_short_line(short_text(VALUES[name], longest), longest)


SHORT = {
    "1": 1,
    '"a\'b"': "a'b",
    "(1,)": (1,),
    "frozenset({1})": frozenset({1}),
    "{'a': [1, (2.5, None)]}": {"a": [1, (2.5, None)]},
    "Pair(left=1, right='x')": Pair(1, "x"),
    "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...]": list(range(1000)),
    "[[[[...]]]]": [[[[[[[1]]]]]]],
    "[float64[3], {'a': int32[]}]": [np.ones(3), {"a": jnp.ones((), jnp.int32)}],
    "partial(<built-in function divmod>, 7, float64[2])": functools.partial(divmod, 7, np.ones(2)),
    "<Refuses>": Refuses(),
    "<Lies>": Lies(),
    r"a\x1b[2J \u202ereversed b\ud800": Moves(),
}


@pytest.mark.parametrize("text", SHORT)
def test_a_short_value_has_its_repr_and_an_array_its_type(text: str) -> None:
    assert short_text(SHORT[text]) == text


def test_no_array_data_is_read() -> None:
    with pytest.raises(RuntimeError):
        repr(gone(3, 4))
    assert short_text(gone(3, 4)) == "float32[3,4]"
    assert short_text([1, {"a": gone(3, 4)}]) == "[1, {'a': float32[3,4]}]"
    assert "float32[3,4]" in short_text(functools.partial(double, gone(3, 4)))
    assert "float32[3,4]" in repr(is_array | functools.partial(isinstance, gone(3, 4)))
    jax.jit(lambda x: [repr(Static("x")), short_text(x)].clear())(1.0)


# --- structures


def test_the_structure_of_any_tree_is_one_line() -> None:
    for tree in (*samples().values(), [make_model(3) for _ in range(20)]):
        spec = flat_partition(tree, is_array)[0]
        assert is_one_short_line(repr(spec))
        assert repr(spec).startswith("FlatSpec(") and repr(spec).endswith(")")


is_new = sys.version_info >= (3, 12)
ORDERED = "OrderedDict({'a': *, 'b': [*]})" if is_new else "OrderedDict([('a', *), ('b', [*])])"
STRUCTURES = {
    "(*,)": (1,),
    "[*, (), {}, None, [*]]": [1, (), {}, None, [2]],
    ORDERED: collections.OrderedDict(a=1, b=[2]),
    "defaultdict(<class 'list'>, {'a': *})": collections.defaultdict(list, a=1),
    "Pair(left=*, right={2: *})": Pair(1, {2: 3}),
    "Cell(weight=*, bias=None, mode='x')": Cell(1, mode="x"),
    "(*, Static(double))": (1, Static(double)),
    "{'layers': [{'b': *, 'w': *}, {'b': *, 'w': *}], 'n': *}": {"layers": [{"w": 1, "b": 2}] * 2, "n": 3},
}


@pytest.mark.parametrize("text", STRUCTURES)
def test_a_structure_has_a_text_as_python_prints_it(text: str) -> None:
    assert repr(flat_partition(STRUCTURES[text], True)[0]) == f"FlatSpec({text})"


# --- filters


def test_filters_are_one_line() -> None:
    for made in (
        by_path("a/" * 60 + "*"),
        by_path(regex="a\n" * 500),
        functools.reduce(operator.or_, [by_path(f"layers/{i}/**") for i in range(1000)]),
        ~(is_array | Refuses.__repr__),
        is_array | Config(1).__eq__ | functools.partial(double, "x" * 10_000),
    ):
        assert is_one_short_line(repr(made))
    assert (
        repr((by_path("a/*") | (int, float)) & ~is_array & ~(is_array | int))
        == "(by_path('a/*') | (int, float)) & ~is_array & ~(is_array | int)"
    )
