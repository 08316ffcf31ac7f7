"""Guards the promise that what a process knows by identity, or need not look at, counts by its content in the next."""

from pathlib import Path

import pytest
from user_modules import assert_changes_are_seen, module_of, process

from short_programs import rows_of

rows = rows_of(globals())

pytestmark = pytest.mark.compiled_anew

TOP = (
    "import abc, collections.abc, dataclasses, enum, typing, types, warnings\n"
    "import jax, jax.numpy as jnp, equinox as eqx, numpy as np, ml_dtypes\n"
    "warnings.filterwarnings('ignore', '.*init=False')\n"
)
LEAVES = "def f(x):\n  for leaf in jax.tree.leaves(M(x, 2.0)): x = x * 2 + leaf\n  return x\n"
PAIR = "class M(eqx.Module):\n  a: object\n  b: object = "
OWN = "  def __init__(self): self.a = 2.0; self.b = 3.0\n"
FIRST = OWN + "def f(x): return x * jax.tree.leaves(M())[0]\n"
TWO_FIELDS = "  «a→b»: object = eqx.field(init=False)\n  «b→a»: object = eqx.field(init=False)\n"
ABC = "class S(abc.ABC): pass\nclass P: pass\nclass Q: pass\n"
OF_ABC = "def f(x): return x * (2 if issubclass(P, S) else 3)\n"
PUT = "A = jax.device_put(jnp.ones(4), jax.sharding."
MESH = "jax.make_mesh((1,), ('a',), devices=jax.devices()[:1])"
NAMED_TUPLE = "class T(typing.NamedTuple):\n  a: object\n  b: object\n"
IN_ITS_ORDER = "  for t in k: x = x * 2 + len(t)\n  return x\n"

# Modules in which `«this→that»` is replaced before the next process.
CHANGES: dict[str, str] = rows(r"""
a static field: {PAIR}«eqx.field(static=True)→eqx.field()»\n{LEAVES}
order of fields: class M(eqx.Module):\n{TWO_FIELDS}{FIRST}
order of fields of a base: class B(eqx.Module):\n{TWO_FIELDS}class M(B):\n{FIRST}
metadata of a field: {PAIR}dataclasses.field(metadata={'static': «True→False»})\n{LEAVES}
a field that is no parameter: @dataclasses.dataclass(frozen=True, init=False, match_args=False, repr=False, eq=False)
  \nclass M:\n  a: int = dataclasses.field(init=«True→False»)\n  b: int\n  def __init__(self, b, a=1):
  object.__setattr__(self, 'a', a); object.__setattr__(self, 'b', b) → dataclasses.replace(M(2, 3), b=5).a
a value that is set by hand: class E(enum.Enum):\n  A = 1\n  B = 2\nE._value2member_map_[5] = «E.A→E.B» → E(5).value
a value that finds another member: class E(enum.Enum):\n  A = 1\n  B = 2\nE._value2member_map_[1] = «E.A→E.B»
  → E(1).value
a name that finds another member: class E(enum.Enum):\n  A = 1\n  B = 2\nE._member_map_['C'] = «E.A→E.B» → E['C'].value
order of members: class E(enum.Enum):\n  A = 1\n  B = 2\nE._member_names_[:] = ['«A', 'B→B', 'A»']
  → [it.value for it in E][0]
a registered class: {ABC}S.register(«P→Q»)\n{OF_ABC}
a class registered below: {ABC}class T(S): pass\nT.register(«P→Q»)\n{OF_ABC}
a class registered with a registered one: {ABC}class T(abc.ABC): pass\nS.register(T)\nT.register(«P→Q»)\n{OF_ABC}
a class registered with one of Python's: class P: pass\nclass Q: pass\ncollections.abc.Sequence.register(«P→Q»)
  → (2 if issubclass(P, collections.abc.Sequence) else 3)
int4: K = ml_dtypes.«int4(-1)→uint4(15)» → int(K)
int2: K = ml_dtypes.«int2(-1)→uint2(3)» → int(K)
float8: K = np.uint8(0x3c).view(ml_dtypes.float8_«e4m3fn→e4m3b11fnuz») → float(K)
float8 in a tuple: K = (1, np.uint8(0x3c).view(ml_dtypes.float8_«e4m3→e4m3fnuz»)) → float(K[1])
sign of a NaN: def f(x): return x * 0 + jnp.copysign(1.0, «1e999 - 1e999→-(1e999 - 1e999)»)
sign of a NaN in a tuple: def f(x): return x * 0 + jnp.copysign(1.0, (1, «1e999 - 1e999→-(1e999 - 1e999)»)[1])
item of a named tuple: {NAMED_TUPLE}def f(x): return x * T(2.0, 3.0).a\nT.a = «T.a→T.b»
names in a mesh: M = jax.make_mesh((1,), ('«a→aa»',), devices=jax.devices()[:1]) → len(M.axis_names[0])
what makes a default: class M(eqx.Module):\n  w: object = eqx.field(default_factory=lambda: «2.0→3.0») → M().w
device of an array: {PUT}SingleDeviceSharding(jax.devices()[«1→2»])) → (2 + [*A.devices()][0].id)
memory of an array: {PUT}SingleDeviceSharding(jax.devices()[0], memory_kind=«'device'→'pinned_host'»))
  → len(A.sharding.memory_kind)
axes of an array: {PUT}NamedSharding({MESH}, jax.P(«'a'→»))) → (1 + len(A.sharding.spec))
mesh of an array: {PUT}NamedSharding(jax.make_mesh((1,), ('a',), devices=jax.devices()[«:1→1:2»]), jax.P('a')))
  → (2 + [*A.devices()][0].id)
kind of a sharding: {PUT}«NamedSharding({MESH}, jax.P('a'))→SingleDeviceSharding(jax.devices()[0])»)
  → (2 if isinstance(A.sharding, jax.sharding.NamedSharding) else 3)
order in a named tuple: class T(typing.NamedTuple):\n  «a→b»: object\n  «b→a»: object
  → jax.tree.leaves(T(a=2.0, b=3.0))[0]
""")

