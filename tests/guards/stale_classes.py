"""Guards the promise that classes and instances count by all that the code can reach, however they were made, and that
what a function made anew can reach, and partax cannot prove, is not taken for unchanged: state of objects, of iterators
and of modules, what a function assigns, and what is reached by a name in a text."""

from programs import function_of, sources_of

from short_programs import rows_of

rows = rows_of(globals())

EQUAL = "    def __eq__(self, other): return True\n    def __hash__(self): return 1\n"
TELLS = f"    k = 2.0\n{EQUAL}"
FIELD = "@dataclasses.dataclass\nclass C:\n    a: float = 2.0\nF = C.__dataclass_fields__['a']\n"
# What they define → the value that the function takes its array times → what changes.
_MADE = rows(r"""
base of a types.new_class: class B: k = 2.0\nC = types.new_class('C', (B,)) → C.k → B.k = 3.0
abc.ABCMeta with a method: C = abc.ABCMeta('C', (), {'rate': lambda self: 2.0}) → C().rate() → C.rate = lambda self: 3.0
type() that tells of builtins: C = type('C', (), {'k': 2.0, '__module__': 'builtins'}) → C.k → C.k = 3.0
class that tells of another module and name: class C: k = 2.0\nC.__module__, C.__qualname__, C.__name__ = 'fractions',
  'Fraction', 'Fraction' → C().k → C.k = 3.0
module of a class, in its text: class C: pass\nC.__module__ = 'a' → len(repr(C)) → C.__module__ = 'ab'
class whose module is none: class C: k = 2.0\nC.__module__ = None → C().k → C.k = 3.0
executed class: S = {'__name__': 'math'}\nexec('class C: k = 2.0', S)\nC = S['C'] → C.k → C.k = 3.0
executed function of a listed module: S = {'K': 2.0, '__name__': 'jax.numpy'}\nexec('def sin(): return K', S)
  \nget = S['sin'] → get() → S['K'] = 3.0
function that tells of another module: def sin(): return K\nsin.__module__ = 'jax.numpy' → sin() → K
make_dataclass: C = dataclasses.make_dataclass('C', [('k', float, 2.0)]) → C.k → C.k = 3.0
namedtuple: C = collections.namedtuple('C', 'a')\nC.k = 2.0 → C(1).k → C.k = 3.0
default of a namedtuple: C = collections.namedtuple('C', 'k', defaults=[2.0]) → C().k → C.__new__.__defaults__ = (3.0,)
generic class: T = typing.TypeVar('T')\nclass C(typing.Generic[T]): k = 2.0 → C[int].k → C.k = 3.0
class that tells of being one of jax's: class Mesh:\n{TELLS}Mesh.__module__ = 'jax._src.mesh'\nc = Mesh() → c.k → c.k = 3.0
class that tells of being one of Flax's: class FrozenDict:\n{TELLS}FrozenDict.__module__ = 'flax.core.frozen_dict'
  \nc = FrozenDict() → c.k → c.k = 3.0
class that tells of being one of partax: class Static:\n{TELLS}Static.__module__ = 'partax._core'\nc = Static() → c.k
  → c.k = 3.0
""")
MODE = "class Mode(enum.Enum):\n    FAST = 1\n    SLOW = 2\n    def rate(self): return self.k\nMode.FAST.k = 2.0\nm = Mode.FAST\n"
_ENUM = rows(r"""
attribute of a member: {MODE} → m.k → m.k = 3.0
attribute of a member by its name: {MODE} → Mode['FAST'].k → m.k = 3.0
members by value: class N(enum.Enum): A, B = 2.0, 3.0 → N(2.0).value → N._value2member_map_[2.0] = N.B
members by name: class N(enum.Enum): A, B = 2.0, 3.0 → N['A'].value → N._member_map_['A'] = N.B
attribute of joined flags: class F(enum.Flag): A, B = 1, 2\n(F.A | F.B).k = 2.0 → (F.A | F.B).k → (F.A | F.B).k = 3.0
attribute of joined flags, by value: class F(enum.IntFlag): A, B = 1, 2\nF(3).k = 2.0 → F(3).k → F(3).k = 3.0
text in another module: m = sys.modules['m_of_mine'] = types.ModuleType('m_of_mine')\nm.CV = CV = float\ndef get():
  \n  @dataclasses.dataclass\n  class D:\n    __module__ = 'm_of_mine'\n    a: 'CV[int]' = 1.0\n    b: float = 2.0
  \n  return D(3.0).b → get() → m.CV = typing.ClassVar → del sys.modules['m_of_mine']
name of a jitted function: g = jax.jit(lambda: 2.0) → len(g.__name__) → g.__name__ = 'abc'
name of a wrapper: g = partax.filter_jit(lambda: 2.0) → len(g.__name__) → g.__name__ = 'abc'
what a key wraps: k = jax.random.key(0)\nk.__wrapped__ = 2.0 → k.__wrapped__ → k.__wrapped__ = 3.0
class of a sharding: p, T = jax.P('a'), jax.P\nT.mine = 2.0 → p.mine → T.mine = 3.0 → del T.mine
class of a mesh: T = jax.sharding.AbstractMesh\np = T((1,), ('a',))\nT.mine = 2.0 → p.mine → T.mine = 3.0 → del T.mine
class of an array: a, T = jnp.ones(()), type(jnp.ones(()))\nT.mine = 2.0 → a.mine → T.mine = 3.0 → del T.mine
number of members: class N(enum.Enum): A, B = 2.0, 3.0 → len(N) → N._member_names_.append('A')
members in a loop: {MODE} → sum(getattr(m, 'k', 0.0) for m in Mode) → Mode.SLOW.k = 3.0
value of a member: {MODE} → (1.0 + m.value) → m._value_ = 3.0
attribute of an IntEnum: class N(enum.IntEnum): A = 1\nN.A.k = 2.0\ndef made(n): return lambda: n.k\nget = made(N.A)
  → get() → N.A.k = 3.0
class attribute of an enumeration: {MODE}type.__setattr__(Mode, 'shared', 2.0) → m.shared → type.__setattr__(Mode,
  'shared', 3.0)
_missing_ that reads a global: class N(enum.Enum):\n  A, B = 2.0, 3.0\n  @classmethod\n  def _missing_(cls, v): return
  cls(K) → N('any').value → K
type of its values: {MODE} → (2.0 if Mode._member_type_ is object else 3.0) → Mode._member_type_ = float
how it prints a value: {MODE} → len(repr(m)) → Mode._value_repr_ = lambda value: 'abcdefg'
how it makes a value: {MODE} → (2.0 if Mode._generate_next_value_ is len else 3.0) → Mode._generate_next_value_ = len
enumeration made by a call: N = enum.Enum('N', 'A', module='jax')\nN.A.k = 2.0 → N.A.k → N.A.k = 3.0
""")
DATA = "def default(): return K\nmeta = {'k': 2.0}\n"
CLASS = (
    f"{DATA}@dataclasses.dataclass(frozen=True)\nclass C:\n    a: float = dataclasses.field(default=2.0, metadata=meta)\n"
    "    b: float = dataclasses.field(default_factory=default)\n"
)
_DATACLASS = rows(r"""
metadata of a field: {CLASS} → dataclasses.fields(C)[0].metadata['k'] → meta['k'] = 3.0
default factory: {CLASS} → C().b → K
fields by asdict: {CLASS} → len(dataclasses.asdict(C())) → del C.__dataclass_fields__['b']
default in __init__: {CLASS} → C().a → C.__init__.__defaults__ = (3.0, 1.0)
__post_init__: {DATA}@dataclasses.dataclass\nclass C:\n  def __post_init__(self): self.k = K → C().k → K
is_dataclass: class C: pass → (3.0 if dataclasses.is_dataclass(C) else 2.0) → dataclasses.dataclass(C)
default of a field that is a value: {FIELD}F.default = 2.0 → (C(), F.default)[1] → F.default = 3.0
metadata of a field that is a value: {FIELD}F.metadata = 2.0 → (C(), F.metadata)[1] → F.metadata = 3.0
""")
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
property that reads a global: class C: k = property(lambda self: K)\nc = C() → c.k → K
__getattr__: class C:\n  def __getattr__(self, name): return K\nc = C() → c.k → K
__getattr__ of a module: m = types.ModuleType('m')\nK = 2.0\nm.__getattr__ = lambda name: K → m.k → K
method with another closure: def made(k): return lambda self: k\nclass C: rate = made(2.0) → C().rate()
  → C.rate = made(3.0)
