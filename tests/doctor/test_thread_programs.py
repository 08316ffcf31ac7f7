"""Guards the promise that the doctor explains programs of public threads: what, where, how much, what to do."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import linecache
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from examining import Call, floats
from jax import lax
from jax.experimental import sparse

from partax._doctor.diagnosis import Diagnosis
from partax._doctor.doctor import doctor

MARKER = "# here"
GIB = 1024**3


@dataclasses.dataclass(frozen=True)
class ThreadProgram:
    """A program from a public thread, in small."""

    name: str
    url: str
    kind: str  # of the finding that explains the thread
    make: Callable[[], Call]
    figures: Mapping[str, float | str]  # what the finding must say, computed without the doctor
    path: str = ""  # the argument or the constant that it is about
    also: tuple[str, ...] = ()  # kinds that are right beside it
    memory_limit: int = 64 * GIB  # more than the programs need

    @property
    def lines(self) -> set[int]:
        """The marked lines, of which the finding must name one; none where it names no line."""
        source, first = inspect.getsourcelines(self.make)
        return {first + at for at, text in enumerate(source) if text.rstrip().endswith(MARKER)}

    @property
    def file(self) -> str:
        return inspect.getsourcefile(self.make) or ""


PROGRAMS: list[ThreadProgram] = []


def thread(url: str, kind: str, figures: Mapping[str, float | str], **more: Any) -> Callable[[Callable[[], Call]], Any]:
    """Declares a program: the decorated function makes it, and its last comment marks the line to be named."""

    def declare(make: Callable[[], Call]) -> Callable[[], Call]:
        PROGRAMS.append(ThreadProgram(make.__name__, url, kind, make, figures, **more))
        return make

    return declare


JAX = "https://github.com/jax-ml/jax/"


@thread(JAX + "issues/2777", "repeat", {"repetitions": 8})
def inner_jit_in_a_loop() -> Call:
    """Eight turns, the thread's most, with which it took longest."""

    @jax.jit
    def sample_gates(key: Any, left: Any, right: Any) -> Any:
        key, now = jax.random.split(key)
        gate = jax.random.uniform(now, (8, 1))
        return key, 0.5 * (left + gate * left + (1 - gate) * right), 0.5 * (right + gate * left + (1 - gate) * right)

    def sample(key: Any) -> Any:
        left, right = jnp.array([[1.0, 0.0]] * 8), jnp.array([[0.0, 1.0]] * 8)
        for _ in range(8):
            key, left, right = sample_gates(key, left, right)  # here
        return left

    return jax.jit(sample), (jax.random.key(1),)


@thread(JAX + "issues/1223", "repeat", {"repetitions": 192}, also=("slow-op",))
def autoregressive_sampling() -> Call:
    """One iteration for each of 8 x 8 pixels and 3 channels, with an update of a single element."""

    def sample(weights: Any, noise: Any) -> Any:
        image = jnp.zeros(4 + 8 * 8 * 3)
        for i in range(8 * 8 * 3):
            seen = jnp.tanh(image[i : i + 4] @ weights)  # here
            image = image.at[i + 4].set(seen + noise[i])  # here
        return image

    return jax.jit(sample), (floats(4), floats(192))


@thread(JAX + "issues/22385", "repeat", {})
def recursive_jit() -> Call:
    """Each call of a compiled function inside of another is inlined: the calls grow as the numbers do."""

    @functools.partial(jax.jit, static_argnums=1)
    def fibonacci(x: Any, t: int) -> Any:
        if t < 2:
            return jnp.sin(x) * t  # here
        return fibonacci(x, t - 1) + fibonacci(x, t - 2)  # here

    return functools.partial(fibonacci, t=12), (floats(),)


@thread("https://github.com/keras-team/keras/issues/16485", "repeat", {"repetitions": 240})
def unrolled_recurrent_layer() -> Call:
    """The 240 iterations that the thread names."""

    def unrolled(cell: Any, inputs: Any) -> Any:
        state = (jnp.zeros(16), jnp.zeros(16))
        for x in range(240):
            state = cell(inputs[x], state)  # here
        return state[0]

    return eqx.filter_jit(unrolled), (_cell(), floats(240, 8))


