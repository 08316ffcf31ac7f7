"""Guards the layout of the code: includes and imports follow the order of the directories, no file is longer than 400
lines, each function that Python calls takes a turn, and C++ names only Python functions that exist."""

import ast
import functools
import graphlib
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CSRC = ROOT / "csrc"
PACKAGE = ROOT / "python" / "partax"

# The directories of csrc/ and the sub-packages, in order: each may include or import only earlier ones. All may import
# `partax._core`, and the top files of the package may import all.
FOLDERS = ["base", "types", "static_key", "pytree", "partition", "dispatch"]  # `dispatch` does not include `partition`
PACKAGES = [
    "_jax", "_families", "_functions", "_pytree", "_jit", "_transforms", "_libraries", "_explain", "_steps", "_io",
    "_store", "_doctor",
]  # fmt: skip
LONGEST = 400
# Functions of partax that C++ calls: of all folders, and of csrc/dispatch.
MOST_HOOKS = 26
MOST_HOOKS_OF_DISPATCH = 8

Edge = tuple[str, str]  # from a file to what it includes or imports


def sources(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in (".h", ".cpp", ".py", ".pyi"))


def includes() -> Iterator[Edge]:
    for path in sources(CSRC):
        for name in re.findall(r'^\s*#\s*include\s*["<]([^">]+)[">]', path.read_text(encoding="utf-8"), re.MULTILINE):
            yield path.relative_to(CSRC).as_posix(), name


def is_wrong_include(source: str, name: str) -> bool:
    """Against the order of the directories, or of what only some files may include."""
    directory, target = source.split("/")[0], name.split("/")[0]
    if target in FOLDERS:
        before = FOLDERS[: FOLDERS.index(directory) + 1] if directory in FOLDERS else FOLDERS
        return target not in before or (directory, target) == ("dispatch", "partition")
    if name.startswith("pybind11/"):
        return re.fullmatch(r"(module\.cpp|base/binding\.h|(\w+)/register_\2\.cpp)", source) is None
    return name == "Python.h" and source != "base/python_api.h"


