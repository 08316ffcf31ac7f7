"""Guards the promise that a re-created function sees each change of what its code can read, as in `jax.jit`, and that the
reason of its trace names the function and what has changed.
"""

import argparse
import collections
import dataclasses
import enum
import functools
import itertools
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
Case = tuple[Callable[[], Any], Change, str]
"""Makes a function; changes what it reads; what the reason says."""
CASES: dict[str, Callable[[], Case]] = {}


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    CASES[make.__name__] = make
    return make


def module_of(source: str, name: str = "user_config") -> types.ModuleType:
    """A module of the user's, which programs can import until the test ends."""
    module = types.ModuleType(name)
    module.__file__ = f"/work/{name}.py"
    sys.modules[name] = module
    exec(compile(source, module.__file__, "exec"), vars(module))
    return module


@pytest.fixture(autouse=True)
def _modules() -> Iterator[None]:
    yield
    for name in ("user_config", "user_helpers"):
        sys.modules.pop(name, None)


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


def assigned(value: Any) -> tuple[types.SimpleNamespace, Callable[[Any], Change]]:
    """A variable, and what assigns it."""
    variable = types.SimpleNamespace(value=value)
    return variable, lambda new: lambda: setattr(variable, "value", new)


def of_values(
    old: Any, new: Any, use: Callable[[Any, Any], Any] = lambda x, value: x * value, culprit: str = "value"
) -> Callable[[], Case]:
    """Each function has the value of the variable in its closure."""

    def make_case() -> Case:
        variable, assign = assigned(old)
        return lambda: (lambda value: lambda x: use(x, value))(variable.value), assign(new), culprit

    return make_case


CASES |= {
    "an int": of_values(1, 2),
    "an int that becomes the equal float": of_values(1, 1.0, lambda x, value: x.astype(int) * value),
    "a bool": of_values(True, False),
    "the sign of zero": of_values(0.0, -0.0, lambda x, value: jnp.float32(1) / (0 * x + value)),
    "a string": of_values("relu", "sin", lambda x, value: getattr(jnp, value, jax.nn.relu)(x)),
    "a tuple": of_values((1, 2), (1, 3), lambda x, value: x * value[1]),
    "a dict": of_values({"a": 1}, {"a": 2}, lambda x, value: x * value["a"]),
    "the order of a dict": of_values({"a": 1, "b": 2}, {"b": 2, "a": 1}, lambda x, v: x - next(iter(v.values()))),
    "a set": of_values({1, 2}, {1, 3}, lambda x, value: x * sum(value)),
    "a default dict": of_values(
        collections.defaultdict(int, a=1), collections.defaultdict(int, a=2), lambda x, value: x + value["a"]
    ),
    "a NumPy scalar": of_values(np.float64(1), np.float64(2)),
    "the type of a NumPy scalar": of_values(np.int8(1), np.float32(1), lambda x, value: x.astype(jnp.int8) * value),
    **{
        f"a NumPy array of {dtype}": of_values(np.ones(3, dtype), np.full(3, 2, dtype))
        for dtype in ("float32", "float64", "int64")
    },
    "an array": of_values(jnp.ones(3), jnp.zeros(3)),
    "an enum member": of_values(Mode.ONE, Mode.TWO, lambda x, value: x * value.scale),
    "a NamedTuple": of_values(Hyper(1.0), Hyper(2.0), lambda x, value: x * value.lr),
    "a frozen dataclass": of_values(Frozen(1.0), Frozen(2.0), lambda x, value: value.scale(x)),
    "a function in a closure": of_values(jnp.sin, jnp.cos, lambda x, value: value(x)),
    "an optimizer": of_values(
        optax.sgd(0.1), optax.sgd(0.2), lambda x, value: value.update(x, value.init(x))[0], "value[1]"
    ),
    "a range": of_values(range(2), range(3), lambda x, value: sum(x * n for n in value)),
}

SCALE = 1.0
TABLE = {"lr": 1.0}
WEIGHTS = [1.0, 2.0]
DATA = np.arange(3)
mode = Mode.ONE
config, slotted = Config(), Slotted()
parsed = argparse.Namespace(lr=1.0)
space = types.SimpleNamespace(model=types.SimpleNamespace(width=1))