def _cell() -> Any:
    return eqx.filter_eval_shape(eqx.nn.LSTMCell, 8, 16, key=jax.random.key(0))


@thread(JAX + "issues/10596", "constant", {"bytes": 512 * 512 * 8}, path="kernel")
def captured_kernel_of_a_transform() -> Call:
    kernel = np.ones((512, 512), np.complex64)

    def propagate(field: Any) -> Any:
        return jnp.fft.ifft2(jnp.fft.fft2(field) * jnp.fft.fft2(kernel))  # here

    return jax.jit(propagate), (jax.ShapeDtypeStruct((512, 512), "complex64"),)


@thread(JAX + "issues/14655", "constant", {"bytes": 200_000 * 2 * 4}, path="nonzeroes")
def captured_indices_of_a_sparse_matrix() -> Call:
    n = 200_000

    def build() -> Any:
        nonzeroes = jnp.asarray(np.stack([np.arange(n, dtype=np.int32)] * 2, 1))

        def product(other: Any) -> Any:
            matrix = sparse.BCOO((jnp.ones(n), nonzeroes), shape=(n, n), indices_sorted=True, unique_indices=True)
            return matrix @ other  # here

        return product

    operator = build()
    return jax.jit(lambda x: operator(jnp.ones(n) / x).sum()), (floats(),)


GATHER = {"largest_bytes": 2048**3 * 3 * 4, "peak_bytes": 240_526_557_204}
BECOMES_STRONG = {"arrays": 1, "before": "weak float32[]", "after": "float32[]"}


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Data:
    qpos: Any
    qvel: Any
    time: Any


@thread("https://github.com/google-deepmind/mujoco/issues/2306", "retrace", BECOMES_STRONG, path="data.time")
def weak_time() -> Call:
    """The time is of a weak type at first, and of a strong one after the first step."""

    def step(timestep: Any, data: Data) -> Data:
        speed = data.qvel - timestep * data.qpos
        return Data(data.qpos + timestep * speed, speed, data.time + timestep)

    return jax.jit(step), (floats(), Data(floats(7), floats(7), jnp.asarray(0.0)))


@thread(JAX + "issues/30015", "memory", GATHER, memory_limit=80 * GIB)
def gather_of_many_indices() -> Call:
    """The peak is what XLA reports in the thread; the largest array are the indices."""

    def gathered(x: Any, index: Any) -> Any:
        places = tuple(jnp.split(index, 3, axis=-1))  # here
        return jnp.sum(x[places][..., 0] * 2.5)  # here

    index = jax.ShapeDtypeStruct((2048**3, 3), "int32")
    return jax.jit(jax.grad(gathered)), (floats(128, 128, 128), index)


@thread(JAX + "issues/26263", "memory", {"largest_bytes": 32 * 41**2 * 96**2 * 4}, memory_limit=GIB)
def overlapping_patches() -> Call:
    """The thread's 32 images of 256 x 256, in patches of 96 x 96, each 4 pixels from the next."""

    def patch(image: Any, row: Any, column: Any) -> Any:
        return lax.dynamic_slice(image, (row, column), (96, 96))  # here

    def patches(image: Any) -> Any:
        corners = jnp.arange(41) * 4
        rows = jax.vmap(jax.vmap(patch, (None, None, 0)), (None, 0, None))
        return jnp.tanh(rows(image, corners, corners))

    return jax.jit(lambda images: jnp.mean(jax.vmap(patches)(images) ** 2)), (floats(32, 256, 256),)


