"""A re-created function is the same if all that its code can read is: where `jax.jit` and Equinox
trace for each function, partax traces once; and a cell of a notebook which is run again
is traced again only if something that it reads has changed, although it defines its functions again."""

import dataclasses
import functools
import logging
import os
from collections.abc import Callable
from typing import Any

import einops
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx

import partax
from counting import TraceCounter
from functions_counted import Applied, Pattern, Patterns, Tick, assert_counts, logger
from trees import assert_same

# The tests make one function for many others to be tried in.
pytestmark = pytest.mark.filterwarnings("ignore::partax.RetraceWarning")
x = jnp.arange(3.0)
data = np.arange(3)  # int64, the default of NumPy
SCALE = 2.0


def helper(x: Any) -> Any:
    return x * SCALE


@dataclasses.dataclass
class Config:
    lr: float = 0.1
    sizes: list[int] = dataclasses.field(default_factory=lambda: [1, 2])


class Activation:
    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __call__(self, x: Any) -> Any:
        return jnp.tanh(self.scale * x)


class Scaled(Activation):
    def __call__(self, x: Any) -> Any:
        return super().__call__(x) * self.double()

    def double(self) -> float:
        return 2 * self.scale


class Sampler:
    """A plain class of the user's, with a logger."""

    def __init__(self, lr: float) -> None:
        self.lr = lr
        self.log = logging.getLogger("sampler")

    def step(self, x: Any) -> Any:
        self.log.info("step")
        return x * self.lr

    def save(self, path: str) -> None:
        """No code names it, so it may do what cannot be proven."""
        open(os.environ["HOME"] + path, "w").close()

    double = functools.partialmethod(lambda self, x, by: x * by * self.lr, by=2)

    @property
    def half(self) -> float:
        return self.lr / 2


class Layer(eqx.Module):
    w: jax.Array
    act: Callable[..., Any] = eqx.field(static=True)

    def __call__(self, x: Any) -> Any:
        return self.act(self.w * x)


class Dense(linen.Module):
    n: int

    @linen.compact
    def __call__(self, x: Any) -> Any:
        return linen.relu(linen.Dense(self.n)(x))


config = Config()
model = Layer(x, jnp.tanh)
graph = nnx.Linear(3, 3, rngs=nnx.Rngs(0))
variables = Dense(3).init(jax.random.key(0), x)


def matched(x: Any) -> Any:
    match x.shape, {"a": 2.0}:
        case (3,), {"a": by}:
            return x * by
    return x


def logged(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        logger.info("calls %s", function.__name__)
        return function(*args)

    return wrapper


def importing() -> Any:
    def f(x: Any) -> Any:
        import jax.numpy as inside
        from jax import lax

        return lax.abs(inside.sin(x))

    return f


def recursive() -> Any:
    def power(x: Any, n: int = 3) -> Any:
        return x if n == 0 else power(x * SCALE, n - 1)

    return power


def nested() -> Any:
    def f(x: Any) -> Any:
        def g(y: Any) -> Any:
            return sum(y * n for n in range(3)) + sum([n * SCALE for n in (1, 2)])

        return g(x) if (n := len(x.shape)) else n

    return f


def custom() -> Any:
    @jax.custom_jvp
    def f(x: Any) -> Any:
        return x * SCALE

    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0]))
    return f


def scanned() -> Any:
    @jax.checkpoint
    def body(carry: Any, _: Any) -> Any:
        return carry * SCALE, None

    return lambda x: jax.lax.scan(body, x, None, length=2)[0]


def updated(make: Callable[[], Any]) -> Any:
    """An optimizer, made for this function."""
    optimizer = make()

    def f(x: Any) -> Any:
        state = optimizer.init(x)
        return optimizer.update(x, state, x)[0]

    return f


def chain() -> Any:
    schedule = optax.warmup_cosine_decay_schedule(0.0, 0.1, 2, 10)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=1e-4))


