"""Run by test_jax_private.py: takes names of jax away before partax is imported, then runs tests of each part."""

import ast
import builtins
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import equinox  # noqa: F401 - what the names are taken of
import jax
import pytest

_FILE = "partax._jax.private"
HERE = pathlib.Path(__file__).parent
# All of them pass without any of the names.
TESTS = """
jit/test_bind.py settings_of_jax_count_between_two_calls under_transformations
jit/test_donation.py an_array_that_is_donated_and_returned inside_another_program_nothing_is_donated
jit/test_export.py a_call_of_the_arrays_alone_gives_the_arrays_of_the_result
jit/test_filter_jit.py every_tree_goes_through_with_one_trace kinds_of_callables refs_are_traced
jit/test_lowering.py lower_compile_and_call input_shardings_are_given_by_path
jit/test_shardings.py a_prefix_of_the_result
jit/test_trace_errors.py a_concretization_error_names_the_leaf
libraries/test_accelerate.py functions_of_trees_are_ours_in_each_module
pytree/test_partition.py one_filter_is_the_slow_model_s_and_equinox_s
jit/test_static_arrays.py a_static_object_s_array_that_is_read_is_told_once_with_its_path
explain/test_explain.py the_difference_is_from_the_nearest_trace
explain/test_report.py calls_by_key_and_trace
store/test_store.py under_transformations_and_without_jit
transforms/test_grad.py all_but_inexact_arrays_arrive_untouched_and_have_gradient_none
transforms/test_loops.py arrays_alone_are_as_in_jax_lax
transforms/test_vmap.py equals_equinox
"""


def test_ids() -> Iterator[str]:
    """Of `TESTS`, and of one of files where these can be."""
    file = ""
    for word in TESTS.split():
        if word.endswith(".py"):
            file = word
        else:
            yield f"{HERE / file}::test_{word}"
    if importlib.util.find_spec("safetensors") is not None:
        yield f"{HERE}/io/test_files.py::test_the_keys_are_those_of_flat_partition"


def private_names(*sources: str) -> list[str]:
    """All private names that the files use, by the text of their calls and their event names."""
    names: list[str] = []
    for node in (node for source in sources for node in ast.walk(ast.parse(source))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("_name", "_attribute"):
            named = node.args[0 if node.func.id == "_name" else 1]
            assert isinstance(named, ast.Constant), ast.unparse(node)
            names.append(named.value)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("/jax/"):
            names.append(node.value)
    return list(dict.fromkeys(names))


def take_away(names: list[str]) -> set[str]:
    """Hides names from all of partax, which is not imported yet; returns, as it goes on, those that were asked for."""
    asked: set[str] = set()
    by_attribute: dict[str, set[str]] = {}
    for it in names:
        if not it.startswith("/"):
            by_attribute.setdefault(it.rpartition(".")[2], set()).add(it)

    def blind_getattr(owner: Any, name: str, *default: Any) -> Any:
        if name in by_attribute:
            asked.update(by_attribute[name])
            if default:
                return default[0]
            raise AttributeError(name)
        return builtins.getattr(owner, name, *default)

    load = importlib.machinery.SourceFileLoader.exec_module

    def exec_module(self: Any, module: Any) -> None:
        if module.__name__ == _FILE:
            module.getattr = blind_getattr
        load(self, module)

    importlib.machinery.SourceFileLoader.exec_module = exec_module  # type: ignore[method-assign]

    def renamed(listener: Callable[..., None]) -> Callable[..., None]:
        def hear(event: str, *args: Any, **kwargs: Any) -> None:
            if event in names:
                asked.add(event)
                event = f"/new{event}"
            listener(event, *args, **kwargs)

        return hear

    for register in ("register_event_duration_secs_listener", "register_event_listener"):
        real = getattr(jax.monitoring, register)
        setattr(jax.monitoring, register, lambda listener, real=real: real(renamed(listener)))

    return asked


def the_command_line() -> None:
    """Runs a script by each command, in this process: what they hear of jax stays."""
    import partax.__main__

    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder, "script.py")
        for command, told in (("explain", ("trace 1", "1 trace")), ("doctor", ("programs were compiled",))):
            function = f"lambda x: x * {len(command)}"
            script.write_text(f"import jax, partax\npartax.filter_jit({function})(jax.numpy.ones(2))\n")
            text = io.StringIO()
            with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text), contextlib.suppress(SystemExit):
                partax.__main__.main([command, str(script)])
            assert any(it in text.getvalue() for it in told) and "<lambda>" in text.getvalue(), text.getvalue()


def main() -> None:
    """Runs the tests without the names that it is given; the last line tells which of these were asked for."""
    asked = take_away(json.loads(sys.argv[1]))
    code = pytest.main(["-q", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:xdist", *test_ids()])
    if code == pytest.ExitCode.OK:
        the_command_line()
    print(json.dumps(sorted(asked)))
    sys.exit(code)


if __name__ == "__main__":
    main()
