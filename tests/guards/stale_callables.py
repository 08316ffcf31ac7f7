"""Guards the promise that what a callable is made of counts: its defaults, the object of a method, what a tree holds;
and what a function made anew is called with as what it holds."""

from programs import function_of, parts_of, program_of, sources_of

from short_programs import rows_of

rows = rows_of(globals())

# What they define → the function that is made anew → the change.
_DEFAULTS = rows(r"""
keyword-only default:  → lambda x, *, o=o: x * o.k → o
default in a tuple:  → lambda x, t=(1, o): x * t[1].k → o
default lambda of an object:  → lambda x, get=lambda: o.k: x * get() → o
default function of a global: def get(): return K → lambda x, get=get: x * get() → K
default function with a default: def get(o=o): return o.k → lambda x, *, get=get: x * get() → o
default method: class O:\n  k = 2.0\n  def rate(self): return self.k\no = O() → lambda x, rate=o.rate: x * rate() → o
default class: class C: k = 2.0 → lambda x, c=C: x * c.k → C.k = 3.0
default module of the user's: m = types.ModuleType('settings')\nm.k = 2.0 → lambda x, m=m: x * m.k → m.k = 3.0
default with its own equality: class O:\n  def __init__(self, k): self.k = k\n  def __eq__(self, other): return True
  \n  def __hash__(self): return 1\no = O(2.0) → lambda x, o=o: x * o.k → o = O(3.0)
default frozen dataclass that holds a list: @dataclasses.dataclass(frozen=True)\nclass O: k: list\no = O([2.0])
  → lambda x, o=o: x * o.k[0] → o.k[0] = 3.0
default of a function inside: def outer(held):\n  def inner(x, held=held): return x * held.k
  \n  return lambda x: inner(x) → outer(o) → o
default NumPy array: a = np.ones(2) → lambda x, a=a: x * float(a[0]) → a[0] = 3.0
""")

TRAINER = """
class Trainer:
    k = 2.0
    def step(self, x): return x * self.k
    def __call__(self, x): return x * self.k
    @classmethod
    def of_class(cls, x): return x * cls.k
o = Trainer()
"""
_METHODS = rows(r"""
method of an object in a global: {TRAINER} → o.step → o
classmethod: {TRAINER} → o.of_class → Trainer.k = 3.0
classmethod of a subclass: {TRAINER}class Sub(Trainer): pass → Sub.of_class → Sub.k = 3.0
method whose class changes: {TRAINER} → o.step → Trainer.k = 3.0
types.MethodType: def step(self, x): return x * self.k → types.MethodType(step, o) → o
method of an object with its own equality: {TRAINER}class Sub(Trainer):\n  def __eq__(self, other): return type(other)
  is Sub\n  def __hash__(self): return 1\no = Sub() → o.step → o = Sub()\no.k = 3.0
method that reads a global: class T:\n  def step(self, x): return x * K\no = T() → o.step → K
method of a list of the user's: class L(list):\n  def step(self, x): return x * self[0]\no = L([2.0]) → o.step
  → o[0] = 3.0
method of a NamedTuple that holds a list: class T(typing.NamedTuple):\n  k: list\n  def step(self, x): return x *
  self.k[0]\no = T([2.0]) → o.step → o.k[0] = 3.0
method of a member of an enumeration: class Mode(enum.Enum):\n  FAST = 1\n  def step(self, x): return x * self.k
  \nMode.FAST.k = 2.0 → Mode.FAST.step → Mode.FAST.k = 3.0
static method that reads its class: class T:\n  k = 2.0\n  @staticmethod\n  def step(x): return x * T.k
  → (lambda step: lambda x: step(x))(T().step) → T.k = 3.0
partialmethod: class T:\n  k = 2.0\n  def by(self, n, x): return x * self.k\n  step = functools.partialmethod(by, 1)
  \no = T() → o.step → o
method in a closure: {TRAINER} → (lambda step: lambda x: step(x))(o.step) → o
method of a module of Equinox: class M(eqx.Module):\n  k: list = eqx.field(static=True)\n  def step(self, x): return x *
  self.k[0]\no = M([2.0]) → o.step → o.k[0] = 3.0
""")

_RECURSIVE = rows(r"""
calls itself with a keyword-only default: def made(k):\n  def f(x, n=2, *, k=k): return x * k if n == 0 else f(x, n -
  1)\n  return f → (lambda f: lambda x: f(x, 2, k=1.0))(made(K)) → K
calls itself with the default of an object: def made():\n  def f(x, n=1, o=o): return x * o.k if n == 0 else f(x, n -
  1)\n  return f → made() → o
two that call each other: def made(k):\n  def even(x, n=2): return x if n == 0 else odd(x, n - 1)
  \n  def odd(x, n, k=k): return even(x * k, n - 1)\n  return even → made(K) → K
calls itself by its attribute: def made(k):\n  def f(x, n=2): return x if n == 0 else f.self(x * f.k, n - 1)
  \n  f.self, f.k = f, k\n  return f → made(K) → K
calls itself by a partial: def made(k):\n  def f(x, n=2, k=k): return x if n == 0 else again(x * k)
  \n  again = functools.partial(f, n=0)\n  def g(x): return f(x, 1, k) * k\n  return g → made(K) → K
""")