# Each makes a function that is the same in each call; the step that it is passed to is traced once.
MAKERS: dict[str, Callable[[], Any]] = {
    "a lambda": lambda: lambda x: x + 1,
    "a lambda over a global": lambda: lambda x: x * SCALE,
    "a lambda over data": lambda: lambda x: x * data,
    "a lambda over a model": lambda: lambda x: model(x),
    "a lambda over an nnx model": lambda: lambda x: graph(x),
    "a lambda over a dataclass": lambda: lambda x: x * config.lr + len(config.sizes),
    "a lambda that calls a helper": lambda: lambda x: helper(x),
    "a lambda that logs and prints": lambda: lambda x: (logger.info("x"), print("x", flush=True), x)[2],
    "a lambda with a default": lambda: lambda x, by=2: x * by,
    "a lambda over a local config": lambda: (lambda config: lambda x: x * config.lr)(Config(0.5)),
    "nested functions": nested,
    "a recursive function": recursive,
    "a function that imports": importing,
    "a function that matches": lambda: lambda x: matched(x),
    "a decorated function": lambda: logged(lambda x: x * SCALE),
    "einops": lambda: lambda x: einops.rearrange(einops.repeat(x, "a -> a k", k=2), "a k -> (a k)"),
    "a partial": lambda: functools.partial(jnp.add, 2),
    "a composition": lambda: functools.reduce(lambda f, g: lambda x: g(f(x)), [jnp.sin, helper, jnp.cos]),
    "a callable object": lambda: Activation(2.0),
    "a callable object of a subclass": lambda: Scaled(2.0),
    "a bound method": lambda: Sampler(0.5).step,
    "a partialmethod": lambda: Sampler(0.5).double,
    "a lambda over a property": lambda: (lambda sampler: lambda x: x * sampler.half)(Sampler(0.5)),
    "linen's apply": lambda: functools.partial(Dense(3).apply, variables),
    "jax.jit": lambda: jax.jit(lambda x: x * SCALE),
    "jax.jit with options": lambda: jax.jit(lambda x, n=2: x * n, static_argnames="n"),
    "jax.vmap of jax.grad": lambda: jax.vmap(jax.grad(lambda x: x**2 * SCALE)),
    "jax.checkpoint": lambda: jax.checkpoint(lambda x: jnp.sin(x) * SCALE),
    "a scan": scanned,
    "jax.tree.map": lambda: lambda x: jax.tree.map(lambda leaf: leaf * SCALE, {"a": x}),
    "jax.custom_jvp": lambda: (lambda f: lambda x: f(x))(custom()),
    "filter_jit": lambda: partax.filter_jit(lambda x: x * SCALE),
    "Equinox's filter_grad": lambda: eqx.filter_grad(lambda x: jnp.sum(x**2) * SCALE),
    "a chain of transformations": lambda: updated(chain),
    "an optimizer with a lambda": lambda: updated(lambda: optax.sgd(lambda count: 1 / (count + 10))),
    "injected hyper-parameters": lambda: updated(lambda: optax.inject_hyperparams(optax.adam)(learning_rate=0.1)),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_function_that_is_passed_in_is_traced_once(make: Callable[[], Any]) -> None:
    step, expected = Applied(), jax.jit(lambda x: make()(x))(x)
    for _ in range(3):
        assert_same(step(make(), x), expected)
    assert step.traces.count == 1, step.reason


@pytest.mark.parametrize("make", [*MAKERS.values()][::4], ids=[*MAKERS][::4])
def test_a_function_that_is_compiled_where_it_is_called_is_traced_once(make: Callable[[], Any]) -> None:
    def compiled() -> Any:
        fn = make()
        return partax.filter_jit(lambda x: fn(x))

    results = [compiled()(x) for _ in range(3)]
    assert compiled().cache_info().traces == 1
    assert_same(results[2], results[0])


patterns = Patterns()


@patterns.add(theirs=2)
def loss_is_a_lambda_over_the_data(jit: Any, tick: Tick) -> Any:
    target = jnp.arange(3.0)

    @jit
    def fit(loss: Any, w: Any) -> Any:
        tick()
        return w - 0.1 * jax.grad(loss)(w)

    w = x
    for _ in range(2):
        w = fit(lambda w: jnp.sum((w - target) ** 2), w)
    return w


@patterns.add(theirs=2)
def step_counts_in_the_enclosing_function(jit: Any, tick: Tick) -> Any:
    def run() -> Any:
        count = 0
        shapes: list[Any] = []

        @jit
        def step(x: Any) -> Any:
            nonlocal count
            tick()
            count += 1
            shapes.append(x.shape)
            return x * SCALE

        return step(x)

    return [run() for _ in range(2)]


@patterns.each()
def test_a_program_makes_one_trace(pattern: Pattern) -> None:
    assert_counts(pattern)


# ---- Notebooks.


Run = Callable[[str], Any]


class Notebook:
    """Runs cells in one namespace, as IPython does; `JIT` in a cell is what compiles."""

    def __init__(self, jit: Any) -> None:
        self.traces = TraceCounter()
        self.space: dict[str, Any] = {"__name__": "__main__", "JIT": jit, "tick": self.traces.tick, "x": x}
        self.space |= {"jax": jax, "jnp": jnp, "partax": partax}
        self._number = 0

    def run(self, cell: str) -> None:
        self._number += 1
        file = f"/tmp/ipykernel_7/{hash(cell) & 0xFFFFFFFF}.py"  # IPython's names follow from the source
        exec(compile(cell, file, "exec"), self.space)


SETUP = "import dataclasses\nLR = 0.5\n"
HELPER = "def loss(w, x):\n    return jnp.sum((w * x) ** 2) * LR\n"
STEP = "@JIT\ndef step(w, x):\n    tick()\n    return w - jax.grad(loss)(w, x)\n"
CLASS = (
    "class Model:\n    scale = 1.0\n    def __call__(self, w, x):\n        return w * x * self.scale\nmodel = Model()\n"
)
OF_CLASS = "@JIT\ndef step(w, x):\n    tick()\n    return model(w, x)\n"
USE = "result = step(jnp.ones(3), x)\n"


@pytest.mark.parametrize(
    ("cells", "again", "ours", "theirs"),
    [
        pytest.param([SETUP, HELPER, STEP, USE], [HELPER, STEP, USE], 1, 2, id="the helper and the step"),
        pytest.param([SETUP, HELPER, STEP, USE], [SETUP, HELPER, STEP, USE], 1, 2, id="all cells"),
        pytest.param(
            [SETUP, HELPER, STEP, USE],
            ["LR = 2.0\n", STEP, USE, "LR = 0.5\n", STEP, USE],
            2,
            3,
            id="a constant",
        ),
        pytest.param(
            [SETUP, HELPER, STEP, USE], [HELPER.replace("** 2", "** 4"), STEP, USE], 2, 2, id="another helper"
        ),
        pytest.param([SETUP, HELPER, STEP, USE], [HELPER, STEP.replace("w - ", "w + "), USE], 2, 2, id="another step"),
        pytest.param([SETUP, CLASS, OF_CLASS, USE], [CLASS, OF_CLASS, USE], 2, 2, id="the class"),
        pytest.param(
            [SETUP, CLASS, OF_CLASS, USE], [CLASS.replace("1.0", "2.0"), OF_CLASS, USE], 2, 2, id="another class"
        ),
    ],
)
def test_cells_that_are_run_again(cells: list[str], again: list[str], ours: int, theirs: int) -> None:
    mine, jitted = Notebook(partax.filter_jit), Notebook(jax.jit)
    for cell in (*cells, *again):
        for notebook in (mine, jitted):
            notebook.run(cell)
    np.testing.assert_array_equal(mine.space["result"], jitted.space["result"])
    assert (mine.traces.count, jitted.traces.count) == (ours, theirs)
