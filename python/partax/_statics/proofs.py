"""What code can read and what of that never changes: asked once of each type, module and code object."""

import dataclasses
import dis
import functools
import os
import sys
import sysconfig
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

_HEAP_TYPE = 1 << 9
_WORD = object.__basicsize__ // 2
# Classes whose instances never change and tell themselves apart by `==`, by module and name: nothing is imported here.
_CONSTANT_CLASSES = {
    ("numpy", "dtype"),
    ("builtins", "range"),
    ("fractions", "Fraction"),
    ("decimal", "Decimal"),
    ("datetime", "date"),
    ("datetime", "time"),
    ("datetime", "timedelta"),
    ("datetime", "tzinfo"),
    ("pathlib", "PurePath"),
    ("pathlib._local", "PurePath"),
    ("uuid", "UUID"),
    ("re", "Pattern"),
    ("ipaddress", "_IPAddressBase"),
    ("types", "GenericAlias"),
    ("types", "UnionType"),
    ("typing", "Union"),
    ("jax", "ShapeDtypeStruct"),
    ("jax._src.core", "ShapeDtypeStruct"),
}
_CONSTANT_JAX_CLASSES = {"Sharding", "PartitionSpec", "Mesh", "AbstractMesh", "Device", "PyTreeDef", "UnspecifiedValue"}
# What these give is nowhere in reach: a clock, chance, the environment, a file, names that are made up.
_OUTSIDE = {
    "time": "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time localtime gmtime",
    "os": "getenv urandom listdir stat getcwd getpid",
    "posix": "urandom listdir stat getcwd getpid",
    "nt": "urandom listdir stat getcwd getpid",
    "uuid": "uuid1 uuid4",
    "secrets": "token_bytes token_hex token_urlsafe",
    "builtins": "open input eval exec compile globals locals vars __import__",
    "io": "open",
    "_io": "open",
    "numpy": "load loadtxt fromfile genfromtxt fromregex memmap",
    "decimal": "getcontext localcontext",
    "_decimal": "getcontext localcontext",
    "importlib": "import_module reload",
    "inspect": "currentframe stack",
    "sys": "_getframe",
    # What is handed to these reads what it holds when the program runs.
    "jax._src.callback": "pure_callback io_callback",
    "jax._src.debugging": "debug_callback",
    "equinox._callback": "filter_pure_callback",
}


_CLOCKS = {"now", "utcnow", "today"}  # of datetime's classes
_READERS = {"open", "read_text", "read_bytes"}  # of paths, and of what else opens files
# What is written down of no function and no class, though it may be changed.
_REFLECTIONS = {
    *("__annotations__", "__doc__", "__globals__", "__module__", "__subclasses__", "__type_params__"),
    *("f_back", "f_globals", "f_locals", "gi_frame", "tb_frame"),
}


def read(value: Any, name: str, default: Any = None) -> Any:
    """An attribute of a user's object; the default where asking for it raises, whatever it is."""
    try:
        return getattr(value, name, default)
    except MemoryError:
        raise
    except Exception:
        return default


def unwrapped(fun: Any) -> Any:
    """What partials and wrappers of a callable lead to."""
    for _ in range(100):
        inner = fun.func if isinstance(fun, functools.partial) else read(fun, "__wrapped__")
        if not callable(inner):
            break
        fun = inner
    return fun


_Asked = TypeVar("_Asked")
_Result = TypeVar("_Result")


def _asked_once(function: Callable[[_Asked], _Result]) -> Callable[[_Asked], _Result]:
    """Asks once of each object, by identity, as long as it lives."""
    known: dict[int, tuple[weakref.ref[_Asked], _Result]] = {}

    @functools.wraps(function)
    def ask(it: _Asked) -> _Result:
        found = known.get(id(it))
        if found is None or found[0]() is not it:
            place = id(it)
            found = known[place] = (weakref.ref(it, lambda _: known.pop(place, None)), function(it))
        return found[1]

    return ask


class Traits(NamedTuple):
    """What a type tells of its instances.

    Attributes:
      compared: the names of the fields by which a frozen dataclass compares; None for any other class.
      slots: the member descriptors of its slots, if an instance has no state but these, its dictionary and the content
        of a built-in base; None if it may have some that is out of reach.
      installed: whether Python or an installed library defines it.
      constant: whether instances never change and tell themselves apart by `==`.
      enum: whether instances are members of an enumeration.
    """

    compared: tuple[str, ...] | None
    slots: tuple[Any, ...] | None
    installed: bool
    constant: bool
    enum: bool


