"""Guards the promise that what a function holds, and what its code names, is seen where it is changed, and nothing is
traced again where it is not: in a function made anew, and, of what it holds, in the same object too; and that two values
are one only if no program can tell them apart, whatever their `==` says."""

from programs import PRELUDE, function_of, parts_of, sources_of

from short_programs import rows_of

rows = rows_of(globals())

# What a function holds as `c` → a number that is read of it → a change in place.
_HELD = rows(r"""
item: c = {'s': 2.0} → c['s'] → c['s'] = 3.0
get of what is absent: c = {} → c.get('s', 2.0) → c['s'] = 3.0
setdefault inside: c = {'a': {'s': 2.0}} → c['a'].setdefault('s') → c['a']['s'] = 3.0
pop of a copy: c = {'s': 2.0} → dict(c).pop('s', 1.0) → c['s'] = 3.0
unpacked: c = {'s': 2.0} → (lambda s: s)(**c) → c['s'] = 3.0
order of a dictionary: c = {'a': 2.0, 'b': 3.0} → [*c.values()][0] → c['a'] = c.pop('a')
type of an item: c = [2] → (2.5 if type(c[0]) is bool else c[0]) → c[0] = True
sign of an item: c = [0.0] → math.copysign(2.0, c[0]) → c[0] = -0.0
membership: c = {1} → (3.0 if 2 in c else 2.0) → c.add(2)
length: c = [1, 1] → len(c) → c.append(1)
sum: c = [1.0, 1.0] → sum(c) → c[1] = 2.0
nested: c = [{'a': ([2.0],)}] → c[0]['a'][0][0] → c[0]['a'][0][0] = 3.0
middle of many: c = [2.0] * 5000 → c[2500] → c[2500] = 3.0
one key of many: c = dict.fromkeys(range(3000), 2.0) → c[2999] → c[2999] = 3.0
set of many: c = set(range(2000)) → (3.0 if 7000 in c else 2.0) → c.add(7000)
bytearray: c = bytearray([2]) → c[0] → c[0] = 3
OrderedDict: c = collections.OrderedDict(s=2.0) → c['s'] → c['s'] = 3.0
defaultdict: c = collections.defaultdict(float, s=2.0) → c['s'] → c['s'] = 3.0
default of a function: def c(k=2.0): return k → c() → c.__defaults__ = (3.0,)
keyword default: def c(*, k=2.0): return k → c() → c.__kwdefaults__['k'] = 3.0
attribute of a function: def c(): return c.k\nc.k = 2.0 → c() → c.k = 3.0
new attribute of a function: def c(): return getattr(c, 'k', 2.0) → c() → c.k = 3.0
code of a function: def c(): return 2.0 → c() → c.__code__ = (lambda: 3.0).__code__
variable of a function: def made():\n  k = 2.0\n  def c(): return k\n  def change():\n    nonlocal k\n    k = 3.0
  \n  return c, change\nc, change_k = made() → c() → change_k()
list in a variable of a function: def made(l): return lambda: l[0]\nc = made([2.0]) → c()
  → c.__closure__[0].cell_contents[0] = 3.0
keyword of a partial: c = functools.partial(lambda k: k, k=2.0) → c() → c.keywords['k'] = 3.0
list in a partial: c = functools.partial(lambda l: l[0], [2.0]) → c() → c.args[0][0] = 3.0
function in a dictionary: c = {'a': lambda: 2.0} → c['a']() → c['a'] = lambda: 3.0
default of a function in a list: c = [lambda k=2.0: k] → c[0]() → c[0].__defaults__ = (3.0,)
functions that call each other: def even(n=2): return 1.0 if n == 0 else odd(n - 1)\ndef odd(n, k=2.0): return k *
  even(n - 1)\nc = [even, odd] → c[0]() → odd.__defaults__ = (3.0,)
""")
# What they define → the value that a function takes its array times → the change.
_NAMED = rows(r"""
number:  → K → K
type of a number: N = 2 → (2.5 if type(N) is bool else N) → N = True
sign of a zero: Z = 0.0 → math.copysign(2.0, Z) → Z = -0.0
NaN in a list: N = float('nan')\nL = [N] → (2.0 if N in L else 3.0) → L = [float('nan')]
NaN of NumPy in a list: N = np.float32('nan')\nL = [N] → (2.0 if N in L else 3.0) → N = np.float32('nan')
complex NaN in a dictionary: N = complex('nan')\nD = {N: 1} → (2.0 if N in D else 3.0) → N = complex('nan')
text: T = 'ab' → len(T) → T = 'abc'
list in place: L = [1.0, [2.0]] → L[1][0] → L[1][0] = 3.0
dictionary in place: D = {'a': {'k': 2.0}} → D['a']['k'] → D['a'].update(k=3.0)
order of a dictionary: D = {'a': 2.0, 'b': 3.0} → next(iter(D.values())) → D['a'] = D.pop('a')
set in place: S = {1} → (3.0 if 2 in S else 2.0) → S.add(2)
tuple: T = (1.0, (2.0,)) → T[1][0] → T = (1.0, (3.0,))
range: R = range(0, 3, 2) → R.stop → R = range(0, 4, 2)
dtype: D = np.dtype('f4') → (2.0 if D == np.dtype('f4') else 3.0) → D = np.dtype('i4')
array: A = jnp.float32(2) → A → A = jnp.float32(3)
array of NumPy in place: A = np.full(2, 2.0) → A[1] → A[1] = 3.0
part of an array: B = np.arange(1.0, 7.0)\nA = B.reshape(2, 3)[:, 1] → A[0] → B[1] = 3.0
array in another order: A = np.ones((2, 2)) → A.strides[0] → A = np.asfortranarray(A)
array of another type: A = np.ones(2) → A.itemsize → A = A.astype('f4')
array that may be written: A = np.ones(2) → (2.0 if A.flags.writeable else 3.0) → A.setflags(write=False)
bytes behind an array: A = np.frombuffer(b'ab', 'u1', 1) → A.base[1] → A = np.frombuffer(b'ac', 'u1', 1)
one array twice: A = np.ones(2)\nB = A → (2.0 if A is B else 3.0) → B = A.copy()
namespace: import argparse\nN = argparse.Namespace(k=2.0) → N.k → N.k = 3.0
chain of dictionaries: C = collections.ChainMap({}, {'k': 2.0}) → C['k'] → C.maps[0]['k'] = 3.0
partial method: class C(typing.NamedTuple):\n  k: float = 2.0\n  def f(self, by): return self.k * by
  \nC.g = functools.partialmethod(C.f, 1.0)\nc = C() → c.g() → vars(C)['g'].args = (2.0,)
rule of a custom_vmap: F = jax.custom_batching.custom_vmap(lambda y: y)\nF.def_vmap(lambda n, b, y: (y * K, b[0]))
  → jax.vmap(F)(jnp.ones(1))[0] → K
optimiser: T = optax.MultiSteps(optax.sgd(1.0), 1) → T.update(x, T.init(x), x)[0]
  → T._every_k_schedule = lambda _: 2
module of linen: class M(nn.Module):\n  k: float = 2.0\n  def __call__(self): return self.k\nm = M() → m.apply({})
  → object.__setattr__(m, 'k', 3.0)
method of linen: class M(nn.Module):\n  def __call__(self): return 2.0\nm = M() → m.apply({}) → M.__call__ = lambda s: 3.0
helper in a module of linen: class M(nn.Module):\n  @nn.compact\n  def __call__(self, x): return self.f(x)
  \n  def f(self, x): return x * K\nm = M() → m.apply({}, 1.0) → K
module in one of linen: class M(nn.Module):\n  inner: nn.Module\n  def __call__(self, x): return self.inner(x)
  \nm = M(nn.Dense(1, kernel_init=nn.initializers.constant(2.0))) → m.init_with_output(jax.random.key(0), jnp.ones(1))[0][0]
  → m.inner.kernel_init = nn.initializers.constant(3.0)
slot of a module of linen: class S: __slots__ = 'k',\nclass M(nn.Module, S): pass\nm = M()\nobject.__setattr__(m, 'k', 2.0)
  → m.k → object.__setattr__(m, 'k', 3.0)
number of two modules of linen: a, b = nn.Dense(1), nn.Dense(1) → (2.0 if a._id == b._id else 3.0) → b.__dict__['_id'] = a._id
one module of linen twice: class M(nn.Module):\n  a: nn.Module\n  b: nn.Module\n  def __call__(self): return self.a\nd = nn.Dense(1)\nm = M(d, d) → (2.0 if m.a is m.b else 3.0) → m.b = nn.Dense(1)
NamedTuple: class N(typing.NamedTuple): k: float\nn = N(2.0) → n.k → n = n._replace(k=3.0)
frozen dataclass: @dataclasses.dataclass(frozen=True)\nclass F: k: float\nf = F(2.0) → f.k → f = dataclasses.replace(f,
  k=3.0)
field that does not compare: @dataclasses.dataclass(frozen=True)\nclass F: k: float = dataclasses.field(compare=False)
  \nf = F(2.0) → f.k → f = F(3.0)
member of an enumeration: class M(enum.Enum): A, B = 2.0, 3.0\nm = M.A → m.value → m = M.B
method of an enumeration: class M(enum.Enum):\n  A = 1\n  def rate(self): return 2.0 → M.A.rate()
  → M.rate = lambda self: 3.0
name that was not there: def get():\n  try: return NEW\n  except NameError: return 2.0 → get() → NEW = 3.0
name that hides a builtin:  → len('ab') → len = lambda _: 3
function of a library: F = jnp.sin → F(1.0) → F = jnp.cos
helper: def get(): return 2.0 → get() → def get(): return 3.0
helper of a helper: def inner(): return 2.0\ndef get(): return inner() → get() → inner = lambda: 3.0
helper in nested code: def get(): return 2.0 → (lambda: [get() for _ in [1]][0])() → get = lambda: 3.0
global of recursive helpers: def even(n=2): return K if n == 0 else odd(n - 1)\ndef odd(n): return even(n - 1) → even()
  → K
decorated helper: def deco(f):\n  @functools.wraps(f)\n  def inner(): return f() * K\n  return inner\n@deco
  \ndef get(): return 1 → get() → K
attribute of what makes: def made():\n  return lambda: made.k\nmade.k = 2.0 → made()() → made.k = 3.0
class attribute:  → O.k → O.k = 3.0
classmethod: class C:\n  @classmethod\n  def get(cls): return 2.0 → C.get() → C.get = classmethod(lambda cls: 3.0)
class attribute by a classmethod: class C:\n  k = 2.0\n  @classmethod\n  def get(cls): return cls.k → C.get()
  → C.k = 3.0
global of a staticmethod: class C:\n  @staticmethod\n  def get(): return K → C.get() → K
class defined again:  → O().k → class O: k = 3.0
class made inside: class C:\n  def __init__(self): self.k = K → C().k → K
jitted helper: get = jax.jit(lambda: 2.0) → get() → get = jax.jit(lambda: 3.0)
variable of a jitted helper: made = lambda k: jax.jit(lambda: k)\nget = made(2.0) → get() → get = made(3.0)
helper in filter_jit: get = partax.filter_jit(lambda: 2.0) → get() → get = partax.filter_jit(lambda: 3.0)
global of a vmapped helper: get = jax.vmap(lambda y: y * K) → get(jnp.ones(1))[0] → K
""")
# What the function that is made anew is made of.
_MADE = rows(r"""
closure cell: def made(k): return lambda x: x * k → made(K) → K
closure cell in a closure: def made(k):\n  get = lambda: k\n  return lambda x: x * get() → made(K) → K
default:  → lambda x, k=K: x * k → K
keyword default:  → lambda x, *, k=K: x * k → K
attribute: def made(k):\n  f = lambda x: x * f.k\n  f.k = k\n  return f → made(K) → K
code: BODY = 'x * 2.0' → eval('lambda x: ' + BODY, globals()) → BODY = 'x * 3.0'
type of a constant in the code: BODY = 'x * (2.0 if type(1) is int else 3.0)' → eval('lambda x: ' + BODY, globals())
  → BODY = BODY.replace('(1)', '(True)')
sign of a zero in the code: BODY = 'x * math.copysign(2.0, 0.0)' → eval('lambda x: ' + BODY, globals())
  → BODY = BODY.replace(', 0', ', -0')
constant in a tuple in the code: BODY = 'x * (2.5 if type((1, (2, 1))[1][1]) is bool else 2.0)'
  → eval('lambda x: ' + BODY, globals()) → BODY = BODY.replace('2, 1', '2, True')
constant in a set in the code: BODY = 'x * (2.0 if len(\'ab\') in {2, 5} else 3.0)' → eval('lambda x: ' + BODY, globals())
  → BODY = BODY.replace('{2', '{4')
constant in code inside: BODY = 'x * (lambda: 2.0)()' → eval('lambda x: ' + BODY, globals()) → BODY = 'x * (lambda: 3.0)()'
name of a function: def made(name):\n  def f(x): return x * len(f.__name__)\n  f.__name__ = name\n  return f\nN = 'ab'
  → made(N) → N = 'abc'
axis of a vmap: AXIS = 0 → lambda x, f=jax.vmap(lambda y: y.sum(), in_axes=AXIS): x * f(jnp.ones((2, 3)))[0] → AXIS = 1
member of an enumeration: class M(enum.IntEnum): A, B = 2, 3\nm = M.A\ndef made(m): return lambda x: x * m → made(m)
  → m = M.B
""")
SETUP = """
class Text(str): pass
class Int(int): pass
class Float(float): pass
class Pair(tuple): pass
class One(typing.NamedTuple): k: int
class Two(typing.NamedTuple): k: int
class Slow(enum.IntEnum): A = 1
class Fast(enum.IntEnum): A = 1
class Word(enum.StrEnum): A = "a"
@dataclasses.dataclass(frozen=True)
class Hidden:
    a: int
    k: float = dataclasses.field(compare=False)
@dataclasses.dataclass(frozen=True)
class Shown: k: object
@dataclasses.dataclass(frozen=True, eq=False)
class NoEq: k: object
@dataclasses.dataclass(frozen=True, order=True)
class Own:
    k: float
    def __eq__(self, other): return type(other) is Own
    def __hash__(self): return 1
def text(s, k):
    s = Text(s)
    s.k = k
    return s
def added(*items):
    s = set()
    for item in items: s.add(item)
    return s
def signature(**defaults):
    return inspect.Signature([inspect.Parameter(name, 3, default=it) for name, it in defaults.items()])
def is_exact(v, t): return 3.0 if type(v) is t else 2.0
def nan(bits): return struct.unpack("d", struct.pack("Q", bits))[0]
"""
UTC, LATER = "datetime.timezone.utc", "datetime.timezone(datetime.timedelta(hours=1))"
# One value → another → a number that tells them apart; `c` is the value.
_VALUES = rows(r"""
empty ranges: range(0) → range(5, 5) → (1.0 + c.start)
step of a range: range(0, 1, 2) → range(0, 1, 3) → c.step
digits of a Decimal: Decimal('2.50') → Decimal('2.5') → len(str(c))
sign of a Decimal zero: Decimal('0') → Decimal('-0') → math.copysign(2.0, c)
Decimal and int: Decimal(2) → 2 → is_exact(c, int)
zone of a datetime: datetime.datetime(2020, 1, 1, 12, tzinfo={UTC}) → datetime.datetime(2020, 1, 1, 13, tzinfo={LATER})
  → c.hour
name of a zone: datetime.timezone(datetime.timedelta(0), 'ab') → datetime.timezone(datetime.timedelta(0), 'abc')
  → len(c.tzname(None))
metadata of a dtype: np.dtype('f4', metadata={'k': 2.0}) → np.dtype('f4', metadata={'k': 3.0}) → c.metadata['k']
unpacked tuple: tuple[int] → next(iter(tuple[int])) → len(str(c))
order of a union: int | bytes → bytes | int → len(c.__args__[0].__name__)
argument of list[]: list[1] → list[True] → is_exact(c.__args__[0], int)
argument of tuple[]: tuple[0.0, ...] → tuple[-0.0, ...] → math.copysign(2.0, c.__args__[0])
order of a Literal: typing.Literal[1, 2] → typing.Literal[2, 1] → c.__args__[0]
data of an Annotated: typing.Annotated[int, 1] → typing.Annotated[int, True] → is_exact(c.__metadata__[0], int)
case of a PureWindowsPath: pathlib.PureWindowsPath('A') → pathlib.PureWindowsPath('a') → (3.0 if str(c) == 'a' else 2.0)
order of a set: added(0, 8) → added(8, 0) → (1.0 + [*c][0])
order of a frozenset: frozenset([0, 8]) → frozenset([8, 0]) → (1.0 + [*c][0])
type in a frozenset: frozenset([1]) → frozenset([True]) → is_exact([*c][0], int)
order of a dictionary: {'a': 2.0, 'b': 3.0} → {'b': 3.0, 'a': 2.0} → [*c.values()][0]
type of a dictionary's key: {1: 0} → {True: 0} → is_exact([*c][0], int)
type of a dictionary's value: {'a': 1} → {'a': True} → is_exact(c['a'], int)
type in a slice: slice(0, 1) → slice(0, 1.0) → is_exact(c.stop, int)
Counter: collections.Counter(a=1) → collections.Counter(a=True) → is_exact(c['a'], int)
factory of a defaultdict: collections.defaultdict(int) → collections.defaultdict(list) → len(c.default_factory.__name__)
length of a deque: collections.deque([1], 3) → collections.deque([1], 4) → c.maxlen
OrderedDict and dict: collections.OrderedDict(a=1) → dict(a=1) → is_exact(c, dict)
mapping proxy: types.MappingProxyType({'a': 1}) → types.MappingProxyType({'a': True}) → is_exact(c['a'], int)
field that does not compare: Hidden(1, 2.0) → Hidden(1, 3.0) → c.k
frozen dataclass's number: Shown(1) → Shown(True) → is_exact(c.k, int)
frozen dataclass without equality: NoEq(2.0) → NoEq(3.0) → c.k
frozen dataclass with its own equality: Own(2.0) → Own(3.0) → c.k
attribute set on a frozen dataclass: Shown(1) → (lambda s: (object.__setattr__(s, 'extra', 3.0), s)[1])(Shown(1))
  → getattr(c, 'extra', 2.0)
sign of zero: 0.0 → -0.0 → math.copysign(2.0, c)
sign in a complex number: complex(1, 0.0) → complex(1, -0.0) → math.copysign(2.0, c.imag)
bits of a NaN: nan(0x7ff8000000000001) → nan(0x7ff8000000000002) → (struct.unpack('Q', struct.pack('d', c))[0] & 7)
bool and int: 1 → True → is_exact(c, int)
float and int: 2 → 2.0 → is_exact(c, int)
nested bool and int: ((1, (0,)),) → ((1, (False,)),) → is_exact(c[0][1][0], int)
bytes and bytearray: b'ab' → bytearray(b'ab') → is_exact(c, bytes)
number of NumPy: np.float64(2) → 2.0 → is_exact(c, float)
two numbers of NumPy: np.float32(2) → np.float64(2) → c.dtype.itemsize
text of NumPy: np.str_('a') → 'a' → is_exact(c, str)
truth of NumPy: (np.bool_(True),) → (True,) → is_exact(c[0], bool)
unit of a datetime64: np.datetime64('2020', 'Y') → np.datetime64('2020-01-01', 'D') → len(str(c))
text of one's own: text('a', 2.0) → text('a', 3.0) → c.k
number of one's own: Int(1) → 1 → is_exact(c, int)
float of one's own: (Float(1),) → (1.0,) → is_exact(c[0], float)
two NamedTuples: One(1) → Two(1) → is_exact(c, One)
tuple of one's own: Pair((1,)) → (1,) → is_exact(c, tuple)
NamedTuple's number: One(1) → One(True) → is_exact(c.k, int)
members of two enumerations: Slow.A → Fast.A → is_exact(c, Slow)
member and number: Slow.A → 1 → is_exact(c, int)
flags of a pattern: re.compile('a') → re.compile('a', re.I) → (1.0 + c.flags)
text and bytes of a pattern: re.compile('a') → re.compile(b'a') → is_exact(c.pattern, str)
weak type of a shape: jax.ShapeDtypeStruct((), jnp.float32, weak_type=True) → jax.ShapeDtypeStruct((), jnp.float32)
  → (3.0 if c.weak_type else 2.0)
itemgetter: operator.itemgetter(1) → operator.itemgetter(True) → is_exact(c.__reduce__()[1][0], int)
order of a signature: signature(a=2.0, b=3.0) → signature(b=3.0, a=2.0) → [*c.parameters.values()][0].default
type in a signature: signature(k=1) → signature(k=True) → is_exact(c.parameters['k'].default, int)
data of an array: array.array('d', [2.0]) → array.array('d', [3.0]) → c[0]
""")
# Where a function has an object, `c`, or gets it.
PLACES = rows(r"""
closure: def made(c): return lambda x: x * {read}\nmake = lambda: made(c)
default: make = lambda: lambda x, c=c: x * {read}
keyword default: make = lambda: lambda x, *, c=c: x * {read}
partial: make = lambda: functools.partial(lambda c, x: x * {read}, c)
attribute: def make():\n  def f(x): return x * (lambda c: {read})(f.held)\n  f.held = c\n  return f
helper's closure: def made(c):\n  def inner(x): return x * {read}\n  return lambda x: inner(x)\nmake = lambda: made(c)
list in a closure: def made(l): return lambda x: x * (lambda c: {read})(l[0])\nmake = lambda: made([c])
global: make = lambda: lambda x: x * {read}
argument: make = lambda: lambda x, c: x * {read}\narguments = lambda: (c,)
aux data: @jax.tree_util.register_pytree_node_class\nclass Node:\n  def __init__(self, c): self.c = c
  \n  def tree_flatten(self): return (), self.c\n  @classmethod\n  def tree_unflatten(cls, c, children): return cls(c)
  \ndef step(x, node):\n  c = node.c\n  return x * {read}\nmake = lambda: lambda x, node: step(x, node)
  \narguments = lambda: (Node(c),)
""")


