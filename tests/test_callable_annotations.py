"""Guards the promise that annotations are part of what a callable means, and that asking for them changes nothing:
also where Python evaluates them only when they are asked for (3.14), so this file must not import `annotations`."""

import inspect
import sys
from collections.abc import Callable
from typing import Any

import pytest

from conftest import TraceCounter
from partax import _core, filter_jit
from trees import array


def annotated(scale: Any, kind: Any = int) -> Any:
    def fun(x: list[int], held: kind = scale, *, other: Any = None) -> kind:
        return x * scale

    return fun


def test_an_annotated_function_made_anew_does_not_retrace(traces: TraceCounter) -> None:
    @filter_jit
    def step(fun: Any, x: Any) -> Any:
        traces.tick()
        return fun(x)

    for _ in range(3):
        step(annotated(2), array(2))
    assert traces.count == 1
    step(annotated(2, kind=float), array(2))
    assert traces.count == 2
    step(annotated(2, kind=int), array(2))
    assert traces.count == 2


def test_asking_for_annotations_changes_nothing() -> None:
    asked, fresh = annotated(1), annotated(1)
    assert inspect.signature(asked).parameters["held"].annotation is int
    assert asked.__annotations__["x"] == list[int]
    assert _core.static_equal(asked, fresh)
    assert _core.static_equal(fresh, asked)
    assert _core.static_equal(asked, asked)


def changed(fun: Any) -> Any:
    fun.__annotations__["x"] = float
    return fun


def replaced(fun: Any) -> Any:
    fun.__annotations__ = {"x": list[int]}
    return fun


def removed(fun: Any) -> Any:
    fun.__annotations__ = {}
    return fun


@pytest.mark.parametrize("change", [changed, replaced, removed])
def test_changed_annotations_are_seen(change: Callable[[Any], Any]) -> None:
    assert not _core.static_equal(change(annotated(1)), annotated(1))
    assert not _core.static_equal(annotated(1), change(annotated(1)))
    assert _core.static_equal(change(annotated(1)), change(annotated(1)))


def method(kind: Any) -> Any:
    class Holder:
        number = kind

        @staticmethod
        def fun(x: number) -> Any:
            return x

    return Holder.fun


def test_annotations_by_names_of_a_class() -> None:
    fun = method(int)
    assert _core.static_equal(fun, fun)
    assert not _core.static_equal(method(int), method(float))


@pytest.mark.skipif(sys.version_info < (3, 14), reason="older versions evaluate annotations at once")
class TestLazily:
    def test_annotations_that_cannot_be_evaluated(self) -> None:
        def make(n: Any) -> Any:
            def fun(x: Missing) -> Any:  # type: ignore[name-defined] # noqa: F821
                return x * n

            return fun

        assert _core.static_equal(make(1), make(1))
        assert not _core.static_equal(make(1), make(2))

    def test_they_are_not_evaluated_by_a_first_look(self) -> None:
        evaluated: list[int] = []

        def make() -> Any:
            def fun(x: evaluated.append(1)) -> Any:  # type: ignore[valid-type]
                return x

            return fun

        assert _core.static_equal(make(), make())
        assert evaluated == []

    def test_another_annotate_function_is_another_callable(self) -> None:
        def other(format: int) -> dict[str, Any]:
            return {"x": str}

        fun = annotated(1)
        fun.__annotate__ = other
        assert not _core.static_equal(fun, annotated(1))
        assert not _core.static_equal(annotated(1), fun)
