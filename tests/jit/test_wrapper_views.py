"""Guards the promise that wrappers, what they lower to and their caches are one line in a terminal and a small table in
a notebook, whatever they wrap, and that showing them traces, counts and changes nothing."""

from __future__ import annotations

import functools
import pickle
from typing import Any

import jax.numpy as jnp
import pytest

import partax
from conftest import TraceCounter
from notebook_pages import ReadPage
from partax import CacheInfo, filter_checkpoint, filter_closure_convert, filter_grad, filter_jit, filter_vmap
from partax._pytree.short_text import LONGEST
from trees import array, make_model


class Hostile:
    """A callable that can be neither compared nor printed, with a name that would break a page."""

    def __init__(self) -> None:
        self.__name__ = self.__qualname__ = "<script>alert(1)</script>\n\x1b[31m" * 20

    def __hash__(self) -> int:
        raise ZeroDivisionError("no hash")

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError("no answer")

    def __repr__(self) -> str:
        raise ZeroDivisionError("no repr")

    def __call__(self, x: Any) -> Any:
        return x


class Nameless:
    @property
    def __name__(self) -> str:
        raise ZeroDivisionError("no name")

    def __call__(self, x: Any) -> Any:
        return x


def loss(x: Any) -> Any:
    return (x**2).sum()


WRAPPED = {
    "function": loss,
    "module": make_model(),
    "method": "a text".__add__,
    "hostile": Hostile(),
    "grad": filter_grad(loss),
    "jitted": filter_jit(loss),
}


@pytest.mark.parametrize("wrap", [filter_jit, filter_grad, filter_vmap, filter_checkpoint], ids=lambda it: it.__name__)
@pytest.mark.parametrize("name", WRAPPED)
def test_a_wrapper_is_one_line(wrap: Any, name: str) -> None:
    text = repr(wrap(WRAPPED[name]))
    assert text.startswith(f"<partax.{wrap.__name__} of ") and text.endswith(">")
    assert len(text) <= LONGEST and text.isprintable()


def test_a_wrapper_has_the_name_of_what_it_wraps() -> None:
    assert repr(filter_jit(loss)) == "<partax.filter_jit of loss>"
    assert repr(filter_jit(make_model())) == "<partax.filter_jit of Model>"
    assert repr(filter_jit(filter_grad(loss))) == "<partax.filter_jit of loss>"
    assert repr(partax.debug.assert_max_traces(loss, max_traces=1)) == "<partax.debug.assert_max_traces of loss>"
    assert repr(partax.debug.assert_max_traces(make_model(), max_traces=1)).endswith("assert_max_traces of Model>")
    assert repr(filter_jit(Nameless())) == "<partax.filter_jit of Nameless>"
    assert repr(filter_closure_convert(make_model(), array(3))) == "<partax.filter_closure_convert of Model>"


def test_what_a_call_is_lowered_to_is_one_line() -> None:
    f = filter_jit(lambda model, x, n: (x * n, n))
    f.__wrapped__.__qualname__ = "f" * 500
    stages = [partax.filter_jit(loss).trace(array(3))]
    stages += [stages[0].lower(), stages[0].lower().compile()]
    assert [repr(stage) for stage in stages] == [
        f"<partax.{name} of loss, 1 array>" for name in ("Traced", "Lowered", "Compiled")
    ]
    text = repr(f.trace([array(1)] * 2000, array(3), 2))
    assert text.endswith("ff, 2,001 arrays>") and len(text) == LONGEST


def test_switches_tell_their_state() -> None:
    with partax.explain():
        assert repr(partax.explain()) == "<partax.explain: on>"
        assert repr(partax.explain(False)) == "<partax.explain: off>"
    accelerated = partax.equinox.accelerate()
    assert repr(accelerated) == "<partax.equinox.Accelerated: active>"
    accelerated.end()
    assert repr(accelerated) == "<partax.equinox.Accelerated: ended>"


def test_cache_info_is_the_named_tuple_that_it_was_and_a_table_in_a_notebook() -> None:
    info = CacheInfo(1, 2, 3_000_000, 4, 4096)
    assert repr(info) == str(info) == "CacheInfo(static_keys=1, traces=2, hits=3000000, misses=4, max_size=4096)"
    assert info == (1, 2, 3_000_000, 4, 4096) and info._replace(hits=9).hits == 9
    assert pickle.loads(pickle.dumps(info)) == info
    headings = ["static keys", "traces", "hits", "misses", "max size"]
    assert ReadPage(info._repr_html_()).cells == [*headings, "1", "2", "3,000,000", "4", "4,096"]


def test_a_wrapper_is_a_table_of_its_options_and_its_cache_in_a_notebook(traces: TraceCounter) -> None:
    @filter_jit(donate="all", max_traces=7, trace=("n",))
    def step(x: Any, n: int) -> Any:
        traces.tick()
        return x * n

    assert step._repr_html_() == step._repr_html_()
    assert step.cache_info() == (0, 0, 0, 0, 4096)
    step(array(2), 1), step(array(2), 2)
    before = step.cache_info()
    title, *rest = ReadPage(step._repr_html_()).cells
    name = "test_a_wrapper_is_a_table_of_its_options_and_its_cache_in_a_notebook.<locals>.step"
    assert title == f"<partax.filter_jit of {name}> with donate='all', trace=('n',), max_traces=7"
    assert rest[5:] == [f"{count:,}" for count in before]
    assert step.cache_info() == before and traces.count == 1
    assert ReadPage(filter_jit(loss)._repr_html_()).cells[0] == "<partax.filter_jit of loss>"


def test_a_wrapper_that_has_no_cache_has_a_table_without_it() -> None:
    wrapper = filter_jit(Hostile())
    page = wrapper._repr_html_()
    assert "<script>" not in page and "&lt;script&gt;" in page and ReadPage(page).cells == [repr(wrapper)]


def test_hostile_options_are_escaped() -> None:
    options: dict[str, Any] = {"compiler_options": {"<b>": "<script>" * 100}}
    page = filter_jit(loss, **options)._repr_html_()
    assert "<script>" not in page and "<b>" not in page and "&lt;b&gt;" in page


def test_arrays_that_are_gone_are_no_error() -> None:
    gone = jnp.ones((3, 4))
    bound = filter_jit(functools.partial(loss, gone))
    gone.delete()
    assert "partial" in repr(bound) and "partial" in bound._repr_html_()
