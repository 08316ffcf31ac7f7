"""Guards that cloudpickle, by which joblib, ray and dask send functions, takes a wrapper of `__main__` by content."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import cloudpickle
import jax.numpy as jnp

import partax
from trees import assert_same

SENDS = """
import pickle, sys, cloudpickle, jax, partax
scale = 3

@partax.filter_jit(donate="all")
def decorated(x, n):
    return x * n * scale

assert pickle.loads(pickle.dumps(decorated)) is decorated
made = partax.filter_jit(lambda x: x + scale)
with open(sys.argv[1], "wb") as file:
    cloudpickle.dump((decorated, made, jax.jit(lambda x: x - scale)), file)
"""
TAKES = """
import pickle, sys
import jax.numpy as jnp
with open(sys.argv[1], "rb") as file:
    decorated, made, of_jax = pickle.load(file)
x = jnp.ones(2)
print(made(x), of_jax(x), decorated(x, 2), decorated._options.donate, x.is_deleted(), decorated)
"""


def test_a_function_of_main_works_in_another_process(tmp_path: pathlib.Path) -> None:
    script, file = tmp_path / "script.py", tmp_path / "file"
    script.write_text(SENDS)
    subprocess.run([sys.executable, str(script), str(file)], check=True)
    done = subprocess.run([sys.executable, "-c", TAKES, str(file)], check=True, capture_output=True, text=True)
    assert done.stdout == "[4. 4.] [-2. -2.] [6. 6.] all True <partax.filter_jit of decorated>\n"


@partax.filter_jit
def of_a_module(x: jnp.ndarray) -> jnp.ndarray:
    return x * 2


def test_a_function_of_a_module_goes_by_name() -> None:
    assert cloudpickle.loads(cloudpickle.dumps(of_a_module)) is of_a_module
    assert_same(of_a_module(jnp.ones(2)), jnp.full(2, 2.0))
