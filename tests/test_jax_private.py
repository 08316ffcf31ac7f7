"""Guards that partax works, if slower, where names of jax that are not public are gone: all at once, and at night each
alone (with fewer than 100 `PARTAX_EXAMPLES` in six groups)."""

import ast
import json
import os
import pathlib
from collections.abc import Iterator

import jax.numpy as jnp
import pytest
from partax._families.settings import texts_of_libraries

import partax
from older_jax import IS_OLDER
from processes import python
from without_private_names import private_names

_PACKAGE = pathlib.Path(partax.__file__).parent
_FILES = [
    *(_PACKAGE / "_jax" / f"{name}.py" for name in ("private", "nodes", "programs", "watched")),
    _PACKAGE / "_families/equinox_private.py",
]
_NAMES = private_names(*(file.read_text() for file in _FILES))


def asked_without(names: list[str]) -> list[str]:
    """Runs tests where jax is imported, these names are gone, and then partax is imported; gives those it asks for."""
    if IS_OLDER:
        pytest.skip("a jax that is out loses no names")
    script = pathlib.Path(__file__).with_name("without_private_names.py")
    return json.loads(python(str(script), json.dumps(names)).stdout.splitlines()[-1])


_GROUPS = len(_NAMES) if int(os.environ.get("PARTAX_EXAMPLES", "20")) >= 100 else 6


@pytest.mark.nightly
@pytest.mark.parametrize("names", [_NAMES[i::_GROUPS] for i in range(_GROUPS)], ids=", ".join)
def test_all_works_without(names: list[str]) -> None:
    assert asked_without(names) == sorted(names), "partax does not ask for one: nothing has been tested"


def test_all_works_without_any_of_them() -> None:
    # What names a registry or says nothing else where another one is gone is not asked for.
    assert len(asked_without(_NAMES)) > len(_NAMES) / 2


_MODULES_OF_THEIRS = ("jax", "jaxlib", "equinox", "flax")


def _uses(source: str) -> Iterator[str]:
    """What a file imports of private modules, and the attributes it has of modules of jax's that begin with `_`."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value] if node.value.replace(".", "").replace("_", "").isalnum() else []
            if node.value.startswith("/jax/"):
                yield node.value
        for name in names:
            first, *others = name.split(".")
            if first in _MODULES_OF_THEIRS and (
                (first == "jaxlib" and others) or any(part.startswith("_") and part[1:2] != "_" for part in others)
            ):
                yield name


def test_private_names_are_in_these_files_alone() -> None:
    """So that the tests above are about all of them."""
    assert "jax._src.core" in list(_uses("from jax import _src\nimport jax._src.core"))
    for file in _PACKAGE.rglob("*.py"):
        found = sorted(set(_uses(file.read_text())))
        if file.parent.name == "_guards":  # names of modules and classes, of which nothing is asked
            found = [name for name in found if not name.startswith(("jax._src.", "jaxlib._jax.", "equinox."))]
        if file in _FILES:
            found = [name for name in found if name not in _NAMES]
        if file == _PACKAGE / "_families/settings.py":  # see below
            found = [name for name in found if not name.startswith("flax.")]
        assert not found, f"{file.relative_to(_PACKAGE)}: {found}"


def test_a_setting_of_a_library_that_is_gone_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    linen = pytest.importorskip("flax.linen")
    monkeypatch.delattr("flax.core.spmd._axis_rules")
    monkeypatch.delattr("flax.linen.module._global_interceptor_stack")
    assert " object at " not in str(texts_of_libraries())  # texts that another process has too
    steps = [partax.filter_jit(lambda x: x * len(linen.Dense.__name__)) for _ in range(3)]
    assert [step(jnp.ones(2))[0] for step in steps] == [5, 5, 5]
    assert steps[-1].cache_info().traces == 1
