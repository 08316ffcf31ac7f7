"""Guards the promise that what a callable is made of counts: its defaults, the object of a method, what a tree holds."""

from __future__ import annotations

OBJECT = "class O: k = 2.0\no = O()\n"
CHANGED = "o.k = 3.0"
# What they define, the function that is made anew, and the change.
_DEFAULTS = {
    "keyword-only default": (OBJECT, "lambda x, *, o=o: x * o.k", CHANGED),
    "default in a tuple": (OBJECT, "lambda x, t=(1, o): x * t[1].k", CHANGED),
    "default in a dictionary": (OBJECT, "lambda x, d={'o': o}: x * d['o'].k", CHANGED),
    "default in a list": (OBJECT, "lambda x, d=[[o]]: x * d[0][0].k", CHANGED),
    "default lambda of an object": (OBJECT, "lambda x, get=lambda: o.k: x * get()", CHANGED),
    "default function of a global": ("K = 2.0\ndef get(): return K", "lambda x, get=get: x * get()", "K = 3.0"),
    "default function with a default": (
        f"{OBJECT}def get(o=o): return o.k",
        "lambda x, *, get=get: x * get()",
        CHANGED,
    ),
    "default partial": (
        f"import functools\n{OBJECT}",
        "lambda x, get=functools.partial(getattr, o): x * get('k')",
        CHANGED,
    ),
    "default method": (
        "class O:\n    k = 2.0\n    def rate(self): return self.k\no = O()",
        "lambda x, rate=o.rate: x * rate()",
        CHANGED,
    ),
    "default class": ("class C: k = 2.0", "lambda x, c=C: x * c.k", "C.k = 3.0"),
    "default module of the user's": (
        "import types\nm = types.ModuleType('settings')\nm.k = 2.0",
        "lambda x, m=m: x * m.k",
        "m.k = 3.0",
    ),
    "default with slots": (
        "class O: __slots__ = ('k', '__weakref__')\no = O()\no.k = 2.0",
        "lambda x, o=o: x * o.k",
        CHANGED,
    ),
    "default with its own equality": (
        "class O:\n    def __init__(self, k): self.k = k\n    def __eq__(self, other): return True\n"
        "    def __hash__(self): return 1\no = O(2.0)",
        "lambda x, o=o: x * o.k",
        "o = O(3.0)",
    ),
    "default dataclass": (
        "import dataclasses\n@dataclasses.dataclass\nclass O: k: float = 2.0\no = O()",
        "lambda x, o=o: x * o.k",
        CHANGED,
    ),
    "default frozen dataclass that holds a list": (
        "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass O: k: list\no = O([2.0])",
        "lambda x, o=o: x * o.k[0]",
        "o.k[0] = 3.0",
    ),
    "default of a function inside": (
        f"{OBJECT}def outer(held):\n    def inner(x, held=held): return x * held.k\n    return lambda x: inner(x)",
        "outer(o)",
        CHANGED,
    ),
    "default NumPy array": ("import numpy as np\na = np.ones(2)", "lambda x, a=a: x * float(a[0])", "a[0] = 3.0"),
    "default deque": ("import collections\nd = collections.deque([2.0])", "lambda x, d=d: x * d[0]", "d[0] = 3.0"),
    "default iterator": ("i = iter([2.0, 3.0])", "lambda x, i=i: x * next(i)", "pass"),
    "default that is shown by its repr": (
        "class O:\n    k = 2.0\n    def __repr__(self): return 'O()'\no = O()",
        "lambda x, o=o: x * o.k",
        CHANGED,
    ),
}

