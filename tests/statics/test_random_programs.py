"""Guards the promise that a function made anew never gets another program's result, whatever has changed in between.

Programs are modules of random constants, containers, helpers, classes, instances, closures, defaults, settings of
libraries and callable trees. The function that reads some of them is made anew for each call, and called in one of many
forms; one thing is changed between two calls, and plain Python says what is right.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime
import decimal
import enum
import functools
import gc
import logging
import os
import types
import uuid
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, NamedTuple

import equinox as eqx
import jax
import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import partax
import partax.equinox
from callables_made_anew import unproven
from counting import SEEN, seen
from partax import filter_jit

EXAMPLES = int(os.environ.get("PARTAX_PROGRAMS_EXAMPLES", "80"))
VALUES: list[Any] = [0, 1, 2, True, False, 1.0, 2.5, 0.0, -0.0, "a", "b", None, (1, 2), (1, 2.0), (1, (2, True)), b"a"]
PLAIN = st.sampled_from(VALUES)
_SUMMER = datetime.datetime(2026, 10, 25, 2, 30)
# Of types whose `==` hides a part of what they show, or that show it in another way.
HIDING: list[Any] = [
    *(range(0, 3, 2), range(0, 4, 2), range(0), range(1, 1), slice(0, 1), slice(0, 1.0), slice(False, True)),
    *(decimal.Decimal("1.0"), decimal.Decimal("1.00"), decimal.Decimal("-0"), decimal.Decimal("0")),
    *(_SUMMER, _SUMMER.replace(fold=1), datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)),
    datetime.datetime(2026, 1, 1, 13, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
    *(int | str, str | int, list[1], list[True], Literal[1], Literal[True], Annotated[int, 1], Annotated[int, True]),  # type: ignore[misc,valid-type]
    *(uuid.UUID(int=1), uuid.UUID(int=1, is_safe=uuid.SafeUUID.safe), frozenset({1}), frozenset({True})),
    *(collections.Counter(a=1), collections.Counter(a=True), collections.OrderedDict(a=1, b=2)),
    *(collections.OrderedDict(b=2, a=1), {"a": 1, "b": 2}, {"b": 2, "a": 1}, [1, 2], [1, True], {1, 2}, {True, 2}),
    *(np.dtype("f4"), np.dtype("f4", metadata={"a": 1}), np.dtype("f4", metadata={"a": 2})),
    *(np.float32(1), np.float64(1), np.int64(1), np.bool_(True), np.zeros(2), -np.zeros(2)),
]
values = st.one_of(PLAIN, st.sampled_from(HIDING))


class Named(NamedTuple):
    value: Any


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Tree(eqx.Module):
    """A pytree that is called: of a function, and a value in a static field."""

    fun: Callable[..., Any]
    value: Any = eqx.field(static=True)

    def __call__(self, x: Any) -> Any:
        return self.fun(x)


@dataclasses.dataclass(frozen=True)
class Frozen:
    """Is called, or its methods are; no pytree."""

    fun: Callable[..., Any]

    def __call__(self, x: Any) -> Any:
        return self.fun(x)

    def step(self, x: Any) -> Any:
        return self.fun(x)


class Owner:
    """The same, and can be changed."""

    def __init__(self, fun: Callable[..., Any]) -> None:
        self.fun = fun

    def __call__(self, x: Any) -> Any:
        return self.fun(x)

    def step(self, x: Any) -> Any:
        return self.fun(x)


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
    "named",
    "defaulted()",
    "defaulted(keyword=1)",
    "recursive(2)",
    "tree_of_helper.func()",
    "tree_of_model.rate",
    "kinds[0].__name__",
    "Color.RED.value",
    "Made.shared",
    "isinstance(model, Registered)",
    "[f.name for f in dataclasses.fields(Frozen)]",
    "Sized().size",
    "getattr(config, NAME)",
    "operator.attrgetter('rate')(model)",
    "os.environ.get('PARTAX_PROGRAM')",
    "os.path.expandvars('$PARTAX_PROGRAM')",
    "get(os, 'environ').get('PARTAX_PROGRAM')",
    "formatted('{0.shared}', Base)",
    "Converted(1).rate",
    "np.geterr()['divide']",
    "decimal.getcontext().prec",
    "logging.getLogger('partax.programs').level",
    "chance.getstate()[1][:2]",
    "repr(numbers)",
    "math.floor(2.5)",
    "np.add(1, 2)",
    "math.floor(HELD_NUMBERS[0])",
]

PROGRAM = """
import abc, dataclasses, decimal, enum, functools, itertools, logging, math, operator, os, random, types
import equinox as eqx
import jax
import numpy as np

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