# A function that counts or logs, and another one that sees how much; `f` itself is the same object each time.
COUNTING = """
def made():
    n, log, seen = 0, [], {}
    def f(x):
        nonlocal n
        n += 1
        log.append(1)
        seen["n"] = 1
        return x
    def count(): return 1.0 + n
    def inner(x):
        nonlocal n
        n += 1
        def see(): return 1.0 + n
        return x * see()
    def change():
        nonlocal n
        n += 5
        log.extend([1] * 5)
        seen["m"] = 1
    def size(): return 1.0 + len(log) + len(seen)
    return f, count, inner, change, size
f, count, inner, change_it, size = made()
class Counting(eqx.Module):
    def __call__(self, x): return f(x) * count()
"""
# A function that only adds to what it holds, but tells whether that has failed.
TRIED = """
def made(log, add, error):
    scope = dict(error=error)
    exec(f'''def made(log):
    def f(x):
        nonlocal log
        try: {add}
        except error: return x * 2.0
        return x * 3.0
    return f''', scope)
    return scope['made'](log), log
"""
_COUNTING = rows(r"""
count that another function reads: {COUNTING} → lambda x: f(x) * count() → change_it()
count under a checkpoint: {COUNTING} → partax.filter_checkpoint(lambda x: f(x) * count()) → change_it()
count that a function inside reads: {COUNTING} → functools.partial(inner) → change_it()
count under a gradient: {COUNTING} → partax.filter_grad(lambda x: f(x) * count()) → change_it()
log whose length is read: {COUNTING} → lambda x, size=size: f(x) * size() → change_it()
log that is too short: {TRIED}f, log = made([], 'log[0] = 1', IndexError) → functools.partial(f) → log.append(1)
log that is full: {TRIED}f, log = made(collections.deque(maxlen=2), 'log.insert(0, 1)', IndexError)
  → functools.partial(f) → log.extend((1, 2))
count that becomes a text: {TRIED}f, _ = made(0, 'log += 1', TypeError) → functools.partial(f)
  → f.__closure__[0].cell_contents = 'a'
log that becomes a set: {TRIED}f, _ = made([], 'log.append(1)', AttributeError) → functools.partial(f)
  → f.__closure__[0].cell_contents = set()
""")