@thread(JAX + "issues/31292", "memory", {"largest_bytes": 16 * 4096 * 4096 * 4}, memory_limit=2 * GIB)
def scores_of_all_pairs() -> Call:
    """The thread wants to know a program's peak before it runs, to choose a batch size."""

    def attend(query: Any, key: Any, value: Any) -> Any:
        scores = jnp.einsum("bqd,bkd->bqk", query, key)  # here
        return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(scores), value)  # here

    return jax.jit(attend), (floats(16, 4096, 64),) * 3


@thread(JAX + "issues/3186", "checkpoint", {"bytes": 100 * 3000 * 3000 * 4}, also=("memory",))
def gradient_of_a_scan() -> Call:
    """The gradient keeps every `y + z`."""

    def averaged(x: Any, ys: Any) -> Any:
        z = jnp.ones((3000, 3000))
        summed, _ = lax.scan(lambda carry, y: (carry + x * (y + z), None), jnp.zeros_like(z), ys)  # here
        return summed.mean()

    return jax.jit(jax.grad(averaged)), (floats(), floats(100))


@thread(JAX + "pull/2936", "donation", {"bytes": GIB}, path="x")
def square_again_and_again() -> Call:
    """The thread's loop is `while run: x = f(x)`, with two copies of x in memory."""

    def square(x: Any) -> Any:
        return x**2

    return jax.jit(square), (floats(GIB // 4),)


@thread("https://github.com/goodfire-ai/spd/pull/971", "donation", {"bytes": 3 * 4 * (4096 * 4096 + 4096) + 4})
def training_without_donation() -> Call:
    """A model and its Adam state, which each step binds anew."""
    optimiser = optax.adam(1e-3)

    def step(model: Any, state: Any, tokens: Any) -> Any:
        loss, slope = eqx.filter_value_and_grad(lambda it: jnp.mean(jax.vmap(it)(tokens) ** 2))(model)
        updates, state = optimiser.update(slope, state)
        return eqx.apply_updates(model, updates), state, loss

    model = eqx.filter_eval_shape(eqx.nn.Linear, 4096, 4096, key=jax.random.key(0))
    return eqx.filter_jit(step), (model, eqx.filter_eval_shape(optimiser.init, model), floats(8, 4096))


@thread("https://github.com/p-doom/jasmine/pull/211", "waste", {"length": 8192, "used": 5})
def sort_for_the_largest() -> Call:
    def in_top_k(logits: Any, tokens: Any) -> Any:
        top = jnp.argsort(logits, axis=-1)[..., -5:]  # here
        return jnp.mean(jnp.any(top == tokens[..., None], axis=-1))

    return jax.jit(in_top_k), (floats(4, 16, 8192), jax.ShapeDtypeStruct((4, 16), "int32"))


# The first and the last turns of an unrolled loop are often not as the others: a constant comes in, or none goes out.
TURNS_THAT_DIFFER = 2
# How far the estimate of the peak may be from what XLA takes.
ESTIMATED = 0.1


def diagnosed(program: ThreadProgram) -> Diagnosis:
    function, args = program.make()
    return doctor(function, *args, memory_limit=program.memory_limit)


def is_near(name: str, expected: Any, found: Any) -> bool:
    if name == "repetitions":
        return expected - TURNS_THAT_DIFFER <= found <= expected
    if name == "peak_bytes":
        return abs(found - expected) <= ESTIMATED * expected
    return found == expected


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_thread_s_program_is_explained(program: ThreadProgram) -> None:
    diagnosis = diagnosed(program)
    findings = [finding for finding in diagnosis.findings if finding.kind == program.kind]
    assert len(findings) == 1, str(diagnosis)
    (finding,) = findings
    assert finding.message and finding.advice
    assert program.path in finding.path
    if program.lines:
        assert (finding.file, finding.line) in {(program.file, line) for line in program.lines}, str(diagnosis)
        assert finding.source == linecache.getline(program.file, finding.line).strip()
    for name, expected in program.figures.items():
        assert is_near(name, expected, finding.figures[name]), str(diagnosis)
    assert {it.kind for it in diagnosis.findings} <= {program.kind, *program.also}, str(diagnosis)