def in_place(place: str, setup: str, read: str, change: str) -> str:
    body = PLACES[place].replace("{read}", f"({read})")
    return f"{PRELUDE}{setup}\n{body}\ndef change():\n    exec({change!r}, globals())\n"


def places_of_value(i: int, name: str) -> set[str]:
    # What partax refuses as an argument (no hash), traces (NumPy's scalars), or jax sorts (a dictionary).
    no_argument = {"NumPy", "slice", "Counter", "deque", "mapping", "Annotated", "array", "dictionary"}
    no_argument |= {"datetime64", "signature"}
    words = set(name.replace("'", " ").split())
    if no_argument.isdisjoint(words):
        return {"closure", "argument", ["argument", "default", "global", "partial", "aux data"][i % 5]}
    return {"closure", "aux data" if {"slice", "Counter"} & words else ["global", "default"][i % 2]}


# Of the built-in containers that are no exact list, dict, set or tuple, a function made anew is not proven.
_ONLY_IN_PLACE = {"bytearray", "OrderedDict", "defaultdict"}
HELD = {
    f"{name}, {place}": in_place(place, *parts_of(row))
    for i, (name, row) in enumerate(_HELD.items())
    for place in ("closure", [*PLACES][1 + i % 6], [*PLACES][1 + (i + 2) % 6])
}
GOES_ON_ANEW = {name for name in HELD if name.rpartition(",")[0] not in _ONLY_IN_PLACE}
VALUES = {
    f"{name}, {place}": in_place(place, f"{SETUP}c = {one}", read, f"c = {other}")
    for i, (name, row) in enumerate(_VALUES.items())
    for one, other, read in [parts_of(row)]
    for place in sorted(places_of_value(i, name))
}

KINDS = {"held": HELD, "value": VALUES, **sources_of({"named": _NAMED}), **sources_of({"made of": _MADE}, function_of)}
