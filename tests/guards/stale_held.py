"""Guards the promise that what a function holds, and what its code names, is seen where it is changed, and nothing is
traced again where it is not: in a function made anew, and, of what it holds, in the same object too."""

from __future__ import annotations

from programs import PRELUDE, parts_of, program_of, source_of

from short_programs import rows_of

rows = rows_of(globals())

# What a function holds as `c` → a number that is read of it → a change in place.
_HELD: dict[str, str] = rows(r"""
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
# Where a function has it.
PLACES = rows(r"""
closure: def made(c): return lambda x: x * {read}\nmake = lambda: made(c)
default: make = lambda: lambda x, c=c: x * {read}
keyword default: make = lambda: lambda x, *, c=c: x * {read}
partial: make = lambda: functools.partial(lambda c, x: x * {read}, c)
attribute: def make():\n  def f(x): return x * (lambda c: {read})(f.held)\n  f.held = c\n  return f
helper's closure: def made(c):\n  def inner(x): return x * {read}\n  return lambda x: inner(x)\nmake = lambda: made(c)
list in a closure: def made(l): return lambda x: x * (lambda c: {read})(l[0])\nmake = lambda: made([c])
""")
# Of the built-in containers that are no exact list, dict, set or tuple, a function made anew is not proven.
_ONLY_IN_PLACE = {"bytearray", "OrderedDict", "defaultdict"}


def held_in(place: str, setup: str, read: str, change: str) -> str:
    body = PLACES[place].replace("{read}", read)
    return f"{PRELUDE}{setup}\n{body}\ndef change():\n    exec({change!r}, globals())\n"


HELD = {
    f"{name}, {place}": held_in(place, *parts_of(row))
    for i, (name, row) in enumerate(_HELD.items())
    for place in ("closure", [*PLACES][1 + i % 6], [*PLACES][1 + (i + 2) % 6])
}
GOES_ON_ANEW = {name for name in HELD if name.rpartition(",")[0] not in _ONLY_IN_PLACE}

# What they define → the value that a function takes its array times → the change.
_NAMED = rows(r"""
number:  → K → K
type of a number: N = 2 → (2.5 if type(N) is bool else N) → N = True
sign of a zero: Z = 0.0 → math.copysign(2.0, Z) → Z = -0.0
text: T = 'ab' → len(T) → T = 'abc'
list in place: L = [1.0, [2.0]] → L[1][0] → L[1][0] = 3.0
dictionary in place: D = {'a': {'k': 2.0}} → D['a']['k'] → D['a'].update(k=3.0)
order of a dictionary: D = {'a': 2.0, 'b': 3.0} → next(iter(D.values())) → D['a'] = D.pop('a')
set in place: S = {1} → (3.0 if 2 in S else 2.0) → S.add(2)
tuple: T = (1.0, (2.0,)) → T[1][0] → T = (1.0, (3.0,))
range: R = range(0, 3, 2) → R.stop → R = range(0, 4, 2)
dtype: D = np.dtype('f4') → (2.0 if D == np.dtype('f4') else 3.0) → D = np.dtype('i4')
array: A = jnp.float32(2) → A → A = jnp.float32(3)
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
NAMED = {name: source_of(row) for name, row in _NAMED.items()}
MADE = {name: program_of(*parts_of(row)) for name, row in _MADE.items()}

KINDS: dict[str, dict[str, str]] = {"held": HELD, "named": NAMED, "made of": MADE}
