"""Guards the promise that the folders stand in one direction, also in includes and imports, that no file is longer than
400 lines, and that Python calls no C++ without its turn, and C++ only what is there."""

import ast
import graphlib
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CSRC = ROOT / "csrc"
PACKAGE = ROOT / "python" / "partax"

# The folders of csrc/ and the sub-packages, in order: each may include or import only what comes before it, and in its
# own folder no circle of files. The native module and the top files of the package stand apart: all may import
# `partax._core`, and the top files all.
FOLDERS = ["base", "classes", "statics", "tree", "partition", "call"]  # of which `call` needs no partition
PACKAGES = [
    "_jax", "_families", "_functions", "_pytree", "_jit", "_transforms", "_libraries", "_explain", "_steps", "_io",
    "_store", "_doctor",
]  # fmt: skip
LONGEST = 400
# Functions of partax that C++ calls: of all folders, and of csrc/call.
MOST_HOOKS = 29
MOST_HOOKS_OF_CALL = 8

Edge = tuple[str, str]  # from a file to what it includes or imports


def sources(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in (".h", ".cpp", ".py", ".pyi"))


def includes(csrc: Path) -> Iterator[Edge]:
    for path in sources(csrc):
        for name in re.findall(r'^\s*#\s*include\s*["<]([^">]+)[">]', path.read_text(encoding="utf-8"), re.MULTILINE):
            yield path.relative_to(csrc).as_posix(), name


def wrong_includes(csrc: Path) -> list[Edge]:
    """Those against the order of the folders, or to what only some files may include."""
    wrong: list[Edge] = []
    for source, name in includes(csrc):
        folder, target = source.split("/")[0], name.split("/")[0]
        if target in FOLDERS:
            before = FOLDERS[: FOLDERS.index(folder) + 1] if folder in FOLDERS else FOLDERS
            is_wrong = target not in before or (folder, target) == ("call", "partition")
        elif name.startswith("pybind11/"):
            is_wrong = re.fullmatch(r"(module\.cpp|base/binding\.h|(\w+)/register_\2\.cpp)", source) is None
        else:
            is_wrong = name == "Python.h" and source != "base/python_api.h"
        wrong += [(source, name)] * is_wrong
    return wrong


