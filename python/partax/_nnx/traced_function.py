"""What is traced: the user's function, between the objects that are made of tracers and what it has done to them."""

import functools
from collections.abc import Callable
from typing import Any

import jax
from flax import errors
from flax.nnx import extract

from partax._nnx.apply_changes import Outcome
from partax._nnx.build_graph import GraphBuilder
from partax._nnx.errors import note_held
from partax._nnx.find_changes import DELETED, WHOLE_NODE, Change, Snapshot
from partax._nnx.graph import Variable
from partax._nnx.read_graph import GraphReader
from partax._nnx.shardings import as_before, shardings_by_leaf

GRAPH, VARIABLES, TREE = "graph", "variables", "tree"
"""All changes are done to the caller's objects; only those of Variables; and nothing may be in two places."""


class TracedFunction:
    """A function of trees as `read_graph` makes them, whose result is an `Outcome`. filter_jit wraps it."""

    changes_arguments = True
    """Changes of its arguments are not lost."""

    def __init__(self, fun: Callable[..., Any], donates: bool, mode: str, in_shardings: Any):
        """Wraps a function.

        Args:
          fun: the user's.
          donates: whether some arguments are donated.
          mode: what nnx calls so: which changes are done to the caller's objects, and what may be in two places.
          in_shardings: as of filter_jit.
        """
        functools.update_wrapper(self, fun, updated=())
        self.__wrapped__ = fun
        self.options = (donates, mode, in_shardings)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Outcome:
        donates, mode, in_shardings = self.options
        shardings = {} if in_shardings is None else shardings_by_leaf(in_shardings, args)
        builder = GraphBuilder()
        args = tuple([builder.build(value) for value in args])
        kwargs = {name: builder.build(kwargs[name]) for name in sorted(kwargs)}
        before = Snapshot(builder.objects)
        try:
            if mode == TREE:
                extract.check_no_aliases("jit", args=args, kwargs=kwargs)
            result = self.__wrapped__(*args, **kwargs)
            changes = before.changes()
            if mode != GRAPH:
                variables = [it for it in before.objects if issubclass(type(it), Variable)]
                extract.check_no_aliases("jit", args=variables, out=result, check=["out"])
                changes = [it for it in changes if issubclass(type(it.owner), Variable)]
            return _outcome(result, changes, before, donates, shardings)
        except (errors.TraceContextError, ValueError) as error:
            note_held(error, self.__wrapped__)
            raise


def _outcome(result: Any, changes: list[Change], before: Snapshot, donates: bool, shardings: dict[int, Any]) -> Outcome:
    reader = GraphReader(before.objects)
    sets = [it for it in changes if it.value is not DELETED and it.name is not WHOLE_NODE]
    values = tuple([reader.read(as_before(it.value, it.before, shardings) if shardings else it.value) for it in sets])
    refilled = tuple([(it.place, reader.read(it.value)) for it in changes if it.name is WHOLE_NODE])
    result = reader.read(result)
    return Outcome(
        result,
        values,
        tuple([it.place for it in sets]),
        tuple([it.name for it in sets]),
        tuple([(it.place, it.name) for it in changes if it.value is DELETED]),
        refilled,
        reader.has_met_any,
        _not_in(before.unchanged(changes), (result, values, refilled)) if donates else (),
    )


def _not_in(arrays: list[Any], tree: Any) -> tuple[Any, ...]:
    given = {id(leaf) for leaf in jax.tree.leaves(tree)}
    return tuple({id(array): array for array in arrays if id(array) not in given}.values())
