"""What can be changed in a module that names jax or another library; some of it is not stored at all."""

from __future__ import annotations

from short_programs import rows_of

rows = rows_of(globals())

SQUARE = "ARGUMENTS=(jnp.arange(9.).reshape(3,3),)"
STRUCT = "import flax.struct\n@flax.struct.dataclass\nclass S:\n  w: object"
REGISTERED = "@functools.partial(jax.tree_util.register_dataclass,data_fields="
NODE = """class N:
  def __init__(s,w,k): s.w=w;s.k=k
jax.tree_util.register_pytree_node(N,lambda n:((n.w,),n.k),lambda a,c:N(c[0],a))"""

OWN_KEYS = (
    "from jax.extend.random import define_prng_impl\nBITS=«2→3»\ndef unused(*a): return jnp.zeros(2,'uint32')\n"
    "def bits(k,width,shape): return jnp.full(shape,BITS,f'uint{width}')\n"
    "KIND=define_prng_impl(key_shape=(2,),seed=unused,split=unused,random_bits=bits,fold_in=unused,name='own',tag='o')\n"
)

PATCHED = "C=eqx.nn.Identity\nARGUMENTS=(C(),jnp.ones(3))\ndef restore(): del C.mine\n"

OF_LIBRARIES: dict[str, str] = rows(r"""
cached_property: class M(eqx.Module):\n  w: jax.Array\n  @property\n  def k(self): return «2→3»
  \nARGUMENTS=(M(jnp.ones(3)),)\ndef f(m): return m.w*m.k
np scalar type: K=«np.float32→np.float64»(2)\ndef f(x): return (x*K).astype(jnp.float16)*K.dtype.itemsize
np dtype: K=np.dtype('«int8→int16»') → K.itemsize
jnp dtype: K=«jnp.int8→jnp.int16»\ndef f(x): return (x*100).astype(K).astype(float)
complex: K=complex(0.0,«1.0→-1.0»)\ndef f(x): return jnp.real(x*K*K)+jnp.imag(x*K)
neg zero: K=«0.0→-0.0» → 0+jnp.copysign(1.0,K)
weak captured: A=jnp.asarray(2.0«→,jnp.float32»)\ndef f(x): return x.astype(jnp.bfloat16)*A*1
raw key: K=jax.random.PRNGKey(«1→2») → jax.random.uniform(K,(3,))
key impl: K=jax.random.key(1,impl='«threefry2x32→rbg»')\ndef f(x): return x+jax.random.uniform(K,(3,))
own kind of key: {OWN_KEYS}ARGUMENTS=(jax.random.key(1,impl=KIND),)\ndef f(k): return jax.random.bits(k,(3,),'uint32')
own kind of key captured: {OWN_KEYS}K=jax.random.key(1,impl=KIND) → jax.random.bits(K,(3,),'uint32')
own kind of key made: {OWN_KEYS}def f(x): return x*jax.random.bits(jax.random.key(1,impl=KIND),(3,),'uint32')
own kind of key data: {OWN_KEYS}ARGUMENTS=(jnp.zeros(2,'uint32'),)
  \ndef f(d): return jax.random.bits(jax.random.wrap_key_data(d,impl=KIND),(3,),'uint32')
vmap axes: def g(x,y): return x*y.sum()\n{SQUARE}\ndef f(x): return jax.vmap(g,in_axes=(«0,1→1,0»))(x,x)
jit static: @functools.partial(jax.jit,static_argnums=1)\ndef g(x,k): return x*k\ndef f(x): return g(x,«2→3»)
einsum: {SQUARE}\ndef f(x): return jnp.einsum('ij->«j→i»',x)
matmul precision ctx: def f(x):\n  with jax.numpy_dtype_promotion('standard'): return x*«2→3»
optax lr: import optax\nO=optax.sgd(«0.5→0.25»)\ndef f(x): return O.update(x,O.init(x))[0]
optax schedule: import optax\nO=optax.cosine_decay_schedule(1.0,«10→20») → O(3)
optax chain: import optax\nO=optax.chain(«optax.scale(2.0),optax.clip(1.0→optax.clip(1.0),optax.scale(2.0»))
  \ndef f(x): return O.update(x*3,O.init(x))[0]
optax mask: import optax\nO=optax.masked(optax.scale(2.0),lambda p: {'a':«True,'b':False→False,'b':True»})
  \ndef f(x): return O.update({'a':x,'b':x+1},O.init({'a':x,'b':x}))[0]
eqx converter: class M(eqx.Module):\n  k: int=eqx.field(converter=lambda k: k*«2→3»,static=True) → M(3).k
eqx check_init: class M(eqx.Module):\n  k: int=eqx.field(static=True)\n  def «__post_init__(self):
  self.k=self.k*2→__init__(self,k): self.k=k*3»\n   → M(3).k
tree_at: def f(x): return eqx.tree_at(lambda t: t[«0→1»],(x,x+1),x*5)
filter spec: def f(x): return eqx.filter({'a':x,'b':1},lambda l: eqx.is_array(l))['a']*«2→3»
eq that hides: class S:\n  def __init__(self,k): self.k=k\n  def __eq__(self,o): return True
  \n  def __hash__(self): return 1\nARGUMENTS=(jnp.ones(3),S(«2→3»))\ndef f(x,s): return x*s.k
frozen eq that hides: @dataclasses.dataclass(frozen=True,eq=False)\nclass S:\n  k: int\n  def __eq__(self,o): return
  True\n  def __hash__(self): return 1\nARGUMENTS=(jnp.ones(3),S(«2→3»))\ndef f(x,s): return x*s.k
str subclass: class S(str): k=«2→3»\nARGUMENTS=(jnp.ones(3),S('a'))\ndef f(x,s): return x*s.k
int subclass attr: class S(int): pass\ns=S(2); s.k=«2→3»\nARGUMENTS=(jnp.ones(3),s)\ndef f(x,s): return x*s.k
tree Partial: P=jax.tree_util.Partial(jnp.power,«2.0→3.0»)\ndef f(x): return P(x)
register_static: @jax.tree_util.register_static\n@dataclasses.dataclass(frozen=True)\nclass C: k: int
  \nARGUMENTS=(jnp.ones(3),C(«2→3»))\ndef f(x,c): return x*c.k
pspec: P=jax.P('«a→aa»') → len(P[0])
einops: import einops\nARGUMENTS=(jnp.arange(6.).reshape(2,3),)\ndef f(x): return einops.rearrange(x,'a b -> «b
  a')*jnp.arange(2.)→(a b)')*1.0»
eqx state: class M(eqx.Module):\n  n: int=eqx.field(static=True)\n  inference: bool=False
  \nARGUMENTS=(M(2,inference=«True→False»),jnp.ones(3))\ndef f(m,x): return x*(m.n if m.inference else 5)
varargs: ARGUMENTS=(jnp.ones(3),«2,3→3,2»)\ndef f(x,*a): return x*a[0]
dtype finfo: def f(x): return x*float(jnp.finfo(jnp.«float16→bfloat16»).eps)*1e3
bool array captured: A=jnp.array([True,«False→True»,True])\ndef f(x): return jnp.where(A,x,-x+1)
empty array shape: A=jnp.zeros((0,«3→4»)) → A.shape[1]
complex captured: A=jnp.array([1«+→-»2j]*3)\ndef f(x): return jnp.imag(x*A)
nan payload: A=jnp.array([«0x7fc00000→0x7fc00001»]*3,jnp.uint32).view(jnp.float32)
  \ndef f(x): return A.view(jnp.uint32)-0*x.astype(jnp.uint32)
set arg: ARGUMENTS=(jnp.ones(3),frozenset([int,float,str,bytes,«list→dict»]))\ndef f(x,k):\n  for i,t in enumerate(k):
  x=x*2+len(t.__name__)*i\n  return x
custom_vmap: @jax.custom_batching.custom_vmap\ndef g(x): return x*2\n@g.def_vmap\ndef _(n,b,x): return x*«3→4»,True
  \ndef f(x): return jax.vmap(g)(x)
custom_vjp: @jax.custom_vjp\ndef g(x): return x*2\ng.defvjp(lambda x:(g(x),None),lambda r,t:(t*«3→4»,))
  \nmake=lambda: jax.grad(lambda x: g(x).sum())
custom_vjp nondiff: @functools.partial(jax.custom_vjp,nondiff_argnums=(1,))\ndef g(x,k): return x*k
  \ng.defvjp(lambda x,k:(x*k,None),lambda k,r,t:(t*k*«2→5»,))\nmake=lambda: jax.grad(lambda x: g(x,3).sum())
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
aux data: {NODE}\nARGUMENTS=(N(jnp.ones(3),(1,«2→3»)),)\ndef f(n): return n.w*n.k[1]
aux type: {NODE}\nARGUMENTS=(N(jnp.ones(3),«1→True»),)\ndef f(n): return n.w*(2 if n.k is True else 3)
global in property: K=«2→3»\nclass M(eqx.Module):\n  w: jax.Array\n  @property\n  def k(self): return K
  \nARGUMENTS=(M(jnp.ones(3)),)\ndef f(m): return m.w*m.k
method set on a library's class: {PATCHED}C.mine=lambda s,x: x*«2→3»\ndef f(m,x): return m.mine(x)
number set on a library's class: {PATCHED}C.mine=«2→3»\ndef f(m,x): return x*m.mine
property set on a library's class: {PATCHED}C.mine=property(lambda s: «2→3»)\ndef f(m,x): return x*m.mine
forged name: exec('def g(x): return x*«2→3»',d:={'__name__':'jax.numpy'})\ng=d['g']\ndef f(x): return g(x)
forged module class: class C:\n  k=«2→3»\nC.__module__='jax.numpy' → C.k
forged module fn: def g(x): return x*«2→3»\ng.__module__='optax'\ng.__qualname__='sgd'\ndef f(x): return g(x)
shape struct: S=jax.ShapeDtypeStruct((«2→3»,),float) → S.shape[0]
gather dims: G=jax.lax.GatherDimensionNumbers((«0,),(→),(0,»),(0,)) → (1+len(G.offset_dims))
initializer: I=jax.nn.initializers.constant(«2.0→3.0») → I(jax.random.key(0),(3,))
activation partial: A=functools.partial(jax.nn.leaky_relu,negative_slope=«0.5→0.25»)\ndef f(x): return A(-x)
eqx MLP: M=eqx.nn.MLP(3,3,4,1,key=jax.random.key(«0→1»))\ndef f(x): return M(x)
eqx MLP act: ARGUMENTS=(eqx.nn.MLP(3,3,4,1,activation=«jax.nn.relu→jax.nn.tanh»,key=jax.random.key(0)),jnp.arange(3.))
  \ndef f(m,x): return m(x)
eqx dropout p: ARGUMENTS=(eqx.nn.Dropout(«0.5→0.25»),jnp.ones(3))\ndef f(m,x): return m(x,key=jax.random.key(0))
eqx inherited method: class A(eqx.Module):\n  def g(self,x): return x*«2→3»\nclass M(A):\n  w: jax.Array
  \nARGUMENTS=(M(jnp.ones(3)),)\ndef f(m): return m.g(m.w)
eqx method bound static: class M(eqx.Module):\n  k: int=eqx.field(static=True)\n  def __call__(self,x): return x*self.k
  \nmake=lambda: M(«2→3»).__call__
eqx abstract: class A(eqx.Module):\n  k: eqx.AbstractClassVar[int]\n  def g(self,x): return x*self.k\nclass M(A):
  \n  k=«2→3»\nARGUMENTS=(M(),jnp.ones(3))\ndef f(m,x): return m.g(x)
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
cond branches: def f(x): return jax.lax.cond(x.sum()>0,lambda x:x*«2→5»,lambda x:x*3,x)
hessian: make=lambda: jax.hessian(lambda x: (x**«3→4»).sum())
remat static: @functools.partial(jax.checkpoint,static_argnums=(1,))\ndef g(x,k): return x*k
  \ndef f(x): return g(x,«2→3»)
named call: G=jax.named_call(lambda x: x*«2→3»,name='a')\ndef f(x): return G(x)
nested jit vmap grad: G=jax.jit(jax.vmap(jax.grad(lambda x: x**«2→3»)))\ndef f(x): return G(x)
jit donate inner default: @jax.jit\ndef g(x,k=«2→3»): return x*k\ndef f(x): return g(x)
global tuple of arrays: A=(jnp.ones(3),jnp.full(3,«2.→3.»)) → A[1]
partial of class: class C(eqx.Module):\n  k: int=eqx.field(static=True)\n  def __call__(self,x): return x*self.k
  \nP=functools.partial(C,«2→3»)\ndef f(x): return P()(x)
imag const sign: def f(x): return jnp.imag(jnp.conj(x*«1j→-1j»))
result class default: class M(eqx.Module):\n  w: object\n  k: int=eqx.field(static=True,default=«2→3»)
  \ndef f(x): return M(x)
""")
