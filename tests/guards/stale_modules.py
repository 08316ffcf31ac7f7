"""Guards the promise that what code gets out of modules, or by an attribute or an import, counts, whatever it is."""

from __future__ import annotations

import sys

from programs import parts_of, program_of, source_of

from rows import rows_of

rows = rows_of(globals())

_M = "m = types.ModuleType('m_of_mine')\nsys.modules['m_of_mine'] = m\n"
_UNDO = "sys.modules.pop('m_of_mine', None); sys.modules.pop('m_of_mine.types', None)"
_ACT = f"{_M}m.act = jnp.sin"
_SUBCLASS = "class S(types.ModuleType):\n    k = property(lambda self: K)\n"
_ASKING = "class S(types.ModuleType):\n    def __getattribute__(self, name): return K if name == 'k' else super().__getattribute__(name)\n"
_IMPORTING = "def get():\n    {}\n    return {}"
_MISSED = f"{_M}def get(): return m.k\ndef tried():\n    try: return get()\n    except AttributeError: return 2.0\n"
_MATCHED = f"{_M}def matched():\n    match m:\n        case object(k=v): return v\n        case _: return 2.0\n"
_SEQUENCE = """class S: pass
def kind(v):
    match v:
        case {}: return 3.0
        case _: return 2.0
s = S()"""

# A function on the list, in each place of a module; it becomes another one.
FUNCTIONS = {
    name: program_of(setup, f"lambda x: {call}", "m.act = jnp.cos", _UNDO)
    for name, row in rows(r"""
of a global module: {_ACT} → m.act(x)
of a module in a list: {_ACT}\nL = [m] → L[0].act(x)
of a module in a dictionary: {_ACT}\nD = {'m': m} → D['m'].act(x)
of a module in a NamedTuple: {_ACT}\nP = collections.namedtuple('P', 'm')(m) → P.m.act(x)
of a module in a class: {_ACT}\nclass C: backend = m → C.backend.act(x)
of a module below another: {_ACT}\ntop = types.ModuleType('top')\ntop.m = m\nL = [top] → L[0].m.act(x)
of a module in a partial: {_ACT}\ndef apply(m, x): return m.act(x) → functools.partial(apply, m)(x)
imported in the body: {_ACT}\ndef f(x):\n  from m_of_mine import act\n  return act(x) → f(x)
of a module imported in the body: {_ACT}\ndef f(x):\n  import m_of_mine\n  return m_of_mine.act(x) → f(x)
""").items()
    for setup, call in [parts_of(row)]
}
SUBMODULES = {
    name: program_of(
        f"{_M}a, b = types.ModuleType('a'), types.ModuleType('b')\na.act, b.act, m.xp = jnp.sin, jnp.cos, a\n{setup}",
        f"lambda x: {call}",
        "m.xp = b",
        _UNDO,
    )
    for name, row in rows(r"""
swapped: L = [m] → L[0].xp.act(x)
swapped, of a global:  → m.xp.act(x)
swapped, in a default: def f(x, m=m): return m.xp.act(x) → f(x)
swapped, imported: def f(x):\n  from m_of_mine import xp\n  return xp.act(x) → f(x)
swapped, one without the attribute: a.k, b.act = 2.0, jnp.cos\nL = [m] → L[0].xp.act(x)
""").items()
    for setup, call in [parts_of(row)]
}
IMPORTS = {
    "sys.modules": (
        f"{_M}m.k = 2.0\n{_IMPORTING.format('import m_of_mine', 'm_of_mine.k')} → get()"
        f" → n = types.ModuleType('n'); n.k = 3.0; sys.modules['m_of_mine'] = n → {_UNDO}"
    ),
    "a relative import": (
        f"{_M}t = types.ModuleType('m_of_mine.types')\nsys.modules['m_of_mine.types'], t.k, m.types = t, 2.0, t\n"
        "m.__path__ = []\n"
        "exec('def get():\\n    from .types import k\\n    return k', vars(m) | {'__package__': 'm_of_mine'}, vars(m))"
        f" → m.get() → t.k = 3.0 → {_UNDO}"
    ),
    "a relative import of the package": (
        f"{_M}m.k, m.__path__ = 2.0, []\n"
        "exec('def get():\\n    from . import k\\n    return k', vars(m) | {'__package__': 'm_of_mine'}, vars(m))"
        f" → m.get() → m.k = 3.0 → {_UNDO}"
    ),
    "an import hook": (
        f"{_M}m.k = 2.0\nreal = builtins.__import__\n"
        "def hook(name, *more): return O if name == 'm_of_mine' else real(name, *more)\n"
        f"{_IMPORTING.format('from m_of_mine import k', 'k')} → get()"
        f" → O.k = 3.0; builtins.__import__ = hook → builtins.__import__ = real; {_UNDO}"
    ),
}
CLASSES = rows(r"""
a property over the dictionary: {_SUBCLASS}m = S('m')\nvars(m)['k'] = 5.0 → m.k → K
a property over the dictionary, in a list: {_SUBCLASS}m = S('m')\nvars(m)['k'] = 5.0\nL = [m] → L[0].k → K
__getattribute__: {_ASKING}m = S('m')\nvars(m)['k'] = 5.0 → m.k → K
__getattr__ that is added: {_M} → getattr(m, 'k', 2.0) → m.__getattr__ = lambda name: 3.0 → {_UNDO}
""")
# From 3.14 on plain Python does not see it either, once it has read the attribute.
if sys.version_info < (3, 14):
    CLASSES |= {
        "a module's class is assigned": f"{_M}m.k = 2.0\n{_SUBCLASS}K = 3.0 → m.k → m.__class__ = S → {_UNDO}",
        "a module's class is assigned, in a list": (
            f"{_M}m.k = 2.0\nL = [m]\n{_SUBCLASS}K = 3.0 → L[0].k → m.__class__ = S → {_UNDO}"
        ),
    }
