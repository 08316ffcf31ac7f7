"""Guards the promise that classes and instances count by all that the code can reach, however they were made."""

from __future__ import annotations

from programs import source_of

# What they define, the value that the function takes its array times, and what changes.
_MADE = {
    "types.new_class with a base": (
        "import types\nclass B: pass\nC = types.new_class('C', (B,))\nC.k = 2.0",
        "C.k",
        "C.k = 3.0",
    ),
    "types.new_class of a metaclass": (
        "import types\nclass M(type): pass\nC = types.new_class('C', (), {'metaclass': M}, lambda ns: ns.update(k=2.0))",
        "C().k",
        "C.k = 3.0",
    ),
    "base of a types.new_class": (
        "import types\nclass B: k = 2.0\nC = types.new_class('C', (B,))",
        "C.k",
        "B.k = 3.0",
    ),
    "abc.ABCMeta with a method": (
        "import abc\nC = abc.ABCMeta('C', (), {'rate': lambda self: 2.0})",
        "C().rate()",
        "C.rate = lambda self: 3.0",
    ),
    "abc.ABCMeta in a closure": (
        "import abc\ndef made(c): return lambda: c.k\nget = made(abc.ABCMeta('C', (), {'k': 2.0}))\nC = get.__closure__[0].cell_contents",
        "get()",
        "C.k = 3.0",
    ),
    "type()": ("C = type('C', (), {'k': 2.0})", "C.k", "C.k = 3.0"),
    "type() that tells of builtins": (
        "C = type('C', (), {'k': 2.0, '__module__': 'builtins'})",
        "C.k",
        "C.k = 3.0",
    ),
    "class that tells of another module": (
        "class C: k = 2.0\nC.__module__ = 'jax.numpy'",
        "C.k",
        "C.k = 3.0",
    ),
    "class that tells of another module and name": (
        "class C: k = 2.0\nC.__module__, C.__qualname__, C.__name__ = 'fractions', 'Fraction', 'Fraction'",
        "C().k",
        "C.k = 3.0",
    ),
    "class whose module is none": ("class C: k = 2.0\nC.__module__ = None", "C().k", "C.k = 3.0"),
    "executed class": ("S = {'__name__': 'math'}\nexec('class C: k = 2.0', S)\nC = S['C']", "C.k", "C.k = 3.0"),
    "executed class with a method": (
        "S = {}\nexec('class C:\\n def rate(self): return self.k', S)\nC = S['C']\nC.k = 2.0",
        "C().rate()",
        "C.k = 3.0",
    ),
    "executed function": ("S = {'K': 2.0}\nexec('def get(): return K', S)\nget = S['get']", "get()", "S['K'] = 3.0"),
    "executed function of a listed module": (
        "S = {'K': 2.0, '__name__': 'jax.numpy'}\nexec('def sin(): return K', S)\nget = S['sin']",
        "get()",
        "S['K'] = 3.0",
    ),
    "function that tells of another module": (
        "K = 2.0\ndef sin(): return K\nsin.__module__ = 'jax.numpy'",
        "sin()",
        "K = 3.0",
    ),
    "evaluated lambda": ("S = {'K': 2.0}\nget = eval('lambda: K', S)", "get()", "S['K'] = 3.0"),
    "make_dataclass": (
        "import dataclasses\nC = dataclasses.make_dataclass('C', [('k', float, 2.0)])",
        "C.k",
        "C.k = 3.0",
    ),
    "make_dataclass, frozen": (
        "import dataclasses\nC = dataclasses.make_dataclass('C', ['a'], frozen=True, namespace={'k': 2.0})\nc = C(1)",
        "c.k",
        "C.k = 3.0",
    ),
    "namedtuple": ("import collections\nC = collections.namedtuple('C', 'a')\nC.k = 2.0", "C(1).k", "C.k = 3.0"),
    "namedtuple that tells of a listed module": (
        "import collections\nC = collections.namedtuple('C', 'a', module='math')\nC.k = 2.0",
        "C.k",
        "C.k = 3.0",
    ),
    "default of a namedtuple": (
        "import collections\nC = collections.namedtuple('C', 'k', defaults=[2.0])",
        "C().k",
        "C.__new__.__defaults__ = (3.0,)",
    ),
    "class in a function": (
        "K = 2.0\ndef made():\n    class C:\n        def rate(self): return K\n    return C\nC = made()",
        "C().rate()",
        "K = 3.0",
    ),
    "generic class": (
        "import typing\nT = typing.TypeVar('T')\nclass C(typing.Generic[T]): k = 2.0",
        "C[int].k",
        "C.k = 3.0",
    ),
    "class of a copied namespace": (
        "class B: k = 2.0\nC = type(B)('C', B.__bases__, dict(B.__dict__))",
        "C.k",
        "C.k = 3.0",
    ),
}
MODE = "import enum\nclass Mode(enum.Enum):\n    FAST = 1\n    SLOW = 2\n    def rate(self): return self.k\nMode.FAST.k = 2.0\nm = Mode.FAST\n"
_ENUM = {
    "attribute of a member": (MODE, "m.k", "m.k = 3.0"),
    "attribute of a member by its name": (MODE, "Mode['FAST'].k", "m.k = 3.0"),
    "attribute of a member by its value": (MODE, "Mode(1).k", "m.k = 3.0"),
    "method of a member": (MODE, "m.rate()", "m.k = 3.0"),
    "attribute of a member in a tuple": (f"{MODE}t = (1, (m,))", "t[1][0].k", "m.k = 3.0"),
    "attribute of a member in a frozen dataclass": (
        f"{MODE}import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass F: m: Mode\nf = F(m)",
        "f.m.k",
        "m.k = 3.0",
    ),
    "members in a loop": (MODE, "sum(getattr(m, 'k', 0.0) for m in Mode)", "Mode.SLOW.k = 3.0"),
    "value of a member": (MODE, "(1.0 + m.value)", "m._value_ = 3.0"),
    "name of a member": (MODE, "len(m.name)", "m._name_ = 'FASTER'"),
    "attribute of an IntEnum": (
        "import enum\nclass N(enum.IntEnum): A = 1\nN.A.k = 2.0\ndef made(n): return lambda: n.k\nget = made(N.A)",
        "get()",
        "N.A.k = 3.0",
    ),
    "attribute of a flag": ("import enum\nclass N(enum.Flag): A = 1\nN.A.k = 2.0", "N.A.k", "N.A.k = 3.0"),
    "class attribute of an enumeration": (
        f"{MODE}type.__setattr__(Mode, 'shared', 2.0)",
        "m.shared",
        "type.__setattr__(Mode, 'shared', 3.0)",
    ),
    "property of a member that reads a global": (
        "import enum\nK = 2.0\nclass N(enum.Enum):\n    A = 1\n    @property\n    def k(self): return K",
        "N.A.k",
        "K = 3.0",
    ),
    "_missing_ that reads a global": (
        "import enum\nK = 2.0\nclass N(enum.Enum):\n    A, B = 2.0, 3.0\n    @classmethod\n"
        "    def _missing_(cls, v): return cls(K)",
        "N('any').value",
        "K = 3.0",
    ),
    "enumeration made by a call": (
        "import enum\nN = enum.Enum('N', 'A', module='jax')\nN.A.k = 2.0",
        "N.A.k",
        "N.A.k = 3.0",
    ),
}
DATA = "import dataclasses\nK = 2.0\ndef default(): return K\nmeta = {'k': 2.0}\n"
CLASS = (
    f"{DATA}@dataclasses.dataclass(frozen=True)\nclass C:\n    a: float = dataclasses.field(default=2.0, metadata=meta)\n"
    "    b: float = dataclasses.field(default_factory=default)\n"
)
_DATACLASS = {
    "metadata of a field": (CLASS, "dataclasses.fields(C)[0].metadata['k']", "meta['k'] = 3.0"),
    "metadata of an instance's field": (CLASS, "dataclasses.fields(C(1.0))[0].metadata['k']", "meta['k'] = 3.0"),
    "default of a field": (CLASS, "dataclasses.fields(C)[0].default", "dataclasses.fields(C)[0].default = 3.0"),
    "default factory": (CLASS, "C().b", "K = 3.0"),
    "default factory by replace": (CLASS, "dataclasses.replace(C(), a=1.0).b * C().b", "K = 3.0"),
    "fields by asdict": (CLASS, "len(dataclasses.asdict(C()))", "del C.__dataclass_fields__['b']"),
    "fields by astuple": (CLASS, "len(dataclasses.astuple(C()))", "del C.__dataclass_fields__['b']"),
    "name of a field": (CLASS, "len(dataclasses.fields(C)[0].name)", "dataclasses.fields(C)[0].name = 'long'"),
    "type of a field": (CLASS, "len(str(dataclasses.fields(C)[0].type))", "dataclasses.fields(C)[0].type = int"),
    "default in __init__": (CLASS, "C().a", "C.__init__.__defaults__ = (3.0, 1.0)"),
    "__post_init__": (
        f"{DATA}@dataclasses.dataclass\nclass C:\n    def __post_init__(self): self.k = K",
        "C().k",
        "K = 3.0",
    ),
    "is_dataclass": (
        "import dataclasses\nclass C: pass",
        "(3.0 if dataclasses.is_dataclass(C) else 2.0)",
        "dataclasses.dataclass(C)",
    ),
    "field of a module of Equinox": (
        "import dataclasses, equinox as eqx\nmeta = {'k': 2.0}\nclass M(eqx.Module):\n"
        "    a: float = eqx.field(default=1.0, metadata=meta)",
        "dataclasses.fields(M())[0].metadata['k']",
        "dataclasses.fields(M)[0].metadata = {'k': 3.0}",
    ),
}
OBJECT = "class O: k = 2.0\no = O()\n"
_HOOKS = {
    "method of a metaclass": (
        "K = 2.0\nclass M(type):\n    def rate(cls): return K\nclass C(metaclass=M): pass",
        "C.rate()",
        "K = 3.0",
    ),
    "property of a metaclass": (
        "class M(type):\n    k = property(lambda cls: cls.rate)\n    rate = 2.0\nclass C(metaclass=M): pass",
        "C.k",
        "M.rate = 3.0",
    ),
    "__getattr__ of a metaclass": (
        "K = 2.0\nclass M(type):\n    def __getattr__(cls, name): return K\nclass C(metaclass=M): pass",
        "C.k",
        "K = 3.0",
    ),
    "__call__ of a metaclass": (
        "K = 2.0\nclass M(type):\n    def __call__(cls): return K\nclass C(metaclass=M): pass",
        "C()",
        "K = 3.0",
    ),
    "__instancecheck__": (
        "K = False\nclass M(type):\n    def __instancecheck__(cls, o): return K\nclass C(metaclass=M): pass",
        "(3.0 if isinstance(1, C) else 2.0)",
        "K = True",
    ),
    "__iter__ of a metaclass": (
        "K = 2.0\nclass M(type):\n    def __iter__(cls): return iter([K])\nclass C(metaclass=M): pass",
        "[*C][0]",
        "K = 3.0",
    ),
    "__subclasshook__": (
        "import abc\nK = False\nclass C(abc.ABC):\n    @classmethod\n    def __subclasshook__(cls, c): return K\n"
        "class D: pass\nclass E: pass\nT = D",
        "(3.0 if issubclass(T, C) else 2.0)",
        "K = True\nT = E",
    ),
    "ABC registered after": (
        "import abc\nclass B(abc.ABC): pass",
        "(3.0 if isinstance(1, B) else 2.0)",
        "B.register(int)",
    ),
    "ABC registered after, by issubclass": (
        "import abc\nclass B(metaclass=abc.ABCMeta): pass\nclass C: pass",
        "(3.0 if issubclass(C, B) else 2.0)",
        "B.register(C)",
    ),
    "runtime protocol": (
        "import typing\n@typing.runtime_checkable\nclass P(typing.Protocol):\n    def rate(self): ...\nclass C: pass",
        "(3.0 if isinstance(C(), P) else 2.0)",
        "C.rate = lambda self: 1",
    ),
    "__class_getitem__": ("K = 2.0\nclass C:\n    def __class_getitem__(cls, i): return K", "C[0]", "K = 3.0"),
    "__init_subclass__": (
        "L = []\nclass B:\n    def __init_subclass__(cls): L.append(cls)\nclass C(B): pass",
        "len(L)",
        "class D(B): pass",
    ),
    "registry of a base": (
        "class B:\n    all = []\n    def __init_subclass__(cls): B.all.append(cls)\nclass C(B): pass",
        "len(B.all)",
        "class D(B): pass",
    ),
    "descriptor": (
        "class D:\n    k = 2.0\n    def __get__(self, o, c=None): return self.k\nd = D()\nclass C: k = d",
        "C.k",
        "d.k = 3.0",
    ),
    "descriptor that reads a global": (
        "K = 2.0\nclass D:\n    def __get__(self, o, c=None): return K\nclass C: k = D()",
        "C().k",
        "K = 3.0",
    ),
    "__set_name__": (
        "class D:\n    def __set_name__(self, c, name): self.name = name\n    def __get__(self, o, c): return o.values[self.name]\n"
        "class C:\n    k = D()\n    values = {'k': 2.0}\nc = C()",
        "c.k",
        "C.values['k'] = 3.0",
    ),
    "property that reads a global": ("K = 2.0\nclass C: k = property(lambda self: K)\nc = C()", "c.k", "K = 3.0"),
    "property of a class made in the body": ("K = 2.0\nclass C: k = property(lambda self: K)", "C().k", "K = 3.0"),
    "__getattr__": ("K = 2.0\nclass C:\n    def __getattr__(self, name): return K\nc = C()", "c.k", "K = 3.0"),
    "__getattr__ of a class made in the body": (
        "T = {'k': 2.0}\nclass C:\n    def __getattr__(self, name): return T[name]",
        "C().k",
        "T['k'] = 3.0",
    ),
    "__getattribute__": (
        "K = 2.0\nclass C:\n    def __getattribute__(self, name): return K\nc = C()",
        "c.k",
        "K = 3.0",
    ),
    "__getattr__ of a module": (
        "import types\nm = types.ModuleType('m')\nK = 2.0\nm.__getattr__ = lambda name: K",
        "m.k",
        "K = 3.0",
    ),
    "decorator of a class": (
        "K = 2.0\ndef deco(c):\n    c.rate = lambda self: K\n    return c\n@deco\nclass C: pass",
        "C().rate()",
        "K = 3.0",
    ),
    "method with another closure": (
        "def made(k): return lambda self: k\nclass C: rate = made(2.0)",
        "C().rate()",
        "C.rate = made(3.0)",
    ),
    "method with another default": (
        "def made(k): return lambda self, k=k: k\nclass C: rate = made(2.0)\nc = C()",
        "c.rate()",
        "C.rate = made(3.0)",
    ),
    "bases replaced": (
        "class A: k = 2.0\nclass B: k = 3.0\nclass C(A): pass",
        "C.k",
        "C.__bases__ = (B,)",
    ),
    "bases of a base replaced": (
        "class A:\n    def rate(self): return 2.0\nclass B:\n    def rate(self): return 3.0\nclass M(A): pass\nclass C(M): pass",
        "C().rate()",
        "M.__bases__ = (B,)",
    ),
    "class of an object replaced": (f"{OBJECT}class P: k = 3.0", "o.k", "o.__class__ = P"),
    "object made without __init__": (f"{OBJECT}", "object.__new__(O).k", "O.k = 3.0"),
    "__bool__": (f"{OBJECT}O.__bool__ = lambda self: True", "(2.0 if o else 3.0)", "O.__bool__ = lambda self: False"),
    "__len__": (f"{OBJECT}O.__len__ = lambda self: 2", "len(O())", "O.__len__ = lambda self: 3"),
    "__eq__": (f"{OBJECT}", "(3.0 if O() == 1 else 2.0)", "O.__eq__ = lambda self, other: True"),
    "__contains__": (
        f"{OBJECT}O.__contains__ = lambda s, i: True",
        "(2.0 if 1 in O() else 3.0)",
        "O.__contains__ = lambda s, i: False",
    ),
    "__float__": (f"{OBJECT}O.__float__ = lambda self: 2.0", "float(O())", "O.__float__ = lambda self: 3.0"),
    "__rmul__": (f"{OBJECT}O.__rmul__ = lambda self, x: x * 2.0", "1.0 * O()", "O.__rmul__ = lambda self, x: x * 3.0"),
    "__jax_array__": (
        f"import jax.numpy as jnp\n{OBJECT}O.__jax_array__ = lambda self: jnp.float32(2)",
        "jnp.asarray(O())",
        "O.__jax_array__ = lambda self: jnp.float32(3)",
    ),
    "__format__": (
        f"{OBJECT}O.__format__ = lambda self, spec: '2.0'",
        "float(f'{O()}')",
        "O.__format__ = lambda self, spec: '3.0'",
    ),
    "__enter__": (
        f"{OBJECT}O.__enter__ = lambda self: 2.0\nO.__exit__ = lambda *a: None\ndef get():\n    with O() as k: return k",
        "get()",
        "O.__enter__ = lambda self: 3.0",
    ),
    "__call__": (f"{OBJECT}O.__call__ = lambda self: 2.0", "O()()", "O.__call__ = lambda self: 3.0"),
    "__new__": (f"{OBJECT}O.__new__ = staticmethod(lambda c: 2.0)", "O()", "O.__new__ = staticmethod(lambda c: 3.0)"),
    "__init__": (
        "class C:\n    def __init__(self): self.k = 2.0",
        "C().k",
        "def init(self): self.k = 3.0\nC.__init__ = init",
    ),
    "order of methods": (
        "class A: k = 2.0\nclass B: k = 3.0\nclass C(A, B): pass",
        "C.__mro__[1].k",
        "C.__bases__ = (B, A)",
    ),
}
for _names in ("__index__", "__int__"):
    _value = {"__index__": "[1.0, 2.0, 3.0][O()]", "__int__": "int(O())"}[_names]
    _HOOKS[_names] = (f"{OBJECT}O.{_names} = lambda self: 1", _value, f"O.{_names} = lambda self: 2")

KINDS: dict[str, dict[str, str]] = {
    kind: {name: source_of(parts) for name, parts in programs.items()}
    for kind, programs in {"made": _MADE, "enum": _ENUM, "dataclass": _DATACLASS, "hook": _HOOKS}.items()
}