what makes classes: REAL = builtins.__build_class__\ndef get():\n  class C: k = 2.0\n  return C.k
  \ndef build(body, name, *bases, **kw): return O3 if name == 'C' else REAL(body, name, *bases, **kw)
  \nclass O3: k = 3.0 → get() → builtins.__build_class__ = build → builtins.__build_class__ = REAL
cached property that has another name: @dataclasses.dataclass(frozen=True)\nclass C:\n  a: float = 3.0
  \n  @functools.cached_property\n  def k(self): return 2.0\n → C().k → vars(C)['k'].attrname = 'a'
bases replaced: class A: k = 2.0\nclass B: k = 3.0\nclass C(A): pass → C.k → C.__bases__ = (B,)
object made without __init__: {OBJECT} → object.__new__(O).k → O.k = 3.0
__eq__: {OBJECT} → (3.0 if O() == 1 else 2.0) → O.__eq__ = lambda self, other: True
__float__: {OBJECT}O.__float__ = lambda self: 2.0 → float(O()) → O.__float__ = lambda self: 3.0
__jax_array__: {OBJECT}O.__jax_array__ = lambda self: jnp.float32(2) → jnp.asarray(O()) → O.__jax_array__ = lambda self:
  jnp.float32(3)
__init__: class C:\n  def __init__(self): self.k = 2.0 → C().k → def init(self): self.k = 3.0\nC.__init__ = init
order of methods: class A: k = 2.0\nclass B: k = 3.0\nclass C(A, B): pass → C.__mro__[1].k → C.__bases__ = (B, A)
""")

HELPER = "def helper(k: 2.0 = None): '2.0'\n"
DOCUMENTED = "class C:\n    '2'\n    lr: float\n"
SETTINGS = "m = sys.modules['m_' + __name__] = types.ModuleType('m_' + __name__)\nm.k = 2.0"
# What they define → the value that a function takes its array times → the change.
_INSTANCES = rows(r"""
attribute with slots: class S: __slots__ = ('k',)\ns = S()\ns.k = 2.0 → s.k → s.k = 3.0
attribute by a text that is made:  → getattr(o, 'k' * 1) → o
class attribute by an instance:  → o.k → O.k = 3.0
method replaced:  → o.step(1.0) → O.step = lambda self, x: 3.0
class of an instance: class P: k = 3.0 → o.k → o.__class__ = P
bound method in a global: step = o.step → step(1.0) → o
dataclass: @dataclasses.dataclass\nclass D: k: float\nd = D(2.0) → d.k → d.k = 3.0
set of objects: S = {o} → next(iter(S)).k → o
dict with attributes: class D(dict):\n  def __getattr__(self, name): return self[name]\nd = D(k=2.0) → d.k
  → d['k'] = 3.0