def helper(x: Any) -> Any:
    return x * SCALE


def set_global(name: str, value: Any) -> Change:
    return lambda: globals().__setitem__(name, value)


@pytest.fixture(autouse=True)
def _globals() -> Iterator[None]:
    before = dict(globals())
    yield
    globals().update(before)


@case
def a_global() -> Case:
    return lambda: lambda x: x * SCALE, set_global("SCALE", 3.0), "SCALE"


@case
def a_global_of_a_helper() -> Case:
    return lambda: lambda x: helper(x), set_global("SCALE", 4.0), "SCALE"


@case
def a_helper() -> Case:
    return lambda: lambda x: helper(x), set_global("helper", lambda x: x - 1), "helper"


@case
def a_global_in_a_nested_function() -> Case:
    def make() -> Any:
        def f(x: Any) -> Any:
            return (lambda y: y * SCALE)(x)

        return f

    return make, set_global("SCALE", 5.0), "SCALE"


@case
def a_global_in_a_comprehension() -> Case:
    return lambda: lambda x: sum([x * w for w in WEIGHTS]), lambda: WEIGHTS.append(WEIGHTS[0] + 1), "WEIGHTS"


@case
def a_global_under_a_condition() -> Case:
    return lambda: lambda x: x if mode is Mode.ONE else -x, set_global("mode", Mode.TWO), "mode"


@case
def a_global_array_in_place() -> Case:
    return lambda: lambda x: x * DATA, lambda: DATA.__setitem__(0, DATA[0] + 7), "DATA"


@case
def a_global_dict_in_place() -> Case:
    return lambda: lambda x: x * TABLE["lr"], lambda: TABLE.update(lr=TABLE["lr"] + 1), "TABLE"


@case
def a_global_that_is_deleted_and_builtin() -> Case:
    globals()["max"] = lambda *values: 7.0
    return lambda: lambda x: x * max(1, 2), lambda: globals().__delitem__("max"), "max"


@case
def a_config_object() -> Case:
    return lambda: lambda x: x * config.lr, lambda: setattr(config, "lr", config.lr + 1), "config.lr"


@case
def a_list_in_a_config_object() -> Case:
    return lambda: lambda x: x * len(config.layers), lambda: config.layers.append(2), "config.layers"


@case
def a_config_object_with_slots() -> Case:
    return lambda: lambda x: x * slotted.lr, lambda: setattr(slotted, "lr", slotted.lr + 1), "slotted.lr"


@case
def parsed_arguments() -> Case:
    return lambda: lambda x: x * parsed.lr, lambda: setattr(parsed, "lr", parsed.lr + 1), "parsed.lr"


@case
def a_nested_namespace() -> Case:
    model = space.model
    return lambda: lambda x: x * space.model.width, lambda: setattr(model, "width", model.width + 1), "width"


@case
def a_config_object_by_getattr() -> Case:
    return lambda: lambda x: x * getattr(config, "l" + "r"), lambda: setattr(config, "lr", config.lr + 1), "config.lr"


@case
def a_module() -> Case:
    module = module_of("LR = 1.0")
    globals()["user_config"] = module
    return lambda: lambda x: x * user_config.LR, lambda: setattr(module, "LR", 2.0), "user_config.LR"  # type: ignore[name-defined]  # noqa: F821


@case
def an_import_in_the_body() -> Case:
    module = module_of("LR = 1.0")

    def make() -> Any:
        def f(x: Any) -> Any:
            from user_config import LR  # type: ignore[import-not-found]

            return x * LR

        return f

    return make, lambda: setattr(module, "LR", 2.0), "LR"


@case
def a_global_of_another_module() -> Case:
    module = module_of("SCALE = 1.0\ndef helper(x):\n    return x * SCALE")
    globals()["other"] = module.helper
    return lambda: lambda x: other(x), lambda: setattr(module, "SCALE", 2.0), "SCALE"  # type: ignore[name-defined]  # noqa: F821


@case
def a_constant_that_a_module_imports() -> Case:
    module_of("LR = 1.0")
    helpers = module_of("from user_config import LR\ndef helper(x):\n    return x * LR", "user_helpers")
    globals()["other"] = helpers.helper
    return lambda: lambda x: other(x), lambda: setattr(helpers, "LR", 2.0), "LR"  # type: ignore[name-defined]  # noqa: F821


