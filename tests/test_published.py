"""Guards the promise that what partax publishes is what is there: the stub mirrors the native module, the package is
typed, its import is silent and starts no backend, and changelog and wheels are of its version and its Pythons."""

import ast
import inspect
import pathlib
import pickle
import re
import tomllib
from typing import Any

import pytest

import partax
from partax import _core
from processes import python

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = pathlib.Path(partax.__file__).parent
Function = ast.FunctionDef | ast.AsyncFunctionDef


def is_public(name: str) -> bool:
    return not name.startswith("_")


def declared(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    """The names that a stub's module or class body declares; imports and type variables apart."""
    names: dict[str, ast.stmt] = {}
    for statement in body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names[statement.name] = statement
            case ast.AnnAssign(target=ast.Name(name)):
                names[name] = statement
            case ast.Assign(targets=[ast.Name(name)]):
                names[name] = statement
    return names


def stub() -> dict[str, ast.stmt]:
    return declared(ast.parse((PACKAGE / "_core.pyi").read_text(encoding="utf-8")).body)


def parameters(function: Function) -> list[str]:
    arguments = function.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    names += [arguments.vararg.arg] if arguments.vararg else []
    names += [a.arg for a in arguments.kwonlyargs]
    names += [arguments.kwarg.arg] if arguments.kwarg else []
    return [name for name in names if name not in ("self", "cls")]


def native_parameters(function: Any) -> list[str] | None:
    """The parameter names of a native function, if it tells them; pybind11 does so in its docstring."""
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        told = re.match(rf"{function.__name__}\((.*)\) -> ", function.__doc__ or "")
        if told is None:
            return None
        names = [it.arg for it in ast.walk(ast.parse(f"def f({told[1]}): ...")) if isinstance(it, ast.arg)]
    return [name for name in names if name not in ("self", "cls")]


def assert_parameters_agree(name: str, native: Any, node: ast.stmt | None) -> None:
    assert isinstance(node, Function), f"the stub does not declare {name} as a function"
    found, wanted = native_parameters(native), parameters(node)
    if found not in (None, ["args", "kwargs"]):  # it tells, and is not overloaded
        # pybind11 calls a parameter without a name arg0, arg1, ...
        assert [b if re.fullmatch(r"arg\d+", a) else a for a, b in zip(found, wanted, strict=True)] == wanted, name


def test_the_stub_names_what_the_module_has_which_is_documented() -> None:
    in_module = {name for name in dir(_core) if is_public(name)}
    assert {name for name in stub() if is_public(name)} == in_module
    assert [name for name in in_module if not inspect.getdoc(getattr(_core, name))] == []


def test_the_stub_s_parameters_are_the_functions_own() -> None:
    told = 0
    for name, node in stub().items():
        native = getattr(_core, name, None)
        if callable(native) and not isinstance(native, type):
            assert_parameters_agree(name, native, node)
            told += native_parameters(native) is not None
    assert told > 0


@pytest.mark.parametrize("name", [name for name, node in stub().items() if isinstance(node, ast.ClassDef)])
def test_the_stub_s_classes_are_the_module_s(name: str) -> None:
    node, native = stub()[name], getattr(_core, name)
    assert isinstance(node, ast.ClassDef)
    assert isinstance(native, type)
    members = declared(node.body)
    in_class = {attribute for attribute in vars(native) if is_public(attribute)}
    assert {member for member in members if is_public(member)} == in_class
    assert all(hasattr(native, member) for member in members)
    for member in in_class:
        function = inspect.getattr_static(native, member)
        if callable(function) and not isinstance(members[member], ast.AnnAssign):
            assert_parameters_agree(f"{name}.{member}", function, members[member])


def test_the_public_names_are_there_once_and_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()
    assert len(set(partax.__all__)) == len(partax.__all__) and set(partax.__all__) <= set(dir(partax))


PUBLIC = {name: getattr(partax, name) for name in partax.__all__}
CLASSES = {name for name, value in PUBLIC.items() if isinstance(value, type)}


@pytest.mark.parametrize("name", [name for name, value in PUBLIC.items() if callable(value) and name not in CLASSES])
def test_a_public_function_has_an_inspectable_signature_with_a_home(name: str) -> None:
    value = PUBLIC[name]
    assert inspect.signature(value).parameters or name == "report"  # which takes nothing
    assert (value.__name__, value.__module__.split(".")[0]) == (name, "partax")


def test_a_public_class_is_found_where_users_find_it_so_that_pickles_outlive_our_files() -> None:
    assert {PUBLIC[name].__module__ for name in CLASSES} == {"partax"}
    for made in (
        partax.by_path("a/*"),
        partax.tree.SummaryRow("a", "", 1, 2, 3),
        partax.stages.CacheInfo(1, 2, 3, 4, 5),
    ):
        data = pickle.dumps(made)
        assert b"partax._" not in data and pickle.loads(data) == made


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_import_is_silent_and_takes_in_no_extra() -> None:
    program = "import partax, sys; assert sys.modules.keys().isdisjoint({'safetensors', 'flax', 'jinja2'})"
    ran = python("-W", "error", "-c", program)
    assert (ran.stdout, ran.stderr) == ("", "")


@pytest.mark.slow
def test_no_module_starts_jax_when_it_is_imported() -> None:
    """Until a backend starts, a program may still say which devices there are, and join others."""
    pytest.importorskip("flax")
    program = """
import importlib, pkgutil, jax, partax
names = [module.name for module in pkgutil.walk_packages(partax.__path__, "partax.") if "__main__" not in module.name]
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
    versions = [*minors, "14t"]
    assert PROJECT["tool"]["cibuildwheel"]["build"].split() == [f"cp3{version}-*" for version in versions]
