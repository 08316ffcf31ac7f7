"""A re-created function sees each change of what its code can read, as in `jax.jit`, and the reason of its trace names
what has changed."""

import argparse
import collections
import dataclasses
import enum
import functools
import operator
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx

from functions_counted import assert_sees_change

pytestmark = pytest.mark.filterwarnings("ignore::partax.RetraceWarning")
x = jnp.arange(1.0, 4.0)

Change = Callable[[], Any]
# Makes a function; changes what it reads; what the reason of its trace says.
Case = tuple[Callable[[], Any], Change, str]


@dataclasses.dataclass
class Config:
    lr: float = 1.0
    layers: list[int] = dataclasses.field(default_factory=lambda: [1])


@dataclasses.dataclass(slots=True)
class Slotted:
    lr: float = 1.0


@dataclasses.dataclass(frozen=True)
class Frozen:
    lr: float = 1.0

    def scale(self, x: Any) -> Any:
        return x * self.lr


class Hyper(NamedTuple):
    lr: float = 1.0


class Mode(enum.Enum):
    ONE = 1
    TWO = 2

    @property
    def scale(self) -> int:
        return 10 * self.value


def module_of(source: str) -> types.ModuleType:
    """A module of the user's."""
    module = types.ModuleType("user_config")
    module.__file__ = "/home/user_config.py"
    sys.modules[module.__name__] = module
    exec(compile(source, module.__file__, "exec"), vars(module))
    return module


SCALE = 1.0
TABLE = {"lr": 1.0}
WEIGHTS = [1.0, 2.0]
DATA = np.arange(3)
mode = Mode.ONE
config, slotted = Config(), Slotted()
parsed = argparse.Namespace(lr=1.0)
space = types.SimpleNamespace(model=types.SimpleNamespace(width=1))
user_config: Any = module_of("LR = SCALE = 1.0\ndef helper(x):\n    return x * SCALE")
other = user_config.helper
scale_of = operator.attrgetter("SCALE")


def helper(x: Any) -> Any:
    return x * SCALE


@pytest.fixture(autouse=True)
def _globals() -> Iterator[None]:
    before = dict(globals())
    yield
    globals().update(before)


def set_global(name: str, value: Any) -> Change:
    return lambda: globals().__setitem__(name, value)


def add_to(owner: Any, name: str) -> Change:
    return lambda: setattr(owner, name, getattr(owner, name) + 1)


def times(x: Any, value: Any) -> Any:
    return x * value


# A value, another one, and how a function uses the one that is in its closure.
VALUES: dict[str, tuple[Any, Any, Callable[[Any, Any], Any]]] = {
    "an int": (1, 2, times),
    "an int that becomes the equal float": (1, 1.0, lambda x, value: x.astype(int) * value),
    "a bool": (True, False, times),
    "the sign of zero": (0.0, -0.0, lambda x, value: jnp.float32(1) / (0 * x + value)),
    "a string": ("relu", "sin", lambda x, value: getattr(jnp, value, jax.nn.relu)(x)),
    "a tuple": ((1, 2), (1, 3), lambda x, value: x * value[1]),
    "a dict": ({"a": 1}, {"a": 2}, lambda x, value: x * value["a"]),
    "the order of a dict": ({"a": 1, "b": 2}, {"b": 2, "a": 1}, lambda x, value: x - next(iter(value.values()))),
    "a set": ({1, 2}, {1, 3}, lambda x, value: x * sum(value)),
    "a default dict": (*(collections.defaultdict(int, a=n) for n in (1, 2)), lambda x, value: x + value["a"]),
    "a NumPy scalar": (np.float64(1), np.float64(2), times),
    "the type of a NumPy scalar": (np.int8(1), np.float32(1), lambda x, value: x.astype(jnp.int8) * value),
    "a NumPy array": (np.ones(3), np.full(3, 2.0), times),
    "an array": (jnp.ones(3), jnp.zeros(3), times),
    "an enum member": (Mode.ONE, Mode.TWO, lambda x, value: x * value.scale),
    "a NamedTuple": (Hyper(1.0), Hyper(2.0), lambda x, value: x * value.lr),
    "a frozen dataclass": (Frozen(1.0), Frozen(2.0), lambda x, value: value.scale(x)),
    "a function in a closure": (jnp.sin, jnp.cos, lambda x, value: value(x)),
    "an optimizer": (optax.sgd(0.1), optax.sgd(0.2), lambda x, value: value.update(x, value.init(x))[0]),
    "a range": (range(2), range(3), lambda x, value: sum(x * n for n in value)),
}


def made_of(make: Callable[[Any], Any], old: Any, new: Any, culprit: str) -> Case:
    """Each function is made of the value of a variable, which changes."""
    variable = types.SimpleNamespace(value=old)
    return lambda: make(variable.value), lambda: setattr(variable, "value", new), culprit


def that_calls(helper: Any, change: Callable[[Any], Any], culprit: str) -> Case:
    """Each function calls a helper, which changes."""
    return lambda: lambda x: helper(x), lambda: change(helper), culprit


