"""Guards the promise that what a function made anew can reach, and partax cannot prove, is not taken for unchanged: state
of objects, of iterators and of modules, what a function assigns, and what is reached by a name in a text."""

from __future__ import annotations

from programs import parts_of, program_of, source_of, sources_of

from short_programs import rows_of

rows = rows_of(globals())

HELPER = "def helper(k: 2.0 = None): '2.0'\n"
DOCUMENTED = "class C:\n    '2'\n    lr: float\n"
OWN = "class Own({}):\n    def __eq__(self, other): return {}\n    def __hash__(self): return 1\nc = Own({})"
SETTINGS = "m = sys.modules['m_' + __name__] = types.ModuleType('m_' + __name__)\nm.k = 2.0"
# What they define → the value that a function takes its array times → the change.
_INSTANCES = rows(r"""
attribute of self in a closure: class T:\n  def made(self): return lambda: self.k\nt = T()\nt.k = 2.0 → t.made()()
  → t.k = 3.0
attribute of an attribute: o.inner = O() → o.inner.k → o.inner.k = 3.0
attribute with slots: class S: __slots__ = ('k',)\ns = S()\ns.k = 2.0 → s.k → s.k = 3.0
attribute by a text that is made:  → getattr(o, 'k' * 1) → o
class attribute by an instance:  → o.k → O.k = 3.0
method replaced:  → o.step(1.0) → O.step = lambda self, x: 3.0
method replaced on the instance:  → o.step(1.0) → o.step = lambda x: 3.0
inherited method: class A:\n  def get(self): return 2.0\nclass B(A): pass\nclass C(B): pass\nc = C() → c.get()
  → B.get = lambda self: 3.0
method by super: class C(O):\n  def step(self, x): return super().step(x)\nc = C() → c.step(1.0)
  → O.step = lambda self, x: 3.0
class of an instance: class P: k = 3.0 → o.k → o.__class__ = P
bound method in a global: step = o.step → step(1.0) → o
dataclass: @dataclasses.dataclass\nclass D: k: float\nd = D(2.0) → d.k → d.k = 3.0
cached property: class C:\n  @functools.cached_property\n  def k(self): return K\nc = C() → c.k → K = 3.0
  \nc.__dict__.pop('k', None)
set of objects: S = {o} → next(iter(S)).k → o
attribute of a float: class F(float): pass\nf = F(1.0)\nf.k = 2.0 → f.k → f.k = 3.0
dict with attributes: class D(dict):\n  def __getattr__(self, name): return self[name]\nd = D(k=2.0) → d.k
  → d['k'] = 3.0
attribute of a member in a closure: class M(enum.Enum): A = 1\nM.A.k = [2.0]\ndef made(m): return lambda: m.k[0]
  → made(M.A)() → M.A.k[0] = 3.0
list that a member is: class M(enum.Enum): A = [2.0] → M.A.value[0] → M.A.value[0] = 3.0
""") | {
    "dict with its own equality": (OWN.format("dict", "self is other", "k=2.0") + " → c['k'] → c['k'] = 3.0"),
    "list with its own equality": (OWN.format("list", "self is other", "[2.0]") + " → c[0] → c[0] = 3.0"),
    "deque with its own equality": (OWN.format("collections.deque", "self is other", "[2.0]") + " → c[0] → c[0] = 3.0"),
    "float with its own equality": (OWN.format("float", "True", "2.0") + " → c → c = Own(3.0)"),
    "tuple with its own equality": (OWN.format("tuple", "True", "(2.0,)") + " → c[0] → c = Own((3.0,))"),
    "str with its own equality": (OWN.format("str", "True", "'2'") + " → float(str(c)) → c = Own('3')"),
    "frozenset with its own equality": (OWN.format("frozenset", "True", "{2.0}") + " → max(c) → c = Own({3.0})"),
}
_STATES = rows(r"""
generator: def made():\n  yield from (2.0, 3.0)\ng = made() → next(g) → pass
ContextVar: V = contextvars.ContextVar('v', default=2.0) → V.get() → V.set(3.0)
threading.local: L = threading.local()\nL.k = 2.0 → L.k → L.k = 3.0
NumPy array in a dictionary: D = {'a': [np.array([2.0])]} → float(D['a'][0][0]) → D['a'][0][:] = 3.0
length of a deque: D = collections.deque([2.0], maxlen=2) → len(D) → D.append(3.0)
order of an OrderedDict: D = collections.OrderedDict(a=2.0, b=3.0) → next(iter(D.values())) → D.move_to_end('a')
factory of a defaultdict: D = collections.defaultdict(lambda: 2.0) → D.copy()['k'] → D.default_factory = lambda: 3.0
Counter: C = collections.Counter(a=2) → C['a'] → C['a'] += 1
memory view: B = bytearray([2])\nV = memoryview(B) → float(V[0]) → B[0] = 3
text stream: S = io.StringIO('2') → float(S.getvalue()) → S.seek(0)\nS.write('3')
bound method of a list: L = [2.0]\nget = L.__getitem__ → get(0) → L[0] = 3.0
values of a dictionary: D = {'k': 2.0}\nV = D.values() → max(V) → D['k'] = 3.0
function of the user's as one of NumPy's: F = np.frompyfunc(lambda _: K, 1, 1) → float(F(0)) → K
globals by name:  → globals()['K'] → K
evaluated text:  → eval('K') → K
globals of a frame:  → sys._getframe(0).f_globals['K'] → K
globals of a function: def helper(): pass → helper.__globals__['K'] → K
table of modules: {SETTINGS} → sys.modules['m_' + __name__].k → m.k = 3.0
module in a tuple: {SETTINGS}\nT = (m,) → T[0].k → m.k = 3.0
module in a closure: {SETTINGS}\ndef made(m): return lambda: m.k → made(m)() → m.k = 3.0
module by its name: {SETTINGS} → importlib.import_module('m_' + __name__).k → m.k = 3.0
name of a module, in its text: m = types.ModuleType('ab') → len(repr(m)) → m.__name__ = 'abc'
name of a module of a library: OLD = optax.__name__ → len(optax.__name__) → optax.__name__ = 'abc'
  → optax.__name__ = OLD
module of the name of a library's: m = types.ModuleType('jax.numpy')\nm.sin = jnp.sin\nL = [m] → L[0].sin(1.0)
  → m.sin = jnp.cos
hash of what is made: EVER_OTHER = True\nKEPT = []\ndef made():\n  KEPT.append(object())\n  return KEPT[-1]
  → (made().__hash__() % 1000003) → KEPT.extend(object() for _ in range(99))
module that is run again: m = types.ModuleType('m')\nexec('def get(): return 2.0', vars(m)) → m.get()
  → exec('def get(): return 3.0', vars(m))
function of a library, replaced: import statistics\nOLD = statistics.fmean\nstatistics.fmean = lambda _: 2.0
  → statistics.fmean([]) → statistics.fmean = lambda _: 3.0 → statistics.fmean = OLD
documentation of a function: {HELPER} → float(helper.__doc__) → helper.__doc__ = '3.0'
annotations of a function: {HELPER} → helper.__annotations__['k'] → helper.__annotations__['k'] = 3.0
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
_BODY = "{before}\nrandom.seed(0)\ndef made({held}):\n    def f(x):\n        {inside}\n        return x * {read}\n    return f"
_PLAIN = {"before": "", "held": "r=random", "inside": "pass"}
_IMPORTED = {
    f"chance of a module {where}": f"{_BODY.format(**_PLAIN | parts)} → made() → random.seed(1)"
    for where, parts in {
        "in a closure": {"read": "r.random()"},
        "in a container": {"before": "D = {'r': random}", "read": "D['r'].random()"},
        "as an attribute": {"before": "S = types.SimpleNamespace(r=random)", "read": "S.r.random()"},
        "that the body imports": {"inside": "import random", "read": "random.random()"},
        "of which the body imports a name": {"inside": "from random import random", "read": "random()"},
        "as an argument of a helper": {"before": "def by(m): return m.random()", "read": "by(random)"},
        "in a default": {"read": "(lambda m=random: m.random())()"},
    }.items()
}

_DELETED = {
    name: source_of(f"A = {array} → (3.0 if {read}.is_deleted() else 2.0) → A.delete()")
    for name, (array, read) in {
        "array": ("jnp.ones(2)", "A"),
        "array in a list": ("jnp.ones(2)\nL = [A]", "L[0]"),
        "key": ("jax.random.key(0)", "A"),
    }.items()
}

KINDS: dict[str, dict[str, str]] = {
    "deleted": _DELETED,
    **sources_of({"instance": _INSTANCES, "of a state": _STATES}),
    **{
        kind: {name: program_of(*parts_of(row)) for name, row in programs.items()}
        for kind, programs in {"assigned": _ASSIGNED, "imported": _IMPORTED}.items()
    },
}