class Frozen2:
    def __init__(self, model):
        self.model = model

    rate = property(lambda self: self.model.rate)

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
tree_of_helper = jax.tree_util.Partial(helper)
tree_of_model = Frozen2(Model({16!r}))
NAME = 'rate'
HELD_NUMBERS = [2.5]
kinds = [Model, Slotted]
chance, numbers = random.Random(0), itertools.count()

class Color(enum.Enum):
    RED = 1

Made = types.new_class('Made')
Made.shared = {0!r}

class Registered(abc.ABC):
    pass

get, formatted = getattr, str.format

def converted(rate):
    return (NUMBER, rate)

class Converted(eqx.Module):
    rate: object = eqx.field(converter=converted, static=True)

Sized = dataclasses.make_dataclass('Sized', [('size', object, {1!r})])

def recursive(n, value={2!r}):
    return value if n == 0 else recursive(n - 1)

def make(held, held_list, held_table, held_model, default_value, named_value):
    def held_function():
        return (held, held_list[0])

    def defaulted(*, keyword=default_value):
        return (keyword, held_function())

    def step(x, default=default_value, *, named=named_value):
        return seen(x), [{reads}]

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
    named: Any

    def make(self) -> Callable[..., Any]:
        return self.space["make"](self.held, self.held_list, self.held_table, self.held_model, self.default, self.named)


def world(constants: list[Any], held: list[Any], reads: list[str]) -> World:
    """A program of plain constants, whose function holds other values."""
    source = PROGRAM.format(*constants[:17], reads=", ".join(reads))
    space: dict[str, Any] = {"__name__": "__main__", "seen": seen}
    exec(compile(source, "<cell>", "exec"), space)
    value, number, item, rate, default, named = held
    return World(space, source, value, [number], {"k": item}, space["Model"](rate), default, named)


def set_global(name: str) -> Callable[[World, Any], None]:
    return lambda w, value: w.space.__setitem__(name, value)


def redefine(name: str, body: str) -> Callable[[World, Any], None]:
    def change(w: World, value: Any) -> None:
        w.space["VALUE"] = value
        exec(f"def {name}():\n    return {body}", w.space)

    return change


def new_method(w: World, value: Any) -> None:
    w.space["Base"].method = lambda self: (value, self.rate)


def new_property(w: World, value: Any) -> None:
    w.space["Model"].doubled = property(lambda self: value)


def own_method(w: World, value: Any) -> None:
    w.held_model.method = lambda: value


def another_instance(w: World, value: Any) -> None:
    w.space["model"] = w.space["Model"](value)
    w.space["model"].inner = w.space["Model"](value)


def recursive_default(w: World, value: Any) -> None:
    w.space["recursive"].__defaults__ = (value,)


def sized(value: Any) -> Callable[[Any], None]:
    return lambda self: setattr(self, "size", value)


