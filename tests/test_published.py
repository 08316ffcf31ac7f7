"""Guards the promise that what partax publishes is what is there: names are documented and typed, the import is silent
and starts no backend, and changelog and wheels are of its version and its Pythons."""

import inspect
import pathlib
import pickle
import re
import tomllib

import pytest

import partax
from processes import python

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = pathlib.Path(partax.__file__).parent


def test_the_public_names_are_there_once_and_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()
    assert len(set(partax.__all__)) == len(partax.__all__) and set(partax.__all__) <= set(dir(partax))


PUBLIC = {name: getattr(partax, name) for name in partax.__all__}
CLASSES = {name for name, value in PUBLIC.items() if isinstance(value, type)}


def test_a_public_function_has_an_inspectable_signature_with_a_home() -> None:
    for name, value in PUBLIC.items():
        if callable(value) and name not in CLASSES:
            assert inspect.signature(value).parameters or name == "report"  # which takes nothing
            assert (value.__name__, value.__module__.split(".")[0]) == (name, "partax")


def test_a_public_class_is_found_where_users_find_it_so_that_pickles_outlive_our_files() -> None:
    assert {PUBLIC[name].__module__ for name in CLASSES} == {"partax"}
    for made in (
        partax.by_path("a/*"),
        partax.tree.SummaryRow("a", 1, 2, 3),
        partax.stages.CacheInfo(1, 2, 3, 4, 5),
    ):
        data = pickle.dumps(made)
        assert b"partax._" not in data and pickle.loads(data) == made


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.mark.slow
def test_import_is_silent_and_takes_in_no_extra_which_is_named_where_it_is_missing() -> None:
    program = """import partax, sys
assert sys.modules.keys().isdisjoint({'safetensors', 'flax'})
sys.modules['flax'] = None
try: partax.nnx
except ImportError as error: print(error)"""
    ran = python("-W", "error", "-c", program)
    assert ran.stderr == "" and ran.stdout.count("\n") == 1 and "partax[flax]" in ran.stdout


@pytest.mark.slow
def test_no_module_starts_jax_when_it_is_imported() -> None:
    """Until a backend starts, a program may still say which devices there are, and join others."""
    pytest.importorskip("flax")
    program = """
import importlib, pkgutil, jax, partax
names = [module.name for module in pkgutil.walk_packages(partax.__path__, "partax.") if "__main__" not in module.name]
names.remove("partax._libraries.equinox.named_jit")  # which needs haliax
for name in names:
    importlib.import_module(name)
jax.config.update("jax_num_cpu_devices", 3)
print(len(names) > 50, len(jax.devices("cpu")))
"""
    ran = python("-c", program)
    assert ran.stdout.split() == ["True", "3"], ran.stderr


def test_the_changelog_begins_with_the_version() -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == PROJECT["project"]["version"]


def test_wheels_are_built_for_every_python_that_is_declared() -> None:
    prefix = "Programming Language :: Python :: 3."
    minors = [entry.removeprefix(prefix) for entry in PROJECT["project"]["classifiers"] if entry.startswith(prefix)]
    assert PROJECT["project"]["requires-python"] == f">=3.{minors[0]}"
    versions = [*minors, "14t", "15t"]
    assert PROJECT["tool"]["cibuildwheel"]["build"].split() == [f"cp3{version}-*" for version in versions]
