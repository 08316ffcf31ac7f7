"""What can be changed in a module before the next process, in plain Python, then in what names jax or another library;
some of it is not stored at all."""

from short_programs import rows_of

rows = rows_of(globals())

FROZEN = "@dataclasses.dataclass(frozen=True)\nclass C:"
OPERATOR = "@dataclasses.dataclass(frozen=True,eq=False)\nclass C:\n  def"
ENUM = "class E(enum.Enum):\n  A=2"
SQUARE = "ARGUMENTS=(jnp.arange(9.).reshape(3,3),)"
STRUCT = "import flax.struct\n@flax.struct.dataclass\nclass S:\n  w: object"
REGISTERED = "@functools.partial(jax.tree_util.register_dataclass,data_fields="
OWN_KEYS = (
    "from jax.extend.random import define_prng_impl\nBITS=«2→3»\ndef unused(*a): return jnp.zeros(2,'uint32')\n"
    "def bits(k,width,shape): return jnp.full(shape,BITS,f'uint{width}')\n"
    "KIND=define_prng_impl(key_shape=(2,),seed=unused,split=unused,random_bits=bits,fold_in=unused,name='own',tag='o')\n"
)

PATCHED = "C=eqx.nn.Identity\nARGUMENTS=(C(),jnp.ones(3))\ndef restore(): del C.mine\n"