attribute of a member in a closure: class M(enum.Enum): A = 1\nM.A.k = [2.0]\ndef made(m): return lambda: m.k[0]
  → made(M.A)() → M.A.k[0] = 3.0
list that a member is: class M(enum.Enum): A = [2.0] → M.A.value[0] → M.A.value[0] = 3.0
dict with its own equality: class Own(dict):\n{EQUAL}c = Own(k=2.0) → c['k'] → c['k'] = 3.0
float with its own equality: class Own(float):\n{EQUAL}c = Own(2.0) → c → c = Own(3.0)
""")
_STATES = rows(r"""
generator: def made():\n  yield from (2.0, 3.0)\ng = made() → next(g) → pass
ContextVar: V = contextvars.ContextVar('v', default=2.0) → V.get() → V.set(3.0)
NumPy array in a dictionary: D = {'a': [np.array([2.0])]} → float(D['a'][0][0]) → D['a'][0][:] = 3.0
length of a deque: D = collections.deque([2.0], maxlen=2) → len(D) → D.append(3.0)
order of an OrderedDict: D = collections.OrderedDict(a=2.0, b=3.0) → next(iter(D.values())) → D.move_to_end('a')
factory of a defaultdict: D = collections.defaultdict(lambda: 2.0) → D.copy()['k'] → D.default_factory = lambda: 3.0
bound method of a list: L = [2.0]\nget = L.__getitem__ → get(0) → L[0] = 3.0
function of the user's as one of NumPy's: F = np.frompyfunc(lambda _: K, 1, 1) → float(F(0)) → K
globals by name:  → globals()['K'] → K
evaluated text:  → eval('K') → K
globals of a frame:  → sys._getframe(0).f_globals['K'] → K
globals of a function: def helper(): pass → helper.__globals__['K'] → K
table of modules: {SETTINGS} → sys.modules['m_' + __name__].k → m.k = 3.0
module in a closure: {SETTINGS}\ndef made(m): return lambda: m.k → made(m)() → m.k = 3.0
module by its name: {SETTINGS} → importlib.import_module('m_' + __name__).k → m.k = 3.0
name of a module, in its text: m = types.ModuleType('ab') → len(repr(m)) → m.__name__ = 'abc'
name of a module of a library: OLD = optax.__name__ → len(optax.__name__) → optax.__name__ = 'abc'
  → optax.__name__ = OLD
