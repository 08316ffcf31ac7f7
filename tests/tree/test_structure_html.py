"""Guards the promise that a structure is a tree of a bounded number of lines in a notebook, with all text escaped."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from notebook_pages import ReadPage
from partax import flat_partition, is_array, tree
from trees import Bag, Cell, make_model, over_samples


def lines(spec: Any) -> list[str]:
    page = ReadPage(spec._repr_html_())
    assert page.tags == ["pre"] and page.open == [] and page.attributes == set() and len(page.cells) == 1
    return page.cells[0].split("\n")


@over_samples
def test_any_tree_has_lines_that_a_page_holds(make: Any) -> None:
    for spec in (tree.structure(make()), flat_partition(make(), is_array)[0]):
        shown = lines(spec)
        assert shown[0].startswith(f"{type(spec).__name__}(") and shown[-1].endswith(")")
        assert len(shown) < 500 and max(map(len, shown)) < 300


def test_a_small_tree_is_its_repr() -> None:
    for pytree in (1, None, [], {"a": [1, (2, None)], "b": Cell(3, mode="x")}):
        assert lines(tree.structure(pytree)) == [repr(tree.structure(pytree))]


def test_what_does_not_fit_in_a_line_has_a_line_for_each_part() -> None:
    shown = lines(tree.structure({"model": make_model(2), "step": 1}))
    layer = "Layer(weight=*, bias=*, rate=*, scale=2, activation=tanh)"
    assert shown == [
        "Structure({",
        "  'model': Model(",
        "    layers=[",
        f"      {layer},",
        f"      {layer},",
        "    ],",
        "    name='model',",
        "  ),",
        "  'step': *,",
        "})",
    ]


def test_static_leaves_of_a_spec_have_their_values() -> None:
    spec = flat_partition({"rates": list(range(100, 120)), "name": "net"}, is_array, rest="static")[0]
    rates = [f"    {i}," for i in range(100, 120)]
    assert lines(spec) == ["FlatSpec({", "  'name': 'net',", "  'rates': [", *rates, "  ],", "})"]


@pytest.mark.parametrize(
    "pytree",
    [
        list(range(100_000)),
        {f"key {i}" * 20: i for i in range(10_000)},
        [make_model(5) for _ in range(300)],
        functools.reduce(lambda inner, _: [inner, 1], range(1500), 1),
        functools.reduce(lambda inner, _: [inner] * 2, range(12), 1),
    ],
    ids=["wide", "long keys", "nodes", "deep", "both"],
)
def test_a_huge_tree_has_a_bounded_page(pytree: Any) -> None:
    shown = lines(tree.structure(pytree))
    assert 1 < len(shown) < 500 and any(
        line.strip(" ),]}") == "..." or "(...)" in line or "[...]" in line for line in shown
    )
    assert sum(map(len, shown)) < 100_000


def test_all_text_is_escaped() -> None:
    hostile = "<script>alert(1)</script>\n\x1b[31m"
    for pytree in ({hostile: 1}, Bag(1, label=hostile), {hostile * 9: [Bag(1, label=hostile)] * 9}):
        page = tree.structure(pytree)._repr_html_()
        assert "<script>" not in page and "&lt;script&gt;" in page and "\x1b" not in page