TRAINER = """
class Trainer:
    k = 2.0
    def step(self, x): return x * self.k
    def __call__(self, x): return x * self.k
    @classmethod
    def of_class(cls, x): return x * cls.k
o = Trainer()
"""
_METHODS = {
    "method of an object in a global": (TRAINER, "o.step", CHANGED),
    "__call__ of an object": (TRAINER, "o.__call__", CHANGED),
    "classmethod": (TRAINER, "o.of_class", "Trainer.k = 3.0"),
    "classmethod of a subclass": (f"{TRAINER}class Sub(Trainer): pass", "Sub.of_class", "Sub.k = 3.0"),
    "classmethod of the base's attribute": (f"{TRAINER}class Sub(Trainer): pass", "Sub.of_class", "Trainer.k = 3.0"),
    "method of a subclass": (f"{TRAINER}class Sub(Trainer): pass\no = Sub()", "o.step", CHANGED),
    "method whose class changes": (TRAINER, "o.step", "Trainer.k = 3.0"),
    "method by super": (
        f"{TRAINER}class Sub(Trainer):\n    def step(self, x): return super().step(x)\no = Sub()",
        "o.step",
        CHANGED,
    ),
    "types.MethodType": (
        f"import types\n{OBJECT}def step(self, x): return x * self.k",
        "types.MethodType(step, o)",
        CHANGED,
    ),
    "types.MethodType of a dictionary": (
        "import types\nd = {'k': 2.0}",
        "types.MethodType(lambda d, x: x * d['k'], d)",
        "d['k'] = 3.0",
    ),
    "method of an object with its own equality": (
        f"{TRAINER}class Sub(Trainer):\n    def __eq__(self, other): return type(other) is Sub\n"
        "    def __hash__(self): return 1\no = Sub()",
        "o.step",
        "o = Sub()\no.k = 3.0",
    ),
    "method of an object without a hash": (
        "import dataclasses\n@dataclasses.dataclass\nclass T:\n    k: float\n    def step(self, x): return x * self.k\n"
        "o = T(2.0)",
        "o.step",
        CHANGED,
    ),
    "method of an object with slots": (
        "class T:\n    __slots__ = ('k', '__weakref__')\n    def step(self, x): return x * self.k\no = T()\no.k = 2.0",
        "o.step",
        CHANGED,
    ),
    "method that reads a global": (
        "K = 2.0\nclass T:\n    def step(self, x): return x * K\no = T()",
        "o.step",
        "K = 3.0",
    ),
    "method of an object in the object": (
        "class In: k = 2.0\nclass T:\n    def __init__(self): self.inner = In()\n"
        "    def step(self, x): return x * self.inner.k\no = T()",
        "o.step",
        "o.inner.k = 3.0",
    ),
    "method that reads a property": (
        "K = 2.0\nclass T:\n    rate = property(lambda self: K)\n    def step(self, x): return x * self.rate\no = T()",
        "o.step",
        "K = 3.0",
    ),
    "method with another default": (
        "class T:\n    def step(self, x, k=2.0): return x * k\no = T()",
        "o.step",
        "T.step.__defaults__ = (3.0,)",
    ),
    "method of a list of the user's": (
        "class L(list):\n    def step(self, x): return x * self[0]\no = L([2.0])",
        "o.step",
        "o[0] = 3.0",
    ),
    "method of a NamedTuple that holds a list": (
        "import typing\nclass T(typing.NamedTuple):\n    k: list\n    def step(self, x): return x * self.k[0]\no = T([2.0])",
        "o.step",
        "o.k[0] = 3.0",
    ),
    "method of a member of an enumeration": (
        "import enum\nclass Mode(enum.Enum):\n    FAST = 1\n    def step(self, x): return x * self.k\nMode.FAST.k = 2.0",
        "Mode.FAST.step",
        "Mode.FAST.k = 3.0",
    ),
    "static method that reads its class": (
        "class T:\n    k = 2.0\n    @staticmethod\n    def step(x): return x * T.k",
        "(lambda step: lambda x: step(x))(T().step)",
        "T.k = 3.0",
    ),
    "partialmethod": (
        "import functools\nclass T:\n    k = 2.0\n    def by(self, n, x): return x * self.k\n"
        "    step = functools.partialmethod(by, 1)\no = T()",
        "o.step",
        CHANGED,
    ),
    "method in a closure": (TRAINER, "(lambda step: lambda x: step(x))(o.step)", CHANGED),
    "method in a partial": (f"import functools\n{TRAINER}", "functools.partial(o.step)", CHANGED),
    "method that is wrapped": (f"import functools\n{TRAINER}", "functools.wraps(o.step)(lambda x: o.step(x))", CHANGED),
    "vmap of a method": (f"import jax\n{TRAINER}", "lambda x: jax.vmap(o.step)(x[None])[0]", CHANGED),
    "gradient of a method": (f"import jax\n{TRAINER}", "lambda x: x * jax.grad(o.step)(1.0)", CHANGED),
    "filter_vmap of a method": (
        f"import partax\n{TRAINER}",
        "lambda x: partax.filter_vmap(o.step)(x[None])[0]",
        CHANGED,
    ),
    "checkpoint of a method": (f"import jax\n{TRAINER}", "jax.checkpoint(o.step)", CHANGED),
    "method of a module of Equinox": (
        "import equinox as eqx\nclass M(eqx.Module):\n    k: list = eqx.field(static=True)\n"
        "    def step(self, x): return x * self.k[0]\no = M([2.0])",
        "o.step",
        "o.k[0] = 3.0",
    ),
}