@functools.cache
def imports() -> list[Edge]:
    """From each file to the modules of the package that it imports, at any place."""
    edges: list[Edge] = []
    for path in sources(PACKAGE):
        inside = ("partax", *path.relative_to(PACKAGE).parent.parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                start = inside[: len(inside) - node.level + 1] if node.level else ()
                module = ".".join((*start, *([node.module] if node.module else [])))
                names = [f"{module}.{alias.name}" for alias in node.names]
            edges += [(path.relative_to(PACKAGE).as_posix(), name) for name in names if name.startswith("partax")]
    return edges


def is_wrong_import(source: str, name: str) -> bool:
    """From a sub-package to a later one, or to a top file."""
    directory, target = source.split("/")[0], name.split(".")[1:2]
    if "/" not in source or target in (["_core"], [directory]):
        return False
    return target == [] or target[0] not in PACKAGES[: PACKAGES.index(directory)]


def find_import_cycle() -> list[str]:
    files = {"partax." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in sources(PACKAGE)}
    edges: dict[str, set[str]] = {name: set() for name in files}
    for source, name in imports():
        candidates = (name, name.rpartition(".")[0], f"{name}.__init__")
        target = next((candidate for candidate in candidates if candidate in files), None)
        importer = "partax." + source.rpartition(".")[0].replace("/", ".")
        if target is not None and target not in (importer, "partax._core"):
            edges[importer].add(target)
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def called_by_python(text: str) -> set[str]:
    """The functions that a C++ file puts into slots, tables of methods and of properties."""
    return {
        *re.findall(r"Py_\w+, reinterpret_cast<void\*>\((\w+)\)", text),
        *re.findall(r"reinterpret_cast<void \(\*\)\(\)>\((\w+)\)", text),
        *re.findall(r'\{"\w+",\s*(\w+)(?:<[&\w:]+>)?, (?:METH_|nullptr)', text),
    }


def find_missing_turns() -> list[str]:
    """Functions whose body begins without one, except the collector's visits, which run while all threads stand."""
    wrong: list[str] = []
    for path in sources(CSRC):
        text = path.read_text(encoding="utf-8")
        if path.name != "binding.h":
            wrong += re.findall(r"module\.def\(|cpp_function\(", text)
        for function in called_by_python(text):
            body_of = rf"\b{function}\([^;{{]*\) (?:noexcept )?\{{(\n.*?(?=^\}})|[^\n]*(?=\}}$))"
            match = re.search(body_of, text, re.DOTALL | re.MULTILINE)
            if match is None or "visitproc" in match[0]:
                continue
            has_turn = re.search(r"const Turn turn;|\bguarded<|dealloc_nested\(", match[1])
            untracks_late = re.search(r"Turn turn;.*PyObject_GC_UnTrack", match[1], re.DOTALL)
            if untracks_late or (not has_turn and match[1].strip() not in ("return Py_NewRef(self);", "return 1;")):
                wrong.append(f"{path.name}: {function}")
    return wrong


def test_functions_called_by_python_take_a_turn() -> None:
    assert sum(len(called_by_python(path.read_text(encoding="utf-8"))) for path in sources(CSRC)) > 30
    assert find_missing_turns() == []


def test_includes_and_imports_follow_the_order_of_the_directories() -> None:
    assert len(set(includes())) > 100 and len(set(imports())) > 100
    assert [edge for edge in includes() if is_wrong_include(*edge)] == []
    assert [edge for edge in imports() if is_wrong_import(*edge)] == []
    assert find_import_cycle() == []


def test_every_directory_has_a_place_in_the_order() -> None:
    for parent, directories in ((CSRC, FOLDERS), (PACKAGE, PACKAGES)):
        assert {path.parent.name for path in parent.glob("*/*") if path.suffix in (".h", ".py")} == {*directories}
    assert [path.name for path in CSRC.iterdir() if path.is_file()] == ["module.cpp"]


def test_no_file_is_too_long() -> None:
    lengths = {path: path.read_text(encoding="utf-8").count("\n") for path in [*sources(CSRC), *sources(PACKAGE)]}
    assert {path.name: length for path, length in lengths.items() if length > LONGEST} == {}


def test_calls_are_passed_and_not_looked_up() -> None:
    """Only how much room a thread's stack has is kept for each thread."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in [*sources(CSRC), *sources(PACKAGE)]}
    of_haliax = "current_thread_local_mapping"
    assert [name for name, text in texts.items() if "thread_local" in text.replace(of_haliax, "")] == ["stack_room.cpp"]
    assert [name for name, text in texts.items() if "call_under_way" in text] == []


def test_what_cpp_names_of_python_is_there() -> None:
    table = (CSRC / "base/python_hooks.h").read_text(encoding="utf-8")
    named = {(module, name) for name, module in re.findall(r'PythonFunction (\w+)\{"([\w.]+)",\s*"\1"\}', table)}
    assert len(named) == table.count("inline PythonFunction ") > 10
    assert len(named) <= MOST_HOOKS
    used_in_call = {
        name for path in sources(CSRC / "dispatch") for name in re.findall(r"python::(\w+)", path.read_text("utf-8"))
    }
    assert len(used_in_call) <= MOST_HOOKS_OF_DISPATCH
    other = re.compile(r'"partax\._(?!core\b)')
    assert [path.name for path in sources(CSRC) if other.search(path.read_text("utf-8"))] == ["python_hooks.h"]
    for module, function in sorted(named, key=lambda it: ("flax" in it[0], it)):
        if "flax" in module:
            pytest.importorskip("flax")
        assert callable(getattr(importlib.import_module(module), function, None)), f"{module}.{function}"


def test_private_names_of_cpython_are_listed() -> None:
    listed = (ROOT / "docs/design/internals.md").read_text(encoding="utf-8")
    names = r"\b(?:_Py_?[A-Z]|PyUnstable_)\w+|\b(?:wr|ob|func|co)_[a-z]+\b|\bd_member\b|\b_cs_\w+|\._bits"
    used = {name.lstrip(".") for path in sources(CSRC) for name in re.findall(names, path.read_text(encoding="utf-8"))}
    assert len(used) > 10
    assert {name for name in used if f"`{name}`" not in listed} == set()
