"""Guards the promise that rules and classes which a user registers count, with jax, Python, lineax and dataclasses; and
names in annotations: those in texts, and those that others have set on a function."""

from __future__ import annotations

from programs import sources_of

from short_programs import rows_of

rows = rows_of(globals())

PRIMITIVE = """
import jax, jax.extend, jax.numpy as jnp
from jax.interpreters import ad, batching, mlir
p = jax.extend.core.Primitive("p_of_mine")
p.def_impl(lambda x: x * 1.0)
p.def_abstract_eval(lambda x: x)
mlir.register_lowering(p, mlir.lower_fun(lambda x: x * 1.0, multiple_results=False))
batching.primitive_batchers[p] = lambda xs, ds: (xs[0] * 2.0, ds[0])
ad.primitive_jvps[p] = lambda xs, ts: (p.bind(xs[0]), ts[0] * 2.0)
"""
REGISTERED = """
import dataclasses, functools, jax
class P:
    def __init__(self, a=2.0): self.a = a
class Q(P): pass
state = [2.0]
"""
CONVERTED = """
def converted(k): return k * K
class M(eqx.Module):
    k: float = eqx.field(converter=converted)
class Under(M): pass
"""
OPERATOR = """
import lineax
class Own(lineax.AbstractLinearOperator):
    v: jax.Array
    def mv(self, vector): return self.v * vector
    def as_matrix(self): return jnp.diag(self.v)
    def transpose(self): return self
    def in_structure(self): return jax.eval_shape(lambda: self.v)
    def out_structure(self): return jax.eval_shape(lambda: self.v)
lineax.is_symmetric.register(Own)(lambda it: True)
lineax.diagonal.register(Own)(lambda it: it.v * K)
"""
NODE = "jax.tree_util.register_pytree_node(P, lambda p: ((p.a,), None), lambda _, c: P(*c))"
CLASS = """@jax.tree_util.register_pytree_node_class
class R:
    def __init__(self, a=2.0): self.a = a
    def tree_flatten(self): return (self.a * K / 2.0,), None
    @classmethod
    def tree_unflatten(cls, _, c): return cls(*c)
"""
_REGISTRY = rows(r"""
batching rule: {PRIMITIVE} → jax.vmap(p.bind)(jnp.ones(1))[0] → batching.primitive_batchers[p] = lambda xs, ds: (xs[0] *
  3.0, ds[0])
derivative: {PRIMITIVE} → jax.grad(p.bind)(1.0) → ad.primitive_jvps[p] = lambda xs, ts: (p.bind(xs[0]), ts[0] * 3.0)
custom_jvp: @jax.custom_jvp\ndef f(x): return x\nf.defjvp(lambda p, t: (p[0], 2.0 * t[0])) → jax.grad(f)(1.0)
  → f.defjvp(lambda p, t: (p[0], 3.0 * t[0]))
custom_vjp: @jax.custom_vjp\ndef f(x): return x\nf.defvjp(lambda x: (x, None), lambda _, t: (2.0 * t,))
  → jax.grad(f)(1.0) → f.defvjp(lambda x: (x, None), lambda _, t: (3.0 * t,))
custom_vmap: @jax.custom_batching.custom_vmap\ndef f(x): return x\nf.def_vmap(lambda n, b, x: (x * 2.0, True))
  → jax.vmap(f)(jnp.ones(1))[0] → f.def_vmap(lambda n, b, x: (x * 3.0, True))
class registered later: {REGISTERED} → (1.0 + (jax.tree.leaves(P())[0] == 2.0)) → {NODE}
dataclass registered later: {REGISTERED}@dataclasses.dataclass(frozen=True)\nclass D:\n  a: float = 2.0
  \n  b: float = 3.0 → (1.0 + len(jax.tree.leaves(D()))) → jax.tree_util.register_dataclass(D)
class registered as static later: {REGISTERED} → (1.0 + len(jax.tree.leaves(Q()))) → jax.tree_util.register_static(Q)
is_leaf that reads state: {REGISTERED} → (1.0 + len(jax.tree.leaves([1, 2, 3], is_leaf=lambda leaf: type(leaf) is list
  and state[0] > 2.5))) → state[0] = 3.0
flatten that reads a global: {REGISTERED}jax.tree_util.register_pytree_node(P, lambda p: ((K,), None), lambda _, c:
  P(*c)) → jax.tree.leaves(P())[0] → K
method that flattens, which reads a global: {REGISTERED}{CLASS} → jax.tree.leaves(R())[0] → K
method that flattens, replaced: {REGISTERED}{CLASS} → jax.tree.leaves(R())[0] → R.tree_flatten = lambda self: ((3.0,),
  None)
method called by its name: {REGISTERED}c = operator.methodcaller('rate')\nclass M:\n  @staticmethod
  \n  def rate(): return K → c(M) → K
method called by the name of a library's: {REGISTERED}F = tempfile.TemporaryDirectory()\nW = os.getcwd()
  \nc = operator.methodcaller('getcwd') → (lambda m: 3.0 if 'tmp' in c(m) and c(m) != W else 2.0)(os) → os.chdir(F.name)
  → os.chdir(W)\nF.cleanup()
global in a format of another place: {REGISTERED}TEXT = '{0.__globals__[K]}'\ndef h(): return 1 → float(TEXT.format(h))
  → K
unflatten that reads state: {REGISTERED}jax.tree_util.register_pytree_node(P, lambda p: ((p.a,), None), lambda _, c:
  P(state[0])) → jax.tree.map(lambda a: a, P()).a → state[0] = 3.0
flatten with keys that reads state: {REGISTERED}jax.tree_util.register_pytree_with_keys(P, lambda p: (((('k' *
  int(state[0])), p.a),), None), lambda _, c: P(*c)) → len(jax.tree_util.tree_flatten_with_path(P())[0][0][0][0])
  → state[0] = 3.0
singledispatch: {REGISTERED}@functools.singledispatch\ndef f(a): return 2.0 → f(P()) → f.register(P, lambda a: 3.0)
registered number: class N: pass → (3.0 if isinstance(N(), numbers.Number) else 2.0) → numbers.Number.register(N)
converter of a field: {CONVERTED} → M(1.0).k → K
converter of an inherited field: {CONVERTED} → Under(1.0).k → K
converter of a field, replaced: {CONVERTED} → M(1.0).k → M.__dataclass_fields__['k'].metadata = {'converter': lambda k:
  3.0}
field that is a value too: {CONVERTED}F = M.__dataclass_fields__['k']\nF.default = 2.0 → (M(1.0), F.default)[1]
  → F.default = 3.0
function in the metadata of a field: def shown(): return K\n@dataclasses.dataclass(frozen=True)\nclass C:
  \n  a: float = dataclasses.field(default=1.0, metadata={'shown': shown})
  → dataclasses.fields(C)[0].metadata['shown']() → K
rule of lineax for an operator: {OPERATOR} → lineax.diagonal(Own(jnp.ones(1)))[0] → K
rule of lineax, registered again: {OPERATOR} → lineax.diagonal(Own(jnp.ones(1)))[0]
  → lineax.diagonal.register(Own)(lambda it: it.v * 3.0)
copyreg: {REGISTERED} → copy.copy(Q(2.0)).a → copyreg.pickle(Q, lambda q: (Q, (3.0,)))
""")