def imports(package: Path) -> Iterator[Edge]:
    """From each file to the modules of the package that it imports, wherever in it that is written."""
    for path in sources(package):
        inside = ("partax", *path.relative_to(package).parent.parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                start = inside[: len(inside) - node.level + 1] if node.level else ()
                module = ".".join((*start, *([node.module] if node.module else [])))
                names = [f"{module}.{alias.name}" for alias in node.names]
            for name in names:
                if name.split(".")[0] == "partax":
                    yield path.relative_to(package).as_posix(), name


def wrong_imports(package: Path) -> list[Edge]:
    """Those from a sub-package to one after it, or to a top file."""
    wrong: list[Edge] = []
    for source, name in imports(package):
        folder, target = source.split("/")[0], name.split(".")[1:2]
        if "/" not in source or target == ["_core"] or target == [folder]:
            continue
        if target[0:1] == [] or target[0] not in PACKAGES[: PACKAGES.index(folder)]:
            wrong.append((source, name))
    return wrong


def circles(package: Path) -> list[tuple[str, ...]]:
    """Files that import one another, be it by way of others."""
    files = {"partax." + ".".join(path.relative_to(package).with_suffix("").parts): path for path in sources(package)}
    edges: dict[str, set[str]] = {name: set() for name in files}
    for source, name in imports(package):
        reached = next((it for it in (name, name.rpartition(".")[0], f"{name}.__init__") if it in files), None)
        at = "partax." + source.removesuffix(".py").removesuffix(".pyi").replace("/", ".")
        if reached is not None and reached not in (at, "partax._core"):
            edges[at].add(reached)
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError as error:
        return [tuple(error.args[1])]
    return []


def called_by_python(text: str) -> set[str]:
    """The functions that a C++ file puts into slots, tables of methods and of properties."""
    return {
        *re.findall(r"Py_\w+, reinterpret_cast<void\*>\((\w+)\)", text),
        *re.findall(r"reinterpret_cast<void \(\*\)\(\)>\((\w+)\)", text),
        *re.findall(r'\{"\w+",\s*(\w+)(?:<[\w:]+>)?, (?:METH_|nullptr)', text),
    }


def without_a_turn(csrc: Path) -> list[str]:
    """Those whose body begins without one; but the collector's visits, which run while all threads are stopped."""
    wrong: list[str] = []
    for path in sources(csrc):
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(csrc).as_posix()
        if name != "base/binding.h":
            wrong += [f"{name}: module.def"] * len(re.findall(r"module\.def\(|cpp_function\(", text))
        for function in called_by_python(text):
            body_of = rf"\b{function}\([^;{{]*\) (?:noexcept )?\{{(\n.*?(?=^\}})|[^\n]*(?=\}}$))"
            found = re.search(body_of, text, re.DOTALL | re.MULTILINE)
            if found is None or "visitproc" in found[0]:
                continue
            body = found[1]
            takes = re.search(r"const Turn turn;|\bguarded<|dealloc_nested\(", body)
            if re.search(r"Turn turn;.*PyObject_GC_UnTrack", body, re.DOTALL):
                wrong.append(f"{name}: {function} untracks too late")
            if takes is None and body.strip() not in ("return Py_NewRef(self);", "return 1;"):
                wrong.append(f"{name}: {function}")
    return sorted(wrong)


def test_what_python_calls_takes_a_turn() -> None:
    assert sum(len(called_by_python(path.read_text(encoding="utf-8"))) for path in sources(CSRC)) > 30
    assert without_a_turn(CSRC) == []


def test_nothing_goes_against_the_direction() -> None:
    assert len(set(includes(CSRC))) > 100 and len(set(imports(PACKAGE))) > 100
    assert wrong_includes(CSRC) == []
    assert wrong_imports(PACKAGE) == []
    assert circles(PACKAGE) == []


def test_the_folders_are_those_that_have_a_place_in_it() -> None:
    for parent, folders in ((CSRC, FOLDERS), (PACKAGE, PACKAGES)):
        assert {path.parent.name for path in parent.glob("*/*") if path.suffix in (".h", ".py")} == {*folders}
    assert [path.name for path in CSRC.iterdir() if path.is_file()] == ["module.cpp"]


def test_no_file_is_too_long() -> None:
    lengths = {path: path.read_text(encoding="utf-8").count("\n") for path in [*sources(CSRC), *sources(PACKAGE)]}
    assert {path.name: length for path, length in lengths.items() if length > LONGEST} == {}


def test_what_cpp_names_of_python_is_there() -> None:
    table = (CSRC / "base/python_hooks.h").read_text(encoding="utf-8")
    named = {(module, name) for name, module in re.findall(r'PythonFunction (\w+)\{"([\w.]+)",\s*"\1"\}', table)}
    assert len(named) == table.count("inline PythonFunction ") > 10
    assert len(named) <= MOST_HOOKS
    used_in_call = {
        name for path in sources(CSRC / "call") for name in re.findall(r"python::(\w+)", path.read_text("utf-8"))
    }
    assert len(used_in_call) <= MOST_HOOKS_OF_CALL
    other = re.compile(r'"partax\._(?!core\b)')
    assert [path.name for path in sources(CSRC) if other.search(path.read_text("utf-8"))] == ["python_hooks.h"]
    for module, function in sorted(named, key=lambda it: ("flax" in it[0], it)):
        if "flax" in module:
            pytest.importorskip("flax")
        assert callable(getattr(importlib.import_module(module), function, None)), f"{module}.{function}"
