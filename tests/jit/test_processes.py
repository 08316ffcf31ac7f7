"""Guards other processes and interpreters: fork, multiprocessing, cloudpickle and subinterpreters work, or say what to
do."""

import multiprocessing
import os
from pathlib import Path

import pytest

from processes import python

ONE_DEVICE = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=1"  # the last one counts


def run(code: str) -> str:
    """What the code prints in a process of its own, which has a main module that can be imported."""
    return python("-W", "error", "-c", code, XLA_FLAGS=ONE_DEVICE).stdout


FORK = """
import os, sys, warnings
import numpy as np
import partax

# jax warns at each fork, and Python if other threads run: both of what a program may do in the child at all.
warnings.filterwarnings("ignore", message=".*fork.*")

@partax.filter_jit
def f(x, n):
    return x * n, n

def check(size, n):
    product, static = f(np.ones(size, np.float32), n)
    assert static == n and np.array_equal(product, np.full(size, n)), (product, static)

check(3, 2)  # new programs in the child are another matter: XLA compiles with threads, which only the parent has
child = os.fork()
if child == 0:
    try:
        check(3, 2)
        assert f.cache_info().misses == 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
check(3, 2), check(5, 7)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.slow
def test_a_forked_child_has_the_programs_of_its_parent() -> None:
    run(FORK)


WORKER = """
import numpy as np
import partax

@partax.filter_jit
def decorated(x, n):
    return x * n, n

def content(x, n):
    return x + n, n

def work(wrapper):
    results = [wrapper(np.ones(3, np.float32), 2) for _ in range(2)]
    return [(float(result.sum()), n) for result, n in results], wrapper.cache_info().traces
"""

POOL = """
import multiprocessing, sys, warnings
sys.path.insert(0, {directory!r})
import worker, partax

if __name__ == "__main__":
    warnings.filterwarnings("ignore", message=".*fork.*")
    wrappers = worker.decorated, partax.filter_jit(worker.content, donate="none", cache_size=7)
    with multiprocessing.get_context({method!r}).Pool(1) as pool:
        for wrapper in (*wrappers, partax.filter_jit(lambda x, n: (x, n))):
            try:
                print(pool.apply(worker.work, (wrapper,)))
            except Exception as error:
                print(type(error).__name__, error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_wrappers_go_to_the_processes_of_multiprocessing(method: str, tmp_path: Path) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"there is no {method} on this system")
    (tmp_path / "worker.py").write_text(WORKER)
    main = tmp_path / "main.py"
    main.write_text(POOL.format(directory=str(tmp_path), method=method))
    *found, local = run(f"import runpy; runpy.run_path({str(main)!r}, run_name='__main__')").splitlines()
    assert found == ["([(6.0, 2), (6.0, 2)], 1)", "([(9.0, 2), (9.0, 2)], 1)"]
    assert "lambda" in local and "ickl" in local  # as for any function without a name


SUBINTERPRETER = """
import partax, sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
code = f'''
import sys
sys.path[:] = {sys.path!r}
try:
    import partax
except ImportError as error:
    print(type(error).__name__, error, flush=True)
'''
legacy = interpreters.create("legacy") if sys.version_info >= (3, 13) else interpreters.create(isolated=False)
for interpreter in (interpreters.create(), legacy):
    failure = interpreters.run_string(interpreter, code)
    assert failure is None, failure
    interpreters.destroy(interpreter)
import numpy as np
import partax
assert partax.filter_jit(lambda x: x + 1)(np.ones(2)).sum() == 4
print("the main interpreter works")
"""


@pytest.mark.slow
def test_a_subinterpreter_is_refused_before_jax_ends_the_process() -> None:
    *refused, works = run(SUBINTERPRETER).splitlines()
    assert len(refused) == 2
    for message in refused:
        assert message.startswith("ImportError found a subinterpreter, expected the main interpreter")
    assert works == "the main interpreter works"


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


@pytest.mark.slow
def test_a_function_of_main_works_in_another_process(tmp_path: Path) -> None:
    script, file = tmp_path / "script.py", tmp_path / "file"
    script.write_text(SENDS)
    python(str(script), str(file))
    told = python("-c", TAKES, str(file)).stdout
    assert told == "[4. 4.] [-2. -2.] [6. 6.] all True <partax.filter_jit of decorated>\n"
