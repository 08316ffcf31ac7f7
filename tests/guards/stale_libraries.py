"""Guards the promise that what a library asks of the world counts: chance, clocks, files, settings, registries."""

from __future__ import annotations

from programs import sources_of

from short_programs import rows_of

rows = rows_of(globals())

# What they define → the value that the function takes its array times → what changes → what undoes it.
OTHER = "EVER_OTHER = True  # no two calls give the same\n"
_CHANCE = rows(r"""
random.Random: R = random.Random(0) → R.random() → R.seed(1)
np.random.default_rng: R = np.random.default_rng(0) → R.random() → pass
np.random by its name: np.random.seed(0) → float(np.random.uniform()) → np.random.seed(1)
secrets: {OTHER} → secrets.randbelow(1 << 23) → pass
uuid: {OTHER} → (uuid.uuid4().int & 0x7fffff) → pass
a key of Equinox's: {OTHER}import equinox.internal as eqxi → jax.random.uniform(eqxi.GetKey()(), dtype=jnp.float32)
  → pass
random.SystemRandom: {OTHER}from random import SystemRandom → SystemRandom().randrange(1 << 23) → pass
a shuffled list: def first():\n  l = list(range(1000))\n  random.Random(SEED).shuffle(l)\n  return l[0]\nSEED = 0
  → first() → SEED = 1
""")
_CLOCK = rows(r"""
time.perf_counter_ns: {OTHER} → (time.perf_counter_ns() % 1000003) → pass
time.time: {OTHER} → (int(time.time() * 1e7) % 1000003) → pass
time.strftime: os.environ['TZ'] = 'UTC0'\ntime.tzset() → (1.0 + int(time.strftime('%H', time.localtime(0))))
  → os.environ['TZ'] = 'UTC-5'\ntime.tzset() → os.environ.pop('TZ', None)\ntime.tzset()
datetime.now: {OTHER} → (datetime.datetime.now().timestamp() * 1e6 % 1000003) → pass
""")
FOLDER = "T = tempfile.TemporaryDirectory()\nF = pathlib.Path(T.name)\nN = str(F / 'a')\n"
NEW = "(F / 'a').write_text('3.0')"
OLD = f"{FOLDER}(F / 'a').write_text('2.0')\n"
_FILE = rows(r"""
os.path.exists: {FOLDER} → (3.0 if os.path.exists(N) else 2.0) → {NEW} → T.cleanup()
os.listdir: {FOLDER} → (1.0 + len(os.listdir(T.name))) → {NEW} → T.cleanup()
Path.read_text: {OLD} → float(pathlib.Path(N).read_text()) → {NEW} → T.cleanup()
glob: {FOLDER} → (1.0 + len(glob.glob(T.name + '/*'))) → {NEW} → T.cleanup()
linecache: {OLD} → float(linecache.getline(N, 1)) → {NEW}\nlinecache.clearcache() → T.cleanup()
sqlite3: D = sqlite3.connect(':memory:')\nD.execute('create table t (k)')\nD.execute('insert into t values (2.0)')
  → D.execute('select k from t').fetchone()[0] → D.execute('update t set k = 3.0') → D.close()
jnp.load: {FOLDER}N += '.npy'\nnp.save(N, np.float32(2)) → jnp.load(N) → np.save(N, np.float32(3)) → T.cleanup()
working folder: {FOLDER}W = os.getcwd() → (3.0 if 'tmp' in os.path.realpath('.') and os.path.abspath('.') != W else 2.0)
  → os.chdir(T.name) → os.chdir(W)\nT.cleanup()
package's data: {OLD}(F / (__name__ + '_p')).mkdir()\nD = F / (__name__ + '_p') / 'd'\nD.write_text('2.0')
  \nsys.path.insert(0, T.name) → float(importlib.resources.files(__name__ + '_p').joinpath('d').read_text())
  → D.write_text('3.0') → sys.path.remove(T.name)\nT.cleanup()
""") | {
    "configparser of a file": (
        f"{FOLDER}(F / 'a').write_text('[a]\\nk = 2.0')\ndef get():\n    c = configparser.ConfigParser()\n"
        "    c.read(N)\n    return c.getfloat('a', 'k') → get() → (F / 'a').write_text('[a]\\nk = 3.0') → T.cleanup()"
    ),
}
ENVIRONMENT = "os.environ['K_OF_MINE'] = '2.0'"
_K = "['K_OF_MINE']"
_SET = "os.environ['K_OF_MINE'] = '3.0' → os.environ.pop('K_OF_MINE', None)"
_ENVIRONMENT = rows(r"""
getattr: {ENVIRONMENT} → float(getattr(os, 'environ'){_K}) → {_SET}
getattr of a name that is made: {ENVIRONMENT} → float(getattr(os, 'env' + 'iron'){_K}) → {_SET}
getattr by a partial: {ENVIRONMENT} → float(functools.partial(getattr, os)('environ'){_K}) → {_SET}
getattr of a module: {ENVIRONMENT} → float(builtins.getattr(os, 'environ'){_K}) → {_SET}
attrgetter: {ENVIRONMENT} → float(operator.attrgetter('environ')(os){_K}) → {_SET}
expandvars: {ENVIRONMENT} → float(os.path.expandvars('$K_OF_MINE')) → {_SET}
environb: {ENVIRONMENT} → float(os.environb[b'K_OF_MINE']) → {_SET}
the table of modules: {ENVIRONMENT} → float(sys.modules['os'].environ{_K}) → {_SET}
__import__: {ENVIRONMENT} → float(__import__('os').environ{_K}) → {_SET}
a map of methods: {ENVIRONMENT} → float([*map(os.getenv, {_K})][0]) → {_SET}
the globals of a function: {ENVIRONMENT} → float(os.getenv.__globals__['environ']{_K}) → {_SET}
getattr, kept in a global: {ENVIRONMENT}\nget = getattr → float(get(os, 'environ'){_K}) → {_SET}
functools.partial(getattr), kept in a global: {ENVIRONMENT}\nget = functools.partial(getattr)
  → float(get(os, 'environ'){_K}) → {_SET}
types.ModuleType.__getattribute__, kept in a global: {ENVIRONMENT}\nget = types.ModuleType.__getattribute__
  → float(get(os, 'environ'){_K}) → {_SET}
object.__getattribute__, kept in a global: {ENVIRONMENT}\nget = object.__getattribute__ → float(get(os, 'environ'){_K})
  → {_SET}
a function around getattr, kept in a global: {ENVIRONMENT}\nget = lambda it, name, get=getattr: get(it, name)
  → float(get(os, 'environ'){_K}) → {_SET}
""")
_M = "m = types.ModuleType('m')\nm.k = 2.0\n"
_OF_MODULE = rows(r"""
str.format, kept in a global: {_M}kept = str.format → float(kept('{0.k}', m)) → m.k = 3.0
str.format_map, kept in a global: {_M}kept = str.format_map → float(kept('{m.k}', {'m': m})) → m.k = 3.0
dictionary, by its descriptor: {_M}kept = types.ModuleType.__dict__['__dict__'] → kept.__get__(m)['k'] → m.k = 3.0
hasattr, kept in a global: {_M}kept = hasattr → (2.0 if kept(m, 'k') else 3.0) → del m.k
""")
_OPTIONS, _PRINTS = "OLD = np.get_printoptions()", "np.set_printoptions(**OLD)"
_RAISES = "OLD = np.geterr()\nnp.seterr(divide='raise')\n"
_TRIED = "def tried(f):\n  try: f()\n  except FloatingPointError: return 2.0\n  return 3.0"
_IGNORES = "np.seterr(divide='ignore') → np.seterr(**OLD)"
_SETTING = rows(r"""
level of the root logger: L = logging.root.level → logging.getLogger().getEffectiveLevel() → logging.root.setLevel(7)
  → logging.root.setLevel(L)
name of a level: logging.addLevelName(77, 'ab') → len(logging.getLevelName(77)) → logging.addLevelName(77, 'abc')
precision of Decimal: from decimal import Decimal, getcontext\ngetcontext().prec = 28 → float(Decimal(2).sqrt())
  → getcontext().prec = 2 → getcontext().prec = 28
precision of Decimal by an operator: D = decimal.Decimal('1.2345') → float(+D) → decimal.getcontext().prec = 2
  → decimal.getcontext().prec = 28
np.geterr: OLD = np.geterr() → (2.0 if np.geterr()['invalid'] == OLD['invalid'] else 3.0) → np.seterr(invalid='raise')
  → np.seterr(**OLD)
np.get_printoptions: {_OPTIONS} → np.get_printoptions()['precision'] → np.set_printoptions(precision=3) → {_PRINTS}
locale: OLD = locale.setlocale(locale.LC_CTYPE)\nlocale.setlocale(locale.LC_CTYPE, 'C')
  → len(locale.setlocale(locale.LC_CTYPE)) → locale.setlocale(locale.LC_CTYPE, 'C.UTF-8')
  → locale.setlocale(locale.LC_CTYPE, OLD)
filters of warnings: OLD = warnings.filters[:] → (1.0 + len(warnings.filters)) → warnings.filterwarnings('ignore', 'text
  of mine') → warnings.filters[:] = OLD
sys.getrecursionlimit: OLD = sys.getrecursionlimit() → sys.getrecursionlimit() → sys.setrecursionlimit(OLD + 7)
  → sys.setrecursionlimit(OLD)
sys.argv: OLD = sys.argv[:] → (1.0 + len(sys.argv)) → sys.argv.append('a') → sys.argv[:] = OLD
gc.get_threshold: OLD = gc.get_threshold() → gc.get_threshold()[0] → gc.set_threshold(777) → gc.set_threshold(*OLD)
number of references: O = object()\nL = [] → sys.getrefcount(O) → L.extend([O] * 7)
how NumPy takes a division by zero, by a ufunc: {_RAISES}{_TRIED} → tried(lambda: np.divide(1.0, 0.0)) → {_IGNORES}
how NumPy takes a division by zero, by an operator: {_RAISES}{_TRIED} → tried(lambda: 1.0 / np.zeros(2)) → {_IGNORES}
how NumPy takes a division by zero, of a number: {_RAISES}ONE = np.float64(1.0)\n{_TRIED} → tried(lambda: ONE / 0)
  → {_IGNORES}
how NumPy takes a division by zero, of a power: {_RAISES}{_TRIED} → tried(lambda: np.power(0.0, -1.0)) → {_IGNORES}
how NumPy takes a division by zero, of a logarithm: {_RAISES}from numpy import log\n{_TRIED} → tried(lambda: log(0.0))
  → {_IGNORES}
how NumPy prints an array: {_OPTIONS} → len(str(np.linspace(0.0, 1.0, 7))) → np.set_printoptions(precision=3)
  → {_PRINTS}
how NumPy prints a long array: {_OPTIONS} → len(repr(np.arange(2000))) → np.set_printoptions(threshold=5000) → {_PRINTS}
how NumPy prints a matrix of jax's: {_OPTIONS} → len(f'{jnp.eye(2).shape}{np.eye(2)}') → np.set_printoptions(sign='+')
  → {_PRINTS}
how NumPy prints an array of jax's: {_OPTIONS}\nA = jnp.ones(3) / 7.0 → len(f'{A}') → np.set_printoptions(precision=3)
  → {_PRINTS}
how NumPy prints a number: {_OPTIONS}\nONE = np.float64(1.0) → len(repr(ONE)) → np.set_printoptions(legacy='1.13')
  → {_PRINTS}
how NumPy prints a number made in the body: {_OPTIONS} → len(repr(np.float32(2))) → np.set_printoptions(legacy='1.13')
  → {_PRINTS}
""")

KINDS = sources_of(
    {
        "chance": _CHANCE,
        "clock": _CLOCK,
        "file": _FILE,
        "environment": _ENVIRONMENT,
        "attribute of a module": _OF_MODULE,
        "setting": _SETTING,
    }
)