KINDS = sources_of({"registry": _REGISTRY})


CHECK = """
from beartype import beartype
from beartype.door import is_bearable
from jaxtyping import Float, jaxtyped
T, CV, W = float, list, Float[jax.Array, '2']
def passes(check):
    try: check()
    except Exception: return 3.0
    return 2.0
def inner(v: float): return v
def of_array(v: Float[jax.Array, '2']): return v
"""
# A class or function that is made in the body, by each decorator that reads annotations.
_MADE = rows(r"""
dataclass: @dataclasses.dataclass\n    class D
frozen dataclass: @dataclasses.dataclass(frozen=True)\n    class D
dataclass of Flax: @flax.struct.dataclass\n    class D
dataclass of chex: @chex.dataclass(mappable_dataclass=False)\n    class D
module of Equinox: class D(eqx.Module)
""")
_TEXTS = rows(r"""
text for beartype: {CHECK}def get():\n  @beartype\n  def f(v: 'T'): return v\n  return passes(lambda: f(2.0)) → get()
  → T = int
text for jaxtyped: {CHECK}def get():\n  @jaxtyped(typechecker=beartype)\n  def f(v: 'W'): return v
  \n  return passes(lambda: f(jnp.ones(2))) → get() → W = Float[jax.Array, '3']
text that is asked: {CHECK} → (2.0 if is_bearable(2.0, 'T') else 3.0) → T = int
function of another place, for beartype: {CHECK} → passes(lambda: beartype(inner)(2.0)) → inner.__annotations__['v'] =
  int
function of another place, for jaxtyped: {CHECK} → passes(lambda: jaxtyped(typechecker=beartype)(of_array)(jnp.ones(2)))
  → of_array.__annotations__['v'] = Float[jax.Array, '3']
maker that has another name: {CHECK}make_checked = [functools.partial(jaxtyped, typechecker=beartype)]
  → passes(lambda: make_checked[0](of_array)(jnp.ones(2))) → of_array.__annotations__['v'] = Float[jax.Array, '3']
""") | {
    **{
        f"text in a {name}": (
            f"{CHECK}def get():\n    {made}:\n        a: 'CV[int]' = 1.0\n        b: float = 2.0\n    return len(fields(D))"
            "\nfields = dataclasses.fields → get() → CV = typing.ClassVar"
        )
        for name, made in _MADE.items()
    },
}
_MISSING = {
    "what an abstract class has not": (
        "class A(eqx.Module):\n    k: eqx.AbstractClassVar[int]\n"
        "def get():\n    try: A()\n    except TypeError: return 2.0\n    return 3.0"
        " → get() → type.__setattr__(A, '__abstractclassvars__', frozenset())"
    ),
    "methods that an abstract class has not": (
        "class A(abc.ABC):\n    @abc.abstractmethod\n    def k(self): ...\n"
        "def get():\n    try: A()\n    except TypeError: return 2.0\n    return 3.0"
        " → get() → A.__abstractmethods__ = frozenset()"
    ),
}

KINDS |= sources_of({"annotation": _TEXTS, "missing": _MISSING})
