"""Guards the promise that a program that calls Python is loaded if its functions are proven, and else not compiled."""

from pathlib import Path

import pytest
from test_store import process
from user_modules import NAME, run

import partax
from partax._store import UnstoredError
from partax._store.callbacks import Callback, stored_callbacks
from short_programs import imported

pytestmark = pytest.mark.compiled_anew
TOP = """
import functools, equinox as eqx, jax, jax.numpy as jnp, numpy as np
from jax.experimental import io_callback
SEEN, K = [], 2
ONE = jax.ShapeDtypeStruct((), jnp.float32)
def seen(x, k=1): SEEN.append(float(x) * K * k); return np.float32(len(SEEN) * 0)
def two(x, y, z): print(x["a"], y, z)
class C:
    def seen(self, x): seen(x)
make = lambda: f
def f(x):
    s = x.sum()
"""
LOADED = {
    "a print": "jax.debug.print('{} {b} {c}', s, b=x, c='text')",
    "a function and a tree": "jax.debug.callback(two, {'a': s}, x, z='text')",
    "a lambda": "jax.debug.callback(lambda x: print(x), s)",
    "one that keeps what it gets": "jax.debug.callback(seen, s)",
    "a partial": "jax.debug.callback(functools.partial(seen, k=3), s)",
    "a closure over a number": "k = 3; jax.debug.callback(lambda x: print(x * k), s)",
    "NumPy's": "x = jax.pure_callback(np.sin, x, x)",
    "one for each of a batch": "jax.vmap(lambda x: jax.debug.print('{}', x))(x)",
    "one with a result": "s = io_callback(seen, ONE, s)",
    "an error": "s = eqx.error_if(s, s < 0, 'negative')",
}
TRACED = {
    "a closure over a list": "all = []; jax.debug.callback(lambda x: print(all.append(x)), s)",
    "a partial of a list": "jax.debug.callback(functools.partial(print, SEEN), s)",
    "a static argument": "jax.debug.callback(lambda x, y: print(x), s, {1})",
    "a method": "jax.debug.callback(C().seen, s)",
    "one in order": "jax.debug.print('{}', s, ordered=True)",
}


@pytest.mark.parametrize("name", LOADED | TRACED)
def test_its_second_process_calls_the_same(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    source = f"{TOP}    {(LOADED | TRACED)[name]}\n    return x + s"
    for is_first in (True, False):
        capfd.readouterr()
        with partax.explain(), caplog.at_level("WARNING", "partax"):
            call = run(source, tmp_path, tmp_path / "store")
        assert call.traces == (is_first or name in TRACED) and repr(call.value) == repr(call.right)
        ours, plain = (lines := capfd.readouterr().out.splitlines())[: len(lines) // 2], lines[len(lines) // 2 :]
        assert ours == plain
    assert ("but not compiled" in caplog.text) == (name in TRACED)
    run(source.replace("s = x.sum()", "s = x.sum() * 2"), tmp_path, tmp_path / "store")
    assert len(list((tmp_path / "store").glob("callbacks-*"))) == 2 * (name in TRACED)


def test_a_function_that_reads_what_has_changed_is_not_called(tmp_path: Path) -> None:
    with imported(TOP + "    return x", tmp_path, NAME) as module:
        (data,) = stored_callbacks([module.seen])
        callback = Callback(data)
        assert not callback.rebuild() and callback(3) == 0 and module.SEEN == [6]
        module.SEEN.clear()
        vars(module)["K"] = 3
        with pytest.raises(UnstoredError, match="reads what has changed"):
            callback.rebuild()
        assert stored_callbacks([module.C().seen]) == ()


SCRIPT = """
import equinox as eqx, jax, jax.numpy as jnp, partax

def halved(x, least):
    jax.debug.print("x is {}", x)
    return eqx.error_if(x, x < least, "too small") / 2

step = partax.filter_jit(halved)
for function in (step, step, eqx.filter_jit(halved)):
    for x in (3.0, 0.0):
        try:
            print(function(jnp.float32(x), 1))
        except eqx.EquinoxRuntimeError as error:
            text = str(error)
            print(text.splitlines()[0], text.splitlines()[-1], "in halved" in text, "too small" in text)
jax.effects_barrier()
print(step.cache_info().traces, step.cache_info().loads)
"""


def test_a_second_process_prints_and_raises_the_same(tmp_path: Path) -> None:
    printed = [process(SCRIPT, tmp_path, PARTAX_STORE=str(tmp_path / "store"))[0].splitlines() for _ in range(2)]
    (*first, first_counts), (*second, second_counts) = printed
    assert (first_counts, second_counts) == ("1 0", "0 1") and first == second
    assert first[:4] == first[4:8] == first[8:] and first[:2] == ["x is 3.0", "1.5"]