# Each for itself, since jax knows one of them in a process.
REGISTERED: dict[str, str] = rows(r"""
namespace: jax.tree_util.register_pytree_node(types.SimpleNamespace, lambda n: ((«n.a, n.b→n.b, n.a»), None), lambda _,
  c: types.SimpleNamespace(a=c[0], b=c[1])) → jax.tree.leaves(types.SimpleNamespace(a=2.0, b=3.0))[0]
an object whose class nothing names: jax.tree_util.register_pytree_node(jax.tree_util.DictKey, lambda _: ((«2.0,
  3.0→3.0, 2.0»), None), lambda _, c: None) → jax.tree.leaves(jax.tree_util.tree_flatten_with_path({'a':
  1})[0][0][0][0])[0]
a slice: jax.tree_util.register_pytree_node(slice, lambda s: ((«s.start, s.stop→s.stop, s.start»), None), lambda _, c:
  slice(*c)) → jax.tree.leaves(slice(2, 3))[0]
a dataclass: import flax.typing\njax.tree_util.register_dataclass(flax.typing.SizeBytes, ['«size', 'bytes→bytes',
  'size»'], []) → jax.tree.leaves(flax.typing.SizeBytes(2, 3))[0]
a helper of the function: def parts(n): return «n.a, n.b→n.b, n.a»
  \njax.tree_util.register_pytree_node(types.SimpleNamespace, lambda n: (parts(n), None), lambda _, c: None)
  → jax.tree.leaves(types.SimpleNamespace(a=2.0, b=3.0))[0]
functions with keys: jax.tree_util.register_pytree_with_keys(types.SimpleNamespace, lambda n:
  (((jax.tree_util.GetAttrKey('a'), «n.a→n.b»),), None), lambda _, c: None)
  → jax.tree.leaves(types.SimpleNamespace(a=2.0, b=3.0))[0]
""")


def assert_traced_for_their_changes(sources: dict[str, str], folder: Path) -> None:
    modules = {name: module_of(source, TOP) for name, source in sources.items()}
    assert_changes_are_seen(modules, folder, PYTHONHASHSEED="1")


def test_what_has_changed_is_traced(tmp_path: Path) -> None:
    assert_traced_for_their_changes(CHANGES, tmp_path)


@pytest.mark.parametrize(
    "name", [pytest.param(it, marks=[pytest.mark.nightly] * (i > 0)) for i, it in enumerate(REGISTERED)]
)
def test_what_is_registered_for_a_class_of_a_library_counts(name: str, tmp_path: Path) -> None:
    assert_traced_for_their_changes({name: REGISTERED[name]}, tmp_path)


