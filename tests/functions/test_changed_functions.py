"""A re-created function sees each change of the functions, classes and modules that its code can
read, as in `jax.jit`, and that the reason of its trace names what has changed.
"""

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest
from flax import linen, nnx

from functions_counted import Case, Cases, Change, assert_sees_change, assigned

pytestmark = pytest.mark.filterwarnings("ignore::partax.RetraceWarning")
x = jnp.arange(1.0, 4.0)
cases = Cases()


SCALE = 1.0
TABLE = {"lr": 1.0}


def set_global(name: str, value: Any) -> Change:
    return lambda: globals().__setitem__(name, value)


@pytest.fixture(autouse=True)
def _globals() -> Iterator[None]:
    before = dict(globals())
    yield
    globals().update(before)


@cases.add
def the_defaults_of_a_helper() -> Case:
    def shared(x: Any, by: float = 1.0) -> Any:
        return x * by

    return lambda: lambda x: shared(x), lambda: setattr(shared, "__defaults__", (2.0,)), "default"


@cases.add
def a_default() -> Case:
    variable, assign = assigned(1.0)
    return lambda: lambda x, by=variable.value: x * by, assign(2.0), "default"


@cases.add
def the_code_of_a_helper() -> Case:
    def shared(x: Any) -> Any:
        return x * 1.0

    return lambda: lambda x: shared(x), lambda: setattr(shared, "__code__", (lambda x: x * 2.0).__code__), "shared"


@cases.add
def an_attribute_of_a_function() -> Case:
    def shared(x: Any) -> Any:
        return x * shared.by  # type: ignore[attr-defined]

    shared.by = 1.0  # type: ignore[attr-defined]
    return lambda: lambda x: shared(x), lambda: setattr(shared, "by", 2.0), "by"


@cases.add
def a_variable_of_the_enclosing_function() -> Case:
    by = 1.0

    def assign() -> None:
        nonlocal by
        by = 2.0

    return lambda: lambda x: x * by, assign, "'by' (closure of"


@cases.add
def the_arguments_of_a_partial() -> Case:
    variable, assign = assigned(1.0)
    return lambda: functools.partial(lambda by, x: x * by, variable.value), assign(2.0), "[0]"


@cases.add
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


@cases.add
def a_bound_method_of_another_object() -> Case:
    User = user_class()
    variable, assign = assigned(1.0)
    return lambda: User(variable.value).scale, assign(2.0), "lr"


@cases.add
def a_callable_object() -> Case:
    User = user_class()
    variable, assign = assigned(1.0)
    return lambda: User(variable.value), assign(2.0), "lr"


@cases.add
def a_class_attribute() -> Case:
    User = user_class()
    return lambda: lambda x: User.triple(x), lambda: setattr(User, "SCALE", 2.0), "User"


@cases.add
def an_attribute_of_a_base_class() -> Case:
    User = user_class()
    return lambda: lambda x: User(1.0).scale(x), lambda: setattr(User.__base__, "SCALE", 2.0), "SCALE"


@cases.add
def a_method_that_is_replaced() -> Case:
    user = user_class()()
    return lambda: lambda x: user.scale(x), lambda: setattr(type(user), "scale", lambda self, x: x - 1), "user"


@cases.add
def a_static_method_that_is_replaced() -> Case:
    User = user_class()
    return lambda: lambda x: User.double(x), lambda: setattr(User, "double", staticmethod(lambda x: 5 * x)), "double"


@cases.add
def a_class_attribute_by_getattr() -> Case:
    User, name = user_class(), "SC" + "ALE"
    return lambda: lambda x: x * getattr(User, name), lambda: setattr(User.__base__, "SCALE", 2.0), "SCALE"


@cases.add
def a_class_attribute_by_attrgetter() -> Case:
    User, get = user_class(), operator.attrgetter("SCALE")
    return lambda: lambda x: x * get(User), lambda: setattr(User.__base__, "SCALE", 2.0), "SCALE"


