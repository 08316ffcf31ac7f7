"""What cannot be static is a TypeError that names the path and the type, with its cause chained."""

from typing import Any

import numpy as np
import pytest

from partax import filter_jit
from trees import Bag, Cell, Layer, Model, Tray, array


class Value:
    """Equal by value, like its children below, each of which breaks one thing."""

    def __eq__(self, other: object) -> Any:
        return isinstance(other, Value)

    def __hash__(self) -> int:
        return 1


class NoHash(Value):
    __hash__ = None  # type: ignore[assignment]


class BadHash(Value):
    def __hash__(self) -> int:
        raise ZeroDivisionError("no hash today")


class BadEq(Value):
    def __eq__(self, other: object) -> Any:
        raise ZeroDivisionError("no == today")

    __hash__ = Value.__hash__


class ArrayEq(Value):
    def __eq__(self, other: object) -> Any:
        return np.array([True, True])

    __hash__ = Value.__hash__


def model_with(**fields: Any) -> Model:
    layer = Layer(array(2, 2))
    for name, value in fields.items():
        object.__setattr__(layer, name, value)  # Equinox itself only warns about arrays
    return Model([layer])


def assert_refused(f: Any, tree: Any, *words: str) -> BaseException | None:
    """The short message has these words, and the wrapper works afterwards. Returns the cause."""
    keys = f.cache_info().static_keys
    for _ in range(2):
        with pytest.raises(TypeError) as caught:
            f(tree, 1)
        assert [word for word in words if word not in str(caught.value)] == [] and len(str(caught.value)) < 600
        assert f.cache_info().static_keys == keys
    assert f(model_with(), 5)[1] == 5
    return caught.value.__cause__


@pytest.fixture
def f() -> Any:
    step = filter_jit(lambda tree, n: (tree, n))
    step.clear_cache()  # another test has compiled an equal function
    return step


NUMBERS = np.zeros(1000)
AT_FIELD, AT_LEAF = "tree.layers[0].scale", "tree.layers[0].rate"


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        (model_with(scale=array(2)), (AT_FIELD, "Array", "static")),
        (model_with(scale=NUMBERS), (AT_FIELD, "ndarray", "static")),
        (model_with(scale={"k": [(1, NUMBERS)]}), (AT_FIELD, "ndarray")),
        ([Cell(array(2), mode=NUMBERS)], ("tree[0].mode", "ndarray")),
        ({"k": Bag(array(2), label=NUMBERS)}, ("tree['k']", "ndarray")),
        ((0, Tray(1, Tray(1, 2, label=NUMBERS))), ("tree[1].bottom", "ndarray")),
    ],
)
def test_an_array_in_a_static_field_is_named_with_its_path(tree: Any, words: tuple[str, ...], f: Any) -> None:
    assert_refused(f, tree, *words)


@pytest.mark.parametrize("kind", [NoHash, BadHash])
def test_leaves_that_cannot_be_hashed_are_named_with_the_cause(kind: type[Value], f: Any) -> None:
    places: list[tuple[Any, str]] = [
        (kind(), "tree"),
        (model_with(rate={"k": [0, kind()]}), f"{AT_LEAF}['k'][1]"),
        (model_with(rate=Bag(1, kind())), f"{AT_LEAF}["),
        (model_with(rate=Tray(kind(), 1)), f"{AT_LEAF}.top"),
    ]
    for tree, path in places:
        cause = assert_refused(f, tree, path, kind.__name__, "hash")
        assert isinstance(cause, ZeroDivisionError if kind is BadHash else TypeError)


@pytest.mark.parametrize("kind", [BadEq, ArrayEq])
@pytest.mark.parametrize("place", ["scale", "rate"])
def test_an_equality_that_does_not_answer(kind: type[Value], place: str, f: Any) -> None:
    assert f(model_with(**{place: kind()}), 1)[1] == 1
    cause = assert_refused(f, model_with(**{place: kind()}), f"tree.layers[0].{place}", kind.__name__)
    assert isinstance(cause, (ValueError, type(None)) if kind is ArrayEq else ZeroDivisionError)
    f.clear_cache()
    assert f(model_with(**{place: kind()}), 1)[1] == 1


def test_an_equality_that_raises_does_not_matter_for_the_same_object(f: Any) -> None:
    value = BadEq()
    for _ in range(3):
        assert f([value], 1)[0][0] is value
    assert f.cache_info().static_keys == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_interrupts_and_memory_errors_pass_unchanged(error: type[BaseException]) -> None:
    raises: list[bool] = []

    class Raising(Value):
        def __hash__(self) -> int:
            if raises:
                raise error
            return 1

    f, x = filter_jit(lambda x, tree: x), array(2)
    for tree in ([Raising()], Bag(label=(1, Raising()))):
        raises.append(True)
        with pytest.raises(error):
            f(x, tree)
        raises.clear()
        assert f(x, tree) is x
