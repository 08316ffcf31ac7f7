"""Guards the promise that work which is thrown away, or done number by number, is found where it costs alone."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from examining import Call, examined, floats, ints
from jax import lax

from partax import Finding
from partax._doctor import slow_operations as slow
from partax._doctor import waste

CHEAP = lambda x: x
chosen = lambda f: lambda x: lax.cond(x.sum() > 0, f, CHEAP, x)
costly = lambda x: lax.fori_loop(0, 100, lambda _, a: jnp.tanh(a @ a), x)
indexed = lambda x: lax.scan(lambda c, i: (c + jnp.sin(x[i]), None), 0.0, jnp.arange(x.shape[0]))[0]
gone_along = lambda x: lax.scan(lambda c, it: (c + jnp.sin(it), None), 0.0, x)[0]
energy = lambda x: jnp.sum(jnp.sin(x) ** 2 * jnp.roll(x, 1))
either = lambda x: lax.cond(x[0, 0] > 0, costly, CHEAP, x)
turned = lambda xs: [jnp.tanh(x) * x + x / 2 for x in xs]
written = lambda x: lax.fori_loop(0, 300, lambda i, x: lax.cond(x[0] > i, lambda x: x.at[i].set(1.0), CHEAP, x), x)
history = lambda read: lambda h: lax.scan(lambda h, _: (jnp.append(h[1:], h[0] / 2), read(h)), h, None, length=5000)
rolled = lambda h: lax.scan(lambda h, _: (jnp.roll(h, -1).at[-1].set(h[0] / 2), h[-1]), h, None, length=5000)
KEY = jax.random.key(0)


def find(function: Any, *args: Any) -> list[Finding]:
    finders = waste.find, slow.find_selected, slow.find_scalars, slow.find_uneven
    return [it for program in (examined(function, *args),) for find in finders for it in find(program)]


def last_step(length: int, steps: Any) -> Callable[[Any], Any]:
    def last(x: Any) -> Any:
        ys = lax.scan(lambda c, _: (c * 0.9, c), x, None, length=length)[1]
        return steps(ys)

    return last


def scalars(count: int, derive: Any = CHEAP, shape: tuple[int, ...] = ()) -> Call:
    """A filter of many numbers, each by itself."""
    names = [f"node_{i}" for i in range(count)]

    def loss(rates: Any, xs: Any) -> Any:
        def step(means: Any, x: Any) -> Any:
            means = {it: means[it] + rates[it] * jnp.tanh(x - means[it]) for it in names}
            return means, sum(means.values())

        return jnp.sum(lax.scan(step, dict.fromkeys(names, jnp.zeros(shape)), xs)[1])

    return derive(loss), (dict.fromkeys(names, floats(*shape)), floats(100, *shape))


MATRIX, VECTOR = floats(600, 600), floats(600)
FOUND: dict[str, tuple[str, Callable[..., Any], tuple[Any, ...]]] = {
    "inverse": ("only multiplied", lambda a, b: jnp.linalg.inv(a) @ b, (MATRIX, VECTOR)),
    "transposed": ("only multiplied", lambda a, b: b @ jnp.linalg.inv(a).T, (MATRIX, VECTOR)),
    "diagonal matrix": ("as if it were full", lambda d, m: m @ jnp.diag(d), (VECTOR, MATRIX)),
    "diagonal of a product": ("only the diagonal", lambda a, b: jnp.diag(a @ b), (MATRIX, MATRIX)),
    "trace of a hessian": ("only the diagonal", lambda x: jnp.trace(jax.hessian(energy)(x)), (VECTOR,)),
    "laplacians": ("only the", lambda x: jax.vmap(lambda y: jnp.trace(jax.hessian(energy)(y)))(x), (floats(64, 64),)),
    "jacobian the wrong way": ("where 4 the other", lambda x: jax.jacrev(lambda y: jnp.tile(y, 500))(x), (floats(4),)),
    "uneven turns": ("the last is", jax.vmap(lambda t: lax.while_loop(t.__gt__, jnp.positive, 0)), (ints(9),)),
    "hessian by a vector": ("only multiplied by", lambda x, v: jax.hessian(energy)(x) @ v, (VECTOR, VECTOR)),
    "one-hot": ("one-hot", lambda i, t: jax.nn.one_hot(i, 5000) @ t, (ints(1000), floats(5000, 8))),
    "rows of an identity": ("one-hot", lambda i, t: jnp.eye(5000)[i] @ t, (ints(1000), floats(5000, 8))),
    "top k": ("of which 5 are used", lambda x: jnp.argsort(-x)[..., :5], (floats(64, 5000),)),
    "largest": ("of which 3 are used", lambda x: jnp.sort(x)[::-1][:3], (floats(1 << 18),)),
    "last step": ("one step is used", last_step(1000, lambda ys: ys[-1]), (floats(5000),)),
    "map": ("one after the other", lambda x: lax.map(lambda t: jnp.exp(-t) * t, x), (floats(2000),)),
    "order": ("in an order", lambda a, b, v: (a @ b) @ v, (floats(1100, 1100),) * 2 + (floats(1100),)),
    "sum of a product": ("as a sum", lambda a, b: (a[:, :, None] * b).sum(1), (floats(1100, 1000), floats(1000, 1100))),
    "kron": ("as `jnp.kron`", lambda a, b, x: jnp.kron(a, b) @ x, (floats(30, 30), floats(30, 30), floats(900))),
    "outer": ("or `jnp.outer`", lambda a, b, x: jnp.outer(a, b) @ x, (VECTOR, VECTOR, VECTOR)),
    "last row": (
        "takes 50% of",
        jax.grad(lambda w, x: ((x @ w)[:, -1] ** 2).sum()),
        (floats(99, 9999), floats(4, 512, 99)),
    ),
    "shuffle": ("of which 64 are used", lambda k: jax.random.permutation(k, 1 << 20)[:64], (KEY,)),
    "ranks": ("which inverts it", lambda x: jnp.argsort(jnp.argsort(x)), (floats(1 << 18),)),
    "draws": ("5,000 draws", lambda k, p: jax.random.categorical(k, p, shape=(5000,)), (KEY, floats(1000))),
    "history": ("to shift it", history(lambda h: h[-1]), (floats(20_000),)),
    "rolled history": ("to shift it", rolled, (floats(20_000),)),
    "long kernel": ("a convolution", lambda x, k: jnp.convolve(x, k, "same"), (floats(1 << 18), floats(1 << 13))),
    "full factors": ("of use", lambda x: jnp.linalg.svd(x)[2], (floats(3000, 20),)),
    "indexed in a loop": ("in each turn", jax.grad(indexed), (floats(20_000),)),
    "branches": ("all 2 branches", jax.vmap(either), (floats(16, 64, 64),)),
    "scalars": ("along with 121 scalars, and computes 300 scalars in each of its 100 turns", *scalars(60)),
    "compiled scalars": ("in each of its 100 turns", *scalars(60, lambda f: jax.jit(jax.value_and_grad(f)))),
    "more scalars": ("along with 40", lambda x: lax.while_loop(lambda x: x[0] < 9, turned, x), ([floats()] * 40,)),
    "write in a branch": ("copies all of", jax.vmap(written), (floats(64, 20_000),)),
    "map of a choice": ("one after the other", lambda x: lax.map(chosen(jnp.exp), x), (floats(2000),)),
    "branches in a loop": ("all 2 branches", lambda x: lax.map(jax.vmap(either), x), (floats(2, 16, 64, 64),)),
}
SOUND: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "small inverse": (lambda a, b: jnp.linalg.inv(a) @ b, (floats(64, 64), floats(64))),
    "inverse that is returned": (lambda a, b: ((it := jnp.linalg.inv(a)), it @ b), (MATRIX, VECTOR)),
    "log determinant": (lambda a: jnp.log(jnp.diag(jnp.linalg.cholesky(a @ a.T))).sum(), (MATRIX,)),
    "diagonal of an argument": (jnp.trace, (MATRIX,)),
    "hessian that is returned": (lambda x: jax.hessian(energy)(x), (VECTOR,)),
    "a jitter": (lambda a, x: (a + 1e-6 * jnp.eye(3000)) @ x, (floats(3000, 3000), floats(3000, 2))),
    "one-hot by hand": (lambda i, t: (i[:, None] == jnp.arange(5000)).astype("f4") @ t, (ints(99), floats(5000, 900))),
    "few classes": (lambda i, t: jax.nn.one_hot(i, 10) @ t, (ints(100_000), floats(10, 8))),
    "sorted": (lambda x: jnp.sort(x)[: 1 << 17], (floats(1 << 18),)),
    "median": (jnp.median, (floats(1 << 18),)),
    "few are sorted": (lambda x: jnp.argsort(x)[:5], (floats(1000),)),
    "short sequence": (last_step(20, lambda ys: ys[-1]), (floats(5000),)),
    "all steps": (last_step(1000, lambda ys: ys.sum(0)), (floats(5000),)),
    "map of solvers": (lambda x: lax.map(lambda t: lax.fori_loop(0, 9, lambda _, a: a * t, t), x), (floats(2000),)),
    "map of large arrays": (lambda x: lax.map(lambda t: t * 2, x), (floats(1000, 1 << 14),)),
    "distances": (lambda a, b: ((a[:, None] - b) ** 2).sum(-1), (floats(2000, 300), floats(2000, 300))),
    "small kron": (lambda a, b, x: jnp.kron(a, b) @ x, (floats(4, 4), floats(4, 4), floats(16))),
    "all but the last row": (lambda x, w: (x @ w)[:, :-1], (floats(4, 512, 99), floats(99, 9999))),
    "last row of one of many": (lambda x, w: (x @ w @ w @ w @ w @ w)[-1], (floats(1024, 1024), floats(1024, 1024))),
    "half of a shuffle": (lambda k: jax.random.permutation(k, 1 << 20)[: 1 << 19], (KEY,)),
    "few ranks": (lambda x: jnp.argsort(jnp.argsort(x)), (floats(1000),)),
    "a draw of each": (jax.random.categorical, (KEY, floats(5000, 1000))),
    "best of all pairs": (lambda a, b: jnp.argmax(a[:, None] + b, 0), (floats(3000), floats(3000, 3000))),
    "a window": (history(jnp.sum), (floats(20_000),)),
    "short history": (history(lambda h: h[-1]), (floats(99),)),
    "short kernel": (lambda x, k: jnp.convolve(x, k, "same"), (floats(1 << 20), floats(100))),
    "thin factors": (lambda x: jnp.linalg.svd(x, full_matrices=False)[2], (floats(3000, 20),)),
    "logits": (jax.grad(lambda x, i: jax.nn.log_softmax(x)[jnp.arange(999), i].sum()), (floats(999, 9**5), ints(999))),
    "gone along": (jax.grad(gone_along), (floats(20_000),)),
    "few scalars": scalars(8, jax.grad),
    "vectors in the place of scalars": scalars(60, jax.grad, (1,)),
    "scalars without a loop": (turned, ([floats()] * 100,)),
    "small write in a branch": (jax.vmap(written), (floats(4, 20_000),)),
    "map that spares a product": (lambda x: lax.map(chosen(lambda a: a @ a), x), (floats(2000, 32, 32),)),
    "small branches": (jax.vmap(either), (floats(2, 4, 4),)),
    "one choice for all": (lambda x, p: lax.cond(p, jax.vmap(costly), CHEAP, x), (floats(16, 64, 64), floats())),
}


@pytest.mark.parametrize("name", FOUND)
def test_waste_is_found(name: str) -> None:
    text, function, args = FOUND[name]
    (finding,) = find(function, *args)
    assert finding.kind == ("scalar" if "scalars" in name else "waste")
    assert finding.severity == ("info" if "uneven" in name else "medium")
    assert text in finding.message and finding.advice
    assert finding.file == __file__


@pytest.mark.parametrize("name", SOUND)
def test_what_is_used_or_small_is_none(name: str) -> None:
    assert find(SOUND[name][0], *SOUND[name][1]) == []