CHANGES: dict[str, Callable[[World, Any], None]] = {
    "nothing": lambda w, value: None,
    "the cell is run again": lambda w, value: exec(compile(w.source, "<another cell>", "exec"), w.space),
    "NUMBER": set_global("NUMBER"),
    "PAIR": lambda w, value: w.space.update(PAIR=(value, 2)),
    "an item of LIST": lambda w, value: w.space["LIST"].__setitem__(0, value),
    "the length of LIST": lambda w, value: w.space["LIST"].append(value),
    "TABLE": lambda w, value: w.space["TABLE"].update(k=value),
    "another key of TABLE": lambda w, value: w.space["TABLE"].update(other=value),
    "constant": redefine("constant", "VALUE"),
    "helper": redefine("helper", "(NUMBER, VALUE)"),
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
    "a default by name": lambda w, value: setattr(w, "named", value),
    "the default of a function that calls itself": recursive_default,
    "the function of a tree": lambda w, value: w.space.update(tree_of_helper=jax.tree_util.Partial(lambda: value)),
    "a model in a model": lambda w, value: setattr(w.space["tree_of_model"].model, "rate", value),
    "a list of classes": lambda w, value: w.space["kinds"].reverse(),
    "a class that was made": lambda w, value: setattr(w.space["Made"], "shared", value),
    "the attribute of a member": lambda w, value: setattr(w.space["Color"].RED, "_value_", value),
    "a registration": lambda w, value: w.space["Registered"].register(w.space["Model"]),
    "a class of a made dataclass": lambda w, value: setattr(w.space["Sized"], "__init__", sized(value)),
    "the name of an attribute": lambda w, value: w.space.update(NAME="nested"),
    "the environment": lambda w, value: os.environ.__setitem__("PARTAX_PROGRAM", repr(value).replace("\0", "")),
    "how NumPy warns": lambda w, value: np.seterr(divide="raise" if repr(value) < "3" else "ignore") and None,
    "decimal precision": lambda w, value: setattr(decimal.getcontext(), "prec", 7 + len(repr(value))),
    "chance": lambda w, value: w.space["chance"].seed(len(repr(value))),
    "a counter": lambda w, value: next(w.space["numbers"]) and None,
    "a logging level": lambda w, value: logging.getLogger("partax.programs").setLevel(len(repr(value))),
}


@contextlib.contextmanager
def settings_kept() -> Iterator[None]:
    """Puts back what the changes set outside of a program."""
    with np.errstate(), decimal.localcontext():
        try:
            yield
        finally:
            os.environ.pop("PARTAX_PROGRAM", None)
            logging.getLogger("partax.programs").setLevel(logging.NOTSET)


def text(result: Any) -> str:
    """Tells 1 from True and 0.0 from -0.0, and nothing of arrays, which are the same."""
    return "; ".join(map(shown, result[1]))


def shown(it: Any) -> str:
    """What a value shows, also where its repr does not."""
    if isinstance(it, (np.generic, np.ndarray, jax.Array)):  # which come back as arrays of jax
        return f"array {np.asarray(it).tolist()}"
    if isinstance(it, np.dtype):
        return f"{it} {it.metadata}"
    if isinstance(it, uuid.UUID):
        return f"{it!r} {it.is_safe}"
    if type(it) is dict:  # whose keys jax sorts
        return f"dict({', '.join(f'{key!r}: {shown(it[key])}' for key in sorted(it))})"
    if isinstance(it, (tuple, list)):
        return f"{type(it).__name__}({', '.join(map(shown, it))})"
    return f"{type(it).__name__} {it!r}"


@filter_jit
def calling(fun: Any, x: Any) -> Any:
    return fun(x)


@partax.nnx.jit
def calling_nnx(fun: Any, x: Any) -> Any:
    return fun(x)


def accelerated(fun: Any, x: Any) -> Any:
    with partax.equinox.accelerate():
        return eqx.filter_jit(fun)(x)


def with_argument(fun: Any, x: Any) -> Any:
    return filter_jit(lambda x, inner: inner(x))(x, fun)