def traits(cls: type, module_class: type | None) -> Traits:
    """Describes a type.

    Args:
      cls: the type.
      module_class: Equinox's `Module`, if it is there.

    Returns:
      Its traits.
    """
    installed = is_installed(cls.__module__)
    constant = installed and any(map(_is_constant, cls.__mro__))
    is_enum = isinstance(read(cls, "_member_map_"), dict)
    return Traits(_compared(cls, module_class), _slots(cls), installed, constant, is_enum)


class Facts(NamedTuple):
    """What `Traits` says of a type, without the descriptors, which would keep it alive."""

    installed: bool
    constant: bool
    enum: bool
    in_reach: bool


@_asked_once
def facts(cls: type) -> Facts:
    """What the readings ask of a type again and again."""
    known = traits(cls, None)
    return Facts(known.installed, known.constant, known.enum, known.slots is not None)


def _is_constant(cls: type) -> bool:
    is_of_jax = cls.__module__.startswith("jax") and cls.__name__ in _CONSTANT_JAX_CLASSES
    return is_of_jax or (cls.__module__, cls.__qualname__) in _CONSTANT_CLASSES


def _compared(cls: type, module_class: type | None) -> tuple[str, ...] | None:
    owner: Any = next(base for base in cls.__mro__ if "__eq__" in base.__dict__)
    params: Any = owner.__dict__.get("__dataclass_params__")
    if owner is module_class:
        return tuple(cls.__dataclass_fields__)  # type: ignore[attr-defined]
    if params is None or not params.frozen or not params.eq:
        return None
    code = getattr(owner.__dict__["__eq__"], "__code__", None)
    # A class with an `__eq__` of its own keeps it, and its parameters do not say so.
    if not isinstance(code, types.CodeType) or not code.co_qualname.startswith("__create_fn__.<locals>"):
        return None
    return tuple(field.name for field in dataclasses.fields(owner) if field.compare)


def _slots(cls: type) -> tuple[Any, ...] | None:
    base, slots = object, list[Any]()
    for known in cls.__mro__:
        if known in _CONTENTS:
            if not issubclass(base, known):
                base = known
        elif not known.__flags__ & _HEAP_TYPE:
            return None
        else:
            slots += [member for member in known.__dict__.values() if isinstance(member, types.MemberDescriptorType)]
    words = len(slots) + sum((cls.__dictoffset__ > 0, cls.__weakrefoffset__ > 0))
    words -= sum((base.__dictoffset__ > 0, base.__weakrefoffset__ > 0))
    if cls.__itemsize__ != base.__itemsize__ or (base.__itemsize__ and slots):
        return None
    sized = base.__itemsize__ or cls.__basicsize__ == base.__basicsize__ + _WORD * words
    return tuple(slots) if sized else None


# The built-in bases whose content is known.
_CONTENTS: set[type] = {
    *(object, int, float, complex, str, bytes, tuple, list, dict, set, frozenset, bytearray),
    *(functools.partial, types.SimpleNamespace),
}


@functools.cache
def _installed_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {os.path.realpath(paths[name]) for name in names if name in paths}
    for entry in sys.path:  # of other environments that this one sees
        if os.path.basename(entry) in ("site-packages", "dist-packages"):
            folders.add(os.path.realpath(entry))
    return tuple(folder + os.sep for folder in folders)


@functools.cache
def is_installed(module: Any) -> bool:
    """Whether a module of this name is Python's own or of an installed library, and not the user's."""
    if not isinstance(module, str):
        return False
    if module in sys.builtin_module_names or module == "builtins":
        return True
    root = module.partition(".")[0]
    if root in ("partax", "__main__"):
        return root == "partax"
    found = sys.modules.get(module) or sys.modules.get(root)
    file = getattr(found, "__file__", None)
    if not isinstance(file, str):
        spec = getattr(found, "__spec__", None)
        return getattr(spec, "origin", None) in ("built-in", "frozen")
    return os.path.realpath(file).startswith(_installed_folders())


def is_of_library(value: Any) -> bool:
    """Whether Python or an installed library defines a callable, so that it is found there by its name."""
    module = read(value, "__module__") or type(value).__module__  # NumPy's older functions have none
    name = read(value, "__qualname__") or read(value, "__name__")
    if not is_installed(module) or not isinstance(name, str) or reads_outside(value):
        return False
    found = sys.modules.get(module)
    for part in name.split("."):
        found = read(found, part)
    return found is value


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


_IDLE = {"CACHE", "PRECALL", "EXTENDED_ARG", "NOP", "PUSH_NULL", "RESUME"}