MODULE = """
class Static(eqx.Module):
    o: typing.Any = eqx.field(static=True)
    def __call__(self, x): return x * self.o.k
class Leaf(eqx.Module):
    o: typing.Any
    def __call__(self, x): return x * self.o.k
class Global(eqx.Module):
    n: int = 1
    def __call__(self, x): return x * K
class Shared(eqx.Module):
    k: typing.ClassVar = 2.0
    def __call__(self, x): return x * self.k
"""
_TREES = rows(r"""
Partial with a keyword: {MODULE} → jax.tree_util.Partial(lambda x, o: x * o.k, o=o) → o
Partial in a Partial: {MODULE} → jax.tree_util.Partial(lambda f, x: f(x), jax.tree_util.Partial(lambda o, x: x * o.k,
  o)) → o
eqx.Partial: {MODULE} → eqx.Partial(lambda o, x: x * o.k, o) → o
eqx.nn.Lambda of a global: {MODULE} → eqx.nn.Lambda(lambda x: x * K) → K
eqx.nn.Lambda of an object: {MODULE} → eqx.nn.Lambda(lambda x, key=None, o=o: x * o.k) → o
object in a static field: {MODULE} → Static(o) → o
method of a tree that reads a global: {MODULE} → Global() → K
tree with a class attribute: {MODULE} → Shared() → Shared.k = 3.0
tree whose method is replaced: {MODULE} → Global() → Global.__call__ = lambda self, x: x * 3.0
activation of an MLP: {MODULE}NET = eqx.nn.MLP('scalar', 'scalar', 2, 1, key=jax.random.key(0))
  → eqx.tree_at(lambda net: net.activation, NET, lambda x: x * K) → K = -30.0
class registered with jax: {MODULE}@jax.tree_util.register_pytree_node_class\nclass P:\n  def __init__(self, o): self.o
  = o\n  def tree_flatten(self): return (), self.o\n  @classmethod\n  def tree_unflatten(cls, o, c): return cls(o)
  \n  def __call__(self, x): return x * self.o.k → P(o) → o
module of Flax: {MODULE}class F(nn.Module):\n  o: typing.Any\n  def __call__(self, x): return x * self.o.k
  → lambda x: F(o).apply({}, x) → o
jax.jit of an object: {MODULE} → jax.jit(lambda x, o=o: x * o.k) → o
tree whose method reads a count: {COUNTING} → Counting() → change_it()
schedule of optax: {MODULE} → lambda x, tx=optax.sgd(lambda step: K): tx.update(x, tx.init(x))[0] → K
custom_jvp of an object: {MODULE}@jax.custom_jvp\ndef f(x): return x * o.k\nf.defjvp(lambda p, t: (p[0] * o.k, t[0] *
  o.k)) → lambda x: f(x) → o
""")
# What they define → the function → what it is called with after its array → the change.
_ARGUMENTS = rows(r"""
object:  → lambda x, o: x * o.k → o, → o
objects in a list:  → lambda x, os: x * os[1][0].k → [1, [o]], → o
object with its own equality: class E(O):\n  def __eq__(self, other): return type(other) is E
  \n  def __hash__(self): return 1\no = E() → lambda x, o: x * o.k → o, → o
object whose class changes:  → lambda x, o: x * o.k → o, → O.k = 3.0
function of a global: def get(): return K → lambda x, get: x * get() → get, → K
partial of an object:  → lambda x, get: x * get('k') → functools.partial(getattr, o), → o
Partial of an object:  → lambda x, f: f(x) → jax.tree_util.Partial(lambda o, x: x * o.k, o), → o
member of an enumeration: class Mode(enum.Enum): FAST = 1\nMode.FAST.k = 2.0 → lambda x, mode: x * mode.k → Mode.FAST,
  → Mode.FAST.k = 3.0
module of Equinox that reads a global: class M(eqx.Module):\n  def __call__(self, x): return x * K → lambda x, m: m(x)
  → M(), → K
module of Equinox with a class attribute: class M(eqx.Module):\n  k: typing.ClassVar = 2.0\n  def __call__(self, x):
  return x * self.k → lambda x, m: m(x) → M(), → M.k = 3.0
module of Equinox with an object in a static field: class M(eqx.Module):\n  o: O = eqx.field(static=True)
  \n  def __call__(self, x): return x * self.o.k → lambda x, m: m(x) → M(o), → o
module of Equinox's own with a lambda:  → lambda x, m: m(x) → eqx.nn.Lambda(lambda x: x * K), → K
module of Flax that reads a global: class M(nn.Module):\n  def __call__(self, x): return x * K
  → lambda x, m: m.apply({}, x) → M(), → K
module of nnx with a class attribute: from flax import nnx\nclass M(nnx.Module):\n  k = 2.0\n  def __call__(self, x):
  return x * self.k → lambda x, m: m(x) → M(), → M.k = 3.0
class registered with jax, whose method reads a global: @jax.tree_util.register_dataclass\n@dataclasses.dataclass
  \nclass P:\n  w: float\n  def rate(self): return K → lambda x, p: x * p.rate() → P(1.0), → K
class registered with jax, with a class attribute: @jax.tree_util.register_pytree_node_class\nclass P:\n  k = 2.0
  \n  def tree_flatten(self): return (), None\n  @classmethod\n  def tree_unflatten(cls, aux, children): return cls()
  → lambda x, p: x * p.k → P(), → P.k = 3.0
class registered with jax, with an object in its aux data: @jax.tree_util.register_pytree_node_class\nclass P:
  \n  def __init__(self, o): self.o = o\n  def tree_flatten(self): return (), self.o\n  @classmethod
  \n  def tree_unflatten(cls, o, c): return cls(o) → lambda x, p: x * p.o.k → P(o), → o
function of an object: def get(): return o.k → lambda x, get: x * get() → get, → o
function of an object in a wrapper: def loss(x): return x * o.k → lambda x, g: g(x) → partax.filter_grad(loss), → o
object among starred arguments:  → lambda x, *os: x * os[1].k → 1, o → o
""")
# The same, where the argument is what the function holds, and then an equal one.
ACTS = "def act(k=2.0): return lambda x: x * k\nh = a = act()\n"
_HELD = rows(r"""
itself: {ACTS} → (lambda h: lambda x, a: x * (2.0 if a is h else 3.0))(h) → a, → a = act()
in a list: {ACTS} → (lambda hs: lambda x, a: x * (2.0 if a[0] in hs else 3.0))([h]) → [a], → a = act()
key of a dict: {ACTS} → (lambda t: lambda x, a: x * t.get(a, 3.0))({h: 2.0}) → a, → a = act()
default: {ACTS} → lambda x, *a, h=h: x * (2.0 if h in a else 3.0) → 1, a → a = act()
of a helper: {ACTS}def is_it(a): return a is h → lambda x, a: x * (2.0 if is_it(a) else 3.0) → a, → a = act()
""")


def called_with(row: str) -> str:
    setup, function, arguments, change = parts_of(row)
    return program_of(setup, function, change, arguments=arguments)


KINDS = sources_of(
    {"default": _DEFAULTS, "method": _METHODS, "recursive": _RECURSIVE, "tree": _TREES, "counting": _COUNTING},
    function_of,
)
KINDS |= sources_of({"argument": _ARGUMENTS, "what it holds is the argument": _HELD}, called_with)
