"""A re-created function sees each change of what its code can read, as in `jax.jit`, and that the
reason of its trace names the function and what has changed.
"""

import argparse
import collections
import dataclasses
import enum
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from functions_counted import Case, Cases, Change, assert_sees_change, assigned

pytestmark = pytest.mark.filterwarnings("ignore::partax.RetraceWarning")
x = jnp.arange(1.0, 4.0)
cases = Cases()


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


def of_values(
    old: Any, new: Any, use: Callable[[Any, Any], Any] = lambda x, value: x * value, culprit: str = "value"
) -> Callable[[], Case]:
    """Each function has the value of the variable in its closure."""

    def make_case() -> Case:
        variable, assign = assigned(old)
        return lambda: (lambda value: lambda x: use(x, value))(variable.value), assign(new), culprit

    return make_case


cases |= {
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


@cases.add
def a_global() -> Case:
    return lambda: lambda x: x * SCALE, set_global("SCALE", 3.0), "SCALE"


@cases.add
def a_global_of_a_helper() -> Case:
    return lambda: lambda x: helper(x), set_global("SCALE", 4.0), "SCALE"


@cases.add
def a_helper() -> Case:
    return lambda: lambda x: helper(x), set_global("helper", lambda x: x - 1), "helper"


@cases.add
def a_global_in_a_comprehension() -> Case:
    return lambda: lambda x: sum([x * w for w in WEIGHTS]), lambda: WEIGHTS.append(WEIGHTS[0] + 1), "WEIGHTS"


@cases.add
def a_global_under_a_condition() -> Case:
    return lambda: lambda x: x if mode is Mode.ONE else -x, set_global("mode", Mode.TWO), "mode"


@cases.add
def a_global_array_in_place() -> Case:
    return lambda: lambda x: x * DATA, lambda: DATA.__setitem__(0, DATA[0] + 7), "DATA"


@cases.add
def a_global_dict_in_place() -> Case:
    return lambda: lambda x: x * TABLE["lr"], lambda: TABLE.update(lr=TABLE["lr"] + 1), "TABLE"


@cases.add
def a_config_object() -> Case:
    return lambda: lambda x: x * config.lr, lambda: setattr(config, "lr", config.lr + 1), "config.lr"


@cases.add
def a_list_in_a_config_object() -> Case:
    return lambda: lambda x: x * len(config.layers), lambda: config.layers.append(2), "config.layers"


@cases.add
def a_config_object_with_slots() -> Case:
    return lambda: lambda x: x * slotted.lr, lambda: setattr(slotted, "lr", slotted.lr + 1), "slotted.lr"


@cases.add
def parsed_arguments() -> Case:
    return lambda: lambda x: x * parsed.lr, lambda: setattr(parsed, "lr", parsed.lr + 1), "parsed.lr"


@cases.add
def a_nested_namespace() -> Case:
    model = space.model
    return lambda: lambda x: x * space.model.width, lambda: setattr(model, "width", model.width + 1), "width"


@cases.add
def a_config_object_by_getattr() -> Case:
    return lambda: lambda x: x * getattr(config, "l" + "r"), lambda: setattr(config, "lr", config.lr + 1), "config.lr"


@cases.add
def a_module() -> Case:
    module = module_of("LR = 1.0")
    globals()["user_config"] = module
    return lambda: lambda x: x * user_config.LR, lambda: setattr(module, "LR", 2.0), "user_config.LR"  # type: ignore[name-defined]  # noqa: F821


@cases.add
def an_import_in_the_body() -> Case:
    module = module_of("LR = 1.0")

    def make() -> Any:
        def f(x: Any) -> Any:
            from user_config import LR  # type: ignore[import-not-found]

            return x * LR

        return f

    return make, lambda: setattr(module, "LR", 2.0), "LR"


@cases.add
def a_global_of_another_module() -> Case:
    module = module_of("SCALE = 1.0\ndef helper(x):\n    return x * SCALE")
    globals()["other"] = module.helper
    return lambda: lambda x: other(x), lambda: setattr(module, "SCALE", 2.0), "SCALE"  # type: ignore[name-defined]  # noqa: F821


@cases.each()
def test_a_change_is_seen_and_named(make_case: Callable[[], Case]) -> None:
    make, change, culprit = make_case()
    assert_sees_change(make, change, x, culprit)


@pytest.mark.parametrize("make_case", [a_global, a_config_object, a_helper, a_config_object_by_getattr])
def test_the_reason_names_place_function_and_culprit(make_case: Callable[[], Case]) -> None:
    make, change, culprit = make_case()
    assert_sees_change(make, change, x, "`fn`", "<lambda> at test_never_stale.py:", "was re-created", culprit)