what is compiled: G = jax.jit(lambda y: y)\nG(1.0) → G._cache_size() → G(jnp.ones(3))
module of the name of a library's: m = types.ModuleType('jax.numpy')\nm.sin = jnp.sin\nL = [m] → L[0].sin(1.0)
  → m.sin = jnp.cos
hash of what is made: EVER_OTHER = True\nKEPT = []\ndef made():\n  KEPT.append(object())\n  return KEPT[-1]
  → (made().__hash__() % 1000003) → KEPT.extend(object() for _ in range(99))
module that is run again: m = types.ModuleType('m')\nexec('def get(): return 2.0', vars(m)) → m.get()
  → exec('def get(): return 3.0', vars(m))
function of a library, replaced: import statistics\nOLD = statistics.fmean\nstatistics.fmean = lambda _: 2.0
  → statistics.fmean([]) → statistics.fmean = lambda _: 3.0 → statistics.fmean = OLD
documentation of a function: {HELPER} → float(helper.__doc__) → helper.__doc__ = '3.0'
annotations of a class: {DOCUMENTED} → (1.0 + len(C.__annotations__)) → C.__annotations__['k'] = float
annotations by getattr: {DOCUMENTED} → (1.0 + len(getattr(C, '__annotations__'))) → C.__annotations__ = {}
annotations by typing: {DOCUMENTED} → (1.0 + len(typing.get_type_hints(C))) → C.__annotations__['k'] = float
documentation of a class: {DOCUMENTED} → float(C.__dict__['__doc__']) → C.__doc__ = '3'
name of a class: {DOCUMENTED} → len(C.__name__) → C.__name__ = 'CC'
name of an instance's class: {DOCUMENTED} → len(type(C()).__qualname__) → C.__qualname__ = 'CC'
slots that a class names: class C: __slots__ = ('k',) → len(C.__slots__) → C.__slots__ = ('k', 'l')
positions that a class matches by: class C:\n  __match_args__ = ('a', 'b')\n  a, b = 2.0, 3.0\ndef get():\n  match C():
  \n    case C(first): return first → get() → C.__match_args__ = ('b', 'a')
abstract methods of a class: class C(abc.ABC):\n  @abc.abstractmethod\n  def k(self): ...
  → (1.0 + len(C.__abstractmethods__)) → C.__abstractmethods__ = frozenset()
fields of a dataclass: @dataclasses.dataclass(frozen=True)\nclass C: k: float = 2.0
  → (1.0 + len(C.__dataclass_fields__)) → C.__dataclass_fields__ = {}
subclasses of a class: class C: pass → (2.0 + len(C.__subclasses__())) → class D(C): pass
""")
# What they define → the function that is made anew, which changes what it reads → the change.
_ASSIGNED = rows(r"""
counter in a list: C = [1.0]\ndef count():\n  C[0] += 1.0\n  return C[0] → lambda x: x * count() → pass
counter in a global: C = 1.0\ndef count():\n  global C\n  C += 1.0\n  return C → lambda x: x * count() → pass
counter in an attribute: def count():\n  o.k += 1.0\n  return o.k → lambda x: x * count() → pass
counter in a variable: def made():\n  c = 1.0\n  def count():\n    nonlocal c\n    c += 1.0\n    return c
  \n  return count\ncount = made() → lambda x: x * count() → pass
""")
_IMPORTED = rows(r"""
chance of a module in a closure: random.seed(0)\ndef made(r): return lambda x: x * r.random() → made(random)
  → random.seed(1)
chance of a module in a container: random.seed(0)\nD = {'r': random} → lambda x: x * D['r'].random() → random.seed(1)
chance of a module that the body imports: random.seed(0)\ndef made():\n  def f(x):\n    import random
  \n    return x * random.random()\n  return f → made() → random.seed(1)
""")
_DELETED = rows(r"""
array: A = jnp.ones(2) → (3.0 if A.is_deleted() else 2.0) → A.delete()
array in a list: A = jnp.ones(2)\nL = [A] → (3.0 if L[0].is_deleted() else 2.0) → A.delete()
key: A = jax.random.key(0) → (3.0 if A.is_deleted() else 2.0) → A.delete()
""")

KINDS = sources_of(
    {
        "made": _MADE,
        "enum": _ENUM,
        "dataclass": _DATACLASS,
        "hook": _HOOKS,
        "instance": _INSTANCES,
        "of a state": _STATES,
        "deleted": _DELETED,
    }
)
KINDS |= sources_of({"assigned": _ASSIGNED, "imported": _IMPORTED}, function_of)