@case
def the_defaults_of_a_helper() -> Case:
    def shared(x: Any, by: float = 1.0) -> Any:
        return x * by

    return lambda: lambda x: shared(x), lambda: setattr(shared, "__defaults__", (2.0,)), "default"


@case
def the_keyword_defaults_of_a_helper() -> Case:
    def shared(x: Any, *, by: float = 1.0) -> Any:
        return x * by

    return lambda: lambda x: shared(x), lambda: setattr(shared, "__kwdefaults__", {"by": 2.0}), "default"


@case
def a_default() -> Case:
    variable, assign = assigned(1.0)
    return lambda: lambda x, by=variable.value: x * by, assign(2.0), "default"


@case
def the_code_of_a_helper() -> Case:
    def shared(x: Any) -> Any:
        return x * 1.0

    return lambda: lambda x: shared(x), lambda: setattr(shared, "__code__", (lambda x: x * 2.0).__code__), "shared"


@case
def an_attribute_of_a_function() -> Case:
    def shared(x: Any) -> Any:
        return x * shared.by  # type: ignore[attr-defined]

    shared.by = 1.0  # type: ignore[attr-defined]
    return lambda: lambda x: shared(x), lambda: setattr(shared, "by", 2.0), "by"


@case
def a_variable_of_the_enclosing_function() -> Case:
    by = 1.0

    def assign() -> None:
        nonlocal by
        by = 2.0

    return lambda: lambda x: x * by, assign, "'by' (closure of"


@case
def the_arguments_of_a_partial() -> Case:
    variable, assign = assigned(1.0)
    return lambda: functools.partial(lambda by, x: x * by, variable.value), assign(2.0), "[0]"


@case
def the_keywords_of_a_partial() -> Case:
    variable, assign = assigned(1.0)
    return lambda: functools.partial(lambda x, by: x * by, by=variable.value), assign(2.0), "by"


def user_class() -> Any:
    class Base:
        SCALE = 1.0

        def offset(self) -> float:
            return 0.0

    class User(Base):
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


@case
def a_bound_method_of_another_object() -> Case:
    User = user_class()
    variable, assign = assigned(1.0)
    return lambda: User(variable.value).scale, assign(2.0), "lr"


@case
def a_callable_object() -> Case:
    User = user_class()
    variable, assign = assigned(1.0)
    return lambda: User(variable.value), assign(2.0), "lr"


@case
def a_class_attribute() -> Case:
    User = user_class()
    return lambda: lambda x: User.triple(x), lambda: setattr(User, "SCALE", 2.0), "User"


@case
def an_attribute_of_a_base_class() -> Case:
    User = user_class()
    return lambda: lambda x: User(1.0).scale(x), lambda: setattr(User.__base__, "SCALE", 2.0), "SCALE"


@case
def a_method_that_is_replaced() -> Case:
    user = user_class()()
    return lambda: lambda x: user.scale(x), lambda: setattr(type(user), "scale", lambda self, x: x - 1), "user"


@case
def a_method_of_a_base_that_is_replaced() -> Case:
    user = user_class()()
    return lambda: lambda x: user(x), lambda: setattr(type(user).__base__, "offset", lambda self: 3.0), "offset"


@case
def a_property_that_is_replaced() -> Case:
    user = user_class()()
    return lambda: lambda x: user.scale(x), lambda: setattr(type(user), "half", property(lambda self: 9.0)), "half"


@case
def a_static_method_that_is_replaced() -> Case:
    User = user_class()
    return lambda: lambda x: User.double(x), lambda: setattr(User, "double", staticmethod(lambda x: 5 * x)), "double"


@case
def the_class_of_an_object() -> Case:
    one, other = user_class(), user_class()
    user = one()
    other.SCALE = 4.0
    return lambda: lambda x: user.scale(x), lambda: setattr(user, "__class__", other), "user"


@case
def a_cached_helper() -> Case:
    @functools.lru_cache
    def scale(n: int) -> float:
        return n * TABLE["lr"]

    def change() -> None:
        TABLE["lr"] += 1
        scale.cache_clear()

    return lambda: lambda x: x * scale(2), change, "TABLE"


