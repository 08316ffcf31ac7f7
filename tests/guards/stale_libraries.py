"""Guards the promise that what a library asks of the world counts: chance, clocks, files, settings, registries."""

from __future__ import annotations

from programs import source_of

# What they define, the value that the function takes its array times, what changes, and what undoes it.
OTHER = "EVER_OTHER = True  # no two calls give the same\n"
_CHANCE = {
    "random.Random": ("import random\nR = random.Random(0)", "R.random()", "R.seed(1)"),
    "random.Random by its method": ("import random\nR = random.Random(0).uniform", "R(1, 2)", "pass"),
    "state of random": ("import random\nrandom.seed(0)", "(random.getstate()[1][1] % 1000)", "random.seed(1)"),
    "np.random.RandomState": ("import numpy as np\nR = np.random.RandomState(0)", "float(R.rand())", "R.seed(1)"),
    "np.random.default_rng": ("import numpy as np\nR = np.random.default_rng(0)", "R.random()", "pass"),
    "np.random by its name": (
        "import numpy as np\nnp.random.seed(0)",
        "float(np.random.uniform())",
        "np.random.seed(1)",
    ),
    "secrets": (f"{OTHER}import secrets", "secrets.randbelow(1 << 23)", "pass"),
    "secrets by a token": (f"{OTHER}import secrets", "int(secrets.token_hex(3), 16)", "pass"),
    "os.urandom": (f"{OTHER}import os", "int.from_bytes(os.urandom(3), 'big')", "pass"),
    "uuid": (f"{OTHER}import uuid", "(uuid.uuid4().int & 0x7fffff)", "pass"),
    "random.SystemRandom": (f"{OTHER}from random import SystemRandom", "SystemRandom().randrange(1 << 23)", "pass"),
    "a shuffled list": (
        "import random\ndef first():\n    l = list(range(1000))\n    random.Random(SEED).shuffle(l)\n    return l[0]\nSEED = 0",
        "first()",
        "SEED = 1",
    ),
}
_CLOCK = {
    "time.perf_counter_ns": (f"{OTHER}import time", "(time.perf_counter_ns() % 1000003)", "pass"),
    "time.monotonic_ns by its name": (f"{OTHER}from time import monotonic_ns as now", "(now() % 1000003)", "pass"),
    "time.time": (f"{OTHER}import time", "(int(time.time() * 1e7) % 1000003)", "pass"),
    "time.strftime": (
        "import os, time\nos.environ['TZ'] = 'UTC0'\ntime.tzset()",
        "(1.0 + int(time.strftime('%H', time.localtime(0))))",
        "os.environ['TZ'] = 'UTC-5'\ntime.tzset()",
        "os.environ.pop('TZ', None)\ntime.tzset()",
    ),
    "datetime.now": (f"{OTHER}import datetime", "(datetime.datetime.now().timestamp() * 1e6 % 1000003)", "pass"),
    "os.times": (f"{OTHER}import os, time", "(os.times().elapsed % 1000)", "time.sleep(0.03)"),
    "time.process_time_ns": (f"{OTHER}import time", "(time.process_time_ns() % 1000003)", "sum(range(1000))"),
    "time.ctime": (
        "import os, time\nos.environ['TZ'] = 'UTC0'\ntime.tzset()",
        "(1.0 + int(time.ctime(0)[11:13]))",
        "os.environ['TZ'] = 'UTC-5'\ntime.tzset()",
        "os.environ.pop('TZ', None)\ntime.tzset()",
    ),
}
FOLDER = "import tempfile, pathlib\nT = tempfile.TemporaryDirectory()\nF = pathlib.Path(T.name)\nN = str(F / 'a')\n"
NEW = "(F / 'a').write_text('3.0')"
OLD = f"{FOLDER}(F / 'a').write_text('2.0')\n"
_FILE = {
    "os.path.exists": (f"import os\n{FOLDER}", "(3.0 if os.path.exists(N) else 2.0)", NEW, "T.cleanup()"),
    "os.path by its name": (f"from os import path\n{FOLDER}", "(3.0 if path.isfile(N) else 2.0)", NEW, "T.cleanup()"),
    "os.path.getsize": (f"import os\n{OLD}", "os.path.getsize(N)", "(F / 'a').write_text('3.00')", "T.cleanup()"),
    "os.listdir": (f"import os\n{FOLDER}", "(1.0 + len(os.listdir(T.name)))", NEW, "T.cleanup()"),
    "os.scandir": (f"import os\n{FOLDER}", "(1.0 + len(list(os.scandir(T.name))))", NEW, "T.cleanup()"),
    "Path.exists": (FOLDER, "(3.0 if F.joinpath('a').exists() else 2.0)", NEW, "T.cleanup()"),
    "Path.read_text": (OLD, "float(pathlib.Path(N).read_text())", NEW, "T.cleanup()"),
    "Path.iterdir": (FOLDER, "(1.0 + len([*F.iterdir()]))", NEW, "T.cleanup()"),
    "glob": (f"import glob\n{FOLDER}", "(1.0 + len(glob.glob(T.name + '/*')))", NEW, "T.cleanup()"),
    "linecache": (
        f"import linecache\n{OLD}",
        "float(linecache.getline(N, 1))",
        f"{NEW}\nlinecache.clearcache()",
        "T.cleanup()",
    ),
    "configparser": (
        "import configparser\nC = configparser.ConfigParser()\nC.read_string('[a]\\nk = 2.0')",
        "C.getfloat('a', 'k')",
        "C.read_string('[a]\\nk = 3.0')",
    ),
    "configparser of a file": (
        f"import configparser\n{FOLDER}(F / 'a').write_text('[a]\\nk = 2.0')\n"
        "def get():\n    c = configparser.ConfigParser()\n    c.read(N)\n    return c.getfloat('a', 'k')",
        "get()",
        "(F / 'a').write_text('[a]\\nk = 3.0')",
        "T.cleanup()",
    ),
    "sqlite3": (
        "import sqlite3\nD = sqlite3.connect(':memory:')\nD.execute('create table t (k)')\n"
        "D.execute('insert into t values (2.0)')",
        "D.execute('select k from t').fetchone()[0]",
        "D.execute('update t set k = 3.0')",
        "D.close()",
    ),
    "jnp.load": (
        f"import jax.numpy as jnp, numpy as np\n{FOLDER}N += '.npy'\nnp.save(N, np.float32(2))",
        "jnp.load(N)",
        "np.save(N, np.float32(3))",
        "T.cleanup()",
    ),
    "np.fromfile": (
        f"import numpy as np\n{FOLDER}np.ones(1).tofile(N)",
        "float(np.fromfile(N)[0])",
        "np.zeros(1).tofile(N)",
        "T.cleanup()",
    ),
    "np.loadtxt": (f"import numpy as np\n{OLD}", "float(np.loadtxt(N))", NEW, "T.cleanup()"),
    "json.load": (
        f"import json\n{OLD}def get():\n    with open(N) as f: return json.load(f)",
        "get()",
        NEW,
        "T.cleanup()",
    ),
    "working folder": (
        f"import os\n{FOLDER}W = os.getcwd()",
        "(3.0 if 'tmp' in os.path.realpath('.') and os.path.abspath('.') != W else 2.0)",
        "os.chdir(T.name)",
        "os.chdir(W)\nT.cleanup()",
    ),
    "equinox's reader": (
        f"import equinox as eqx, jax.numpy as jnp\n{FOLDER}N += '.eqx'\neqx.tree_serialise_leaves(N, jnp.float32(2))",
        "eqx.tree_deserialise_leaves(N, jnp.float32(0))",
        "eqx.tree_serialise_leaves(N, jnp.float32(3))",
        "T.cleanup()",
    ),
    "package's data": (
        f"import importlib.resources, sys\n{OLD}(F / (__name__ + '_p')).mkdir()\n"
        "D = F / (__name__ + '_p') / 'd'\nD.write_text('2.0')\nsys.path.insert(0, T.name)",
        "float(importlib.resources.files(__name__ + '_p').joinpath('d').read_text())",
        "D.write_text('3.0')",
        "sys.path.remove(T.name)\nT.cleanup()",
    ),
}
ENVIRONMENT = "import importlib, operator, os, string, sys\nos.environ['K_OF_MINE'] = '2.0'"
_SET = "os.environ['K_OF_MINE'] = '3.0'"
_ENVIRONMENT = {
    name: (ENVIRONMENT, value, _SET, "os.environ.pop('K_OF_MINE', None)")
    for name, value in {
        "getattr": "float(getattr(os, 'environ')['K_OF_MINE'])",
        "getattr of a name that is made": "float(getattr(os, 'env' + 'iron')['K_OF_MINE'])",
        "attrgetter": "float(operator.attrgetter('environ')(os)['K_OF_MINE'])",
        "methodcaller": "float(operator.methodcaller('getenv', 'K_OF_MINE')(os))",
        "expandvars": "float(os.path.expandvars('$K_OF_MINE'))",
        "vars": "float(vars(os)['environ']['K_OF_MINE'])",
        "__dict__": "float(os.__dict__['environ']['K_OF_MINE'])",
        "environb": "float(os.environb[b'K_OF_MINE'])",
        "the table of modules": "float(sys.modules['os'].environ['K_OF_MINE'])",
        "a module by its name": "float(importlib.import_module('os').environ['K_OF_MINE'])",
        "__import__": "float(__import__('os').environ['K_OF_MINE'])",
        "a map of methods": "float([*map(os.getenv, ['K_OF_MINE'])][0])",
        "a template": "float(string.Template('$K_OF_MINE').substitute(os.environ))",
        "a copy": "float({**os.environ}['K_OF_MINE'])",
        "the globals of a function": "float(os.getenv.__globals__['environ']['K_OF_MINE'])",
        "a pattern": "float([v for k, v in os.environ.items() if k == 'K_OF_MINE'][0])",
    }.items()
}
_SETTING = {
    "level of the root logger": (
        "import logging\nL = logging.root.level",
        "logging.getLogger().getEffectiveLevel()",
        "logging.root.setLevel(7)",
        "logging.root.setLevel(L)",
    ),
    "logger in a global": (
        "import logging\nLOG = logging.getLogger(__name__)\nLOG.setLevel(20)",
        "(3.0 if LOG.isEnabledFor(10) else 2.0)",
        "LOG.setLevel(10)",
    ),
    "name of a level": (
        "import logging\nlogging.addLevelName(77, 'ab')",
        "len(logging.getLevelName(77))",
        "logging.addLevelName(77, 'abc')",
    ),
    "handlers of a logger": (
        "import logging\nLOG = logging.getLogger(__name__)",
        "(1.0 + len(LOG.handlers))",
        "LOG.addHandler(logging.NullHandler())",
    ),
    "precision of Decimal": (
        "from decimal import Decimal, getcontext\ngetcontext().prec = 28",
        "float(Decimal(2).sqrt())",
        "getcontext().prec = 2",
        "getcontext().prec = 28",
    ),
    "precision of Decimal by an operator": (
        "import decimal\nD = decimal.Decimal('1.2345')",
        "float(+D)",
        "decimal.getcontext().prec = 2",
        "decimal.getcontext().prec = 28",
    ),
    "rounding of Decimal": (
        "import decimal\nD = decimal.Decimal('2.5')",
        "float(D.quantize(decimal.Decimal(1)))",
        "decimal.getcontext().rounding = decimal.ROUND_UP",
        "decimal.getcontext().rounding = decimal.ROUND_HALF_EVEN",
    ),
    "np.geterr": (
        "import numpy as np\nOLD = np.geterr()",
        "(2.0 if np.geterr()['invalid'] == OLD['invalid'] else 3.0)",
        "np.seterr(invalid='raise')",
        "np.seterr(**OLD)",
    ),
    "np.get_printoptions": (
        "import numpy as np\nOLD = np.get_printoptions()",
        "np.get_printoptions()['precision']",
        "np.set_printoptions(precision=3)",
        "np.set_printoptions(**OLD)",
    ),
    "buffer of NumPy": (
        "import numpy as np\nOLD = np.getbufsize()",
        "np.getbufsize()",
        "np.setbufsize(4096)",
        "np.setbufsize(OLD)",
    ),
    "locale": (
        "import locale\nOLD = locale.setlocale(locale.LC_CTYPE)\nlocale.setlocale(locale.LC_CTYPE, 'C')",
        "len(locale.setlocale(locale.LC_CTYPE))",
        "locale.setlocale(locale.LC_CTYPE, 'C.UTF-8')",
        "locale.setlocale(locale.LC_CTYPE, OLD)",
    ),
    "filters of warnings": (
        "import warnings\nOLD = warnings.filters[:]",
        "(1.0 + len(warnings.filters))",
        "warnings.filterwarnings('ignore', 'text of mine')",
        "warnings.filters[:] = OLD",
    ),
    "sys.getrecursionlimit": (
        "import sys\nOLD = sys.getrecursionlimit()",
        "sys.getrecursionlimit()",
        "sys.setrecursionlimit(OLD + 7)",
        "sys.setrecursionlimit(OLD)",
    ),
    "sys.getswitchinterval": (
        "from sys import getswitchinterval, setswitchinterval\nOLD = getswitchinterval()",
        "getswitchinterval()",
        "setswitchinterval(0.1)",
        "setswitchinterval(OLD)",
    ),
    "sys.argv": ("import sys\nOLD = sys.argv[:]", "(1.0 + len(sys.argv))", "sys.argv.append('a')", "sys.argv[:] = OLD"),
    "gc.get_threshold": (
        "import gc\nOLD = gc.get_threshold()",
        "gc.get_threshold()[0]",
        "gc.set_threshold(777)",
        "gc.set_threshold(*OLD)",
    ),
    "name of a thread": (
        "import threading\nT = threading.current_thread()\nOLD = T.name",
        "len(threading.current_thread().name)",
        "T.name = OLD + 'a'",
        "T.name = OLD",
    ),
    "number of references": ("import sys\nO = object()\nL = []", "sys.getrefcount(O)", "L.extend([O] * 7)"),
    "calendar": (
        "import calendar\ncalendar.setfirstweekday(0)",
        "(1.0 + calendar.firstweekday())",
        "calendar.setfirstweekday(3)",
        "calendar.setfirstweekday(0)",
    ),
    "size of a field of csv": (
        "import csv\nOLD = csv.field_size_limit()",
        "csv.field_size_limit()",
        "csv.field_size_limit(777)",
        "csv.field_size_limit(OLD)",
    ),
    "timeout of sockets": (
        "import socket\nOLD = socket.getdefaulttimeout()",
        "(socket.getdefaulttimeout() or 2.0)",
        "socket.setdefaulttimeout(3.0)",
        "socket.setdefaulttimeout(OLD)",
    ),
    "types of files": (
        "import mimetypes",
        "len(mimetypes.guess_type('a.of-mine-' + __name__)[0] or 'ab')",
        "mimetypes.add_type('text/mine', '.of-mine-' + __name__)",
    ),
}

KINDS: dict[str, dict[str, str]] = {
    kind: {name: source_of(parts) for name, parts in programs.items()}
    for kind, programs in {
        "chance": _CHANCE,
        "clock": _CLOCK,
        "file": _FILE,
        "environment": _ENVIRONMENT,
        "setting": _SETTING,
    }.items()
}