ABSENT = rows(r"""
in a pattern: {_MATCHED} → matched() → m.k = 3.0 → {_UNDO}
in a helper, handled by who calls it: {_MISSED} → tried() → m.k = 3.0 → {_UNDO}
in a helper, suppressed: {_M}def get(): return m.k\ndef tried():\n  with warnings.catch_warnings():\n    pass
  \n  try: return get()\n  except Exception: return 2.0\n → tried() → m.k = 3.0 → {_UNDO}
in a property that falls to __getattr__: {_M}@dataclasses.dataclass(frozen=True)\nclass C:\n  m: typing.Any
  \n  @property\n  def r(self): return self.m.k\n  def __getattr__(self, name): return 2.0\nc = C(m) → c.r → m.k = 3.0
  → {_UNDO}
""") | {
    "in a pattern, of a library": (
        _MATCHED.replace("match m:", "match optax.sgd:")
        + (f" → matched() → optax.sgd.k = 3.0 → hasattr(optax.sgd, 'k') and delattr(optax.sgd, 'k'); {_UNDO}")
    ),
}
FORMATS = {
    name: f"{_M}m.k = 2.0\nFMT = '{{0.k}}' → float({text}.format(m)) → m.k = 3.0 → {_UNDO}"
    for name, text in {
        "of one text or another": "(FMT or '{}')",
        "of one by a condition": "(FMT if FMT else '{}')",
        "of the last of several": "(None or FMT or '{}')",
    }.items()
}
EXECUTED = {
    "globals that make up values": program_of(
        "class G(dict):\n    def __missing__(self, name):\n        if name == 'k': return K\n        raise KeyError(name)\n"
        "def made():\n    d = G(__builtins__={})\n    exec('def f(x): return x * k', d)\n    return d['f']",
        "made()",
        "K",
    ),
    "globals that are asked": program_of(
        "class G(dict):\n    def __getitem__(self, name): return K if name == 'k' else dict.__getitem__(self, name)\n"
        "def made():\n    d = G(k=5.0)\n    exec('def f(x): return x * k', d)\n    return d['f']",
        "made()",
        "K",
    ),
    "builtins that are a view": program_of(
        "B = {'k': 2.0}\ndef made():\n    d = {'__builtins__': types.MappingProxyType(B)}\n"
        "    exec('def f(x): return x * k', d)\n    return d['f']",
        "made()",
        "B['k'] = 3.0",
    ),
}
REGISTERED = {
    "a sequence": _SEQUENCE.format("[*_]")
    + (" → kind(s) → collections.abc.Sequence.register(S)\nS.__len__ = lambda s: 0\nS.__getitem__ = lambda s, i: 0"),
    "a mapping": _SEQUENCE.format("{}") + " → kind(s) → collections.abc.Mapping.register(S)",
    "with a metaclass of its own": (
        "class Meta(abc.ABCMeta): pass\nclass B(metaclass=Meta): pass\nclass S: pass\ns = S()"
        " → (3.0 if isinstance(s, B) else 2.0) → B.register(S)"
    ),
}