OF_MODULES = rows(r"""
line of a generator: «def g→\n\ndef g»(): yield 1 → g().gi_code.co_firstlineno
line of an error: «class C→\n\nclass C»:\n  def __enter__(self): pass\n  def __exit__(self,kind,error,tb):
  \n    self.k=tb.tb_lineno\n    return True\ndef f(x):\n  c=C()\n  with c: raise ValueError\n  return x*c.k
name of what is inside: «def outer()→def outer_2()»:\n  def f(x):\n    def inner(): pass
  \n    return x*len(inner.__qualname__)\n  f.__qualname__='f'\n  return f\nmake=lambda: [it for n,it in
  [*globals().items()] if n[:3]=='out'][0]()
text as annotation of a class inside: import typing\n«CV=list→CV=typing.ClassVar»\ndef f(x):\n  @dataclasses.dataclass
  \n  class D:\n    a: 'CV[int]'=2.0\n    b: float=2.0\n  return x*D(3.0).b
parameters of a generic class: import typing\nT=typing.TypeVar('T');U=typing.TypeVar('U')
  \nclass C(typing.«Generic[T]→Generic[T,U]»): pass\ndef f(x):\n  try: C[int]\n  except TypeError: return x*3
  \n  return x*2
base of a generic class: import typing\nT=typing.TypeVar('T')\nclass B(typing.Generic[T]): pass\nclass C(«B[T]→B[int]»):
  pass\ndef f(x):\n  try: C[int]\n  except TypeError: return x*3\n  return x*2
match: K=2\ndef f(x):\n  match K:\n    case «2→5»: return x*2\n    case _: return x*3
own name: def g(x): return x\n«def→g.__name__='gggg'\ndef» f(x): return x*len(g.__name__)
__name__: «def→__name__='abcdefghijklmnopqrstuvwxyz'\ndef» f(x): return x*len(__name__)
qualname of class: class C: pass\n«def→C.__qualname__='Hello'\ndef» f(x): return x*len(C.__qualname__)
mro: class A: k=2\nclass B: k=3\nclass C(«A,B→B,A»): pass → C.k
metaclass attr: class M(type): k=«2→3»\nclass C(metaclass=M): pass → C.k
init_subclass: class A:\n  def __init_subclass__(cls): cls.k=«2→3»\nclass C(A): pass → C.k
contextmanager: import contextlib\n@contextlib.contextmanager\ndef g(): yield «2→3»\ndef f(x):\n  with g() as k: return
  x*k
methodcaller: import operator\nG=operator.methodcaller('«sum→max»')\ndef f(x): return G(x)
namedtuple default: import collections\nT=collections.namedtuple('T','a b',defaults=(«2→3»,)) → T(1).b
enum auto order: class E(enum.Enum):\n  «A=enum.auto()\n  B→B=enum.auto()\n  A=enum.auto()\n  C»=enum.auto() → E.B.value
strenum: class E(enum.StrEnum): A='«aa→aaa»' → len(E.A)
enum missing: {ENUM}\n  B=3\n  @classmethod\n  def _missing_(cls,v): return «cls.A→cls.B» → E(9).value
enum alias: {ENUM}\n  B=3\n  C=«2→3» → len(E.C.name+E['C'].name)*E['C'].value
enum member attr: {ENUM}\nE.A.k=«2→3» → E.A.k
dc eq: {FROZEN}\n  a: int\n  b: int=dataclasses.field(default=0,compare=«False→True») → (2 if C(1,2)==C(1,1) else 3)
bytes: K=b'«ab→cb»' → K[0]
range: K=range(2,9,«3→2») → K[1]
slice: K=slice(«0,2→1,3»)\ndef f(x): return x[K]
slice type: K=slice(0,«2→2.0») → (2 if type(K.stop) is int else 3)
decimal: import decimal\nK=decimal.Decimal('«1.0→1.00»') → len(str(K))
regex: import re\nK=re.compile('a«+→»') → K.match('aab').end()
big int: K=2**«70→71» → (K%1000)
true one: K=(«1→True»,2) → (2 if K[0] is True else 3)
tuple list: K=«(1,2)→[1,2]» → (2 if type(K) is list else 3)
orderedDict: import collections\nK=collections.OrderedDict(«a=2,b=3→b=3,a=2») → [*K.values()][0]
shadow builtin: «def→len=lambda s: 7\ndef» f(x): return x*len('ab')
name error: «def→KK=9\ndef» f(x):\n  try: return x*KK\n  except NameError: return x*2
hasattr: class C: «pass→k=1» → (2 if hasattr(C,'k') else 3)
fn attribute: def g(): pass\ng.k=«2→3» → g.k
partial attr: g=functools.partial(int)\ng.k=«2→3» → g.k
wraps target: def a(x): return x*2\ndef b(x): return x*3\n@functools.wraps(«a→b»)\ndef g(x): return x
  \ndef f(x): return g.__wrapped__(x)
super: class A:\n  @classmethod\n  def g(cls): return «2→3»\nclass B(A):\n  @classmethod
  \n  def g(cls): return super().g()*2 → B.g()
op __mul__: {OPERATOR} __mul__(self,o): return o*«2→3»\ndef f(x): return C()*x
op __len__: {OPERATOR} __len__(self): return «2→3» → len(C())
op __eq__: {OPERATOR} __eq__(self,o): return «2→3»==2\n  __hash__=None → (2 if C()==1 else 3)
ellipsis: K=«...→None» → (2 if K is ... else 3)
type global: K=«int→float»\ndef f(x): return x.astype(K)*1.5
exception class: class E1(Exception): pass\nclass E2(Exception): pass\ndef g(): raise «E1→E2»\ndef f(x):\n  try: g()
  \n  except E1: return x*2\n  except E2: return x*3
assertion: def f(x):\n  assert True\n  return x*(«2→5» if __debug__ else 3)
int flag: class F(enum.IntFlag):\n  A=1\n  B=2\nK=«F.A→F.A|F.B» → int(K)
dict keyed by types order: K={«int:1,float:2→float:2,int:1»} → [*K.values()][0]
global rebinding: K=«2→3»\ndef g():\n  global K\n  K=K+0\n  return K → g()
class del: class A: k=2\nclass C(A): k=3\n«def→del C.k\ndef» f(x): return x*C.k
code replaced: def g(x): return x*2\ndef h(x): return x*3\n«def→g.__code__=h.__code__\ndef» f(x): return g(x)
exception table: def f(x):\n  try: int('z')\n  except «ValueError: return x*2\n  except TypeError→TypeError: return x*2
  \n  except ValueError»: return x*3
method of tuple subclass: import typing\nclass T(typing.NamedTuple):\n  a: int=2\n  def g(self): return self.a*«2→3»
  \nt=T() → t.g()
result dict order: def f(x): return {'«b':x,'a→a':x,'b»':2}
static result from helper: def g(): return ('a',«1.5→2.5»)\ndef f(x): return x,g()
result enum: class E(enum.Enum): A=1;B=2\ndef f(x): return x, «E.A→E.B».value
surrogate: K='\«udc80→udc81»'\ndef f(x): return x*ord(K)
np scalar type: K=«np.float32→np.float64»(2)\ndef f(x): return (x*K).astype(jnp.float16)*K.dtype.itemsize
np dtype: K=np.dtype('«int8→int16»') → K.itemsize
complex: K=complex(0.0,«1.0→-1.0»)\ndef f(x): return jnp.real(x*K*K)+jnp.imag(x*K)
neg zero: K=«0.0→-0.0» → 0+jnp.copysign(1.0,K)
weak captured: A=jnp.asarray(2.0«→,jnp.float32»)\ndef f(x): return x.astype(jnp.bfloat16)*A*1
raw key: K=jax.random.PRNGKey(«1→2») → jax.random.uniform(K,(3,))
key impl: K=jax.random.key(1,impl='«threefry2x32→rbg»')\ndef f(x): return x+jax.random.uniform(K,(3,))
own kind of key: {OWN_KEYS}ARGUMENTS=(jax.random.key(1,impl=KIND),)\ndef f(k): return jax.random.bits(k,(3,),'uint32')
own kind of key captured: {OWN_KEYS}K=jax.random.key(1,impl=KIND) → jax.random.bits(K,(3,),'uint32')
vmap axes: def g(x,y): return x*y.sum()\n{SQUARE}\ndef f(x): return jax.vmap(g,in_axes=(«0,1→1,0»))(x,x)
jit static: @functools.partial(jax.jit,static_argnums=1)\ndef g(x,k): return x*k\ndef f(x): return g(x,«2→3»)
optax lr: import optax\nO=optax.sgd(«0.5→0.25»)\ndef f(x): return O.update(x,O.init(x))[0]
optax chain: import optax\nO=optax.chain(«optax.scale(2.0),optax.clip(1.0→optax.clip(1.0),optax.scale(2.0»))
  \ndef f(x): return O.update(x*3,O.init(x))[0]
eqx converter: class M(eqx.Module):\n  k: int=eqx.field(converter=lambda k: k*«2→3»,static=True) → M(3).k
eqx check_init: class M(eqx.Module):\n  k: int=eqx.field(static=True)\n  def «__post_init__(self):
  self.k=self.k*2→__init__(self,k): self.k=k*3»\n   → M(3).k
eq that hides: class S:\n  def __init__(self,k): self.k=k\n  def __eq__(self,o): return True
  \n  def __hash__(self): return 1\nARGUMENTS=(jnp.ones(3),S(«2→3»))\ndef f(x,s): return x*s.k
frozen eq that hides: @dataclasses.dataclass(frozen=True,eq=False)\nclass S:\n  k: int\n  def __eq__(self,o): return
  True\n  def __hash__(self): return 1\nARGUMENTS=(jnp.ones(3),S(«2→3»))\ndef f(x,s): return x*s.k
str subclass: class S(str): k=«2→3»\nARGUMENTS=(jnp.ones(3),S('a'))\ndef f(x,s): return x*s.k
tree Partial: P=jax.tree_util.Partial(jnp.power,«2.0→3.0»)\ndef f(x): return P(x)
register_static: @jax.tree_util.register_static\n@dataclasses.dataclass(frozen=True)\nclass C: k: int
  \nARGUMENTS=(jnp.ones(3),C(«2→3»))\ndef f(x,c): return x*c.k
pspec: P=jax.P('«a→aa»') → len(P[0])
eqx state: class M(eqx.Module):\n  n: int=eqx.field(static=True)\n  inference: bool=False
  \nARGUMENTS=(M(2,inference=«True→False»),jnp.ones(3))\ndef f(m,x): return x*(m.n if m.inference else 5)
varargs: ARGUMENTS=(jnp.ones(3),«2,3→3,2»)\ndef f(x,*a): return x*a[0]
bool array captured: A=jnp.array([True,«False→True»,True])\ndef f(x): return jnp.where(A,x,-x+1)
empty array shape: A=jnp.zeros((0,«3→4»)) → A.shape[1]
nan payload: A=jnp.array([«0x7fc00000→0x7fc00001»]*3,jnp.uint32).view(jnp.float32)
  \ndef f(x): return A.view(jnp.uint32)-0*x.astype(jnp.uint32)
custom_vjp: @jax.custom_vjp\ndef g(x): return x*2\ng.defvjp(lambda x:(g(x),None),lambda r,t:(t*«3→4»,))
  \nmake=lambda: jax.grad(lambda x: g(x).sum())
custom_jvp closure: def mk(k):\n  @jax.custom_jvp\n  def g(x): return x\n  @g.defjvp\n  def _(p,t): return g(*p),t[0]*k
  \n  return g\nG=mk(«2→3»)\nmake=lambda: jax.grad(lambda x: G(x).sum())
node flatten reads global: W=«2→3»\nclass N:\n  def __init__(s,w): s.w=w\njax.tree_util.register_pytree_node(N,lambda
  n:((n.w*W,),None),lambda a,c:N(c[0]))\ndef f(x): return jax.tree.leaves(N(x))[0]
node class methods: @jax.tree_util.register_pytree_node_class\nclass N:\n  def __init__(s,w): s.w=w
  \n  def tree_flatten(s): return (s.w*«2→3»,),None\n  @classmethod\n  def tree_unflatten(c,a,ch): return c(ch[0])
  \ndef f(x): return jax.tree.leaves(N(x))[0]
register_dataclass fields: {REGISTERED}['a'«],meta_fields=['b'→,'b'],meta_fields=[»])\n@dataclasses.dataclass\nclass N:
  \n  a: object\n  b: object\nARGUMENTS=(N(jnp.ones(3),2),)\ndef f(n): return n.a*len(jax.tree.leaves(n))*n.b
register_dataclass order: {REGISTERED}['«a','b→b','a»'],meta_fields=[])\n@dataclasses.dataclass\nclass N:\n  a: object
  \n  b: object → jax.tree.leaves(N(2.0,3.0))[0]
aux type: class N:\n  def __init__(s,w,k): s.w=w;s.k=k\njax.tree_util.register_pytree_node(N,lambda
  n:((n.w,),n.k),lambda a,c:N(c[0],a))\nARGUMENTS=(N(jnp.ones(3),«1→True»),)
  \ndef f(n): return n.w*(2 if n.k is True else 3)
global in property: K=«2→3»\nclass M(eqx.Module):\n  w: jax.Array\n  @property\n  def k(self): return K
  \nARGUMENTS=(M(jnp.ones(3)),)\ndef f(m): return m.w*m.k
method set on a library's class: {PATCHED}C.mine=lambda s,x: x*«2→3»\ndef f(m,x): return m.mine(x)
method of a library's class, checkpointed: {PATCHED}C.mine=jax.checkpoint(lambda s,x: x*«2→3»)
  \ndef f(m,x): return m.mine(x)
method of another class of a library: {PATCHED}C.mine=eqx.nn.«Identity→PReLU».__call__\ndef f(m,x):
  \n  m=type('M',(),{'negative_slope':jnp.float32(2)})()\n  return C.mine(m,-x)
number set on a library's class: {PATCHED}C.mine=«2→3»\ndef f(m,x): return x*m.mine
property set on a library's class: {PATCHED}C.mine=property(lambda s: «2→3»)\ndef f(m,x): return x*m.mine
forged name: exec('def g(x): return x*«2→3»',d:={'__name__':'jax.numpy'})\ng=d['g']\ndef f(x): return g(x)
forged module class: class C:\n  k=«2→3»\nC.__module__='jax.numpy' → C.k
shape struct: S=jax.ShapeDtypeStruct((«2→3»,),float) → S.shape[0]
gather dims: G=jax.lax.GatherDimensionNumbers((«0,),(→),(0,»),(0,)) → (1+len(G.offset_dims))
initializer: I=jax.nn.initializers.constant(«2.0→3.0») → I(jax.random.key(0),(3,))
eqx MLP act: ARGUMENTS=(eqx.nn.MLP(3,3,4,1,activation=«jax.nn.relu→jax.nn.tanh»,key=jax.random.key(0)),jnp.arange(3.))
  \ndef f(m,x): return m(x)
eqx dropout p: ARGUMENTS=(eqx.nn.Dropout(«0.5→0.25»),jnp.ones(3))\ndef f(m,x): return m(x,key=jax.random.key(0))
eqx method bound static: class M(eqx.Module):\n  k: int=eqx.field(static=True)\n  def __call__(self,x): return x*self.k
  \nmake=lambda: M(«2→3»).__call__
nnx attr: from flax import nnx\nclass N(nnx.Module):\n  def __init__(s): s.k=«2→3»; s.w=nnx.Param(jnp.ones(3))\nn=N()
  \nARGUMENTS=(nnx.state(n),)\ng=nnx.graphdef(n)\ndef f(s): return nnx.merge(g,s).w[...]*nnx.merge(g,s).k
flax struct: {STRUCT}\n  k: int=flax.struct.field(pytree_node=False,default=«2→3»)\nARGUMENTS=(S(jnp.ones(3)),)
  \ndef f(s): return s.w*s.k
flax struct node: {STRUCT}\n  k: float=flax.struct.field(pytree_node=«True→False»,default=2.0)
  → len(jax.tree.leaves(S(1.0)))
chex dataclass: import chex\n@chex.dataclass(frozen=True)\nclass S:\n  w: object\n  k: int=«2→3»
  \nARGUMENTS=(S(w=jnp.ones(3)),)\ndef f(s): return s.w*s.k
jaxtyped: import jaxtyping\nF=jaxtyping.Float[jax.Array,'«a→aa»'] → len(F.dim_str)
scan reverse: def f(x): return jax.lax.scan(lambda c,y:(c*2+y,c),0.0,x,reverse=«False→True»)[1]
while cond: def f(x): return jax.lax.while_loop(lambda s: s.sum()<«50→500»,lambda s: s*2,x+1)
remat static: @functools.partial(jax.checkpoint,static_argnums=(1,))\ndef g(x,k): return x*k
  \ndef f(x): return g(x,«2→3»)
nested jit vmap grad: G=jax.jit(jax.vmap(jax.grad(lambda x: x**«2→3»)))\ndef f(x): return G(x)
partial of class: class C(eqx.Module):\n  k: int=eqx.field(static=True)\n  def __call__(self,x): return x*self.k
  \nP=functools.partial(C,«2→3»)\ndef f(x): return P()(x)
imag const sign: def f(x): return jnp.imag(jnp.conj(x*«1j→-1j»))
result class default: class M(eqx.Module):\n  w: object\n  k: int=eqx.field(static=True,default=«2→3»)
  \ndef f(x): return M(x)
""")
