"""Guards the promise that a function made anew never gets another program's result, whatever has changed in between.

Programs are modules of random constants, containers, helpers, classes, instances and closures. The function that reads
some of them is made anew for each call, one thing is changed between two calls, and plain Python says what is right.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from partax import _core, filter_jit

EXAMPLES = int(os.environ.get("PARTAX_PROGRAMS_EXAMPLES", "150"))
VALUES: list[Any] = [0, 1, 2, True, False, 1.0, 2.5, 0.0, -0.0, "a", "b", None, (1, 2), (1, 2.0), (1, (2, True)), b"a"]
values = st.sampled_from(VALUES)

# What a body may read: the expression of each, by the names that PROGRAM defines.
READS = [
    "NUMBER",
    "PAIR[0]",
    "LIST[0]",
    "len(LIST)",
    "TABLE['k']",
    "TABLE.get('other', 7)",
    "helper()",
    "outer_helper()",
    "with_default()",
    "attributed.scale",
    "config.rate",
    "config.nested.rate",
    "Base.shared",
    "Model().method()",
    "Model.make().rate",
    "model.rate",
    "model.method()",
    "model.doubled",
    "model.inner.rate",
    "slotted.rate",
    "frozen.depth",
    "listing.extra",
    "bound()",
    "partial()",
    "held",
    "held_list[0]",
    "held_table['k']",
    "held_model.rate",
    "held_model.method()",
    "held_function()",
    "default",
]

PROGRAM = """
import dataclasses, functools, types

NUMBER = {0!r}
PAIR = ({1!r}, 2)
LIST = [{2!r}, 5]
TABLE = {{'k': {3!r}}}

def constant():
    return {4!r}

def helper():
    return (NUMBER, constant())

def outer_helper():
    return [helper() for _ in range(2)]

def with_default(value={5!r}):
    return value

def attributed():
    return attributed.scale
attributed.scale = {6!r}

class Base:
    shared = {7!r}

    def method(self):
        return (self.rate, self.shared, constant())

class Model(Base):
    def __init__(self, rate={8!r}):
        self.rate = rate
        self.inner = None

    @property
    def doubled(self):
        return (self.rate, self.rate)

    @classmethod
    def make(cls):
        return cls()

class Slotted:
    __slots__ = ('rate', '__weakref__')

class Listing(list):
    pass

@dataclasses.dataclass(frozen=True)
class Frozen:
    depth: object

config = types.SimpleNamespace(rate={9!r}, nested=types.SimpleNamespace(rate={10!r}))
model = Model({11!r})
model.inner = Model({12!r})
slotted = Slotted()
slotted.rate = {13!r}
frozen = Frozen({14!r})
listing = Listing([1])
listing.extra = {15!r}
bound = model.method
partial = functools.partial(with_default, {16!r})

def make(held, held_list, held_table, held_model, default_value):
    def held_function():
        return (held, held_list[0])

    def step(x, default=default_value):
        return x, [{reads}]

    return step
