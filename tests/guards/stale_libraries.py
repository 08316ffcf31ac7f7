"""Guards the promise that what a library asks of the world counts: chance, clocks, files, settings, registries."""

from __future__ import annotations

from programs import source_of

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
_SET = "os.environ['K_OF_MINE'] = '3.0'"
_ENVIRONMENT = {
    name: f"{ENVIRONMENT} → {value} → {_SET} → os.environ.pop('K_OF_MINE', None)"
    for name, value in rows(r"""
getattr: float(getattr(os, 'environ')['K_OF_MINE'])
getattr of a name that is made: float(getattr(os, 'env' + 'iron')['K_OF_MINE'])
getattr by a partial: float(functools.partial(getattr, os)('environ')['K_OF_MINE'])
getattr of a module: float(builtins.getattr(os, 'environ')['K_OF_MINE'])
attrgetter: float(operator.attrgetter('environ')(os)['K_OF_MINE'])
expandvars: float(os.path.expandvars('$K_OF_MINE'))
environb: float(os.environb[b'K_OF_MINE'])
the table of modules: float(sys.modules['os'].environ['K_OF_MINE'])
__import__: float(__import__('os').environ['K_OF_MINE'])
a map of methods: float([*map(os.getenv, ['K_OF_MINE'])][0])
the globals of a function: float(os.getenv.__globals__['environ']['K_OF_MINE'])
""").items()
}
# Functions that give anything by its name, kept under another name.
_ENVIRONMENT |= {
    f"{function}, kept in a global": (
        f"{ENVIRONMENT}\nget = {function} → float(get(os, 'environ')['K_OF_MINE']) → {_SET}"
        " → os.environ.pop('K_OF_MINE', None)"
    )
    for function in (
        "getattr",
        "functools.partial(getattr)",
        "types.ModuleType.__getattribute__",
        "object.__getattribute__",
        "(lambda it, name, get=getattr: get(it, name))",
    )
}
_OF_MODULE = {
    name: f"m = types.ModuleType('m')\nm.k = 2.0\nkept = {kept} → {value} → {change}"
    for name, kept, value, change in [
        ("str.format, kept in a global", "str.format", "float(kept('{0.k}', m))", "m.k = 3.0"),
        ("str.format_map, kept in a global", "str.format_map", "float(kept('{m.k}', {'m': m}))", "m.k = 3.0"),
        ("dictionary, by its descriptor", "types.ModuleType.__dict__['__dict__']", "kept.__get__(m)['k']", "m.k = 3.0"),
        ("hasattr, kept in a global", "hasattr", "(2.0 if kept(m, 'k') else 3.0)", "del m.k"),
    ]
}
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
np.get_printoptions: OLD = np.get_printoptions() → np.get_printoptions()['precision'] → np.set_printoptions(precision=3)
  → np.set_printoptions(**OLD)
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
""") | {
    **{
        f"how NumPy takes a division by zero, {name}": (
            f"OLD = np.geterr()\n{setup}\ndef tried(f):\n    try: f()\n    except FloatingPointError: return 2.0\n"
            f"    return 3.0 → tried(lambda: {value}) → np.seterr(divide='ignore') → np.seterr(**OLD)"
        )
        for name, value, setup in [
            ("by a ufunc", "np.divide(1.0, 0.0)", "np.seterr(divide='raise')"),
            ("by an operator", "1.0 / np.zeros(2)", "np.seterr(divide='raise')"),
            ("of a number", "ONE / 0", "np.seterr(divide='raise')\nONE = np.float64(1.0)"),
            ("of a power", "np.power(0.0, -1.0)", "np.seterr(divide='raise')"),
            ("of a logarithm", "log(0.0)", "np.seterr(divide='raise')\nfrom numpy import log"),
        ]
    },
    **{
        f"how NumPy prints {name}": (
            f"OLD = np.get_printoptions()\n{setup} → {value} → {change} → np.set_printoptions(**OLD)"
        )
        for name, value, change, setup in [
            ("an array", "len(str(np.linspace(0.0, 1.0, 7)))", "np.set_printoptions(precision=3)", ""),
            ("a long array", "len(repr(np.arange(2000)))", "np.set_printoptions(threshold=5000)", ""),
            ("a matrix of jax's", "len(f'{jnp.eye(2).shape}{np.eye(2)}')", "np.set_printoptions(sign='+')", ""),
            ("an array of jax's", "len(f'{A}')", "np.set_printoptions(precision=3)", "A = jnp.ones(3) / 7.0"),
            ("a number", "len(repr(ONE))", "np.set_printoptions(legacy='1.13')", "ONE = np.float64(1.0)"),
            ("a number made in the body", "len(repr(np.float32(2)))", "np.set_printoptions(legacy='1.13')", ""),
        ]
    },
}

KINDS: dict[str, dict[str, str]] = {
    kind: {name: source_of(row) for name, row in programs.items()}
    for kind, programs in {
        "chance": _CHANCE,
        "clock": _CLOCK,
        "file": _FILE,
        "environment": _ENVIRONMENT,
        "attribute of a module": _OF_MODULE,
        "setting": _SETTING,
    }.items()
}