_RECURSIVE = {
    "calls itself with a keyword-only default": (
        "K = 2.0\ndef made(k):\n    def f(x, n=2, *, k=k): return x * k if n == 0 else f(x, n - 1)\n    return f",
        "(lambda f: lambda x: f(x, 2, k=1.0))(made(K))",
        "K = 3.0",
    ),
    "calls itself with the default of an object": (
        f"{OBJECT}def made():\n    def f(x, n=1, o=o): return x * o.k if n == 0 else f(x, n - 1)\n    return f",
        "made()",
        CHANGED,
    ),
    "two that call each other": (
        "K = 2.0\ndef made(k):\n    def even(x, n=2): return x if n == 0 else odd(x, n - 1)\n"
        "    def odd(x, n, k=k): return even(x * k, n - 1)\n    return even",
        "made(K)",
        "K = 3.0",
    ),
    "calls itself by a list": (
        "K = 2.0\ndef made(k):\n    fs = []\n    fs.append(lambda x, n=2, k=k: x if n == 0 else fs[0](x * k, n - 1))\n"
        "    return lambda x: fs[0](x, 2, 1.0)",
        "made(K)",
        "K = 3.0",
    ),
    "calls itself by its attribute": (
        "K = 2.0\ndef made(k):\n    def f(x, n=2): return x if n == 0 else f.self(x * f.k, n - 1)\n    f.self, f.k = f, k\n"
        "    return f",
        "made(K)",
        "K = 3.0",
    ),
    "calls itself by a partial": (
        "import functools\nK = 2.0\ndef made(k):\n    def f(x, n=2, k=k): return x if n == 0 else again(x * k)\n"
        "    again = functools.partial(f, n=0)\n    def g(x): return f(x, 1, k) * k\n    return g",
        "made(K)",
        "K = 3.0",
    ),
    "calls itself by a dictionary of functions": (
        "K = 2.0\ndef made(k):\n    d = {'stop': lambda x, n: x}\n"
        "    d['go'] = lambda x, n=2, k=k: d['go' if n > 1 else 'stop'](x * k, n - 1)\n    return lambda x: d['go'](x)",
        "made(K)",
        "K = 3.0",
    ),
}

