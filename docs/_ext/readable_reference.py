"""Has autodoc show partax as one reads it: a signature for each function, types of attributes, links between names."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import sys
from collections.abc import Callable
from typing import Any, Literal, ParamSpec, TypeVar, get_origin, get_type_hints

from sphinx.application import Sphinx
from sphinx.domains.python import PyObject
from sphinx.errors import PycodeError
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.inspect import stringify_signature
from sphinx.util.typing import ExtensionMetadata, stringify_annotation

CONSTRUCTED = {"Static", "filter_custom_jvp", "filter_custom_vjp"}
"""The classes that users make instances of; for all others a constructor is nothing to show."""

_WRAPPER = "JitFunction"


def _public_names() -> dict[str, str]:
    """Where each name in backticks leads to."""
    found: dict[str, str] = {}
    for module in ("partax.debug", "partax.stages", "partax.tree", "partax"):
        for name in importlib.import_module(module).__all__:
            found[f"{module}.{name}"] = f"{module}.{name}"
            if module != "partax.tree":
                found[name] = f"{module}.{name}"
    found["partax.nnx.jit"] = "partax.nnx.jit"
    found["accelerate"] = "partax.equinox.accelerate"
    return found


def _overloads(value: Any) -> dict[str, list[inspect.Signature]]:
    try:
        analyzer = ModuleAnalyzer.for_module(value.__module__)
        analyzer.analyze()
    except PycodeError:  # native
        return {}
    return analyzer.overloads


def signature(
    app: Sphinx, what: str, name: str, value: Any, options: Any, arguments: str | None, returned: str | None
) -> tuple[str, str] | None:
    """The signature of the implementation, without the `Any` that it returns where overloads say more."""
    if arguments is None or what not in ("class", "exception", "function", "method"):
        return None
    if isinstance(value, type):
        return (_readable(_constructor(value)), "") if value.__name__ in CONSTRUCTED else ("", "")
    overloads = _overloads(value)
    known = overloads.pop(value.__qualname__, [])  # autodoc, which looks there next, would show all of them
    if known:
        arguments = arguments.replace(", **options: Any", "").replace(", **options: ~typing.Any", "")  # only refused
        if str(returned).endswith("Any"):
            returned = _WRAPPER if str(known[0].return_annotation).startswith(_WRAPPER) else ""
    returned = _readable(returned or "")
    return _readable(arguments), "" if "partax._" in returned else returned  # the text says what it is


def _constructor(cls: type) -> str:
    """The arguments of a class, without those that only its copies are made with."""
    found = inspect.signature(cls)
    public = [one for one in found.parameters.values() if not one.name.startswith("_")]
    return stringify_signature(
        found.replace(parameters=public, return_annotation=found.empty), unqualified_typehints=True
    )


def _readable(text: str) -> str:
    """A signature with `T` for each type variable `partax._transforms.loops._T`, and without private defaults."""

    def bare(found: re.Match[str]) -> str:
        value = getattr(sys.modules.get(found[1]), found[2], None)
        return found[2].lstrip("_") if isinstance(value, (TypeVar, ParamSpec)) else found[0]

    text = text.replace("partax._core.JitFunction", "partax.stages.Wrapper")
    text = re.sub(r"~?\b(partax[\w.]+)\.(\w+)", bare, text)
    text = re.sub(r"(?<![\w.])_(P|Operands)\b", r"\1", text)
    text = re.sub(r"~?(?:typing\.)?Unpack\[(\w+)\]", r"*\1", text)
    return re.sub(r" = _\w+(?:\.\w+)*", " = ...", text).replace("[[...], ", "[..., ")


def _field_types(value: Any) -> dict[str, str]:
    """The types of a dataclass's or a named tuple's fields, as text."""
    if not isinstance(value, type) or not (dataclasses.is_dataclass(value) or hasattr(value, "_fields")):
        return {}
    try:
        hints = get_type_hints(value)
    except NameError:  # of a type that is imported for type checkers only
        hints = {name: hint for name, hint in inspect.get_annotations(value).items() if not isinstance(hint, str)}
    texts = {name: _type_text(hint) for name, hint in hints.items()}
    return {name: text for name, text in texts.items() if "._" not in text}


def _type_text(hint: Any) -> str:
    return "str" if get_origin(hint) is Literal else stringify_annotation(hint, "smart", short_literals=True)


def _linker(value: Any) -> Callable[[re.Match[str]], str]:
    """Makes code of what is in backticks, and a link where it is a public name."""
    names = _public_names()
    if getattr(value, "__module__", "").startswith(("partax._trees", "partax.tree")):
        names.update({name.rpartition(".")[2]: name for name in names if name.startswith("partax.tree.")})
    try:
        own: set[str] = set(inspect.signature(value).parameters) | {getattr(value, "__name__", "")}
    except (TypeError, ValueError):
        own = {getattr(value, "__name__", "")}

    def linked(match: re.Match[str]) -> str:
        text, ending = match.groups()
        name = text.removesuffix("()")
        is_link = name in names and name not in own
        code = f":py:obj:`{text} <{names[name]}>`" if is_link else f"``{text}``"
        return code + (rf"\ {ending}" if ending else "")

    return linked


def docstring(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Rewrites a docstring of the package: backticks, types of attributes, several errors on one line."""
    linked, types = _linker(value), _field_types(value)
    parts = re.split(r"(^Example:\n(?:  .*\n|\n(?=  ))*)", "\n".join(lines) + "\n", flags=re.MULTILINE)
    for i in range(0, len(parts), 2):  # those between examples
        parts[i] = re.sub(r"(?<![`:])`([^`]+)`(?!`)(\w*)", linked, parts[i])
        parts[i] = re.sub(r"^  (\w+): ", lambda match: _with_type(match, types), parts[i], flags=re.MULTILINE)
        parts[i] = re.sub(r"^  ((?:[\w*]+, )+[\w*]+): (.*(?:\n    .*)*)$", _one_each, parts[i], flags=re.MULTILINE)
        parts[i] = re.sub(r"^  (Retrace\w+): ", r"  ~partax.\1: ", parts[i], flags=re.MULTILINE)
    lines[:] = "".join(parts).split("\n")


def _with_type(match: re.Match[str], types: dict[str, str]) -> str:
    return f"  {match[1]} ({types[match[1]]}): " if match[1] in types else match[0]


def _one_each(match: re.Match[str]) -> str:
    return "\n".join(f"  {error}: {match[2]}" for error in match[1].split(", "))


def setup(app: Sphinx) -> ExtensionMetadata:
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"
    app.connect("autodoc-process-signature", signature)
    app.connect("autodoc-process-docstring", docstring, priority=400)  # before napoleon reads the sections
    return {"parallel_read_safe": True}
