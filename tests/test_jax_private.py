"""Guards the promise that partax works, if slower, without the private names of jax: without all of them, and nightly
without each."""

import ast
import json
import pathlib
import re
from collections.abc import Iterator

import pytest

import partax
from processes import python

_PACKAGE = pathlib.Path(partax.__file__).parent
_FILES = [
    *(_PACKAGE / "_jax" / f"{name}.py" for name in ("private", "nodes", "programs", "watched")),
    _PACKAGE / "_families/equinox_private.py",
]


def private_names() -> Iterator[str]:
    """The names in calls of `_name` and `_attribute`, and those of events."""
    for node in (node for file in _FILES for node in ast.walk(ast.parse(file.read_text()))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("_name", "_attribute"):
            yield ast.literal_eval(node.args[0 if node.func.id == "_name" else 1])
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("/jax/"):
            yield node.value


_OF_SEVERAL_PROCESSES = ("jax._src.distributed.global_state", "client")  # asked for by no process alone
_NAMES = [name for name in dict.fromkeys(private_names()) if name not in _OF_SEVERAL_PROCESSES]


def asked_without(names: list[str]) -> list[str]:
    """Runs tests in a process in which these names are hidden from partax, and returns those that it asks for."""
    script = pathlib.Path(__file__).with_name("without_private_names.py")
    return json.loads(python(str(script), json.dumps(names)).stdout.splitlines()[-1])


@pytest.mark.nightly
@pytest.mark.parametrize("name", _NAMES)
def test_all_works_without(name: str) -> None:
    assert asked_without([name]) == [name], "partax does not ask for it, so its fallback is not tested"


@pytest.mark.slow
def test_all_works_without_any_of_them() -> None:
    # Without some of them, partax does not ask for others.
    assert len(asked_without(_NAMES)) > len(_NAMES) / 2


def _private_uses(source: str) -> Iterator[str]:
    """Private modules and attributes of jax, Equinox and Flax that a file imports, reads, or names in a string."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value]
        for name in names:
            is_dotted = re.fullmatch(r"(jax|jaxlib|equinox|flax)(\.\w+)+", name)
            if name.startswith("/jax/") or (is_dotted and (name.startswith("jaxlib.") or re.search(r"\._[^_]", name))):
                yield name


def test_private_names_are_in_these_files_alone() -> None:
    """So that the tests above are about all of them."""
    assert "jax._src.core" in list(_private_uses("from jax import _src\nimport jax._src.core"))
    for file in _PACKAGE.rglob("*.py"):
        allowed = [*_NAMES, *_OF_SEVERAL_PROCESSES] if file in _FILES else []
        uses = set(_private_uses(file.read_text())) - {*allowed}
        assert not uses, f"{file.relative_to(_PACKAGE)}: {uses}"