MODULE = """
import equinox as eqx, functools, jax, typing
class O:
    k = 2.0
    def step(self, x): return x * self.k
o = O()
K = 2.0
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
_TREES = {
    "Partial with a keyword": (MODULE, "jax.tree_util.Partial(lambda x, o: x * o.k, o=o)", CHANGED),
    "Partial of a method": (MODULE, "jax.tree_util.Partial(o.step)", CHANGED),
    "Partial of a function of a global": (MODULE, "jax.tree_util.Partial(lambda n, x: x * K, 1)", "K = 3.0"),
    "Partial in a Partial": (
        MODULE,
        "jax.tree_util.Partial(lambda f, x: f(x), jax.tree_util.Partial(lambda o, x: x * o.k, o))",
        CHANGED,
    ),
    "Partial that holds a list": (MODULE, "jax.tree_util.Partial(lambda l, x: x * l[0].k, [o])", CHANGED),
    "eqx.Partial": (MODULE, "eqx.Partial(lambda o, x: x * o.k, o)", CHANGED),
    "eqx.nn.Lambda of a global": (MODULE, "eqx.nn.Lambda(lambda x: x * K)", "K = 3.0"),
    "eqx.nn.Lambda of an object": (MODULE, "eqx.nn.Lambda(lambda x, key=None, o=o: x * o.k)", CHANGED),
    "eqx.nn.Lambda of a method": (MODULE, "eqx.nn.Lambda(o.step)", CHANGED),
    "eqx.nn.Sequential": (MODULE, "eqx.nn.Sequential([eqx.nn.Lambda(lambda x: x * o.k)])", CHANGED),
    "object in a static field": (MODULE, "Static(o)", CHANGED),
    "object in a field": (MODULE, "Leaf(o)", CHANGED),
    "list of objects in a field": (
        f"{MODULE}class L(Leaf):\n    __call__ = lambda self, x: x * self.o[0].k",
        "L([o])",
        CHANGED,
    ),
    "method of a tree that reads a global": (MODULE, "Global()", "K = 3.0"),
    "tree with a class attribute": (MODULE, "Shared()", "Shared.k = 3.0"),
    "tree whose method is replaced": (MODULE, "Global()", "Global.__call__ = lambda self, x: x * 3.0"),
    "activation of an MLP": (
        f"{MODULE}NET = eqx.nn.MLP('scalar', 'scalar', 2, 1, key=jax.random.key(0))",
        "eqx.tree_at(lambda net: net.activation, NET, lambda x: x * K)",
        "K = -30.0",
    ),
    "functools.partial of an object": (MODULE, "functools.partial(lambda o, x: x * o.k, o)", CHANGED),
    "keyword of a functools.partial": (MODULE, "functools.partial(lambda x, o: x * o.k, o=o)", CHANGED),
    "partial of a partial": (
        MODULE,
        "functools.partial(functools.partial(lambda l, n, x: x * l[0].k, [o]), 1)",
        CHANGED,
    ),
    "class registered with jax": (
        MODULE + "@jax.tree_util.register_pytree_node_class\nclass P:\n    def __init__(self, o): self.o = o\n"
        "    def tree_flatten(self): return (), self.o\n    @classmethod\n    def tree_unflatten(cls, o, c): return cls(o)\n"
        "    def __call__(self, x): return x * self.o.k",
        "P(o)",
        CHANGED,
    ),
    "dataclass of Flax": (
        MODULE + "import flax.struct\n@flax.struct.dataclass\nclass F:\n"
        "    o: typing.Any = flax.struct.field(pytree_node=False)\n    def __call__(self, x): return x * self.o.k",
        "F(o)",
        CHANGED,
    ),
    "module of Flax": (
        MODULE + "import flax.linen as nn\nclass F(nn.Module):\n    o: typing.Any\n"
        "    def __call__(self, x): return x * self.o.k",
        "lambda x: F(o).apply({}, x)",
        CHANGED,
    ),
    "jax.jit of an object": (MODULE, "jax.jit(lambda x, o=o: x * o.k)", CHANGED),
    "filter_jit of an object": (f"import partax\n{MODULE}", "partax.filter_jit(lambda x: x * o.k)", CHANGED),
    "schedule of optax": (
        f"import optax\n{MODULE}",
        "lambda x, tx=optax.sgd(lambda step: K): tx.update(x, tx.init(x))[0]",
        "K = 3.0",
    ),
    "custom_jvp of an object": (
        MODULE + "@jax.custom_jvp\ndef f(x): return x * o.k\nf.defjvp(lambda p, t: (p[0] * o.k, t[0] * o.k))",
        "lambda x: f(x)",
        CHANGED,
    ),
}


def of_functions(parts: dict[str, tuple[str, str, str]]) -> dict[str, str]:
    return {
        name: f"{setup}\nmake = lambda: {function}\ndef change():\n    exec({change!r}, globals())\n"
        for name, (setup, function, change) in parts.items()
    }


KINDS: dict[str, dict[str, str]] = {
    "default": of_functions(_DEFAULTS),
    "method": of_functions(_METHODS),
    "recursive": of_functions(_RECURSIVE),
    "tree": of_functions(_TREES),
}
