"""Guards the promise that a wrapper gives right results and no needless trace whatever happens between and within its
calls: mutations, cleared caches, user code that raises or calls back, the garbage collector."""

import gc
import itertools
import os
import sys
from collections.abc import Callable
from typing import Any

import jax
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from machine_model import Expected, Hooked, Hooks, Touchy, WrapperModel
from odd_values import Unhashable
from partax import filter_jit
from random_trees import build, hashables, recipes, variants
from reference import assert_exact
from trees import Bag, add_one, array

EXAMPLES = int(os.environ.get("PARTAX_MACHINE_EXAMPLES", "4"))
STEPS = int(os.environ.get("PARTAX_MACHINE_STEPS", "20"))
UNIQUE = itertools.count()
TRACES: list[int] = []


def outcome(tree: Any, *rest: Any) -> Any:
    TRACES.append(1)
    # As texts: an object that the body makes would have each call traced for itself.
    seen = [text(leaf) for leaf in jax.tree.leaves([tree, *rest])]
    return {"same": tree, "more": add_one(tree), "seen": seen, "rest": rest}


def text(leaf: Any) -> str:
    plain = (bool, int, float, complex, str, bytes, tuple, type(None))
    return "array" if hasattr(leaf, "dtype") else repr(leaf) if type(leaf) in plain else type(leaf).__name__


def has_nnx_objects(tree: Any) -> bool:
    nnx: Any = sys.modules.get("flax.nnx")
    if nnx is None:
        return False
    is_object = lambda node: isinstance(node, (nnx.Pytree, nnx.Variable))
    return any(map(is_object, jax.tree.leaves(tree, is_leaf=is_object)))


def make_function(cell: Any, default: Any, unique: int) -> Callable[..., Any]:
    def function(tree: Any, n: Any = default, *rest: Any, **named: Any) -> Any:
        return outcome(tree, n, rest, named, cell, unique)

    function.__defaults__ = (default,)
    return function


values = st.one_of(st.integers(0, 2), st.sampled_from([True, 1.0, -0.0, 0.0, "a", (1, 2), (True, 2.0)]), hashables)
events = st.sampled_from(["eq", "hash", "flatten", "unflatten"])
ways = st.sampled_from(["position", "keyword", "given", "more"])
USER_CODE = ["raises", "clears", "collects"]


