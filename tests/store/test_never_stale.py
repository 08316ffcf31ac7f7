"""Guards the promise that a stored program is loaded where nothing is changed that it depends on, and only there."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import pytest
from changes_of_modules import OF_MODULES
from user_modules import NAME, TOP, alike, assert_changes_are_seen, in_three_processes, module_of, run

import partax
from random_trees import EXAMPLES
from short_programs import imported, rows_of
from stored import written

sys.path.append(str(Path(__file__).parents[1] / "guards"))
from test_stale import PROGRAMS

rows = rows_of(globals())

pytestmark = pytest.mark.compiled_anew

# Modules that are stored, in which `«this→that»` is replaced before the next process.
CHANGES: dict[str, str] = rows(r"""
type of a constant: def f(x): return x.astype(int) * «2→2.0»
sign of a zero: def f(x): return 1 / (x * 0 «+ →* -»0.0)
default: def f(x, k=«2→3»): return x * k
keyword-only default: def f(x, *, k=«2→3»): return x * k
closure: def outer(k):\n  def f(x): return x * k\n  return f\nmake = lambda: outer(«2→3»)
global list: K = [1, «2→3»] → K[1]
order of a dictionary: K = {'«a': 2, 'b': 3→b': 3, 'a': 2»} → [*K.values()][0]
helper of a helper: def h(x): return x * «2→3»\ndef g(x): return h(x)\ndef f(x): return g(x)
helper that is another: def g(x): return x * 2\ndef h(x): return x * 3\ndef f(x): return «g→h»(x)
decorator: def twice(g): return functools.wraps(g)(lambda x: g(x) * «2→3»)\n@twice\ndef f(x): return x
decorator that is gone: def twice(g): return lambda x: g(x) * 2\n«@twice\n→»def f(x): return x
partial: def g(k, x): return x * k\nmake = lambda: functools.partial(g, «2→3»)
function of a library: def f(x): return «jnp.sin→jnp.cos»(x)
static method: class C:\n  @staticmethod\n  def g(x): return x * «2→3»\ndef f(x): return C.g(x)
class method: class C:\n  k = «2→3»\n  @classmethod\n  def g(cls, x): return x * cls.k\ndef f(x): return C.g(x)
member of an enumeration: class E(enum.Enum): A = «2→5»; B = 3 → E.A.value
field of a frozen dataclass: @dataclasses.dataclass(frozen=True, slots=True)\nclass C: k: int = «2→3»\nc = C() → c.k
method of a frozen dataclass: @dataclasses.dataclass(frozen=True)\nclass C:\n  k: int = 2\n  def g(self, x): return x
  «*→+» self.k\nc = C()\ndef f(x): return c.g(x)
captured key: K = jax.random.key(«1→2») → jax.random.uniform(K, x.shape)
two objects or one: A = object()\nB = «A→object()» → (2 if A is B else 3)
two NaNs or one: A = float('nan')\nB = [«A→float('nan')»] → (2 if A in B else 3)
activation in a module: class M(eqx.Module):\n  act: object = eqx.field(static=True)\n  def __call__(self, x): return
  self.act(x)\nARGUMENTS = (M(«jnp.sin→jnp.cos»), jnp.ones(3))\ndef f(m, x): return m(x)
method of a module: class M(eqx.Module):\n  w: jax.Array\n  def __call__(self, x): return self.w «*→+» x
  \nARGUMENTS = (M(jnp.full(3, 2.)), jnp.ones(3))\ndef f(m, x): return m(x)
parameter that a value is of: KEYWORDS = {'«a→b»': 5}\ndef f(x, a=1, b=2): return x * a + b
name of a keyword: KEYWORDS = {'«a→b»': 5}\ndef f(x, **more): return x * (2 if 'a' in more else 3)
type of a static argument: ARGUMENTS = (jnp.ones(3, int), «2→2.0»)\ndef f(x, k): return x * k
keys of an argument: ARGUMENTS = ({'«a→ccc»': jnp.ones(3), 'b': jnp.zeros(3)},)\ndef f(t): return t['b'] + max(map(len,
  t))
shape of an argument: ARGUMENTS = (jnp.ones(«3→4»),)\ndef f(x): return x.sum()
dtype of an argument: ARGUMENTS = (jnp.ones(3«→, jnp.int32»),) → 2
weak type of an argument: ARGUMENTS = (jnp.asarray(2.0«→, jnp.float32»),)\ndef f(x): return x + jnp.bfloat16(1)
array that is NumPy's: ARGUMENTS = («jnp.ones(3→np.full(3, 2., np.float32»),) → 2
what is returned: def f(x): return x, '«a→b»'
what comes back: def f(x): return x«, x * 2→ * 2, x»
gradient: def g(x): return (x ** «2→3»).sum()\nmake = lambda: jax.grad(g)
body of a scan: def f(x): return jax.lax.scan(lambda c, y: (c + y * «2→3», y), 0.0, x)[0]
function with a custom rule: @jax.custom_jvp\ndef g(x): return x\n@g.defjvp\ndef _(p, t): return g(*p), t[0] * «2→3»
  \nmake = lambda: jax.grad(lambda x: g(x).sum())
registered node: class N:\n  def __init__(self, w): self.w = w\njax.tree_util.register_pytree_node(N, lambda n: ((n.w,),
  2), lambda k, c: N(c[0]))\nARGUMENTS = (N(jnp.ones(3)),)\ndef f(n): return jax.tree_util.tree_flatten(n)[0][0] * «2→3»
property: class M(eqx.Module):\n  w: jax.Array\n  @property\n  def twice(self): return self.w * «2→3»
  \nARGUMENTS = (M(jnp.ones(3)),)\ndef f(m): return m.twice
of all sorts: K, M, S = [1, 2], (1, np.float32(2)), jax.tree.structure((1, 2))\nARGUMENTS = (np.arange(3.0),)
  \ndef g(x): return x * «2.0→3.0»\ndef f(x):\n  import math
  \n  return jax.jit(g)(x) + math.pi * len(K) * (M[1] if len(M) in {2, 5} else S.num_leaves)
element of a NumPy array: A=np.arange(«3.→1.,4.»)[:3] → A[0]+A.shape[0]+A[1]
part of a NumPy array: A=np.arange(6.).reshape(2,3)[«0→1»]\ndef f(x): return x*A
order of a NumPy array: A=np.ones((2,4),order='«C→F»') → A.strides[0]
field of linen: import flax.linen as nn\nclass M(nn.Module):\n  k: int=«2→3»\n  def __call__(self,x): return x*self.k
  \nM=M()\ndef f(x): return M.apply({},x)
module in one of linen: import flax.linen as nn\nclass M(nn.Module):\n  @nn.compact\n  def __call__(self,x):
  \n    return nn.Dense(3,kernel_init=nn.initializers.constant(«2→3»))(x)\nM=M()
  \ndef f(x): return M.init_with_output(jax.random.key(0),x)[0]
train state of linen: import flax.linen as nn, optax\nfrom flax.training.train_state import TrainState as S
  \nclass N(nn.Module):\n  k: int\n  @nn.compact\n  def __call__(self,x): return nn.relu(nn.Dense(self.k)(x-np.ones(3)))
  \nN=N(«2→4»)\nO=optax.MultiSteps(optax.inject_hyperparams(optax.sgd)(optax.linear_schedule(.1,1.,9)),1)
  \nARGUMENTS=(S.create(apply_fn=N.apply,params=N.init(jax.random.key(0),jnp.ones(3)),tx=O),jnp.ones(3))
  \ndef f(s,x): return s.apply_gradients(grads=jax.grad(lambda p: s.apply_fn(p,x).sum())(s.params)).params
""")


def test_a_process_whose_modules_have_changed_gets_their_results(tmp_path: Path) -> None:
    names = [*CHANGES][:: 1 if EXAMPLES > 100 else 2]
    assert_changes_are_seen({name: module_of(CHANGES[name]) for name in names}, tmp_path)


def test_a_process_gets_the_results_of_whatever_has_changed(tmp_path: Path) -> None:
    names = [*OF_MODULES][:: 1 if EXAMPLES > 100 else 2]
    first, again, found = in_three_processes({name: module_of(OF_MODULES[name]) for name in names}, tmp_path)
    assert [name for name in names if found[name].value == first[name].value] == [], "else nothing has changed"
    assert sum(it.traces == 0 for it in again.values()) > len(names) * 0.8, "else the test would say nothing"


FEW = [
    pytest.param(name, marks=[pytest.mark.nightly] * (i % 16 > 0))
    for i, (name, source) in enumerate(PROGRAMS.items())
    # Those with `__exit__` are undone once only.
    if i % 4 == 0 and "__exit__" not in source and "EVER_OTHER" not in source
]


@pytest.mark.parametrize("name", FEW)
def test_the_corpus_of_functions_made_anew_in_another_process(name: str, tmp_path: Path) -> None:
    """The third way: the same module, another process later, which changes something before its first call."""
    source = PROGRAMS[name]

    def as_it_was(module: Any) -> None:
        module.ARGUMENTS = (jax.numpy.float32(0.5), *getattr(module, "arguments", tuple)())

    def changed(module: Any) -> None:
        module.make()
        module.change()
        as_it_was(module)

    run(source, tmp_path, tmp_path / "store", as_it_was)
    found = run(source, tmp_path, tmp_path / "store", changed)
    with imported(source, tmp_path, NAME) as module:
        changed(module)
        right = module.make()(*module.ARGUMENTS)
    assert float(found.value) == pytest.approx(float(right), rel=1e-6)


BY_K = TOP + "K = 2\ndef f(x): return x * K\nmake = lambda: f"


def test_what_the_process_changes_after_its_first_program_counts_for_the_next(tmp_path: Path) -> None:
    with partax.store(tmp_path / "store"), imported(BY_K, tmp_path, NAME) as module:
        step = partax.filter_jit(module.make())
        assert float(step(jax.numpy.ones(()))) == 2
        module.K = 3  # type: ignore[attr-defined]
        assert float(step(jax.numpy.ones(1))[0]) == 3  # as jax.jit, which traces for another shape
        step.clear_cache()
    other = BY_K.replace("make", "ARGUMENTS = (jnp.ones(1),)\nmake")
    assert float(run(other, tmp_path, tmp_path / "store").value[0]) == 2


# What has traced the function already when the call comes that is to be stored: its program is of that time.
EARLIER: dict[str, Callable[[Any, Any], object]] = {
    "lower": lambda step, x: step.lower(x),
    "trace": lambda step, x: step.trace(x),
    "eval_shape": lambda step, x: step.eval_shape(x),
    "a call that is checked": lambda step, x: within(jax.debug_nans(True), step, x),
    "grad": lambda step, x: jax.grad(lambda it: step(it).sum())(x),
    "jit": lambda step, x: jax.jit(step)(x),
    "vmap": lambda step, x: jax.vmap(step)(x[None]),
    "shapes": lambda step, x: jax.eval_shape(step, x),
    "a call that is not stored": lambda step, x: within(partax.store(None), step, x),
}


def within(context: Any, step: Any, x: Any) -> None:
    with context:
        step(x)


@pytest.mark.parametrize("options", [{}, {"donate": "all"}], ids=["plain", "donated"])
@pytest.mark.parametrize("earlier", EARLIER)
def test_what_was_traced_earlier_is_not_stored_for_what_is_read_later(
    earlier: str, options: dict[str, Any], tmp_path: Path
) -> None:
    with partax.store(tmp_path / "store"), imported(BY_K, tmp_path, NAME) as module:
        step = partax.filter_jit(module.make(), **options)
        EARLIER[earlier](step, jax.numpy.arange(3.0))
        module.K = 3  # type: ignore[attr-defined]
        step(jax.numpy.arange(3.0))  # by the earlier trace, as with jax.jit
        written()
        step.clear_cache()
    found = run(BY_K.replace("K = 2", "K = 3"), tmp_path, tmp_path / "store", **options)
    assert alike(found.value, found.right), found


def test_what_a_result_has_by_its_name_is_what_the_code_has_read(tmp_path: Path) -> None:
    source = TOP + "def g(): 1\nclass E(enum.Enum): A = 1\nG, F = g, E\ndef f(x): return x, G, F.A\nmake = lambda: f\n"
    for again in ("", "def g(): 2", "class E(enum.Enum): A, B = 1, 2"):
        found = run(source + again, tmp_path, tmp_path / "store")
        assert found.value[1:] == found.right[1:]


def test_what_a_trace_itself_changes_is_not_stored(tmp_path: Path) -> None:
    source = TOP + "L = [2.0]\ndef f(x):\n  y = x * L[0]\n  L[0] = 3.0\n  return y\nmake = lambda: f"
    for donate in ("none", "all"):
        run(source, tmp_path, tmp_path / donate, donate=donate)
        found = run(source.replace("[2.0]", "[3.0]"), tmp_path, tmp_path / donate, donate=donate)
        assert alike(found.value, found.right), found