@_asked_once
def global_names(code: types.CodeType) -> tuple[tuple[tuple[str, ...], ...], str | None]:
    """The global names that a code object and the code inside it read.

    Args:
      code: of a function.

    Returns:
      Each name followed by the attributes that are read of it at once, as `("jax", "numpy", "sin")`, and what it reads
      that has no such name, or None.
    """
    found: dict[tuple[str, ...], None] = {}
    unknown: str | None = None
    for part in _codes(code):
        chain: tuple[str, ...] = ()
        for step in dis.get_instructions(part):
            is_attribute = step.opname in ("LOAD_ATTR", "LOAD_METHOD")
            if is_attribute and step.argval in _READERS:
                unknown = f"a file by '.{step.argval}'"
            elif is_attribute and step.argval in _REFLECTIONS:
                unknown = f"what '.{step.argval}' gives"
            if chain and is_attribute:
                chain += (step.argval,)
                continue
            if step.opname in _IDLE:
                continue
            if chain:
                found[chain] = None
                if chain[-1] in _CLOCKS:
                    unknown = f"the clock by {'.'.join(chain)!r}"
            chain = ()
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
                chain = (step.argval,)
            elif step.opname == "IMPORT_NAME":
                # `import os.path` gives the body `os`.
                known = [sys.modules.get(name) for name in (step.argval, step.argval.partition(".")[0])]
                if not is_installed(step.argval) or any(module and leads_outside(module, code) for module in known):
                    unknown = f"the import of {step.argval!r}"
    return tuple(found), unknown


@_asked_once
def written_cells(code: types.CodeType) -> tuple[bool | None, ...]:
    """Which closure cells a code object and the code inside it write to.

    Args:
      code: of a function.

    Returns:
      For each of its free variables True if the code assigns it, as a counter; None if, where it is a container, the
      code only adds to it, as to a log; else False.
    """
    if not code.co_freevars:
        return ()
    assigned, read = _cell_uses(code)
    return tuple(True if name in assigned else False if name in read else None for name in code.co_freevars)


_ADDING = {"append", "appendleft", "extend", "insert", "add", "update"}
_SIMPLE_LOADS = {"LOAD_CONST", "LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_SMALL_INT", "LOAD_DEREF"}


def _cell_uses(code: types.CodeType) -> tuple[set[str], set[str]]:
    """The free variables that a code object and the code inside it assign, and those that they read."""
    assigned: set[str] = set()
    read: set[str] = set()
    steps = [step for step in dis.get_instructions(code) if step.opname not in _IDLE]
    for step, after, third in zip(steps, [*steps[1:], None], [*steps[2:], None, None], strict=False):
        if step.opname in ("STORE_DEREF", "DELETE_DEREF"):
            assigned.add(step.argval)
        elif step.opname in ("LOAD_FROM_DICT_OR_DEREF", "LOAD_CLASSDEREF"):
            read.add(step.argval)
        elif step.opname == "LOAD_DEREF":
            adds = after is not None and after.opname in ("LOAD_ATTR", "LOAD_METHOD") and after.argval in _ADDING
            stores = after is not None and after.opname in _SIMPLE_LOADS
            if not adds and not (stores and third is not None and third.opname == "STORE_SUBSCR"):
                read.add(step.argval)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            inner_assigned, inner_read = _cell_uses(inner)
            assigned |= inner_assigned
            read |= inner_read
    free = set(code.co_freevars)  # else they are variables of this code
    return assigned & free, read & free


def reads_outside(value: Any) -> bool:
    """Whether what a function of Python gives depends on more than its arguments."""
    module = read(value, "__module__")
    return isinstance(module, str) and read(value, "__name__") in _OUTSIDE.get(module, "").split()


def leads_outside(module: types.ModuleType, code: types.CodeType) -> bool:
    """Whether code that has a module of a library may get from it what depends on more than its arguments.

    Args:
      module: the module.
      code: of a function; all attributes that it and the code inside it name are looked for in the module.

    Returns:
      Whether one of them is such a function, or a container that may change.
    """
    names = {name for part in _codes(code) for name in part.co_names}
    seen, pending = {id(module)}, [module]
    while pending:
        scope = pending.pop()
        if scope.__name__ == "datetime" and not names.isdisjoint(_CLOCKS):
            return True
        for value in [read(scope, name, 0) for name in names]:
            if isinstance(value, types.ModuleType):
                pending += [value] if id(value) not in seen else []
                seen.add(id(value))
            elif isinstance(value, type):
                continue
            elif hasattr(type(value), "__setitem__") or reads_outside(value) or _is_of_instance(value):
                return True
    return False


def _is_of_instance(function: Any) -> bool:
    """Whether a function is a method of an object with a state, as those of `random` are."""
    owner = read(function, "__self__")
    return owner is not None and not isinstance(owner, (types.ModuleType, type))
