"""Guards the promise that the doctor is silent on healthy programs, such as users of Equinox, Flax and jax write, and
explains programs of public threads: what, where, how much, what to do."""

import inspect
import linecache
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from examining import Call, floats, ints
from flax import nnx
from jax import lax
from jax.experimental import sparse

import partax
from partax import filter_jit

MEMORY = 80 << 30  # of the machine that the programs are for, whichever runs the tests
entropy = lambda model, x, labels: optax.softmax_cross_entropy_with_integer_labels(jax.vmap(model)(x), labels).mean()
CORPUS: list[Callable[[], Call]] = []  # each gives a function that has nothing to mend, and its arguments


def built(make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What `make` builds with a key, as types: nothing is computed."""
    return eqx.filter_eval_shape(make, *args, **kwargs, key=jax.random.key(0))


def training(model: Any, optimiser: Any, loss: Callable[..., Any], *data: Any, jit: Any = filter_jit) -> Call:
    """A step as optax's and Equinox's users write it."""

    def step(model: Any, state: Any, *data: Any) -> Any:
        value, slope = eqx.filter_value_and_grad(loss)(model, *data)
        updates, state = optimiser.update(slope, state, eqx.filter(model, eqx.is_inexact_array))
        return eqx.apply_updates(model, updates), state, value

    state = eqx.filter_eval_shape(lambda it: optimiser.init(eqx.filter(it, eqx.is_inexact_array)), model)
    return jit(step), (model, state, *data)


class Block(eqx.Module):
    norms: tuple[Any, Any]
    attention: Any
    mlp: Any

    def __init__(self, key: Any, size: int = 32) -> None:
        a, b = jax.random.split(key)
        self.norms = eqx.nn.LayerNorm(size), eqx.nn.LayerNorm(size)
        self.attention = eqx.nn.MultiheadAttention(4, size, use_query_bias=True, use_output_bias=True, key=a)
        self.mlp = eqx.nn.MLP(size, size, 4 * size, 1, jax.nn.gelu, key=b)

    def __call__(self, x: Any) -> Any:
        y = jax.vmap(self.norms[0])(x)
        x = x + self.attention(y, y, y)
        return x + jax.vmap(self.mlp)(jax.vmap(self.norms[1])(x))


class Vision(eqx.Module):
    patches: Any
    place: Any
    blocks: list[Any]
    head: Any

    def __init__(self, depth: int, key: Any) -> None:
        keys = jax.random.split(key, depth)
        self.patches = eqx.nn.Conv2d(3, 32, 4, stride=4, key=key)
        self.place = jax.random.normal(key, (64, 32))
        self.blocks = [Block(k) for k in keys]
        self.head = eqx.nn.Linear(32, 10, key=key)

    def __call__(self, image: Any) -> Any:
        x = self.patches(image).reshape(32, -1).T + self.place
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(0))


@CORPUS.append
def vision_transformer() -> Call:
    """Four blocks, so an update of some 60 arrays."""
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    return training(built(Vision, 4), optimiser, entropy, floats(4, 3, 32, 32), ints(4))


@CORPUS.append
def deep_transformer_scanned() -> Call:
    """Twelve blocks of the size of a small language model, stacked; the state is donated."""

    def loss(blocks: Any, x: Any) -> Any:
        return jnp.mean(partax.fold(blocks, x, call=lambda block, x: jax.vmap(block)(x), remat=True) ** 2)

    blocks = built(lambda key: eqx.filter_vmap(lambda key: Block(key, 768))(jax.random.split(key, 12)))
    return training(blocks, optax.adamw(1e-4), loss, floats(4, 256, 768), jit=filter_jit(donate="all"))


@CORPUS.append
def decoding_with_a_cache() -> Call:
    """The cache is donated and comes back; the weights stay."""

    def decode(weights: Any, cache: Any, at: Any, x: Any) -> Any:
        cache = {name: lax.dynamic_update_index_in_dim(cache[name], x @ weights[name], at, 1) for name in cache}
        scores = jnp.einsum("bd,btd->bt", x @ weights["query"], cache["key"]) / 32
        seen = jnp.where(jnp.arange(2048) <= at, scores, -jnp.inf)
        return cache, jnp.einsum("bt,btd->bd", jax.nn.softmax(seen), cache["value"]) @ weights["out"], at + 1

    weights = {name: floats(1024, 1024) for name in ("query", "key", "value", "out")}
    cache = {name: floats(16, 2048, 1024) for name in ("key", "value")}
    return jax.jit(decode, donate_argnums=1), (weights, cache, ints(), floats(16, 1024))


@CORPUS.append
def differential_equation() -> Call:
    """The stages of the solver are the library's to repeat."""
    diffrax = pytest.importorskip("diffrax")

    def solve(start: Any, rates: Any) -> Any:
        def field(t: Any, y: Any, args: Any) -> Any:
            return jnp.stack([args[0] * y[0] - y[0] * y[1], y[0] * y[1] - args[1] * y[1]])

        save, control = diffrax.SaveAt(ts=jnp.linspace(0, 10, 50)), diffrax.PIDController(1e-4, 1e-4)
        term, options = diffrax.ODETerm(field), {"saveat": save, "stepsize_controller": control}
        return diffrax.diffeqsolve(term, diffrax.Tsit5(), 0, 10, 0.1, start, args=rates, **options).ys

    return eqx.filter_jit(solve), (floats(2), floats(2))


class Dropped(nnx.Module):
    def __init__(self, rngs: nnx.Rngs, rate: float = 0.1) -> None:
        self.first = nnx.Linear(8, 32, rngs=rngs)
        self.dropout = nnx.Dropout(rate, rngs=rngs)
        self.second = nnx.Linear(32, 4, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.second(self.dropout(nnx.gelu(self.first(x))))


def changed_in_place(jit: Any, optimiser: Any) -> Call:
    def step(model: Any, optimiser: Any, x: Any, y: Any) -> Any:
        value, slope = nnx.value_and_grad(lambda model: jnp.mean((model(x) - y) ** 2))(model)
        optimiser.update(model, slope)
        return value

    def make() -> Any:
        model = Dropped(nnx.Rngs(0))
        return model, nnx.Optimizer(model, optimiser, wrt=nnx.Param)

    return jit(step), (*nnx.eval_shape(make), floats(16, 8), floats(16, 4))


@CORPUS.append
def nnx_dropout() -> Call:
    return changed_in_place(partax.nnx.jit, optax.sgd(0.1, 0.9))


@pytest.mark.parametrize("make", CORPUS)
def test_nothing_is_found_in_a_healthy_program(make: Callable[[], Call]) -> None:
    function, args = make()
    diagnosis = partax.doctor(function, *args, memory_limit=MEMORY)
    assert diagnosis.findings == (), str(diagnosis)
    assert int(diagnosis.figures["equations"]) > 0


def autoregressive_sampling() -> Call:
    """https://github.com/jax-ml/jax/issues/1223.

    One iteration for each of 8 x 8 pixels and 3 channels, with an update of a single element.
    """

    def sample(weights: Any, noise: Any) -> Any:
        image = jnp.zeros(4 + 8 * 8 * 3)
        for i in range(8 * 8 * 3):  # here
            seen = jnp.tanh(image[i : i + 4] @ weights)
            image = image.at[i + 4].set(seen + noise[i])
        return image

    return jax.jit(sample), (floats(4), floats(192))


def captured_indices_of_a_sparse_matrix() -> Call:
    """https://github.com/jax-ml/jax/issues/14655."""
    n = 200_000

    def build() -> Any:
        nonzeroes = jnp.asarray(np.stack([np.arange(n, dtype=np.int32)] * 2, 1))

        def product(other: Any) -> Any:
            matrix = sparse.BCOO((jnp.ones(n), nonzeroes), shape=(n, n), indices_sorted=True, unique_indices=True)
            return matrix @ other  # here

        return product

    operator = build()
    return jax.jit(lambda x: operator(jnp.ones(n) / x).sum()), (floats(),)


def gradient_of_a_scan() -> Call:
    """https://github.com/jax-ml/jax/issues/3186: the gradient keeps every `y + z`."""

    def averaged(x: Any, ys: Any) -> Any:
        z = jnp.ones((3000, 3000))
        summed, _ = lax.scan(lambda carry, y: (carry + x * (y + z), None), jnp.zeros_like(z), ys)  # here
        return summed.mean()

    return jax.jit(jax.grad(averaged)), (floats(), floats(100))


def training_without_donation() -> Call:
    """https://github.com/goodfire-ai/spd/pull/971: a model and its Adam state, which each step binds again."""
    optimiser = optax.adam(1e-3)

    def step(model: Any, state: Any, tokens: Any) -> Any:
        loss, slope = eqx.filter_value_and_grad(lambda it: jnp.mean(jax.vmap(it)(tokens) ** 2))(model)
        updates, state = optimiser.update(slope, state)
        return eqx.apply_updates(model, updates), state, loss

    model = eqx.filter_eval_shape(eqx.nn.Linear, 4096, 4096, key=jax.random.key(0))
    return eqx.filter_jit(step), (model, eqx.filter_eval_shape(optimiser.init, model), floats(8, 4096))


# What the finding must say, computed without the doctor: its kind, figures and path; and other kinds that may be found.
PROGRAMS: list[tuple[Callable[[], Call], str, dict[str, Any], str, set[str]]] = [
    (autoregressive_sampling, "repeat", {"repetitions": 192}, "", set()),
    (captured_indices_of_a_sparse_matrix, "constant", {"bytes": 200_000 * 2 * 4}, "nonzeroes", set()),
    (gradient_of_a_scan, "checkpoint", {"bytes": 100 * 3000 * 3000 * 4}, "", {"memory"}),
    (training_without_donation, "donation", {"bytes": 3 * 4 * (4096 * 4096 + 4096) + 4}, "", set()),
]


@pytest.mark.parametrize(("make", "kind", "figures", "path", "others"), PROGRAMS)
def test_a_thread_s_program_is_explained(
    make: Callable[[], Call], kind: str, figures: dict[str, Any], path: str, others: set[str]
) -> None:
    function, args = make()
    diagnosis = partax.doctor(function, *args, memory_limit=MEMORY)
    (finding,) = (it for it in diagnosis.findings if it.kind == kind)
    assert finding.message and finding.advice
    assert path in finding.path
    source, first = inspect.getsourcelines(make)
    marked = {first + at for at, text in enumerate(source) if text.rstrip().endswith("# here")}
    if marked:
        assert finding.file == __file__ and finding.line in marked, str(diagnosis)
        assert finding.source == linecache.getline(__file__, finding.line).strip()
    assert finding.figures.items() >= figures.items(), str(diagnosis)
    assert {it.kind for it in diagnosis.findings} <= {kind, *others}, str(diagnosis)