@case
def a_decorator() -> Case:
    def doubled(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(x: Any) -> Any:
            return function(x) * SCALE

        return wrapper

    return lambda: doubled(lambda x: x + 1), set_global("SCALE", 6.0), "SCALE"


@case
def a_registry() -> Case:
    registry = {"loss": lambda x: x + 1}
    return (
        lambda: lambda x: registry["loss"](x),
        lambda: registry.__setitem__("loss", lambda x: x + 2),
        "registry['loss']",
    )


@case
def a_jitted_helper() -> Case:
    return lambda: (lambda f: lambda x: f(x))(jax.jit(lambda x: x * SCALE)), set_global("SCALE", 7.0), "SCALE"


@case
def a_function_of_a_transformation() -> Case:
    return lambda: jax.vmap(jax.grad(lambda x: x**2 * SCALE)), set_global("SCALE", 8.0), "SCALE"


@case
def the_body_of_a_scan() -> Case:
    def make() -> Any:
        return lambda x: jax.lax.scan(lambda carry, _: (carry * SCALE, None), x, None, length=2)[0]

    return make, set_global("SCALE", 9.0), "SCALE"


@case
def a_schedule() -> Case:
    variable, assign = assigned(0.1)

    def make() -> Any:
        optimizer = optax.adam(optax.exponential_decay(variable.value, 10, 0.9))
        return lambda x: optimizer.update(x, optimizer.init(x))[0]

    return make, assign(0.2), "0.2"


@case
def a_function_of_an_optimizer() -> Case:
    def make() -> Any:
        optimizer = optax.sgd(lambda count: SCALE / (count + 1))
        return lambda x: optimizer.update(x, optimizer.init(x))[0]

    return make, set_global("SCALE", 10.0), "SCALE"


@case
def a_static_field_of_a_module() -> Case:
    class Layer(eqx.Module):
        w: jax.Array
        n: int = eqx.field(static=True)

    w, (variable, assign) = jnp.ones(3), assigned(1)
    return lambda: (lambda layer: lambda x: x * layer.n * layer.w)(Layer(w, variable.value)), assign(2), "layer.n"


@case
def a_linen_module() -> Case:
    class Scale(linen.Module):
        n: int

        def __call__(self, x: Any) -> Any:
            return x * self.n

    variable, assign = assigned(1)
    return lambda: functools.partial(Scale(variable.value).apply, {}), assign(2), "n"


@case
def an_nnx_module() -> Case:
    layer = nnx.Linear(3, 3, rngs=nnx.Rngs(0))
    return lambda: lambda x: layer(x), lambda: layer.bias.__setitem__(..., jnp.ones(3)), "layer"


@case
def a_class_that_is_made_in_the_body() -> Case:
    def make() -> Any:
        def f(x: Any) -> Any:
            @dataclasses.dataclass
            class Local:
                by: float = SCALE

            return x * Local().by

        return f

    return make, set_global("SCALE", 11.0), "SCALE"


@case
def a_caught_name_error() -> Case:
    def make() -> Any:
        def f(x: Any) -> Any:
            try:
                return x * MISSING  # type: ignore[name-defined]  # noqa: F821
            except NameError:
                return x

        return f

    return make, set_global("MISSING", 2.0), "MISSING"


@case
def functions_of_itertools() -> Case:
    return (
        lambda: lambda x: functools.reduce(lambda a, b: a * b, itertools.chain([x], WEIGHTS)),
        lambda: WEIGHTS.append(3.0),
        "WEIGHTS",
    )


@pytest.mark.parametrize("make_case", CASES.values(), ids=CASES)
def test_a_change_is_seen_and_named(make_case: Callable[[], Case]) -> None:
    make, change, culprit = make_case()
    assert_sees_change(make, change, x, culprit)


@pytest.mark.parametrize(
    "make_case", [a_global, a_config_object, a_function_of_a_transformation, the_arguments_of_a_partial, a_helper]
)
def test_the_reason_names_place_function_and_culprit(make_case: Callable[[], Case]) -> None:
    make, change, culprit = make_case()
    assert_sees_change(make, change, x, "`fn`", "<lambda> at test_never_stale.py:", "was re-created", culprit)