def updated(optimizer: Any) -> Any:
    return lambda x: optimizer.update(x, optimizer.init(x))[0]


def doubled(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(x: Any) -> Any:
        return function(x) * SCALE

    return wrapper


def user_class() -> Any:
    class Base:
        SCALE = 1.0

        def offset(self) -> float:
            return 0.0

    class User(Base):
        __match_args__ = ("SCALE",)

        def __init__(self, lr: float = 1.0) -> None:
            self.lr = lr

        def scale(self, x: Any) -> Any:
            return x * self.half * self.SCALE + super().offset()

        @property
        def half(self) -> float:
            return self.lr / 2

        @staticmethod
        def double(x: Any) -> Any:
            return 2 * x

        @classmethod
        def triple(cls, x: Any) -> Any:
            return cls.double(x) * cls.SCALE

        def __call__(self, x: Any) -> Any:
            return self.scale(x)

    return User


def of_class(make: Callable[[Any], Any], name: str, value: Any, culprit: str, of_base: bool = False) -> Case:
    """Each function uses a class that has an attribute changed."""
    User = user_class()
    owner = User.__base__ if of_base else User
    return lambda: make(User), lambda: setattr(owner, name, value), culprit


def matching(User: Any) -> Any:
    user = User()

    def f(x: Any) -> Any:
        match user:
            case User(scale):
                return x * scale

    return f


def a_registry() -> Case:
    registry = {"loss": lambda x: x + 1}
    return lambda: lambda x: registry["loss"](x), lambda: registry.update(loss=lambda x: x + 2), "registry['loss']"


def an_attribute_of_a_function() -> Case:
    def shared(x: Any) -> Any:
        return x * shared.by  # type: ignore[attr-defined]

    shared.by = 1.0  # type: ignore[attr-defined]
    return lambda: lambda x: shared(x), lambda: setattr(shared, "by", 2.0), "by"


def a_variable_of_the_enclosing_function() -> Case:
    by = 1.0

    def assign() -> None:
        nonlocal by
        by = 2.0

    return lambda: lambda x: x * by, assign, "'by' (closure of"


def a_cached_helper() -> Case:
    @functools.lru_cache
    def scale(n: int) -> float:
        return n * TABLE["lr"]

    def change() -> None:
        TABLE["lr"] += 1
        scale.cache_clear()

    return lambda: lambda x: x * scale(2), change, "TABLE"


def a_static_field_of_a_module() -> Case:
    class Layer(eqx.Module):
        w: jax.Array
        n: int = eqx.field(static=True)

    return made_of(lambda n: (lambda layer: lambda x: x * layer.n * layer.w)(Layer(x, n)), 1, 2, "layer.n")


def a_linen_module() -> Case:
    class Scale(linen.Module):
        n: int

        def __call__(self, x: Any) -> Any:
            return x * self.n

    return made_of(lambda n: functools.partial(Scale(n).apply, {}), 1, 2, "n")


def an_nnx_module() -> Case:
    layer = nnx.Linear(3, 3, rngs=nnx.Rngs(0))
    return that_calls(layer, lambda layer: layer.bias.__setitem__(..., jnp.ones(3)), "helper")


def a_class_that_is_made_in_the_body() -> Case:
    def make() -> Any:
        def f(x: Any) -> Any:
            @dataclasses.dataclass
            class Local:
                by: float = SCALE

            return x * Local().by

        return f

    return make, set_global("SCALE", 11.0), "SCALE"


def an_import_in_the_body() -> Case:
    def make() -> Any:
        def f(x: Any) -> Any:
            from user_config import LR  # type: ignore[import-not-found]

            return x * LR

        return f

    return make, add_to(user_config, "LR"), "LR"


CASES: dict[str, Callable[[], Case]] = {
    **{
        name: functools.partial(made_of, lambda value, use=use: lambda x: use(x, value), old, new, "value")
        for name, (old, new, use) in VALUES.items()
    },
    "a global": lambda: (lambda: lambda x: x * SCALE, set_global("SCALE", 3.0), "SCALE"),
    "a global of a helper": lambda: (lambda: lambda x: helper(x), set_global("SCALE", 4.0), "SCALE"),
    "a helper": lambda: (lambda: lambda x: helper(x), set_global("helper", lambda x: x - 1), "helper"),
    "a global in a comprehension": lambda: (
        lambda: lambda x: sum([x * w for w in WEIGHTS]), lambda: WEIGHTS.append(WEIGHTS[0] + 1), "WEIGHTS"
    ),
    "a global under a condition": lambda: (
        lambda: lambda x: x if mode is Mode.ONE else -x, set_global("mode", Mode.TWO), "mode"
    ),
    "a global array in place": lambda: (
        lambda: lambda x: x * DATA, lambda: DATA.__setitem__(0, DATA[0] + 7), "DATA"
    ),
    "a global dict in place": lambda: (
        lambda: lambda x: x * TABLE["lr"], lambda: TABLE.update(lr=TABLE["lr"] + 1), "TABLE"
    ),
    "a config object": lambda: (lambda: lambda x: x * config.lr, add_to(config, "lr"), "config.lr"),
    "a list in a config object": lambda: (
        lambda: lambda x: x * len(config.layers), lambda: config.layers.append(2), "config.layers"
    ),
    "a config object with slots": lambda: (lambda: lambda x: x * slotted.lr, add_to(slotted, "lr"), "slotted.lr"),
    "parsed arguments": lambda: (lambda: lambda x: x * parsed.lr, add_to(parsed, "lr"), "parsed.lr"),
    "a nested namespace": lambda: (lambda: lambda x: x * space.model.width, add_to(space.model, "width"), "width"),
    "a config object by getattr": lambda: (
        lambda: lambda x: x * getattr(config, "l" + "r"), add_to(config, "lr"), "config.lr"
    ),
    "a module": lambda: (lambda: lambda x: x * user_config.LR, add_to(user_config, "LR"), "user_config.LR"),
    "an import in the body": an_import_in_the_body,
    "a global of another module": lambda: (lambda: lambda x: other(x), add_to(user_config, "SCALE"), "SCALE"),
    "the defaults of a helper": lambda: that_calls(
        lambda x, by=1.0: x * by, lambda helper: setattr(helper, "__defaults__", (2.0,)), "default"
    ),
    "the code of a helper": lambda: that_calls(
        lambda x: x * 1.0, lambda helper: setattr(helper, "__code__", (lambda x: x * 2.0).__code__), "helper"
    ),
    "an attribute of a function": an_attribute_of_a_function,
    "a variable of the enclosing function": a_variable_of_the_enclosing_function,
    "a default": lambda: made_of(lambda value: lambda x, by=value: x * by, 1.0, 2.0, "default"),
    "the arguments of a partial": lambda: made_of(
        lambda value: functools.partial(lambda by, x: x * by, value), 1.0, 2.0, "[0]"
    ),
    "the keywords of a partial": lambda: made_of(
        lambda value: functools.partial(lambda x, by: x * by, by=value), 1.0, 2.0, "by"
    ),
    "a bound method of another object": lambda: made_of(
        (lambda User: lambda value: User(value).scale)(user_class()), 1.0, 2.0, "lr"
    ),
    "a callable object": lambda: made_of(user_class(), 1.0, 2.0, "lr"),
    "a class attribute": lambda: of_class(lambda User: lambda x: User.triple(x), "SCALE", 2.0, "User"),
    "an attribute of a base class": lambda: of_class(
        lambda User: lambda x: User(1.0).scale(x), "SCALE", 2.0, "SCALE", of_base=True
    ),
    "a method that is replaced": lambda: of_class(
        lambda User: (lambda user: lambda x: user.scale(x))(User()), "scale", lambda self, x: x - 1, "user"
    ),
    "a static method that is replaced": lambda: of_class(
        lambda User: lambda x: User.double(x), "double", staticmethod(lambda x: 5 * x), "double"
    ),
    "a class attribute by getattr": lambda: of_class(
        lambda User: lambda x: x * getattr(User, "SC" + "ALE"), "SCALE", 2.0, "SCALE", of_base=True
    ),
    "a class attribute by attrgetter": lambda: of_class(
        lambda User: lambda x: x * scale_of(User), "SCALE", 2.0, "SCALE", of_base=True
    ),
    "a class attribute by a pattern": lambda: of_class(matching, "SCALE", 2.0, "SCALE", of_base=True),
    "a cached helper": a_cached_helper,
    "a decorator": lambda: (lambda: doubled(lambda x: x + 1), set_global("SCALE", 6.0), "SCALE"),
    "a registry": a_registry,
    "a jitted helper": lambda: (
        lambda: (lambda f: lambda x: f(x))(jax.jit(lambda x: x * SCALE)), set_global("SCALE", 7.0), "SCALE"
    ),
    "a function of a transformation": lambda: (
        lambda: jax.vmap(jax.grad(lambda x: x**2 * SCALE)), set_global("SCALE", 8.0), "SCALE"
    ),
    "the body of a scan": lambda: (
        lambda: lambda x: jax.lax.scan(lambda carry, _: (carry * SCALE, None), x, None, length=2)[0],
        set_global("SCALE", 9.0),
        "SCALE",
    ),
    "a schedule": lambda: made_of(
        lambda value: updated(optax.adam(optax.exponential_decay(value, 10, 0.9))), 0.1, 0.2, "0.2"
    ),
    "a function of an optimizer": lambda: (
        lambda: updated(optax.sgd(lambda count: SCALE / (count + 1))), set_global("SCALE", 10.0), "SCALE"
    ),
    "a static field of a module": a_static_field_of_a_module,
    "a linen module": a_linen_module,
    "an nnx module": an_nnx_module,
    "a class that is made in the body": a_class_that_is_made_in_the_body,
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_change_is_seen_and_named(name: str) -> None:
    make, change, culprit = CASES[name]()
    place = ["<lambda> at test_never_stale.py:"] * name.startswith("a global")
    assert_sees_change(make, change, x, "`fn`", "was re-created", culprit, *place)
