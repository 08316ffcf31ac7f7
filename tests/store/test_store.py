"""Guards the promise that a second process loads what a first one has stored, as the first one had it."""

import gc
import os
import re
import warnings
import weakref
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from user_modules import NAME, SOURCE, assert_right, run, start

import partax
from at_once import at_once
from partax.__main__ import main
from partax._store.folder import Folder
from partax._store.switch import folder_of
from short_programs import imported
from stored import written

pytestmark = [pytest.mark.compiled_anew, pytest.mark.filterwarnings("ignore::partax.RetraceWarning")]

STEP = """
import sys, time
import equinox as eqx, jax, jax.numpy as jnp, optax, partax
optimizer = optax.adam(1e-2)
model = eqx.nn.MLP(2, 1, 8, 2, key=jax.random.key(0))
state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))

@partax.filter_jit(donate="all-except-first")
def step(batch, model, state, name):
    def loss(model):
        return (jax.vmap(model)(batch) ** 2).mean()
    value, gradient = partax.filter_value_and_grad(loss)(model)
    updates, state = optimizer.update(gradient, state)
    return eqx.apply_updates(model, updates), state, value, name

with partax.explain():
    for _ in range(3):
        model, state, value, name = step(jnp.ones((4, 2)), model, state, "run")
assert name == "run" and model.activation is jax.nn.relu
print(f"{float(value):.6f} {step.cache_info().traces} {step.cache_info().hits}")
"""


def active_folder() -> Path | None:
    folder = folder_of(None)
    return None if folder is None else folder.path


def process(source: str, folder: Path, *arguments: str, **environment: str) -> tuple[str, str]:
    """What a process prints, and what it says."""
    started = start(folder, source, *arguments, **environment)
    printed, said = started.communicate()
    assert started.returncode == 0, said
    return printed.strip(), said


def test_a_second_process_neither_traces_nor_compiles(tmp_path: Path) -> None:
    store = str(tmp_path / "programs")
    value, *counts = process(STEP, tmp_path, PARTAX_STORE=store)[0].split()
    assert counts == ["1", "2"]
    printed, said = process(STEP, tmp_path, PARTAX_STORE=store, PYTHONHASHSEED="7")
    assert printed == f"{value} 0 2"
    assert re.search(r"script\.py:\d+ step: loaded from the store in \d\.\d\d s \(saves [\d.]+ s\)", said)


STEPS = """
import jax.numpy as jnp, numpy as np, partax, partax.nnx
from flax import nnx

def helper(x):
    return BY * x

@partax.filter_jit
def train(state, x):
    return {"w": state["w"] - helper(x)}, (state["w"] * x).sum()

@partax.nnx.jit
def count(counter, x):
    counter[...] += helper(x)
    return x

counter, batches = nnx.Variable(jnp.zeros(2)), [np.full(2, i, np.float32) for i in range(5)]
with partax.explain():
    *_, (state, losses) = partax.scan_steps(train, 2)({"w": jnp.ones(2)}, over=batches)
    *_, last = partax.scan_steps(count, 2)(counter, over=batches)
print(state["w"].tolist(), losses.tolist(), counter[...].tolist(), last.tolist())
"""


@pytest.mark.slow
def test_steps_in_one_call_are_loaded(tmp_path: Path) -> None:
    store = str(tmp_path / "programs")
    for by, expected, loads in (
        (2, "[-19.0, -19.0] [-88.0] [20.0, 20.0] [[4.0, 4.0]]", 0),
        (2, "[-19.0, -19.0] [-88.0] [20.0, 20.0] [[4.0, 4.0]]", 4),  # chunks of two, and of one for what is left
        (3, "[-29.0, -29.0] [-136.0] [30.0, 30.0] [[4.0, 4.0]]", 0),
    ):
        printed, said = process(STEPS.replace("BY", str(by)), tmp_path, PARTAX_STORE=store)
        assert printed == expected
        assert said.count("_steps: loaded from the store") == loads
        assert said.count(": trace ") == 4 - loads


# What functions of the identity matrix give: by LAPACK, a dtype of jax's, a module that jax imports when it is asked
# for, and a schedule that counts in floats from its first trace on.
LOADED = {
    "jnp.linalg.solve(x + x, x).sum()": 1.0,
    "jnp.linalg.eigh(x)[0].sum()": 2.0,
    "(jnp.linalg.svd(x)[1] * jnp.abs(jnp.linalg.qr(x)[1])).sum()": 2.0,
    "x.astype(jnp.float32).astype(x.dtype).sum()": 2.0,
    "jax.scipy.special.erfinv(x * 0).sum()": 0.0,
    "tx.update(x, tx.init(x))[0].sum()": -2.0,
}