# How a function is called, and whether it is the same again where the function is, and nothing else was made anew.
FORMS: dict[str, tuple[Callable[..., Any], bool]] = {
    "wrapped": (lambda fun, x: filter_jit(fun)(x), True),
    "as an argument": (calling, True),
    "as an argument of a function made anew": (with_argument, False),
    "in a partial": (lambda fun, x: calling(functools.partial(fun), x), False),
    "in a partial of jax": (lambda fun, x: calling(jax.tree_util.Partial(fun), x), True),
    "in a callable module": (lambda fun, x: calling(Tree(fun, 1), x), True),
    "a callable module": (lambda fun, x: filter_jit(Tree(fun, 1))(x), False),
    "in a layer": (lambda fun, x: calling(eqx.nn.Lambda(fun), x), True),
    "in a named tuple": (lambda fun, x: filter_jit(lambda x, held: held.value(x))(x, Named(fun)), False),
    "a frozen object": (lambda fun, x: filter_jit(Frozen(fun))(x), False),
    "a method of a frozen object": (lambda fun, x: filter_jit(Frozen(fun).step)(x), False),
    "an object": (lambda fun, x: filter_jit(Owner(fun))(x), False),
    "a method": (lambda fun, x: filter_jit(Owner(fun).step)(x), False),
    "a method by identity": (lambda fun, x: filter_jit(Owner(fun).step, callables="identity")(x), False),
    "a method that is made": (lambda fun, x: filter_jit(types.MethodType(lambda self, x: fun(x), 1))(x), False),
    "its own call": (lambda fun, x: filter_jit(Owner(fun).__call__)(x), False),
    "under checkpoint": (lambda fun, x: filter_jit(partax.filter_checkpoint(fun))(x), True),
    "under vmap": (
        lambda fun, x: filter_jit(partax.filter_vmap(fun, in_axes=None, axis_size=1, out_axes=None))(x),
        True,
    ),
    "by nnx.jit": (lambda fun, x: partax.nnx.jit(fun)(x), True),
    "as an argument of nnx.jit": (calling_nnx, True),
    "by Equinox, accelerated": (accelerated, True),
}
# Whose object or wrapper can be changed, so that a new one is always traced.
RETRACED = ("an object", "a method", "a method by identity", "its own call")

X = np.float32(1)


def results(fun: Callable[..., Any]) -> list[Any]:
    """What plain Python gives; of a program that is wrong, the error."""
    try:
        return fun(X)[1]
    except AttributeError as error:
        return [str(error)]


@given(
    constants=st.lists(PLAIN, min_size=17, max_size=17),
    held=st.lists(values, min_size=6, max_size=6),
    reads=st.lists(st.sampled_from(READS), min_size=1, max_size=5, unique=True),
    changes=st.lists(st.tuples(st.sampled_from(sorted(CHANGES)), values), min_size=1, max_size=4),
    form=st.sampled_from(sorted(FORMS)),
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
    constants: list[Any], held: list[Any], reads: list[str], changes: list[tuple[str, Any]], form: str, keeps: bool
) -> None:
    with settings_kept():
        program = world(constants, held, reads)
        call, is_known = FORMS[form]
        kept: list[Any] = []

        def traces(fun: Callable[..., Any]) -> int:
            """Calls the function in this form, and tells how often its body ran for that."""
            expected = text((X, results(fun)))
            before = SEEN.count
            try:
                assert text(call(fun, X)) == expected, (form, reads)
            except AttributeError as error:
                assert text((X, [str(error)])) == expected
            return SEEN.count - before

        for name, value in [("nothing", None), *changes, ("nothing", None)]:
            CHANGES[name](program, value)
            fun = program.make()
            # What is made anew gets no program that returns an object of its own.
            returns_none = not any(map(gc.is_tracked, jax.tree.leaves(results(fun))))
            proven = returns_none and form not in RETRACED and not unproven(fun)
            traces(fun)
            assert traces(fun) == 0 or not (proven or (is_known and returns_none)), (name, reads, form)
            if keeps:
                kept.append(fun)
            if proven:
                same = program.make()
                assert traces(same) == 0, (name, reads, form)


# Of instances that can be changed, of settings, and of names that are made up.
UNPROVEN = (
    *("config.", "model.", "slotted.", "listing.", "bound", "held_model.", "tree_of_model.", "getattr(", "operator."),
    *("os.", "np.geterr", "decimal.", "logging.", "chance.", "repr(", "[f.name", "isinstance(model"),
    *("get(", "formatted("),
)


def test_what_the_programs_read_is_proven_but_for_instances_that_can_be_changed() -> None:
    """Else the test above would say nothing of functions that do not retrace."""
    proven = [read for read in READS if not read.startswith(UNPROVEN)]
    assert len(proven) >= 30
    assert unproven(world([1] * 17, [1] * 6, proven).make()) == ""
    for read in set(READS) - set(proven):
        assert unproven(world([1] * 17, [1] * 6, [read]).make()) != "", read