@cases.add
def a_class_attribute_by_a_pattern() -> Case:
    User = user_class()
    User.__match_args__ = ("SCALE",)
    user = User()

    def make() -> Any:
        def f(x: Any) -> Any:
            match user:
                case User(scale):
                    return x * scale

        return f

    return make, lambda: setattr(User.__base__, "SCALE", 2.0), "SCALE"


@cases.add
def a_cached_helper() -> Case:
    @functools.lru_cache
    def scale(n: int) -> float:
        return n * TABLE["lr"]

    def change() -> None:
        TABLE["lr"] += 1
        scale.cache_clear()

    return lambda: lambda x: x * scale(2), change, "TABLE"


@cases.add
def a_decorator() -> Case:
    def doubled(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(x: Any) -> Any:
            return function(x) * SCALE

        return wrapper

    return lambda: doubled(lambda x: x + 1), set_global("SCALE", 6.0), "SCALE"


@cases.add
def a_registry() -> Case:
    registry = {"loss": lambda x: x + 1}
    return (
        lambda: lambda x: registry["loss"](x),
        lambda: registry.__setitem__("loss", lambda x: x + 2),
        "registry['loss']",
    )


@cases.add
def a_jitted_helper() -> Case:
    return lambda: (lambda f: lambda x: f(x))(jax.jit(lambda x: x * SCALE)), set_global("SCALE", 7.0), "SCALE"


@cases.add
def a_function_of_a_transformation() -> Case:
    return lambda: jax.vmap(jax.grad(lambda x: x**2 * SCALE)), set_global("SCALE", 8.0), "SCALE"


@cases.add
def the_body_of_a_scan() -> Case:
    def make() -> Any:
        return lambda x: jax.lax.scan(lambda carry, _: (carry * SCALE, None), x, None, length=2)[0]

    return make, set_global("SCALE", 9.0), "SCALE"


@cases.add
def a_schedule() -> Case:
    variable, assign = assigned(0.1)

    def make() -> Any:
        optimizer = optax.adam(optax.exponential_decay(variable.value, 10, 0.9))
        return lambda x: optimizer.update(x, optimizer.init(x))[0]

    return make, assign(0.2), "0.2"


@cases.add
def a_function_of_an_optimizer() -> Case:
    def make() -> Any:
        optimizer = optax.sgd(lambda count: SCALE / (count + 1))
        return lambda x: optimizer.update(x, optimizer.init(x))[0]

    return make, set_global("SCALE", 10.0), "SCALE"


@cases.add
def a_static_field_of_a_module() -> Case:
    class Layer(eqx.Module):
        w: jax.Array
        n: int = eqx.field(static=True)

    w, (variable, assign) = jnp.ones(3), assigned(1)
    return lambda: (lambda layer: lambda x: x * layer.n * layer.w)(Layer(w, variable.value)), assign(2), "layer.n"


@cases.add
def a_linen_module() -> Case:
    class Scale(linen.Module):
        n: int

        def __call__(self, x: Any) -> Any:
            return x * self.n

    variable, assign = assigned(1)
    return lambda: functools.partial(Scale(variable.value).apply, {}), assign(2), "n"


@cases.add
def an_nnx_module() -> Case:
    layer = nnx.Linear(3, 3, rngs=nnx.Rngs(0))
    return lambda: lambda x: layer(x), lambda: layer.bias.__setitem__(..., jnp.ones(3)), "layer"


@cases.add
def a_class_that_is_made_in_the_body() -> Case:
    def make() -> Any:
        def f(x: Any) -> Any:
            @dataclasses.dataclass
            class Local:
                by: float = SCALE

            return x * Local().by

        return f

    return make, set_global("SCALE", 11.0), "SCALE"


@cases.each()
def test_a_change_is_seen_and_named(make_case: Callable[[], Case]) -> None:
    make, change, culprit = make_case()
    assert_sees_change(make, change, x, culprit)