"""


@dataclasses.dataclass
class World:
    """A program that has been run, and what its function is made of."""

    space: dict[str, Any]
    source: str
    held: Any
    held_list: list[Any]
    held_table: dict[str, Any]
    held_model: Any
    default: Any

    def make(self) -> Callable[..., Any]:
        return self.space["make"](self.held, self.held_list, self.held_table, self.held_model, self.default)


def world(constants: list[Any], reads: list[str]) -> World:
    source = PROGRAM.format(*constants[:17], reads=", ".join(reads))
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, "<cell>", "exec"), space)
    held, number, item, rate, default = constants[17:22]
    return World(space, source, held, [number], {"k": item}, space["Model"](rate), default)


def set_global(name: str) -> Callable[[World, Any], None]:
    return lambda w, value: w.space.__setitem__(name, value)


def redefine(name: str, body: str) -> Callable[[World, Any], None]:
    return lambda w, value: exec(f"def {name}():\n    return {body.format(value)}", w.space)


def new_method(w: World, value: Any) -> None:
    w.space["Base"].method = lambda self: (value, self.rate)


def new_property(w: World, value: Any) -> None:
    w.space["Model"].doubled = property(lambda self: value)


def own_method(w: World, value: Any) -> None:
    w.held_model.method = lambda: value


def another_instance(w: World, value: Any) -> None:
    w.space["model"] = w.space["Model"](value)
    w.space["model"].inner = w.space["Model"](value)


CHANGES: dict[str, Callable[[World, Any], None]] = {
    "nothing": lambda w, value: None,
    "the cell is run again": lambda w, value: exec(compile(w.source, "<another cell>", "exec"), w.space),
    "NUMBER": set_global("NUMBER"),
    "PAIR": lambda w, value: w.space.update(PAIR=(value, 2)),
    "an item of LIST": lambda w, value: w.space["LIST"].__setitem__(0, value),
    "the length of LIST": lambda w, value: w.space["LIST"].append(value),
    "TABLE": lambda w, value: w.space["TABLE"].update(k=value),
    "another key of TABLE": lambda w, value: w.space["TABLE"].update(other=value),
    "constant": redefine("constant", "{!r}"),
    "helper": redefine("helper", "(NUMBER, {!r})"),
    "the default of a helper": lambda w, value: setattr(w.space["with_default"], "__defaults__", (value,)),
    "the attribute of a function": lambda w, value: setattr(w.space["attributed"], "scale", value),
    "config": lambda w, value: setattr(w.space["config"], "rate", value),
    "nested config": lambda w, value: setattr(w.space["config"].nested, "rate", value),
    "a class attribute": lambda w, value: setattr(w.space["Base"], "shared", value),
    "a class attribute of the subclass": lambda w, value: setattr(w.space["Model"], "shared", value),
    "a method": new_method,
    "a property": new_property,
    "a method of the instance": own_method,
    "an instance": lambda w, value: setattr(w.space["model"], "rate", value),
    "an instance in an instance": lambda w, value: setattr(w.space["model"].inner, "rate", value),
    "another instance": another_instance,
    "a slot": lambda w, value: setattr(w.space["slotted"], "rate", value),
    "a frozen dataclass": lambda w, value: w.space.update(frozen=w.space["Frozen"](value)),
    "an attribute of a list": lambda w, value: setattr(w.space["listing"], "extra", value),
    "a partial": lambda w, value: w.space.update(partial=functools.partial(w.space["with_default"], value)),
    "a closure cell": lambda w, value: setattr(w, "held", value),
    "a list in a closure cell": lambda w, value: w.held_list.__setitem__(0, value),
    "another list in a closure cell": lambda w, value: setattr(w, "held_list", [value]),
    "a dict in a closure cell": lambda w, value: w.held_table.update(k=value),
    "an instance in a closure cell": lambda w, value: setattr(w.held_model, "rate", value),
    "another instance in a closure cell": lambda w, value: setattr(w, "held_model", w.space["Model"](value)),
    "a default": lambda w, value: setattr(w, "default", value),
}


def text(result: Any) -> str:
    """Tells 1 from True and 0.0 from -0.0, and nothing of arrays, which are the same."""
    return repr(result[1])


def as_wrapped(fun: Callable[..., Any], x: Any) -> tuple[Any, int]:
    wrapped = filter_jit(fun)
    return wrapped(x), wrapped.cache_info().traces


@filter_jit
def calling(fun: Any, x: Any) -> Any:
    return fun(x)


def as_argument(fun: Callable[..., Any], x: Any) -> tuple[Any, int]:
    return calling(fun, x), calling.cache_info().traces


def as_partial(fun: Callable[..., Any], x: Any) -> tuple[Any, int]:
    return calling(functools.partial(fun), x), calling.cache_info().traces


X = np.float32(1)


@given(
    constants=st.lists(values, min_size=22, max_size=22),
    reads=st.lists(st.sampled_from(READS), min_size=1, max_size=5, unique=True),
    changes=st.lists(st.tuples(st.sampled_from(sorted(CHANGES)), values), min_size=1, max_size=4),
    call=st.sampled_from([as_wrapped, as_argument, as_partial]),
    keeps=st.booleans(),
)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    derandomize=EXAMPLES < 1000,
)
def test_a_function_made_anew_gives_what_plain_python_gives(
    constants: list[Any],
    reads: list[str],
    changes: list[tuple[str, Any]],
    call: Callable[..., Any],
    keeps: bool,
) -> None:
    program = world(constants, reads)
    kept: list[Any] = []
    for name, value in [("nothing", None), *changes, ("nothing", None)]:
        CHANGES[name](program, value)
        fun = program.make()
        expected, proven = text(fun(X)), not _core.unproven(fun)
        found, traces = call(fun, X)
        assert text(found) == expected, (name, value, reads)
        again, traces_again = call(fun, X)
        # The count falls where the entry of something that is gone is dropped.
        assert text(again) == expected and traces_again <= traces, (name, reads)
        if keeps:
            kept.append(fun)
        same = program.make()
        found, traces_again = call(same, X)
        assert text(found) == expected, (name, reads)
        assert traces_again <= traces or not proven, (name, reads, _core.difference(fun, same))


# Of instances that can be changed.
UNPROVEN = ("config.", "model.", "slotted.", "listing.", "bound", "held_model.")


def test_what_the_programs_read_is_proven_but_for_instances_that_can_be_changed() -> None:
    """Else the test above would say nothing of functions that do not retrace."""
    proven = [read for read in READS if not read.startswith(UNPROVEN)]
    assert len(proven) >= 20
    assert _core.unproven(world([1] * 22, proven).make()) == ""
    for read in set(READS) - set(proven):
        assert _core.unproven(world([1] * 22, [read]).make()) != ""