ORDERS = {
    name: f"{program_of('', 'f', '')}def run(text): exec(f'def f(x): return x * ({body})'.replace('SET', text), globals())\n"
    "run('{0, 8}')\ndef change(): run('{8, 0}')\n"
    for name, body in rows(r"""
in a loop: sum(i * k for i, k in enumerate(n for n in SET))
in a comprehension: [1.0 + k for k in SET][0]
of a set in a tuple: (1.0 + [*(frozenset(SET), 1)[0]][0])
in a list that is made of it: (1.0 + list(SET)[0])
in a loop of an inner function: (lambda: [1.0 + k for k in SET][0])()
""").items()
}

# Another in the place of one that is on the list.
_FAKE = "OLD, FAKE = sys.modules['math'], types.ModuleType('math')\nFAKE.pi = 3.0\n"
_NAMESAKE = """
F = tempfile.TemporaryDirectory()
OLD = {name: it for name, it in sys.modules.items() if name.partition('.')[0] == 'optimistix'}
for name in OLD: del sys.modules[name]
pathlib.Path(F.name, 'optimistix.py').write_text('k = 2.0\\ndef get(): return k')
sys.path.insert(0, F.name)
import optimistix
"""
_OF_NAMESAKE = "sys.path.remove(F.name); sys.modules.pop('optimistix'); sys.modules.update(OLD); F.cleanup()"
_LISTED = {
    **{
        f"another module of its name{how}": (
            f"{_FAKE}{_IMPORTING.format(imported, value)} → get() → sys.modules['math'] = FAKE → sys.modules['math'] = OLD"
        )
        for how, imported, value in (
            ("", "import math", "math.pi"),
            (", of which a name is imported", "from math import pi", "pi"),
        )
    },
    "another module below it": (
        "import jax.nn\nOLD, FAKE = jax.nn, types.ModuleType('jax.nn')\nFAKE.relu = lambda x: 3.0\n"
        + _IMPORTING.format("from jax import nn", "nn.relu(2.0)")
        + " → get() → jax.nn = FAKE → jax.nn = OLD"
    ),
    "a module of the user's that is called so": (
        f"{_NAMESAKE} → optimistix.get() → optimistix.k = 3.0 → {_OF_NAMESAKE}"
    ),
    "a function of the user's in its scope": (
        "import optax.tree_utils\nget = types.FunctionType((lambda: MINE).__code__, vars(optax.tree_utils))\n"
        "optax.tree_utils.MINE = 2.0 → get() → optax.tree_utils.MINE = 3.0 → vars(optax.tree_utils).pop('MINE', None)"
    ),
}

KINDS: dict[str, dict[str, str]] = {
    "in the place of a listed module": {name: source_of(row) for name, row in _LISTED.items()},
    "the order of a set in code": ORDERS,
    "a function of a module": FUNCTIONS,
    "a module of a module": SUBMODULES,
    "an import in the body": {name: source_of(row) for name, row in IMPORTS.items()},
    "the class of a module": {name: source_of(row) for name, row in CLASSES.items()},
    "an attribute that is not there": {name: source_of(row) for name, row in ABSENT.items()},
    "a format": {name: source_of(row) for name, row in FORMATS.items()},
    "executed": EXECUTED,
    "matched by registration": {name: source_of(row) for name, row in REGISTERED.items()},
}