HASHED = rows(r"""
a set that is made of constants: def f(x):\n  k = {'a', 'bb', 'ccc', 'dddd'}\n{IN_ITS_ORDER}
a set of another object: def f(x):\n  k = set(['a', 'bb', 'ccc', 'dddd'])\n{IN_ITS_ORDER}
a set in a comprehension: def f(x):\n  k = {c * n for n, c in enumerate('abcd')}\n{IN_ITS_ORDER}
keys as a set: D = dict(a=1, bb=1, ccc=1, dddd=1)\ndef f(x):\n  k = D.keys() & D.keys()\n{IN_ITS_ORDER}
a global set: K = {'a', 'bb', 'ccc', 'dddd'}\ndef f(x):\n  k = K\n{IN_ITS_ORDER}
a frozen set in a list: K = [frozenset(['a', 'bb', 'ccc', 'dddd'])]\ndef f(x):\n  k = K[0]\n{IN_ITS_ORDER}
a set in a helper: def g():\n  return [*{'a', 'bb', 'ccc', 'dddd'}]\ndef f(x):\n  k = g()\n{IN_ITS_ORDER}
a hash: def f(x): return x * ('a'.__hash__() % 1000)
keys by a method: D = dict(a=1, bb=1, ccc=1, dddd=1)\ndef f(x):\n  k = D.keys().__sub__(())\n{IN_ITS_ORDER}
keys as a set in a helper: D = dict(a=1, bb=1, ccc=1, dddd=1)\ndef g(a, b): return a & b
  \ndef f(x):\n  k = g(D.keys(), D.keys())\n{IN_ITS_ORDER}
methods that give keys: D = dict(a=1, bb=1, ccc=1, dddd=1)\ndef g(a, b): return a() & b()
  \ndef f(x):\n  k = g(D.keys, D.keys)\n{IN_ITS_ORDER}
an empty set: K = frozenset() → (1 + len(K))
functions: def f(x):\n  for g in {jnp.sin, jnp.cos, jnp.tan, jnp.exp}: x = x * 2 + g(1.0)\n  return x
a constant set: def f(x):\n  for k in {'a', 'bb', 'ccc', 'dddd'}: x = x * 2 + len(k)\n  return x
a constant set of numbers: def f(x):\n  for k in {0, 8}: x = x * 2 + k\n  return x
keys by a function: import operator\nD = dict(a=1, bb=1, ccc=1)\ndef f(x):\n  k = operator.or_(D.keys(), D.keys())
  \n{IN_ITS_ORDER}
keys by a function in a list: import operator\nD = dict(a=1, bb=1, ccc=1)\nF = [operator.xor]\ndef f(x):
  \n  k = F[0](D.keys(), {'c': 1}.keys())\n{IN_ITS_ORDER}
""")
UNHASHED = rows(r"""
a constant set that is asked: def f(x): return x * (2 if 'a' in {'a', 'bb', 'ccc'} else 3)
a set that is asked: def f(x): return x * (2 if 'a' in {'a', str(x.ndim)} else 3)
keys in a loop: D = dict(a=1, bb=2)\ndef f(x):\n  for k in D.keys(): x = x - D[k]\n  return x
keys in a list: D = dict(a=1, bb=2)\ndef f(x): return x * len([*D.keys(), *sorted(D.items())])
""")


def test_code_that_may_read_a_set_is_not_stored(tmp_path: Path) -> None:
    """Also with one seed: where functions lie in memory is another in each process."""
    sources = {name: module_of(source, TOP) for name, source in (HASHED | UNHASHED).items()}
    for seed, traced in (("1", {*HASHED, *UNHASHED}), ("1", {*HASHED}), ("2", {*HASHED})):
        found = process(sources, tmp_path, PYTHONHASHSEED=seed)
        assert {name for name, it in found.items() if it.traces} == traced
        assert all(it.is_right for it in found.values())


LOADED = rows(r"""
a named tuple as an argument: {NAMED_TUPLE}ARGUMENTS = (T(jnp.ones(3), 2),)\ndef f(t): return t.a * t.b
a named tuple that is made: {NAMED_TUPLE}def f(x): return T(x, 2).a
flags: class F(enum.Flag):\n  A = 1\n  B = 2\n  C = 3\nF.C ^ F.A → len(F) * F.C.value
an abstract class: class S(abc.ABC): pass\nclass P: pass\nS.register(P) → (2 if issubclass(P, S) else 3)
a mesh: M = jax.make_mesh((1,), ('a',), devices=jax.devices()[:1]) → M.size
a mesh as a default: M = {MESH}\ndef f(x, m=M): return x *
  len(m.axis_names[0])
a default that is made anew: @dataclasses.dataclass(frozen=True)\nclass M:
  \n  w: list = dataclasses.field(default_factory=lambda: [2.0]) → M().w[0]
a default of a module that is made anew: class M(eqx.Module):\n  w: object = eqx.field(default_factory=lambda: 2.0)
  → M().w
a named tuple with a default: class T(typing.NamedTuple):\n  a: object\n  b: int = 2\ndef f(x): return T(x).b * x
""")


def test_what_is_common_is_stored(tmp_path: Path) -> None:
    sources = {name: module_of(source, TOP) for name, source in LOADED.items()}
    first, again = (process(sources, tmp_path) for _ in range(2))
    assert {name: it for name, it in again.items() if it.traces or it.value != first[name].value} == {}
    assert all(it.is_right for it in (*first.values(), *again.values()))
