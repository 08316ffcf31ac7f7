"""Guards the promise that what a script called first is loaded while it makes its arguments, and is never another's."""

from pathlib import Path

import pytest
from test_store import process

pytestmark = [pytest.mark.compiled_anew, pytest.mark.slow]

SCRIPT = """
import os, pathlib, sys, threading
import jax, jax.numpy as jnp, partax

@partax.filter_jit
def first(x): return x * 2

@partax.filter_jit
def second(x): return x + 1

def is_loading(): return [it for it in threading.enumerate() if it.name == "partax load ahead"]

x = jax.jit(lambda: jnp.arange(3.0))()  # compiles, as what makes a model does
for thread in is_loading():
    thread.join()
for program in pathlib.Path(os.environ["PARTAX_STORE"]).glob(sys.argv[1]):
    program.unlink()
print(first(x).tolist(), second(x).tolist(), first.cache_info().loads, second.cache_info().loads)
"""
RIGHT = "[0.0, 2.0, 4.0] [1.0, 2.0, 3.0]"


def test_what_a_script_called_is_loaded_before_it_is_called_again(tmp_path: Path) -> None:
    store = tmp_path / "programs"
    for delete, loads in (("none", "0 0"), ("*.partax", "1 1")):  # from memory where no file is left
        assert process(SCRIPT, tmp_path, delete, PARTAX_STORE=str(store))[0] == f"{RIGHT} {loads}"
    (noted,) = store.glob(".*.list")
    noted.write_bytes(b"\xff\xfe../script nothing")  # it is a hint
    assert process(SCRIPT, tmp_path, "none", PARTAX_STORE=str(store))[0] == f"{RIGHT} 0 0"
    assert len(noted.read_text().split()) == 2, "it is written again"


def test_what_has_changed_is_not_the_one_that_was_loaded(tmp_path: Path) -> None:
    store = str(tmp_path / "programs")
    process(SCRIPT, tmp_path, "none", PARTAX_STORE=store)
    printed, _ = process(SCRIPT.replace("x * 2", "x * 3.0"), tmp_path, "none", PARTAX_STORE=store)
    assert printed == "[0.0, 3.0, 6.0] [1.0, 2.0, 3.0] 0 1"


def test_another_script_loads_what_it_called_itself(tmp_path: Path) -> None:
    store, other = tmp_path / "programs", tmp_path / "other"
    other.mkdir()
    process(SCRIPT, tmp_path, "none", PARTAX_STORE=str(store))
    for loads in ("0 0", "1 1"):
        assert process(SCRIPT, other, "*.partax", PARTAX_STORE=str(store))[0] == f"{RIGHT} {loads}"
    assert len([*store.glob(".*.list")]) == 2
