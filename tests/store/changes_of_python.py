"""What can be changed in a module of plain Python before the next process; some of it is not stored at all."""

from __future__ import annotations

from short_programs import rows_of

rows = rows_of(globals())

FROZEN = "@dataclasses.dataclass(frozen=True)\nclass C:"
OPERATOR = "@dataclasses.dataclass(frozen=True,eq=False)\nclass C:\n  def"
ENUM = "class E(enum.Enum):\n  A=2"
IN_ORDER = "\n  for i,t in enumerate(k): x=x*2+len(t.__name__)*i\n  return x"

OF_PYTHON: dict[str, str] = rows(r"""
line of a generator: «def g→\n\ndef g»(): yield 1 → g().gi_code.co_firstlineno
line of a coroutine: «async→\n\nasync» def g(): pass\ndef f(x):\n  c=g()\n  c.close()
  \n  return x*c.cr_code.co_firstlineno
line of an error: «class C→\n\nclass C»:\n  def __enter__(self): pass\n  def __exit__(self,kind,error,tb):
  \n    self.k=tb.tb_lineno\n    return True\ndef f(x):\n  c=C()\n  with c: raise ValueError\n  return x*c.k
name of what is inside: «def outer()→def outer_2()»:\n  def f(x):\n    def inner(): pass
  \n    return x*len(inner.__qualname__)\n  f.__qualname__='f'\n  return f\nmake=lambda: [it for n,it in
  [*globals().items()] if n[:3]=='out'][0]()
text as annotation of a class inside: import typing\n«CV=list→CV=typing.ClassVar»\ndef f(x):\n  @dataclasses.dataclass
  \n  class D:\n    a: 'CV[int]'=2.0\n    b: float=2.0\n  return x*D(3.0).b
text as annotation of a function inside: import beartype\n«T=float→T=int»\ndef f(x):\n  @beartype.beartype
  \n  def g(a: 'T'): return a\n  try: g(2.0)\n  except Exception: return x*3\n  return x*2
parameters of a generic class: import typing\nT=typing.TypeVar('T');U=typing.TypeVar('U')
  \nclass C(typing.«Generic[T]→Generic[T,U]»): pass\ndef f(x):\n  try: C[int]\n  except TypeError: return x*3
  \n  return x*2
base of a generic class: import typing\nT=typing.TypeVar('T')\nclass B(typing.Generic[T]): pass\nclass C(«B[T]→B[int]»):
  pass\ndef f(x):\n  try: C[int]\n  except TypeError: return x*3\n  return x*2
cell list: def outer():\n  l=[«2.0→3.0»]\n  def f(x): return x*l[0]\n  return f\nmake=outer
reduce: import functools,operator → functools.reduce(«operator.add→operator.mul»,(2,3))
fstring: K=2.5 → len(f'{K:«.2f→.5f»}')
match: K=2\ndef f(x):\n  match K:\n    case «2→5»: return x*2\n    case _: return x*3
match_args: {FROZEN}\n  a: int=2\n  b: int=3\n  __match_args__=('«a','b→b','a»')\nc=C()\ndef f(x):\n  match c:
  \n    case C(k, _): return x*k
annotations of function: def g(x: int)«→->int»: return x → (1+len(g.__annotations__))
doc of function: def g(x):\n  '«ab→abc»'\n  return x → len(g.__doc__)
own name: def g(x): return x\n«def→g.__name__='gggg'\ndef» f(x): return x*len(g.__name__)
firstlineno: «def→\n\n\ndef» g(x): return x → g.__code__.co_firstlineno
lineno frame: import sys\n«def→\n\ndef» f(x): return x*sys._getframe().f_lineno
__name__: «def→__name__='abcdefghijklmnopqrstuvwxyz'\ndef» f(x): return x*len(__name__)
doc of class: class C: '«ab→abc»' → len(C.__doc__)
annotations of class: class C:\n  a: «int→int\n  b: int» → (1+len(C.__annotations__))
qualname of class: class C: pass\n«def→C.__qualname__='Hello'\ndef» f(x): return x*len(C.__qualname__)
vars of class: class C:\n  a=«1→1\n  b=1» → len(vars(C))
dir of class: class C:\n  a=«1→1\n  b=1» → len(dir(C))
subclasses: class C: pass\nclass D(C): «pass→pass\nclass E(C): pass» → (1+len(C.__subclasses__()))
mro: class A: k=2\nclass B: k=3\nclass C(«A,B→B,A»): pass → C.k
mro len: class A: pass\nclass B(A): pass\nclass C(«B→A»): pass → len(C.__mro__)
alias args: X=list[«int→float»] → len(X.__args__[0].__name__)
literal: import typing\nX=typing.Literal[«2→3»] → X.__args__[0]
metaclass attr: class M(type): k=«2→3»\nclass C(metaclass=M): pass → C.k
metaclass call: class M(type):\n  def __call__(cls,x): return x*«2→3»\nclass C(metaclass=M): pass\ndef f(x): return C(x)
init_subclass: class A:\n  def __init_subclass__(cls): cls.k=«2→3»\nclass C(A): pass → C.k
class_getitem: class C:\n  def __class_getitem__(cls,i): return «2→3»*i → C[3]
descriptor: class D:\n  def __init__(self,k): self.k=k\n  def __get__(self,o,t): return self.k\nclass C: a=D(«2→3»)
  → C.a
singledispatch: @functools.singledispatch\ndef g(k): return 2\n@g.register\ndef _(k: int): return «3→4» → g(1)
lru_cache: @functools.lru_cache\ndef g(k): return k*«2→3» → g(3)
contextmanager: import contextlib\n@contextlib.contextmanager\ndef g(): yield «2→3»\ndef f(x):\n  with g() as k: return
  x*k
generator: def g():\n  yield 2\n  yield «3→4» → sum(g())
itemgetter: import operator\nG=operator.itemgetter(«0→1») → G((2,3))
attrgetter: import operator\nG=operator.attrgetter('«a→b»')\nclass C: a=2; b=3 → G(C)
methodcaller: import operator\nG=operator.methodcaller('«sum→max»')\ndef f(x): return G(x)
namedtuple default: import collections\nT=collections.namedtuple('T','a b',defaults=(«2→3»,)) → T(1).b
enum auto order: class E(enum.Enum):\n  «A=enum.auto()\n  B→B=enum.auto()\n  A=enum.auto()\n  C»=enum.auto() → E.B.value
intenum: class E(enum.IntEnum): A=«2→3» → E.A
strenum: class E(enum.StrEnum): A='«aa→aaa»' → len(E.A)
enum missing: {ENUM}\n  B=3\n  @classmethod\n  def _missing_(cls,v): return «cls.A→cls.B» → E(9).value
enum alias: {ENUM}\n  B=3\n  C=«2→3» → len(E.C.name+E['C'].name)*E['C'].value
enum method: {ENUM}\n  def g(self): return self.value*«2→3» → E.A.g()
enum member attr: {ENUM}\nE.A.k=«2→3» → E.A.k
mappingproxy: import types\nK=types.MappingProxyType({'a':«2→3»}) → K['a']
dc eq: {FROZEN}\n  a: int\n  b: int=dataclasses.field(default=0,compare=«False→True») → (2 if C(1,2)==C(1,1) else 3)
dc fields: {FROZEN}\n  a: int=«2→3» → dataclasses.fields(C)[0].default
bytes: K=b'«ab→cb»' → K[0]
range: K=range(2,9,«3→2») → K[1]
slice: K=slice(«0,2→1,3»)\ndef f(x): return x[K]
slice type: K=slice(0,«2→2.0») → (2 if type(K.stop) is int else 3)
decimal: import decimal\nK=decimal.Decimal('«1.0→1.00»') → len(str(K))
fraction: import fractions\nK=fractions.Fraction(1,«2→3») → K.denominator
datetime: import datetime\nK=datetime.timedelta(«2→3») → K.days
path: import pathlib\nK=pathlib.PurePosixPath('a/b«→/c»') → len(K.parts)
regex: import re\nK=re.compile('a«+→»') → K.match('aab').end()
big int: K=2**«70→71» → (K%1000)
true one: K=(«1→True»,2) → (2 if K[0] is True else 3)
tuple list: K=«(1,2)→[1,2]» → (2 if type(K) is list else 3)
frozenset: K=frozenset({1,«2→3»}) → (2 if 3 in K else 3)
orderedDict: import collections\nK=collections.OrderedDict(«a=2,b=3→b=3,a=2») → [*K.values()][0]
defaultdict factory: import collections\ndef make():\n  K=collections.defaultdict(lambda: «2→3»)
  \n  def f(x): return x*K['z']\n  return f
shadow builtin: «def→len=lambda s: 7\ndef» f(x): return x*len('ab')
name error: «def→KK=9\ndef» f(x):\n  try: return x*KK\n  except NameError: return x*2
hasattr: class C: «pass→k=1» → (2 if hasattr(C,'k') else 3)
getattr default: class C: «pass→k=1» → getattr(C,'k',2)
fn attribute: def g(): pass\ng.k=«2→3» → g.k
partial attr: g=functools.partial(int)\ng.k=«2→3» → g.k
wraps target: def a(x): return x*2\ndef b(x): return x*3\n@functools.wraps(«a→b»)\ndef g(x): return x
  \ndef f(x): return g.__wrapped__(x)
super: class A:\n  @classmethod\n  def g(cls): return «2→3»\nclass B(A):\n  @classmethod
  \n  def g(cls): return super().g()*2 → B.g()
slots: @dataclasses.dataclass(frozen=True,slots=True)\nclass C: k: int=«2→3»\nc=C() → c.k
op __mul__: {OPERATOR} __mul__(self,o): return o*«2→3»\ndef f(x): return C()*x
op __rmul__: {OPERATOR} __rmul__(self,o): return o*«2→3»\ndef f(x): return 2.0*C()+x*0
op __len__: {OPERATOR} __len__(self): return «2→3» → len(C())
op __bool__: {OPERATOR} __bool__(self): return «2→3»==2 → (2 if C() else 3)
op __contains__: {OPERATOR} __contains__(self,o): return «2→3»==2 → (2 if 1 in C() else 3)
op __iter__: {OPERATOR} __iter__(self): return iter((«2→3»,)) → sum(C())
op __call__: {OPERATOR} __call__(self): return «2→3» → C()()
op __getitem__: {OPERATOR} __getitem__(self,o): return «2→3» → C()[0]
op __float__: {OPERATOR} __float__(self): return float(«2→3») → float(C())
op __eq__: {OPERATOR} __eq__(self,o): return «2→3»==2\n  __hash__=None → (2 if C()==1 else 3)
op __format__: {OPERATOR} __format__(self,o): return 'a'*«2→3» → len(f'{C()}')
op __neg__: {OPERATOR} __neg__(self): return «2→3» → -C()
generic: import typing\nT=typing.TypeVar('T')\nclass C(typing.Generic[T]): k=2\nD=C[«int→float»]
  → D.k*len(D.__args__[0].__name__)
typevar bound: import typing\nT=typing.TypeVar('T',bound=«int→float») → len(T.__bound__.__name__)
default None: def g(x,k=«None→7»): return x*(2 if k is None else k)\ndef f(x): return g(x)
ellipsis: K=«...→None» → (2 if K is ... else 3)
notimplemented: K=«NotImplemented→None» → (2 if K is NotImplemented else 3)
type global: K=«int→float»\ndef f(x): return x.astype(K)*1.5
exception class: class E1(Exception): pass\nclass E2(Exception): pass\ndef g(): raise «E1→E2»\ndef f(x):\n  try: g()
  \n  except E1: return x*2\n  except E2: return x*3
exception args: class E1(Exception): pass\ndef g(): raise E1(«2→3»)\ndef f(x):\n  try: g()\n  except E1 as e: return
  x*e.args[0]
assertion: def f(x):\n  assert True\n  return x*(«2→5» if __debug__ else 3)
star import like: from math import *\n«def→floor=ceil\ndef» f(x): return x*floor(2.5)
comprehension filter: K=[1,2,3] → sum(k for k in K if k>«1→2»)
sorted key: K=['bb','a'] → len(sorted(K,key=«len→lambda s: -len(s)»)[0])
int flag: class F(enum.IntFlag):\n  A=1\n  B=2\nK=«F.A→F.A|F.B» → int(K)
set of types made: def f(x):\n  k={int,float,str,bytes,complex,list,«tuple→dict»}{IN_ORDER}
set of types global: K=frozenset([int,float,str,bytes,complex,list,«tuple→dict»])\ndef f(x):\n  k=K{IN_ORDER}
set None: K=[None,'a','bb','ccc','«dddd→ddddd»']\ndef f(x):\n  for i,t in enumerate(set(K)): x=x*2+len(str(t))*i
  \n  return x
const set None: def f(x):\n  for i,t in enumerate({None,1,2,«3→4»}): x=x*2+(9 if t is None else t)*i\n  return x
global set None: K={None,1,2,«3→4»,5,6}\ndef f(x):\n  for i,t in enumerate(K): x=x*2+(9 if t is None else t)*i
  \n  return x
set of enum: class E(enum.Enum): A=1;B=2;C=3;D=«4→5»\nK={E.A,E.B,E.C,E.D}\ndef f(x):\n  for i,t in enumerate(K):
  x=x*2+t.value*i\n  return x
dict keyed by types order: K={«int:1,float:2→float:2,int:1»} → [*K.values()][0]
set difference of types: def f(x):\n  k={int,float,str,bytes,«complex→list»}-{int}{IN_ORDER}
dict keys difference: D={int:1,float:2,str:3,bytes:4,«complex→list»:5}\ndef f(x):\n  k=D.keys()-{int}{IN_ORDER}
frozenset const types in tuple: K=(frozenset([int,float,str,bytes,«list→dict»]),)\ndef f(x):\n  k=K[0]{IN_ORDER}
set comprehension: def f(x):\n  k={type(t) for t in (1,2.0,'a',b'',[],«()→{}»)}{IN_ORDER}
hash builtin: def f(x): return x*(hash('«a→b»')%7)
frozen hash: {FROZEN} k: str='«a→b»'\nc=C() → (c.__hash__()%7)
global rebinding: K=«2→3»\ndef g():\n  global K\n  K=K+0\n  return K → g()
class del: class A: k=2\nclass C(A): k=3\n«def→del C.k\ndef» f(x): return x*C.k
instance global: class C: pass\nc=C(); c.k=«2→3» → c.k
instance method: class C:\n  def __init__(s): s.k=«2→3»\n  def g(s,x): return x*s.k\nmake=lambda: C().g
environ: import os\nos.environ['QQ']='«2→3»' → int(os.environ['QQ'])
time zone: import datetime\nT=datetime.timezone(datetime.timedelta(hours=«2→3»)) → T.utcoffset(None).seconds
code replaced: def g(x): return x*2\ndef h(x): return x*3\n«def→g.__code__=h.__code__\ndef» f(x): return g(x)
global lambda in dict: K={'a':lambda x: x*«2→3»}\ndef f(x): return K['a'](x)
unpack star: K=(1,2,«3→4»)\ndef f(x):\n  a,*b=K\n  return x*b[-1]
bytes const: def f(x): return x*b'«ab→ac»'[1]
exception table: def f(x):\n  try: int('z')\n  except «ValueError: return x*2\n  except TypeError→TypeError: return x*2
  \n  except ValueError»: return x*3
kwonly from closure: def o(k):\n  def f(x,*,j=k): return x*j\n  return f\nmake=lambda: o(«2→3»)
method of tuple subclass: import typing\nclass T(typing.NamedTuple):\n  a: int=2\n  def g(self): return self.a*«2→3»
  \nt=T() → t.g()
result lambda: def f(x): return x, (lambda y: y*«2→3»)(3)
result dict order: def f(x): return {'«b':x,'a→a':x,'b»':2}
static result from helper: def g(): return ('a',«1.5→2.5»)\ndef f(x): return x,g()
result enum: class E(enum.Enum): A=1;B=2\ndef f(x): return x, «E.A→E.B».value
""") | {
    "surrogate": ("K='\\«udc80→udc81»'\ndef f(x): return x*ord(K)"),
}
