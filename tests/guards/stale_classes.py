"""Guards the promise that classes and instances count by all that the code can reach, however they were made."""

from __future__ import annotations

from programs import sources_of

from short_programs import rows_of

rows = rows_of(globals())

# What they define → the value that the function takes its array times → what changes.
_MADE = rows(r"""
types.new_class with a base: class B: pass\nC = types.new_class('C', (B,))\nC.k = 2.0 → C.k → C.k = 3.0
base of a types.new_class: class B: k = 2.0\nC = types.new_class('C', (B,)) → C.k → B.k = 3.0
abc.ABCMeta with a method: C = abc.ABCMeta('C', (), {'rate': lambda self: 2.0}) → C().rate() → C.rate = lambda self: 3.0
type(): C = type('C', (), {'k': 2.0}) → C.k → C.k = 3.0
type() that tells of builtins: C = type('C', (), {'k': 2.0, '__module__': 'builtins'}) → C.k → C.k = 3.0
class that tells of another module and name: class C: k = 2.0\nC.__module__, C.__qualname__, C.__name__ = 'fractions',
  'Fraction', 'Fraction' → C().k → C.k = 3.0
module of a class, in its text: class C: pass\nC.__module__ = 'a' → len(repr(C)) → C.__module__ = 'ab'
class whose module is none: class C: k = 2.0\nC.__module__ = None → C().k → C.k = 3.0
executed class: S = {'__name__': 'math'}\nexec('class C: k = 2.0', S)\nC = S['C'] → C.k → C.k = 3.0
executed function: S = {'K': 2.0}\nexec('def get(): return K', S)\nget = S['get'] → get() → S['K'] = 3.0
executed function of a listed module: S = {'K': 2.0, '__name__': 'jax.numpy'}\nexec('def sin(): return K', S)
  \nget = S['sin'] → get() → S['K'] = 3.0
function that tells of another module: def sin(): return K\nsin.__module__ = 'jax.numpy' → sin() → K
make_dataclass: C = dataclasses.make_dataclass('C', [('k', float, 2.0)]) → C.k → C.k = 3.0
namedtuple: C = collections.namedtuple('C', 'a')\nC.k = 2.0 → C(1).k → C.k = 3.0
default of a namedtuple: C = collections.namedtuple('C', 'k', defaults=[2.0]) → C().k → C.__new__.__defaults__ = (3.0,)
generic class: T = typing.TypeVar('T')\nclass C(typing.Generic[T]): k = 2.0 → C[int].k → C.k = 3.0
""") | {
    **{
        f"class that tells of being {name} of {module}": (
            f"class {name}:\n    k = 2.0\n    def __eq__(self, other): return True\n    def __hash__(self): return 1\n"
            f"{name}.__module__ = '{module}'\nc = {name}() → c.k → c.k = 3.0"
        )
        for name, module in [
            ("Mesh", "jax._src.mesh"),
            ("P", "jax"),
            ("NamedSharding", "jax.sharding"),
            ("FrozenDict", "flax.core.frozen_dict"),
            ("HashableMapping", "flax.typing"),
            ("Static", "partax._core"),
        ]
    },
}
MODE = "class Mode(enum.Enum):\n    FAST = 1\n    SLOW = 2\n    def rate(self): return self.k\nMode.FAST.k = 2.0\nm = Mode.FAST\n"
_ENUM = rows(r"""
attribute of a member: {MODE} → m.k → m.k = 3.0
attribute of a member by its name: {MODE} → Mode['FAST'].k → m.k = 3.0
attribute of a member by its value: {MODE} → Mode(1).k → m.k = 3.0
method of a member: {MODE} → m.rate() → m.k = 3.0
members by value: class N(enum.Enum): A, B = 2.0, 3.0 → N(2.0).value → N._value2member_map_[2.0] = N.B
members by name: class N(enum.Enum): A, B = 2.0, 3.0 → N['A'].value → N._member_map_['A'] = N.B
number of members: class N(enum.Enum): A, B = 2.0, 3.0 → len(N) → N._member_names_.append('A')
members in a loop: {MODE} → sum(getattr(m, 'k', 0.0) for m in Mode) → Mode.SLOW.k = 3.0
value of a member: {MODE} → (1.0 + m.value) → m._value_ = 3.0
attribute of an IntEnum: class N(enum.IntEnum): A = 1\nN.A.k = 2.0\ndef made(n): return lambda: n.k\nget = made(N.A)
  → get() → N.A.k = 3.0
class attribute of an enumeration: {MODE}type.__setattr__(Mode, 'shared', 2.0) → m.shared → type.__setattr__(Mode,
  'shared', 3.0)
_missing_ that reads a global: class N(enum.Enum):\n  A, B = 2.0, 3.0\n  @classmethod\n  def _missing_(cls, v): return
  cls(K) → N('any').value → K
enumeration made by a call: N = enum.Enum('N', 'A', module='jax')\nN.A.k = 2.0 → N.A.k → N.A.k = 3.0
""")
DATA = "def default(): return K\nmeta = {'k': 2.0}\n"
CLASS = (
    f"{DATA}@dataclasses.dataclass(frozen=True)\nclass C:\n    a: float = dataclasses.field(default=2.0, metadata=meta)\n"
    "    b: float = dataclasses.field(default_factory=default)\n"
)
_DATACLASS = rows(r"""
metadata of a field: {CLASS} → dataclasses.fields(C)[0].metadata['k'] → meta['k'] = 3.0
default of a field: {CLASS} → dataclasses.fields(C)[0].default → dataclasses.fields(C)[0].default = 3.0
default factory: {CLASS} → C().b → K
fields by asdict: {CLASS} → len(dataclasses.asdict(C())) → del C.__dataclass_fields__['b']
default in __init__: {CLASS} → C().a → C.__init__.__defaults__ = (3.0, 1.0)
__post_init__: {DATA}@dataclasses.dataclass\nclass C:\n  def __post_init__(self): self.k = K → C().k → K
is_dataclass: class C: pass → (3.0 if dataclasses.is_dataclass(C) else 2.0) → dataclasses.dataclass(C)
field of a module of Equinox: meta = {'k': 2.0}\nclass M(eqx.Module):\n  a: float = eqx.field(default=1.0,
  metadata=meta) → dataclasses.fields(M())[0].metadata['k'] → dataclasses.fields(M)[0].metadata = {'k': 3.0}
""") | {
    **{
        f"{name} of a field that is a value": (
            f"@dataclasses.dataclass\nclass C:\n    a: float = 2.0\nF = C.__dataclass_fields__['a']\nF.{name} = 2.0"
            f" → (C(), F.{name})[1] → F.{name} = 3.0"
        )
        for name in ("default", "type", "metadata", "kw_only")
    },
}
OBJECT = "class O: k = 2.0\no = O()\n"
_HOOKS = rows(r"""
method of a metaclass: class M(type):\n  def rate(cls): return K\nclass C(metaclass=M): pass → C.rate() → K
property of a metaclass: class M(type):\n  k = property(lambda cls: cls.rate)\n  rate = 2.0\nclass C(metaclass=M): pass
  → C.k → M.rate = 3.0
__getattr__ of a metaclass: class M(type):\n  def __getattr__(cls, name): return K\nclass C(metaclass=M): pass → C.k → K
__instancecheck__: K = False\nclass M(type):\n  def __instancecheck__(cls, o): return K\nclass C(metaclass=M): pass
  → (3.0 if isinstance(1, C) else 2.0) → K = True
__subclasshook__: K = False\nclass C(abc.ABC):\n  @classmethod\n  def __subclasshook__(cls, c): return K\nclass D: pass
  \nclass E: pass\nT = D → (3.0 if issubclass(T, C) else 2.0) → K = True\nT = E
ABC registered after: class B(abc.ABC): pass → (3.0 if isinstance(1, B) else 2.0) → B.register(int)
runtime protocol: @typing.runtime_checkable\nclass P(typing.Protocol):\n  def rate(self): ...\nclass C: pass
  → (3.0 if isinstance(C(), P) else 2.0) → C.rate = lambda self: 1
__class_getitem__: class C:\n  def __class_getitem__(cls, i): return K → C[0] → K
__init_subclass__: L = []\nclass B:\n  def __init_subclass__(cls): L.append(cls)\nclass C(B): pass → len(L)
  → class D(B): pass
descriptor: class D:\n  k = 2.0\n  def __get__(self, o, c=None): return self.k\nd = D()\nclass C: k = d → C.k
  → d.k = 3.0
__set_name__: class D:\n  def __set_name__(self, c, name): self.name = name\n  def __get__(self, o, c): return
  o.values[self.name]\nclass C:\n  k = D()\n  values = {'k': 2.0}\nc = C() → c.k → C.values['k'] = 3.0
property that reads a global: class C: k = property(lambda self: K)\nc = C() → c.k → K
__getattr__: class C:\n  def __getattr__(self, name): return K\nc = C() → c.k → K
__getattribute__: class C:\n  def __getattribute__(self, name): return K\nc = C() → c.k → K
__getattr__ of a module: m = types.ModuleType('m')\nK = 2.0\nm.__getattr__ = lambda name: K → m.k → K
decorator of a class: def deco(c):\n  c.rate = lambda self: K\n  return c\n@deco\nclass C: pass → C().rate() → K
method with another closure: def made(k): return lambda self: k\nclass C: rate = made(2.0) → C().rate()
  → C.rate = made(3.0)
bases replaced: class A: k = 2.0\nclass B: k = 3.0\nclass C(A): pass → C.k → C.__bases__ = (B,)
class of an object replaced: {OBJECT}class P: k = 3.0 → o.k → o.__class__ = P
object made without __init__: {OBJECT} → object.__new__(O).k → O.k = 3.0
__bool__: {OBJECT}O.__bool__ = lambda self: True → (2.0 if o else 3.0) → O.__bool__ = lambda self: False
__eq__: {OBJECT} → (3.0 if O() == 1 else 2.0) → O.__eq__ = lambda self, other: True
__float__: {OBJECT}O.__float__ = lambda self: 2.0 → float(O()) → O.__float__ = lambda self: 3.0
__rmul__: {OBJECT}O.__rmul__ = lambda self, x: x * 2.0 → 1.0 * O() → O.__rmul__ = lambda self, x: x * 3.0
__jax_array__: {OBJECT}O.__jax_array__ = lambda self: jnp.float32(2) → jnp.asarray(O()) → O.__jax_array__ = lambda self:
  jnp.float32(3)
__call__: {OBJECT}O.__call__ = lambda self: 2.0 → O()() → O.__call__ = lambda self: 3.0
__init__: class C:\n  def __init__(self): self.k = 2.0 → C().k → def init(self): self.k = 3.0\nC.__init__ = init
order of methods: class A: k = 2.0\nclass B: k = 3.0\nclass C(A, B): pass → C.__mro__[1].k → C.__bases__ = (B, A)
""")
for _names in ("__index__", "__int__"):
    _value = {"__index__": "[1.0, 2.0, 3.0][O()]", "__int__": "int(O())"}[_names]
    _HOOKS[_names] = f"{OBJECT}O.{_names} = lambda self: 1 → {_value} → O.{_names} = lambda self: 2"

KINDS = sources_of({"made": _MADE, "enum": _ENUM, "dataclass": _DATACLASS, "hook": _HOOKS})