@pytest.mark.slow
def test_what_asks_more_of_jax_is_loaded_too(tmp_path: Path) -> None:
    steps = ", ".join(f"partax.filter_jit(lambda x: {value})" for value in LOADED)
    source = (
        "import jax, jax.numpy as jnp, optax, partax\ntx = optax.sgd(optax.cosine_decay_schedule(1.0, 10))\n"
        f"for step in {steps}: print(float(step(jnp.eye(2))), step.cache_info().loads)"
    )
    for loads in (0, 1):
        lines = process(source, tmp_path, PARTAX_STORE=str(tmp_path / "store"))[0].splitlines()
        assert [float(it.split()[0]) for it in lines] == pytest.approx([*LOADED.values()], abs=1e-6)
        assert [int(it.split()[1]) for it in lines] == [loads] * len(LOADED)


def test_a_damaged_program_is_written_anew_where_warnings_are_errors(stored: Path, tmp_path: Path) -> None:
    whole = stored.read_bytes()
    stored.write_bytes(whole[:-9])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="damaged"):
            run(SOURCE, tmp_path, tmp_path / "store")
        assert not stored.exists()
        assert run(SOURCE, tmp_path, tmp_path / "store").traces == 1
    assert stored.exists()


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A folder with one program."""
    assert run(SOURCE, tmp_path, tmp_path / "store").traces == 1
    (file,) = (tmp_path / "store").glob("*.partax")
    return file


def test_a_program_that_cannot_be_loaded_is_traced(stored: Path, tmp_path: Path) -> None:
    import pickle

    folder = Folder(tmp_path / "store", 1 << 30)
    record = pickle.loads(folder.read(stored.stem) or b"")
    folder.write(stored.stem, pickle.dumps({**record, "program": record["program"][:-9]}))
    with pytest.warns(RuntimeWarning, match="`f` cannot be loaded; it is traced"):
        assert_right(run(SOURCE, tmp_path, tmp_path / "store").value)


@pytest.mark.skipif(os.name != "posix" or os.getuid() == 0, reason="the superuser may write to any folder")
def test_a_folder_that_may_only_be_read_is_read(stored: Path, tmp_path: Path) -> None:
    (tmp_path / "store").chmod(0o500)
    assert run(SOURCE, tmp_path, tmp_path / "store").traces == 0


def test_a_folder_that_is_gone_costs_a_warning(tmp_path: Path) -> None:
    with imported(SOURCE, tmp_path, NAME) as module, partax.store(tmp_path / "store"):
        (tmp_path / "store").rmdir()
        (tmp_path / "store").write_text("")
        step = partax.filter_jit(module.make())
        with pytest.warns(RuntimeWarning, match="nothing is (stored in|loaded from)"):
            assert_right((step(jnp.arange(3.0)), written())[0])


@pytest.mark.skipif(os.name != "posix", reason="other systems have other rights")
def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(PermissionError, match="others may write to"):
        partax.store(tmp_path)
    with pytest.warns(RuntimeWarning, match="nothing is stored: .* others may write"):
        partax.filter_jit(lambda x: x * 2, store=tmp_path)(jnp.ones(2))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("own", [False, True])
def test_a_relative_folder_stays_the_same_when_the_process_goes_elsewhere(
    own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b" / "programs").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a")
    with partax.store(os.path.join("..", "a", "programs")):
        step = partax.filter_jit(lambda x: x * 2, store="programs" if own else None)
        for loads in (0, 1, 1):
            step.clear_cache()
            step(jnp.ones(3))
            written()
            assert step.cache_info().loads == loads
            monkeypatch.chdir(tmp_path / "b")
        assert str(tmp_path) in str(active_folder())
    assert [it.parent.parent.name for it in tmp_path.glob("*/programs/*.partax")] == ["a"]


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    folder = Folder(tmp_path, 3000)
    for i in range(5):
        folder.write(f"key{i}", bytes(900))
        os.utime(tmp_path / f"key{i}.partax", (i, i))
    assert [it.key for it in folder.files()] == ["key4", "key3", "key2"]
    folder.write("large", bytes(5000))
    assert len(folder.files()) == 3


def test_the_switch_goes_back_to_what_it_was(tmp_path: Path) -> None:
    with partax.store(tmp_path / "a"):
        with partax.store(tmp_path / "b"):
            assert active_folder() == tmp_path / "b"
        assert active_folder() == tmp_path / "a"
        with partax.store(None):
            assert active_folder() is None


NOT_STORED = {
    "chance": "random.random()",
    "a file": "pathlib.Path(__file__).read_text()",
    "a result that another process has not": "return x, object()",
}


@pytest.mark.parametrize("name", NOT_STORED)
def test_what_nobody_can_prove_is_not_stored_and_explained(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = f"import jax, pathlib, random\ndef f(x):\n    {NOT_STORED[name]}\n    return x * 2\nmake = lambda: f"
    with partax.explain(), caplog.at_level("WARNING", "partax"):
        run(source, tmp_path, tmp_path / "store")
    assert "f: not stored: " in caplog.text
    assert list((tmp_path / "store").iterdir()) == []


@pytest.mark.parametrize("hook", [
    "def __getstate__(self): return {'w': self.w, 'k': 1}",
    "def __setstate__(self, state): vars(self).update(w=state['w'], k=1)",
    "def __reduce_ex__(self, protocol): return N, (self.w,)",
    "def __reduce__(self): return N, (self.w,)",
])  # fmt: skip
def test_a_result_whose_class_says_how_it_is_pickled_is_not_stored(hook: str, tmp_path: Path) -> None:
    source = (
        "import equinox as eqx\nclass N(eqx.Module):\n  w: object\n  k: int = eqx.field(static=True, default=1)\n"
        "  {}\ndef f(x): return [{{'a': N(x * 2, 7)}}, x]\nmake = lambda: f"
    )
    for store, line, traces in (("plain", "", (1, 0)), ("hooked", hook, (1, 1))):
        for count in traces:
            call = run(source.format(line), tmp_path, tmp_path / store)
            assert call.traces == count and repr(call.value) == repr(call.right)


def test_several_shapes_and_donation(tmp_path: Path) -> None:
    step = partax.filter_jit(lambda x, y: (x + y, y), donate=("x",))
    for traces in (2, 0):
        with partax.store(tmp_path):
            step.clear_cache()
            for _ in range(3):
                for size in (2, 3):
                    x, y = jnp.ones(size), jnp.ones(size)
                    total, back = step(x, y)
                    assert back is y and x.is_deleted() and np.allclose(total, 2)
            written()
        assert step.cache_info().traces == traces


def test_under_transformations_and_without_jit(tmp_path: Path) -> None:
    with partax.store(tmp_path):
        step = partax.filter_jit(lambda x: x * x)
        assert float(step(jnp.float32(3))) == 9
        assert float(jax.grad(step)(jnp.float32(3))) == 6
        assert np.allclose(jax.vmap(step)(jnp.arange(3.0)), [0, 1, 4])
        assert float(jax.jit(step)(jnp.float32(3))) == 9
        assert float(jax.jit(lambda y: step(jnp.float32(4)) + y)(jnp.float32(1))) == 17
        with jax.disable_jit():
            assert float(step(jnp.float32(3))) == 9
        assert float(step.lower(jnp.float32(2)).compile()(jnp.float32(2))) == 4
        written()


def test_nothing_is_kept_of_what_dies(tmp_path: Path) -> None:
    function = (lambda big: lambda x: x + big)(jnp.ones(3))
    step = partax.filter_jit(function)
    with partax.store(tmp_path):
        step(jnp.ones(3))
        written()
        dead = [weakref.ref(function), weakref.ref(step._cache.programs()[0].target)]
        gc.disable()
        step.clear_cache()
        gc.enable()
        assert dead[1]() is None  # at once
        step(jnp.ones(3))
        written()
        del function, step
        gc.collect()
        assert dead[0]() is None


def test_threads_that_call_for_the_first_time_at_once(tmp_path: Path) -> None:
    step = partax.filter_jit(lambda x: x * 3)
    with partax.store(tmp_path):
        for is_stored in (False, True):
            step.clear_cache()
            assert at_once(lambda _: float(step(jnp.float32(2))), 8) == [6.0] * 8
            written()
            assert (step.cache_info().traces == 0) is is_stored
    assert len(list(tmp_path.glob("*.partax"))) == 1


def test_the_command_lists_and_drops(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def command(*options: str) -> str:
        main(["store", str(stored.parent), *options])
        return capsys.readouterr().out

    size = f"{stored.stat().st_size:,}"
    assert re.search(rf"^f +\S+ \S+ +{size} +\d+\.\d\d$", command(), re.MULTILINE) and "1 programs" in command()
    assert "dropped" not in command("--prune", "1GB", "--older", "1d")
    data = stored.read_bytes()
    stored.write_bytes(data[:-1])
    with pytest.warns(RuntimeWarning, match="is damaged"):
        assert "1 dropped" in command("--verify")
    assert "0 programs" in command()
    stored.write_bytes(data)
    assert "1 dropped" in command("--clear") and not stored.exists()


def test_a_trace_that_was_there_before_is_stored_with_its_own_result(tmp_path: Path) -> None:
    one, other, x = partax.filter_jit(lambda x: (x, 1)), partax.filter_jit(lambda x: (x, "other")), jnp.ones(3)
    for _ in range(2):
        with partax.store(tmp_path):
            one.clear_cache()
            other.clear_cache()
            one.lower(x)  # traces it: the call that follows does not
            other(x)
            assert one(x)[1] == 1 and other(x)[1] == "other"
            written()
            one.clear_cache()
            assert one(x)[1] == 1


AT_THE_END = """
import atexit, sys, jax.numpy as jnp, partax
step = partax.filter_jit(lambda x: x * 2)
call = lambda: print(float(step(jnp.float32(3))))
call() if sys.argv[1:] else atexit.register(call)
"""


@pytest.mark.slow
def test_a_call_when_the_process_ends_has_its_result(tmp_path: Path) -> None:
    for arguments in ((), ("now",), ()):
        assert process(AT_THE_END, tmp_path, *arguments, PARTAX_STORE=str(tmp_path / "store"))[0] == "6.0"
