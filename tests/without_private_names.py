"""Run by test_jax_private.py: hides names of jax before partax is imported, then runs tests of each part."""

import builtins
import contextlib
import functools
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

import equinox  # noqa: F401 - has some of the names
import jax
import pytest

_FILE = "partax._jax.private"
HERE = pathlib.Path(__file__).parent
TESTS = """
jit/test_bind.py settings_of_jax_count_between_two_calls under_transformations
jit/test_donation.py an_array_that_is_donated_and_returned inside_another_program_nothing_is_donated
jit/test_filter_jit.py every_tree_goes_through_with_one_trace kinds_of_callables refs_are_traced
jit/test_lowering.py lower_compile_and_call input_shardings_are_given_by_path
jit/test_shardings.py a_prefix_of_the_result
jit/test_trace_errors.py a_concretization_error_names_the_leaf
libraries/test_accelerate.py functions_of_trees_are_ours_in_each_module
pytree/test_partition.py one_filter_is_the_slow_model_s_and_equinox_s
jit/test_static_arrays.py a_static_object_s_array_that_is_read_is_told_once_with_its_path
statics/test_copies.py copies_of_different_functions_are_different
explain/test_explain.py the_difference_is_from_the_nearest_trace
explain/test_report.py calls_by_key_and_trace
store/test_store.py under_transformations_and_without_jit
transforms/test_grad.py all_but_inexact_arrays_arrive_untouched_and_have_gradient_none
transforms/test_loops.py arrays_alone_are_as_in_jax_lax
transforms/test_vmap.py equals_equinox
"""


def test_ids() -> Iterator[str]:
    file = ""
    for word in TESTS.split():
        if word.endswith(".py"):
            file = word
        else:
            yield f"{HERE / file}::test_{word}"
    if importlib.util.find_spec("safetensors") is not None:
        yield f"{HERE}/io/test_files.py::test_the_keys_are_those_of_flat_partition"


def take_away(names: list[str]) -> set[str]:
    """Hides names from partax, which is not imported yet. Returns those that were asked for, which grow later."""
    asked: set[str] = set()
    by_attribute: dict[str, set[str]] = {}
    for name in names:
        if not name.startswith("/"):
            by_attribute.setdefault(name.rpartition(".")[2], set()).add(name)

    def blind_getattr(owner: Any, name: str, *default: Any) -> Any:
        if name not in by_attribute:
            return builtins.getattr(owner, name, *default)
        asked.update(by_attribute[name])
        if default:
            return default[0]
        raise AttributeError(name)

    load = importlib.machinery.SourceFileLoader.exec_module

    def exec_module(self: Any, module: Any) -> None:
        if module.__name__ == _FILE:
            module.getattr = blind_getattr
        load(self, module)

    importlib.machinery.SourceFileLoader.exec_module = exec_module  # type: ignore[method-assign]

    def rename_events(register: Callable[..., None], listener: Callable[..., None]) -> None:
        def listen(event: str, *args: Any, **kwargs: Any) -> None:
            if event in names:
                asked.add(event)
                event = f"/new{event}"
            listener(event, *args, **kwargs)

        register(listen)

    for name in ("register_event_duration_secs_listener", "register_event_listener"):
        setattr(jax.monitoring, name, functools.partial(rename_events, getattr(jax.monitoring, name)))
    return asked


STORED = """
import threading
import equinox, jax, jax.numpy as jnp, partax

class Printer:
    def show(self, x): print("sum", x)

def hybrid_step(x):  # named as the kernels that jaxlib registers late
    y = jnp.linalg.qr(x)[0]
    jax.debug.callback(print, y.sum())
    return equinox.error_if(y, x[0, 0] > 9, "too large")

def shown(x):
    jax.debug.callback(Printer().show, x.sum())
    return x * 2

for function in (hybrid_step, shown):
    step = partax.filter_jit(function)
    for _ in range(2):
        assert step(2 * jnp.eye(2)).shape == (2, 2)
        step.clear_cache()
        for thread in threading.enumerate():
            if thread.name == "partax store":
                thread.join()
try:
    partax.filter_jit(hybrid_step)(jnp.eye(2) * 10)
except RuntimeError as error:
    assert "too large" in str(error), error
"""


def run_commands() -> None:
    """Runs a script by each command in this process, since listeners of jax cannot be removed."""
    import partax.__main__

    with tempfile.TemporaryDirectory() as directory:
        script = pathlib.Path(directory, "script.py")
        for command, word in (("explain", "trace"), ("doctor", "programs were compiled")):
            function = f"lambda x: x * {len(command)}"
            script.write_text(f"import jax, partax\npartax.filter_jit({function})(jax.numpy.ones(2))\n")
            text = io.StringIO()
            with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text), contextlib.suppress(SystemExit):
                partax.__main__.main([command, str(script)])
            assert word in text.getvalue() and "<lambda>" in text.getvalue(), text.getvalue()
        jax.config.update("jax_compilation_cache_dir", f"{directory}/jax")
        script.write_text(STORED)
        partax.__main__.main(["store", f"{directory}/programs", "--warm", str(script)])
        for thread in threading.enumerate():
            if thread.name.startswith("partax"):  # such as one that still writes what the script called
                thread.join()


def main() -> None:
    """Runs the tests without the names in the argument, and prints those that were asked for on the last line."""
    asked = take_away(json.loads(sys.argv[1]))
    code = pytest.main(["-q", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:xdist", *test_ids()])
    if code == pytest.ExitCode.OK:
        run_commands()
    print(json.dumps(sorted(asked)))
    sys.exit(code)


if __name__ == "__main__":
    main()
