"""Guards the promise that what a function made anew is called with counts as what it holds does."""

from __future__ import annotations

from programs import parts_of, program_of

from short_programs import rows_of

rows = rows_of(globals())

# What they define → the function → what it is called with after its array → the change.
_ARGUMENTS: dict[str, tuple[str, str, str, str]] = rows(r"""
object:  → lambda x, o: x * o.k → o, → o
objects in a list:  → lambda x, os: x * os[1][0].k → [1, [o]], → o
objects in a dictionary:  → lambda x, os: x * os['o'].k → {'o': o}, → o
object in a NamedTuple: class N(typing.NamedTuple): o: O → lambda x, n: x * n.o.k → N(o), → o
object with its own equality: class E(O):\n  def __eq__(self, other): return type(other) is E
  \n  def __hash__(self): return 1\no = E() → lambda x, o: x * o.k → o, → o
object whose class changes:  → lambda x, o: x * o.k → o, → O.k = 3.0
object with a method that reads a global: class G:\n  def rate(self): return K\ng = G() → lambda x, g: x * g.rate() → g,
  → K
method:  → lambda x, step: step(x) → o.step, → o
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
module of Equinox whose property reads a global: class M(eqx.Module):\n  rate = property(lambda self: K)
  → lambda x, m: x * m.rate → M(), → K
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
object that comes by its keyword default's name:  → lambda x, o=None: x * o.k → o, → o
function of an object: def get(): return o.k → lambda x, get: x * get() → get, → o
functions of an object in a list: def get(): return o.k → lambda x, gs: x * gs[0]() → [get], → o
function of an object in a static field: def get(): return o.k\nclass M(eqx.Module):
  \n  f: typing.Any = eqx.field(static=True) → lambda x, m: x * m.f() → M(get), → o
function of an object in a wrapper: def loss(x): return x * o.k → lambda x, g: g(x) → partax.filter_grad(loss), → o
object among starred arguments:  → lambda x, *os: x * os[1].k → 1, o → o
""")

KINDS: dict[str, dict[str, str]] = {
    "argument": {
        name: program_of(setup, function, change, arguments=arguments)
        for name, row in _ARGUMENTS.items()
        for setup, function, arguments, change in [parts_of(row)]
    }
}