class WrapperMachine(RuleBasedStateMachine):
    @initialize(cell=values, default=values, recipe=recipes, near=st.data())
    def start(self, cell: Any, default: Any, recipe: Any, near: st.DataObject) -> None:
        self.unique = next(UNIQUE)
        self.cell, self.default = cell, default
        self.model = WrapperModel()
        self.recipes = [recipe, *(near.draw(variants(recipe)) for _ in range(2))]
        self.label: list[Any] = [1]
        self.contents: list[Any] = [array(2), "leaf"]
        self.remake()

    def remake(self) -> None:
        self.function = make_function(self.cell, self.default, self.unique)
        self.wrapper = filter_jit(self.function)

    @property
    def state(self) -> Any:
        return self.cell, self.default

    def arguments(self, make: Callable[[], Any], way: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Those of one call. They share the tree, unless it has nnx objects: filter_jit refuses one in two places."""
        tree = make()
        again = make() if has_nnx_objects(tree) else tree
        return {
            "position": ((tree,), {}),
            "keyword": ((), {"tree": tree}),
            "given": ((tree, self.default), {}),
            "more": ((tree, 1, [array(1), 2]), {"z": again, "a": (1,)}),
        }[way]

    def check(
        self,
        make: Callable[[], Any],
        way: str = "position",
        may_raise: tuple[type[BaseException], ...] = (),
        surely: bool = True,
        around: Callable[[Callable[[], Any]], Any] = lambda call: call(),
    ) -> None:
        """Calls with a tree. Unless `surely`, more may be traced, and the program may be there afterwards or not."""
        args, kwargs = self.arguments(make, way)
        model_args, model_kwargs = self.arguments(make, way)
        program = self.model.program(self.function, model_args, model_kwargs)
        least, most = self.model.bounds(self.state, program)
        expected = self.model.result(self.function, model_args, model_kwargs)
        TRACES.clear()
        try:
            result = around(lambda: self.wrapper(*args, **kwargs))
        except may_raise:
            self.model.called(self.state, program, surely=False)
            return
        finally:
            Hooks.action = None
        traced = len(TRACES)
        assert_exact(result, expected)
        assert traced <= most + (0 if surely else 2), f"a needless trace: {traced} of at most {most}"
        assert traced >= least, "a stale program"
        self.model.called(self.state, program, surely)

    def hooked_tree(self, value: Any) -> Any:
        return [Touchy(value), Hooked([array(2), Touchy(value)], Touchy((value, "label"))), {"k": Touchy(1)}]

    @rule(i=st.integers(0, 2), n=st.integers(0, 3), way=ways)
    def call(self, i: int, n: int, way: str) -> None:
        self.check(lambda: build(self.recipes[i], n), way)

    @rule(way=ways)
    def call_with_mutable_values(self, way: str) -> None:
        self.check(lambda: [self.contents, Bag(array(1), label=self.label)], way)

    @rule()
    def call_with_what_cannot_be_static(self) -> None:
        before = self.wrapper.cache_info().static_keys
        for bad in (Unhashable(), Bag(label=array(1)), {1: 0, "a": 0}):
            with pytest.raises(TypeError, match=r"tree\[1\]"):
                self.wrapper([array(1), bad])
        assert self.wrapper.cache_info().static_keys == before

    @rule(value=values, grow=st.booleans())
    def mutate(self, value: Any, grow: bool) -> None:
        for container in (self.label, self.contents):
            if grow or len(container) < 2:
                container.append(value)
            else:
                container.pop()

    @rule()
    def clear(self) -> None:
        self.wrapper.clear_cache()
        self.model.cleared()
        assert self.wrapper.cache_info()[:4] == (0, 0, 0, 0)

    @rule()
    def wrap_again(self) -> None:
        self.wrapper = filter_jit(self.function)

    @rule(cell=values, default=values, changes=st.booleans())
    def recreate_the_function(self, cell: Any, default: Any, changes: bool) -> None:
        if changes:
            self.cell, self.default = cell, default
        self.remake()
        self.model.forgotten()

    @rule(i=st.integers(0, 2), every=st.sampled_from([1, 7]))
    def call_amid_collections(self, i: int, every: int) -> None:
        before = gc.get_threshold()
        gc.set_threshold(every, 5, 1000)
        try:
            self.check(lambda: [build(self.recipes[i], 1), self.hooked_tree(i)])
        finally:
            gc.set_threshold(*before)

    @rule(value=st.integers(0, 1), event=events, countdown=st.integers(1, 6), what=st.sampled_from(USER_CODE))
    def call_with_user_code(self, value: int, event: str, countdown: int, what: str) -> None:
        make = lambda: self.hooked_tree(value)

        def action() -> None:
            if what == "raises":
                raise Expected(event)
            if what == "clears":
                self.wrapper.clear_cache()
                self.model.forgotten()
            else:
                gc.collect()

        errors = (Expected, TypeError) if event in ("eq", "hash") else (Expected,)
        may_raise = errors if what == "raises" else ()
        self.check(make, may_raise=may_raise, surely=what == "collects", around=self.planned(event, countdown, action))
        self.check(make)

    @rule(value=st.integers(0, 1), event=events, countdown=st.integers(1, 6), inner=st.integers(0, 1))
    def call_with_user_code_that_calls(self, value: int, event: str, countdown: int, inner: int) -> None:
        results: list[Any] = []
        make = lambda: self.hooked_tree(inner)
        args, kwargs = self.arguments(make, "position")
        program = self.model.program(self.function, *self.arguments(make, "position"))
        expected = self.model.result(self.function, *self.arguments(make, "position"))

        def action() -> None:
            try:
                results.append(self.wrapper(*args, **kwargs))
            except RecursionError as error:  # jax's own, for a function that is called while it is traced
                assert str(error).startswith("Recursively calling")

        self.check(lambda: self.hooked_tree(value), surely=False, around=self.planned(event, countdown, action))
        for result in results:
            self.model.called(self.state, program, surely=False)
            if not any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(result)):  # else called while tracing
                assert_exact(result, expected)

    def planned(self, event: str, countdown: int, action: Callable[[], Any]) -> Callable[[Callable[[], Any]], Any]:
        def around(call: Callable[[], Any]) -> Any:
            Hooks.event, Hooks.countdown, Hooks.action = event, countdown, action
            return call()

        return around

    @precondition(lambda self: hasattr(self, "wrapper"))
    @invariant()
    def the_cache_is_whole(self) -> None:
        info = self.wrapper.cache_info()
        assert 0 <= info.static_keys <= info.max_size and info.traces >= 0

    def teardown(self) -> None:
        Hooks.action = None


TestWrapper = pytest.mark.filterwarnings("ignore::partax.RetraceWarning")(WrapperMachine.TestCase)
TestWrapper.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    derandomize="PARTAX_MACHINE_EXAMPLES" not in os.environ,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
