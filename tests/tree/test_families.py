"""Guards that the classes of flax.struct, chex, penzai and jax's Partial, and those of users, are what their functions
make of them, without these being called, and that one which does something else is left to its functions."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import pytest

import partax
from library_trees import PAIRS
from partax import _core
from reference import assert_exact
from trees import add_one, array

chex = pytest.importorskip("chex", reason="chex is not installed")
penzai = pytest.importorskip("penzai.core.struct", reason="penzai is not installed")
pytest.importorskip("flax", reason="flax is not installed")
Partial = jax.tree_util.Partial


@chex.dataclass
class ChexMapping:
    b: Any
    a: Any


@chex.dataclass(kw_only=True)
class ChexChild(ChexMapping):
    c: Any = None


def function(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


MAKE: dict[str, Callable[[Any, Any, Any], Any]] = PAIRS | {
    "chex inherited": lambda x, y, _: ChexChild(a=x, b=y, c=x),
    "partial without names": lambda x, y, _: Partial(function, x, y),
    "partial of a partial": lambda x, y, _: Partial(functools.partial(function, 1), x, k=y),
}


@pytest.mark.parametrize("form", MAKE)
def test_an_instance_is_read_and_made_by_its_fields(form: str, traces: Any) -> None:
    tree = MAKE[form](array(2), {"k": array(3)}, "n")
    assert _core.node_kind(tree) in ("declared", "dataclass", "entries")
    step = partax.filter_jit(lambda tree: (traces.tick(), add_one(tree))[1])
    for _ in range(3):
        found, tree = step(tree), add_one(tree)
        assert_exact(found, tree)
        assert list(getattr(found, "__dict__", ())) == list(getattr(tree, "__dict__", ()))
    assert traces.count == 1
