"""Guards the promise that a function made anew never takes a trace that read something else, and takes the old trace
where all that it reads is proven to be as it was."""

from __future__ import annotations

import functools
import gc
import importlib.util
import itertools
import logging
import pathlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

from conftest import TraceCounter
from partax import filter_grad, filter_jit

# Each program is a module of the user's: `make()` gives a function anew, `change()` changes something that it reads.
# All that these read is in reach, and equal while nothing has changed.
PROVEN: dict[str, str] = {
    "member of an enumeration in a closure": """
import enum
class Mode(enum.Enum):
    SLOW, FAST = 2.0, 3.0
MODE = Mode.SLOW
def make():
    mode = MODE
    return lambda x: tick(x) * mode.value
def change():
    global MODE
    MODE = Mode.FAST
""",
    "member of an enumeration in a default": """
import enum
class Mode(enum.IntEnum):
    SLOW, FAST = 2, 3
MODE = Mode.SLOW
make = lambda: lambda x, mode=MODE: tick(x) * mode.value
def change():
    global MODE
    MODE = Mode.FAST
""",
    "global number, rebound": """
LR = 2.0
make = lambda: lambda x: tick(x) * LR
def change():
    global LR
    LR = 3.0
""",
    "global number of another type": """
LR = 2
make = lambda: lambda x: tick(x) * (2.5 if type(LR) is bool else LR)
def change():
    global LR
    LR = True
""",
    "sign of a global zero": """
import math
ZERO = 0.0
make = lambda: lambda x: tick(x) * math.copysign(2.0, ZERO)
def change():
    global ZERO
    ZERO = -0.0
""",
    "global text": """
MODE = "double"
make = lambda: lambda x: tick(x) * {"double": 2.0, "treble": 3.0}[MODE]
def change():
    global MODE
    MODE = "treble"
""",
    "global list, in place": """
LRS = [1.0, [2.0]]
make = lambda: lambda x: tick(x) * LRS[1][0]
def change():
    LRS[1][0] = 3.0
""",
    "global dictionary, in place": """
CONFIG = {"optimiser": {"lr": 2.0}}
make = lambda: lambda x: tick(x) * CONFIG["optimiser"]["lr"]
def change():
    CONFIG["optimiser"].update(lr=3.0)
""",
    "order of a global dictionary": """
CONFIG = {"a": 2.0, "b": 3.0}
make = lambda: lambda x: tick(x) * next(iter(CONFIG.values()))
def change():
    CONFIG["a"] = CONFIG.pop("a")
""",
    "global set, in place": """
FLAGS = {"double"}
make = lambda: lambda x: tick(x) * (3.0 if "treble" in FLAGS else 2.0)
def change():
    FLAGS.add("treble")
""",
    "global tuple, rebound": """
LRS = (1.0, (2.0,))
make = lambda: lambda x: tick(x) * LRS[1][0]
def change():
    global LRS
    LRS = (1.0, (3.0,))
""",
    "global array, rebound": """
import jax.numpy as jnp
LR = jnp.float32(2)
make = lambda: lambda x: tick(x) * LR
def change():
    global LR
    LR = jnp.float32(3)
""",
    "global that was not there": """
make = lambda: lambda x: tick(x) * (globals_of_mine() or 2.0)
def globals_of_mine():
    try:
        return LR
    except NameError:
        return None
def change():
    global LR
    LR = 3.0
""",
    "global that hides a builtin": """
make = lambda: lambda x: tick(x) * (len("ab") + 0.0)
def change():
    global len
    len = lambda _: 3
""",
    "helper redefined": """
def helper(x):
    return x * 2.0
make = lambda: lambda x: helper(tick(x))
def change():
    global helper
    def helper(x):
        return x * 3.0
""",
    "helper of a helper redefined": """
def inner(x):
    return x * 2.0
def helper(x):
    return inner(x)
make = lambda: lambda x: helper(tick(x))
def change():
    global inner
    def inner(x):
        return x * 3.0
""",
    "helper that is named in nested code": """
def helper(x):
    return x * 2.0
def make():
    def f(x):
        def nested():
            return [helper(y) for y in [tick(x)]][0]
        return nested()
    return f
def change():
    global helper
    helper = lambda x: x * 3.0
""",
    "code of a helper replaced": """
def helper(x):
    return x * 2.0
make = lambda: lambda x: helper(tick(x))
def change():
    helper.__code__ = (lambda x: x * 3.0).__code__
""",
    "default of a helper": """
def helper(x, lr=2.0):
    return x * lr
make = lambda: lambda x: helper(tick(x))
def change():
    helper.__defaults__ = (3.0,)
""",
    "keyword default of a helper": """
def helper(x, *, lr=2.0):
    return x * lr
make = lambda: lambda x: helper(tick(x))
def change():
    helper.__kwdefaults__["lr"] = 3.0
""",
    "attribute on a helper": """
def helper(x):
    return x * helper.lr
helper.lr = 2.0
make = lambda: lambda x: helper(tick(x))
def change():
    helper.lr = 3.0
""",
    "attribute on the function that makes": """
def make():
    return lambda x: tick(x) * make.lr
make.lr = 2.0
def change():
    make.lr = 3.0
""",
    "helper with a closure cell that changes": """
def maker():
    lr = 2.0
    def helper(x):
        return x * lr
    def change():
        nonlocal lr
        lr = 3.0
    return helper, change
helper, change = maker()
make = lambda: lambda x: helper(tick(x))
""",
    "recursive helpers": """
def even(x, n=2):
    return x if n == 0 else odd(x, n - 1)
def odd(x, n):
    return even(x, n - 1) * LR
LR = 2.0
make = lambda: lambda x: even(tick(x))
def change():
    global LR
    LR = 3.0
""",
    "decorated helper": """
import functools
def doubled(fun):
    @functools.wraps(fun)
    def inner(x):
        return fun(x) * LR
    return inner
@doubled
def helper(x):
    return x
LR = 2.0
make = lambda: lambda x: helper(tick(x))
def change():
    global LR
    LR = 3.0
""",
    "lambda in a dictionary": """
RULES = {"double": lambda x: x * 2.0}
make = lambda: lambda x: RULES["double"](tick(x))
def change():
    RULES["double"] = lambda x: x * 3.0
""",
    "helper in a list": """
LR = 2.0
def helper(x):
    return x * LR
STEPS = [helper, helper]
make = lambda: lambda x: STEPS[1](tick(x))
def change():
    global LR
    LR = 3.0
""",
    "partial in a global": """
import functools, operator
HELPER = functools.partial(operator.mul, 2.0)
make = lambda: lambda x: HELPER(tick(x))
def change():
    global HELPER
    HELPER = functools.partial(operator.mul, 3.0)
""",
    "keyword of a partial, in place": """
import functools
def helper(x, lr):
    return x * lr
HELPER = functools.partial(helper, lr=2.0)
make = lambda: lambda x: HELPER(tick(x))
def change():
    HELPER.keywords["lr"] = 3.0
""",
    "attribute of the user's module": """
import types
config = types.ModuleType("settings_of_the_user")
config.lr = 2.0
UNPROVEN = True
make = lambda: lambda x: tick(x) * config.lr
def change():
    config.lr = 3.0
""",
    "class attribute": """
class Config:
    lr = 2.0
make = lambda: lambda x: tick(x) * Config.lr
def change():
    Config.lr = 3.0
""",
    "classmethod replaced": """
class Model:
    @classmethod
    def scale(cls):
        return 2.0
make = lambda: lambda x: tick(x) * Model.scale()
def change():
    Model.scale = classmethod(lambda cls: 3.0)
""",
    "class attribute through a classmethod": """
class Model:
    lr = 2.0
    @classmethod
    def scale(cls):
        return cls.lr
make = lambda: lambda x: tick(x) * Model.scale()
def change():
    Model.lr = 3.0
""",
    "staticmethod replaced": """
class Model:
    @staticmethod
    def scale():
        return 2.0
make = lambda: lambda x: tick(x) * Model.scale()
def change():
    Model.scale = staticmethod(lambda: 3.0)
""",
    "what a staticmethod reads": """
def helper():
    return 2.0
class Model:
    @staticmethod
    def scale():
        return helper()
make = lambda: lambda x: tick(x) * Model.scale()
def change():
    global helper
    helper = lambda: 3.0
""",
    "class redefined": """
class Model:
    lr = 2.0
make = lambda: lambda x: tick(x) * Model().lr
def change():
    global Model
    class Model:
        lr = 3.0
""",
    "class made inside": """
class Model:
    def __init__(self, by):
        self.by = by * FACTOR
FACTOR = 2.0
make = lambda: lambda x: tick(x) * Model(1.0).by
def change():
    global FACTOR
    FACTOR = 3.0
""",
    "NamedTuple in a global": """
from typing import NamedTuple
class Config(NamedTuple):
    lr: float
CONFIG = Config(2.0)
make = lambda: lambda x: tick(x) * CONFIG.lr
def change():
    global CONFIG
    CONFIG = CONFIG._replace(lr=3.0)
""",
    "dataclass in a global": """
import dataclasses
@dataclasses.dataclass
class Config:
    lr: float
CONFIG = Config(2.0)
UNPROVEN = True
make = lambda: lambda x: tick(x) * CONFIG.lr
def change():
    CONFIG.lr = 3.0
""",
    "frozen dataclass in a global": """
import dataclasses
@dataclasses.dataclass(frozen=True)
class Config:
    lr: float
CONFIG = Config(2.0)
make = lambda: lambda x: tick(x) * CONFIG.lr
def change():
    global CONFIG
    CONFIG = dataclasses.replace(CONFIG, lr=3.0)
""",
    "field of a frozen dataclass that does not compare": """
import dataclasses
@dataclasses.dataclass(frozen=True)
class Config:
    name: str
    lr: float = dataclasses.field(compare=False)
CONFIG = Config("run", 2.0)
make = lambda: lambda x: tick(x) * CONFIG.lr
def change():
    global CONFIG
    CONFIG = Config("run", 3.0)
""",
    "enum, rebound": """
import enum
class Mode(enum.Enum):
    DOUBLE = 2.0
    TREBLE = 3.0
MODE = Mode.DOUBLE
make = lambda: lambda x: tick(x) * MODE.value
def change():
    global MODE
    MODE = Mode.TREBLE
""",
    "method of an enum replaced": """
import enum
class Mode(enum.Enum):
    ONLY = 1
    def scale(self):
        return 2.0
make = lambda: lambda x: tick(x) * Mode.ONLY.scale()
def change():
    Mode.scale = lambda self: 3.0
""",
    "closure inside a closure": """
LR = [2.0]
def outer():
    def middle():
        def inner(x):
            return x * LR[0]
        return inner
    return middle
def make():
    middle = outer()
    return lambda x: middle()(tick(x))
def change():
    LR[0] = 3.0
""",
    "closure of another value": """
LR = 2.0
def make():
    lr = LR
    def inner(x):
        return x * lr
    return lambda x: inner(tick(x))
def change():
    global LR
    LR = 3.0
""",
    "jitted helper redefined": """
import jax
@jax.jit
def helper(x):
    return x * 2.0
make = lambda: lambda x: helper(tick(x))
def change():
    global helper
    helper = jax.jit(lambda x: x * 3.0)
""",
    "what a jitted helper captured": """
import jax
def captured(by):
    return jax.jit(lambda x: x * by)
HELPER = captured(2.0)
make = lambda: lambda x: HELPER(tick(x))
def change():
    global HELPER
    HELPER = captured(3.0)
""",
    "helper in filter_jit redefined": """
import partax
@partax.filter_jit
def helper(x):
    return x * 2.0
make = lambda: lambda x: helper(tick(x))
def change():
    global helper
    helper = partax.filter_jit(lambda x: x * 3.0)
""",
    "vmapped helper": """
import jax
LR = 2.0
def helper(x):
    return x * LR
HELPER = jax.vmap(helper)
make = lambda: lambda x: HELPER(tick(x)[None])[0]
def change():
    global LR
    LR = 3.0
""",
    "function of a library in a global": """
import jax.numpy as jnp
ACTIVATION = jnp.sin
make = lambda: lambda x: ACTIVATION(tick(x))
def change():
    global ACTIVATION
    ACTIVATION = jnp.cos
""",
    "dtype in a global": """
import numpy as np
DTYPE = np.dtype("float32")
make = lambda: lambda x: tick(x) * (2.0 if DTYPE == np.dtype("float32") else 3.0)
def change():
    global DTYPE
    DTYPE = np.dtype("int32")
""",
    "default of the function": """
LR = 2.0
def make():
    def f(x, *, lr=LR):
        return tick(x) * lr
    return f
def change():
    global LR
    LR = 3.0
""",
    "attribute of the function": """
LR = 2.0
def make():
    def f(x):
        return tick(x) * f.lr
    f.lr = LR
    return f
def change():
    global LR
    LR = 3.0
""",
    "code of the function": """
BODY = "tick(x) * 2.0"
def make():
    return eval("lambda x: " + BODY, globals())
def change():
    global BODY
    BODY = "tick(x) * 3.0"
""",
    "method of an object made anew": """
class Model:
    def __init__(self, lr):
        self.lr = lr
    def __call__(self, x):
        return tick(x) * self.lr
LR = 2.0
UNPROVEN = True
def make():
    model = Model(LR)
    return lambda x: model(x)
def change():
    global LR
    LR = 3.0
""",
}

# What these read is out of reach, or belongs to the user: made anew they may retrace.
UNPROVEN: dict[str, str] = {
    "iterator": """
FACTORS = iter([2.0, 3.0, 4.0, 5.0, 6.0])
make = lambda: lambda x: tick(x) * next(FACTORS)
def change():
    next(FACTORS)
""",
    "generator": """
def counting():
    yield from (2.0, 3.0, 4.0, 5.0, 6.0)
FACTORS = counting()
def make():
    factors = FACTORS
    return lambda x: tick(x) * next(factors)
def change():
    next(FACTORS)
""",
    "count": """
import itertools
FACTORS = itertools.count(2.0)
make = lambda: lambda x: tick(x) * next(FACTORS)
def change():
    next(FACTORS)
""",
    "ContextVar": """
import contextvars
LR = contextvars.ContextVar("lr", default=2.0)
make = lambda: lambda x: tick(x) * LR.get()
def change():
    LR.set(3.0)
""",
    "threading.local": """
import threading
LOCAL = threading.local()
LOCAL.lr = 2.0
make = lambda: lambda x: tick(x) * LOCAL.lr
def change():
    LOCAL.lr = 3.0
""",
    "random.Random": """
import random
RANDOM = random.Random(0)
make = lambda: lambda x: tick(x) * RANDOM.random()
def change():
    RANDOM.seed(7)
""",
    "random of the standard library": """
import random
random.seed(0)
make = lambda: lambda x: tick(x) * random.random()
def change():
    random.seed(7)
""",
    "random of numpy": """
import numpy as np
GENERATOR = np.random.default_rng(0)
make = lambda: lambda x: tick(x) * float(GENERATOR.random())
def change():
    GENERATOR.random()
""",
    "numpy array, in place": """
import numpy as np
LRS = np.array([2.0], np.float32)
make = lambda: lambda x: tick(x) * LRS[0]
def change():
    LRS[0] = 3.0
""",
    "numpy array in a dictionary, in place": """
import numpy as np
CONFIG = {"lrs": [np.array([2.0], np.float32)]}
make = lambda: lambda x: tick(x) * CONFIG["lrs"][0][0]
def change():
    CONFIG["lrs"][0][:] = 3.0
""",
    "memory of lru_cache": """
import functools
LR = [2.0]
@functools.lru_cache
def lr():
    return LR[0]
make = lambda: lambda x: tick(x) * lr()
def change():
    LR[0] = 3.0
    lr.cache_clear()
""",
    "deque": """
import collections
LRS = collections.deque([2.0])
make = lambda: lambda x: tick(x) * LRS[0]
def change():
    LRS.appendleft(3.0)
""",
    "length of a deque": """
import collections
LRS = collections.deque([2.0], maxlen=2)
make = lambda: lambda x: tick(x) * (len(LRS) + 1.0)
def change():
    LRS.append(3.0)
""",
    "OrderedDict": """
import collections
CONFIG = collections.OrderedDict(a=2.0, b=3.0)
make = lambda: lambda x: tick(x) * next(iter(CONFIG.values()))
def change():
    CONFIG.move_to_end("a")
""",
    "factory of a defaultdict": """
import collections
CONFIG = collections.defaultdict(lambda: 2.0)
make = lambda: lambda x: tick(x) * CONFIG.copy()["lr"]
def change():
    CONFIG.default_factory = lambda: 3.0
""",
    "Counter": """
import collections
COUNTS = collections.Counter({"a": 2})
make = lambda: lambda x: tick(x) * COUNTS["a"]
def change():
    COUNTS["a"] += 1
""",
    "dict with its own equality": """
class Own(dict):
    def __eq__(self, other):
        return self is other
    def __hash__(self):
        return 1
LR = Own(lr=2.0)
make = lambda: lambda x: tick(x) * LR["lr"]
def change():
    LR["lr"] = 3.0
""",
    "list with its own equality": """
class Own(list):
    def __eq__(self, other):
        return self is other
    def __hash__(self):
        return 1
LR = Own([2.0])
make = lambda: lambda x: tick(x) * LR[0]
def change():
    LR[0] = 3.0
""",
    "deque with its own equality": """
import collections
class Own(collections.deque):
    def __eq__(self, other):
        return self is other
    def __hash__(self):
        return 1
LR = Own([2.0])
make = lambda: lambda x: tick(x) * LR[0]
def change():
    LR[0] = 3.0
""",
    "float with its own equality": """
class Own(float):
    def __eq__(self, other):
        return float.__eq__(self, other)
    def __hash__(self):
        return 1
LR = Own(2.0)
make = lambda: lambda x: tick(x) * LR
def change():
    global LR
    LR = Own(3.0)
""",
    "tuple with its own equality": """
class Own(tuple):
    def __eq__(self, other):
        return tuple.__eq__(self, other)
    def __hash__(self):
        return 1
LR = Own((2.0,))
make = lambda: lambda x: tick(x) * LR[0]
def change():
    global LR
    LR = Own((3.0,))
""",
    "str with its own equality": """
class Own(str):
    def __eq__(self, other):
        return str.__eq__(self, other)
    def __hash__(self):
        return 1
LR = Own('2')
make = lambda: lambda x: tick(x) * float(str(LR))
def change():
    global LR
    LR = Own('3')
""",
    "frozenset with its own equality": """
class Own(frozenset):
    def __eq__(self, other):
        return frozenset.__eq__(self, other)
    def __hash__(self):
        return 1
LR = Own({2.0})
make = lambda: lambda x: tick(x) * max(LR)
def change():
    global LR
    LR = Own({3.0})
""",
    "ChainMap": """
import collections
OVER = {}
CONFIG = collections.ChainMap(OVER, {"lr": 2.0})
make = lambda: lambda x: tick(x) * CONFIG["lr"]
def change():
    OVER["lr"] = 3.0
""",
    "mapping proxy": """
import types
SECRET = {"lr": 2.0}
CONFIG = types.MappingProxyType(SECRET)
make = lambda: lambda x: tick(x) * CONFIG["lr"]
def change():
    SECRET["lr"] = 3.0
""",
    "SimpleNamespace": """
import types
CONFIG = types.SimpleNamespace(lr=2.0)
make = lambda: lambda x: tick(x) * CONFIG.lr
def change():
    CONFIG.lr = 3.0
""",
    "weak reference": """
import weakref
class Config: pass
CONFIG = Config()
CONFIG.lr = 2.0
WEAK = weakref.ref(CONFIG)
make = lambda: lambda x: tick(x) * WEAK().lr
def change():
    CONFIG.lr = 3.0
""",
    "memory view": """
BUFFER = bytearray([2])
VIEW = memoryview(BUFFER)
make = lambda: lambda x: tick(x) * float(VIEW[0])
def change():
    BUFFER[0] = 3
""",
    "array of the standard library": """
import array
LRS = array.array("d", [2.0])
make = lambda: lambda x: tick(x) * LRS[0]
def change():
    LRS[0] = 3.0
""",
    "text stream": """
import io
STREAM = io.StringIO("2")
make = lambda: lambda x: tick(x) * float(STREAM.getvalue())
def change():
    STREAM.seek(0)
    STREAM.write("3")
""",
    "environment": """
import os
os.environ["PARTAX_TEST_LR"] = "2"
make = lambda: lambda x: tick(x) * float(os.environ["PARTAX_TEST_LR"])
def change():
    os.environ["PARTAX_TEST_LR"] = "3"
""",
    "getenv": """
import os
os.environ["PARTAX_TEST_LR"] = "2"
make = lambda: lambda x: tick(x) * float(os.getenv("PARTAX_TEST_LR"))
def change():
    os.environ["PARTAX_TEST_LR"] = "3"
""",
    "globals by name": """
LR = 2.0
make = lambda: lambda x: tick(x) * globals()["LR"]
def change():
    globals()["LR"] = 3.0
""",
    "evaluated text": """
LR = 2.0
make = lambda: lambda x: tick(x) * eval("LR")
def change():
    global LR
    LR = 3.0
""",
    "module table": """
import sys, types
config = sys.modules["settings_" + __name__] = types.ModuleType("settings_" + __name__)
config.lr = 2.0
make = lambda: lambda x: tick(x) * sys.modules["settings_" + __name__].lr
def change():
    config.lr = 3.0
""",
    "bound method of a list": """
LRS = [2.0]
GET = LRS.__getitem__
make = lambda: lambda x: tick(x) * GET(0)
def change():
    LRS[0] = 3.0
""",
    "bound method of a dictionary": """
CONFIG = {"lr": 2.0}
GET = CONFIG.get
make = lambda: lambda x: tick(x) * GET("lr")
def change():
    CONFIG["lr"] = 3.0
""",
    "items of a dictionary": """
CONFIG = {"lr": 2.0}
VALUES = CONFIG.values()
make = lambda: lambda x: tick(x) * max(VALUES)
def change():
    CONFIG["lr"] = 3.0
""",
    "descriptor of the user's": """
class Lr:
    values = {}
    def __get__(self, instance, owner):
        return self.values.get("lr", 2.0)
class Config:
    lr = Lr()
CONFIG = Config()
make = lambda: lambda x: tick(x) * CONFIG.lr
def change():
    Lr.values["lr"] = 3.0
""",
    "metaclass": """
class Meta(type):
    @property
    def lr(cls):
        return 2.0
class Config(metaclass=Meta): pass
make = lambda: lambda x: tick(x) * Config.lr
def change():
    Meta.lr = property(lambda cls: 3.0)
""",
    "attribute of a metaclass": """
class Meta(type):
    lr = 2.0
class Config(metaclass=Meta): pass
make = lambda: lambda x: tick(x) * Config.lr
def change():
    Meta.lr = 3.0
""",
    "getattribute of a class": """
SECRET = {"lr": 2.0}
class Config:
    def __getattribute__(self, name):
        return SECRET[name]
CONFIG = Config()
make = lambda: lambda x: tick(x) * CONFIG.lr
def change():
    SECRET["lr"] = 3.0
""",
    "cached property": """
import functools
class Config:
    source = 2.0
    @functools.cached_property
    def lr(self):
        return self.source
CONFIG = Config()
make = lambda: lambda x: tick(x) * CONFIG.lr
def change():
    Config.source = 3.0
    CONFIG.__dict__.pop("lr")
""",
    "partialmethod": """
import functools
class Model:
    def scale(self, by):
        return by
    double = functools.partialmethod(scale, 2.0)
MODEL = Model()
make = lambda: lambda x: tick(x) * MODEL.double()
def change():
    Model.double = functools.partialmethod(Model.scale, 3.0)
""",
    "singledispatch": """
import functools
@functools.singledispatch
def scale(by):
    return 2.0
make = lambda: lambda x: tick(x) * scale(1)
def change():
    scale.register(int, lambda by: 3.0)
""",
    "subclass of dict": """
class Config(dict):
    def __getattr__(self, name):
        return self[name]
CONFIG = Config(lr=2.0)
make = lambda: lambda x: tick(x) * CONFIG.lr
def change():
    CONFIG["lr"] = 3.0
""",
    "subclass of float": """
class Lr(float): pass
LR = Lr(1.0)
LR.scale = 2.0
make = lambda: lambda x: tick(x) * LR.scale
def change():
    LR.scale = 3.0
""",
    "equal objects with other state": """
class Lr:
    def __init__(self, value):
        self.value = value
    def __eq__(self, other):
        return isinstance(other, Lr)
    def __hash__(self):
        return 1
LR = Lr(2.0)
make = lambda: lambda x: tick(x) * LR.value
def change():
    global LR
    LR = Lr(3.0)
""",
    "set of objects": """
class Lr:
    def __init__(self, value):
        self.value = value
ONLY = Lr(2.0)
LRS = {ONLY}
make = lambda: lambda x: tick(x) * next(iter(LRS)).value
def change():
    ONLY.value = 3.0
""",
    "counter of one's own": """
COUNT = [1.0]
def make():
    def f(x):
        COUNT[0] += 1.0
        return tick(x) * COUNT[0]
    return f
def change():
    COUNT[0] += 1.0
""",
    "global that the function assigns": """
COUNT = 1.0
def make():
    def f(x):
        global COUNT
        COUNT += 1.0
        return tick(x) * COUNT
    return f
def change():
    global COUNT
    COUNT += 1.0
""",
    "attribute that the function assigns": """
class State: pass
STATE = State()
STATE.count = 1.0
def make():
    state = STATE
    def f(x):
        state.count += 1.0
        return tick(x) * state.count
    return f
def change():
    STATE.count += 1.0
""",
    "helper that counts": """
def counting():
    count = 1.0
    def helper():
        nonlocal count
        count += 1.0
        return count
    return helper
HELPER = counting()
make = lambda: lambda x: tick(x) * HELPER()
def change():
    HELPER()
""",
    "reloaded module": """
import importlib, importlib.util, pathlib, sys
FILE = pathlib.Path(__file__).with_name("reloaded_" + __name__ + ".py")
FILE.write_text("def helper(x): return x * 2.0")
sys.dont_write_bytecode = True
SPEC = importlib.util.spec_from_file_location(FILE.stem, FILE)
helpers = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(helpers)
make = lambda: lambda x: helpers.helper(tick(x))
def change():
    FILE.write_text("def helper(x): return x * 3.0 # edited")
    SPEC.loader.exec_module(helpers)
""",
    "name imported from a module in the body": """
import sys, types
sys.modules["settings_" + __name__] = config = types.ModuleType("settings_" + __name__)
config.lr = 2.0
SOURCE = '''
def f(x):
    from settings_%s import lr
    return tick(x) * lr
''' % __name__
def make():
    exec(SOURCE, globals())
    return f
def change():
    config.lr = 3.0
""",
    "attribute of a module through a variable": """
import types
config = types.ModuleType("settings_of_the_user")
config.lr = 2.0
def make():
    held = config
    return lambda x: tick(x) * held.lr
def change():
    config.lr = 3.0
""",
    "function of a module replaced by the user": """
import statistics
ORIGINAL = statistics.fmean
statistics.fmean = lambda _: 2.0
make = lambda: lambda x: tick(x) * statistics.fmean([])
def change():
    statistics.fmean = lambda _: 3.0
def restore():
    statistics.fmean = ORIGINAL
""",
    "module in a tuple": """
import types
config = types.ModuleType("settings_of_the_user")
config.lr = 2.0
MODULES = (config,)
make = lambda: lambda x: tick(x) * MODULES[0].lr
def change():
    config.lr = 3.0
""",
}
# What these read is not in what they hold: a library reaches it for them.
UNPROVEN |= {
    # An instance that can be changed.
    "attribute of self in a closure": """
class Trainer:
    def __init__(self):
        self.settings = {"lr": 2.0}
    def make(self):
        return lambda x: tick(x) * self.settings["lr"]
TRAINER = Trainer()
make = TRAINER.make
def change():
    TRAINER.settings["lr"] = 3.0
""",
    "attribute of an attribute": """
class Inner: pass
class Outer: pass
OUTER = Outer()
OUTER.inner = Inner()
OUTER.inner.lr = 2.0
def make():
    held = OUTER
    return lambda x: tick(x) * held.inner.lr
def change():
    OUTER.inner.lr = 3.0
""",
    "attribute of an object in a global": """
class Config: pass
CONFIG = Config()
CONFIG.lr = 2.0
def make():
    def f(x):
        return tick(x) * CONFIG.lr
    return f
def change():
    CONFIG.lr = 3.0
""",
    "attribute with slots": """
class Config:
    __slots__ = ("lr", "__weakref__")
CONFIG = Config()
CONFIG.lr = 2.0
make = lambda: lambda x: tick(x) * CONFIG.lr
def change():
    CONFIG.lr = 3.0
""",
    "getattr by a text": """
class Config: pass
CONFIG = Config()
CONFIG.lr = 2.0
make = lambda: lambda x: tick(x) * getattr(CONFIG, "l" + "r")
def change():
    CONFIG.lr = 3.0
""",
    "class attribute through an instance": """
class Config:
    lr = 2.0
CONFIG = Config()
make = lambda: lambda x: tick(x) * CONFIG.lr
def change():
    Config.lr = 3.0
""",
    "class attribute hidden by an instance's": """
class Config:
    lr = 2.0
CONFIG = Config()
make = lambda: lambda x: tick(x) * CONFIG.lr
def change():
    CONFIG.lr = 3.0
""",
    "method replaced": """
class Model:
    def scale(self):
        return 2.0
MODEL = Model()
make = lambda: lambda x: tick(x) * MODEL.scale()
def change():
    Model.scale = lambda self: 3.0
""",
    "method replaced on the instance": """
class Model:
    def scale(self):
        return 2.0
MODEL = Model()
make = lambda: lambda x: tick(x) * MODEL.scale()
def change():
    MODEL.scale = lambda: 3.0
""",
    "inherited method of a base replaced": """
class Base:
    def scale(self):
        return 2.0
class Middle(Base): pass
class Model(Middle): pass
MODEL = Model()
make = lambda: lambda x: tick(x) * MODEL.scale()
def change():
    Base.scale = lambda self: 3.0
""",
    "inherited method hidden by a middle class": """
class Base:
    def scale(self):
        return 2.0
class Middle(Base): pass
class Model(Middle): pass
MODEL = Model()
make = lambda: lambda x: tick(x) * MODEL.scale()
def change():
    Middle.scale = lambda self: 3.0
""",
    "bases replaced": """
class Double:
    def scale(self):
        return 2.0
class Treble:
    def scale(self):
        return 3.0
class Model(Double): pass
MODEL = Model()
make = lambda: lambda x: tick(x) * MODEL.scale()
def change():
    Model.__bases__ = (Treble,)
""",
    "class of an instance replaced": """
class Double:
    def scale(self):
        return 2.0
class Treble:
    def scale(self):
        return 3.0
MODEL = Double()
make = lambda: lambda x: tick(x) * MODEL.scale()
def change():
    MODEL.__class__ = Treble
""",
    "method through super": """
class Base:
    def scale(self):
        return 2.0
class Model(Base):
    def scale(self):
        return super().scale()
MODEL = Model()
make = lambda: lambda x: tick(x) * MODEL.scale()
def change():
    Base.scale = lambda self: 3.0
""",
    "property replaced": """
class Model:
    @property
    def lr(self):
        return 2.0
MODEL = Model()
make = lambda: lambda x: tick(x) * MODEL.lr
def change():
    Model.lr = property(lambda self: 3.0)
""",
    "what a property reads": """
LR = 2.0
class Model:
    @property
    def lr(self):
        return LR
MODEL = Model()
make = lambda: lambda x: tick(x) * MODEL.lr
def change():
    global LR
    LR = 3.0
""",
    "method made by a factory": """
def scaling(by):
    def scale(self):
        return by
    return scale
class Model:
    scale = scaling(2.0)
MODEL = Model()
make = lambda: lambda x: tick(x) * MODEL.scale()
def change():
    Model.scale = scaling(3.0)
""",
    "bound method in a global": """
class Model:
    lr = 2.0
    def scale(self):
        return self.lr
MODEL = Model()
SCALE = MODEL.scale
make = lambda: lambda x: tick(x) * SCALE()
def change():
    MODEL.lr = 3.0
""",
    "operator of a class": """
class Scale:
    def __mul__(self, x):
        return x * 2.0
SCALE = Scale()
make = lambda: lambda x: SCALE * tick(x)
def change():
    Scale.__mul__ = lambda self, x: x * 3.0
""",
    "call of a class": """
class Scale:
    def __call__(self, x):
        return x * 2.0
SCALE = Scale()
make = lambda: lambda x: SCALE(tick(x))
def change():
    Scale.__call__ = lambda self, x: x * 3.0
""",
    "getattr of a class": """
class Config:
    values = {"lr": 2.0}
    def __getattr__(self, name):
        return type(self).values[name]
CONFIG = Config()
make = lambda: lambda x: tick(x) * CONFIG.lr
def change():
    Config.values["lr"] = 3.0
""",
    "module by its name": """
import importlib, sys, types
SETTINGS = types.ModuleType("settings_of_the_user")
sys.modules["settings_of_the_user"] = SETTINGS
SETTINGS.lr = 2.0
make = lambda: lambda x: tick(x) * importlib.import_module("settings_of_the_user").lr
def change():
    SETTINGS.lr = 3.0
def restore():
    sys.modules.pop("settings_of_the_user", None)
""",
    "file by a path": """
import pathlib, tempfile
FOLDER = tempfile.TemporaryDirectory()
PATH = pathlib.Path(FOLDER.name, "lr.txt")
PATH.write_text("2.0")
make = lambda: lambda x: tick(x) * float(PATH.read_text())
def change():
    PATH.write_text("3.0")
restore = FOLDER.cleanup
""",
    "file by a path made of its name": """
import pathlib, tempfile
FOLDER = tempfile.TemporaryDirectory()
NAME = FOLDER.name + "/lr.txt"
pathlib.Path(NAME).write_text("2.0")
def make():
    def f(x):
        with pathlib.Path(NAME).open() as file:
            return tick(x) * float(file.read())
    return f
def change():
    pathlib.Path(NAME).write_text("3.0")
restore = FOLDER.cleanup
""",
    "file by NumPy": """
import numpy as np, tempfile
FOLDER = tempfile.TemporaryDirectory()
NAME = FOLDER.name + "/lr.npy"
np.save(NAME, 2.0)
make = lambda: lambda x: tick(x) * float(np.load(NAME))
def change():
    np.save(NAME, 3.0)
restore = FOLDER.cleanup
""",
    "function of the user's as one of NumPy's": """
import numpy as np
SETTINGS = {"lr": 2.0}
LR = np.frompyfunc(lambda _: SETTINGS["lr"], 1, 1)
make = lambda: lambda x: tick(x) * float(LR(0))
def change():
    SETTINGS["lr"] = 3.0
""",
    "attribute of a member of an enumeration": """
import enum
class Mode(enum.Enum):
    FAST = 1
    def __init__(self, _):
        self.lr = 2.0
make = lambda: lambda x: tick(x) * Mode.FAST.lr
def change():
    Mode.FAST.lr = 3.0
""",
    "attribute of a member in a closure": """
import enum
class Mode(enum.Enum):
    FAST = 1
    def __init__(self, _):
        self.settings = {"lr": 2.0}
def make():
    mode = Mode.FAST
    return lambda x: tick(x) * mode.settings["lr"]
def change():
    Mode.FAST.settings["lr"] = 3.0
""",
    "value of a member of an enumeration": """
import enum
class Mode(enum.Enum):
    FAST = [2.0]
make = lambda: lambda x: tick(x) * Mode.FAST.value[0]
def change():
    Mode.FAST.value[0] = 3.0
""",
    "globals of a frame": """
import sys
LR = 2.0
make = lambda: lambda x: tick(x) * sys._getframe(0).f_globals["L" + "R"]
def change():
    global LR
    LR = 3.0
""",
    "context of decimal numbers": """
import decimal
decimal.getcontext().prec = 28
def make():
    return lambda x: tick(x) * decimal.getcontext().prec
def change():
    decimal.getcontext().prec = 3
def restore():
    decimal.getcontext().prec = 28
""",
    "class that another one is registered with": """
import abc
class Base(abc.ABC): pass
class Mine: pass
mine = Mine()
make = lambda: lambda x: tick(x) * (3.0 if isinstance(mine, Base) else 2.0)
def change():
    Base.register(Mine)
""",
    "subclasses of a class": """
class Base: pass
make = lambda: lambda x: tick(x) * (2.0 + len(Base.__subclasses__()))
def change():
    global Sub
    class Sub(Base): pass
""",
    "documentation of a function": """
def helper(): "2.0"
make = lambda: lambda x: tick(x) * float(helper.__doc__)
def change():
    helper.__doc__ = "3.0"
""",
    "annotations of a function": """
def helper(scale: 2.0): pass
make = lambda: lambda x: tick(x) * helper.__annotations__["scale"]
def change():
    helper.__annotations__["scale"] = 3.0
""",
    "annotations of a class": """
class Config:
    lr: float
make = lambda: lambda x: tick(x) * (1.0 + len(Config.__annotations__))
def change():
    Config.__annotations__["decay"] = float
""",
    "function that gives the annotations of a class": """
class Config: pass
Config.__annotate__ = lambda format: {"lr": float}
make = lambda: lambda x: tick(x) * (1.0 + len(Config.__annotate__(1)))
def change():
    Config.__annotate__ = lambda format: {"lr": float, "decay": float}
""",
    "annotations of a class by getattr": """
class Config:
    lr: float
make = lambda: lambda x: tick(x) * (1.0 + len(getattr(Config, "__annotations__")))
def change():
    Config.__annotations__ = {}
""",
    "annotations of a class by typing": """
import typing
class Config:
    lr: float
make = lambda: lambda x: tick(x) * (1.0 + len(typing.get_type_hints(Config)))
def change():
    Config.__annotations__["decay"] = float
""",
    "documentation of a class by its dictionary": """
class Config: "2"
make = lambda: lambda x: tick(x) * float(Config.__dict__["__doc__"])
def change():
    Config.__doc__ = "3"
""",
    "name of a class": """
class Config: pass
make = lambda: lambda x: tick(x) * len(Config.__name__)
def change():
    Config.__name__ = "Settings"
""",
    "qualified name of an instance's class": """
class Config: pass
CONFIG = Config()
make = lambda: lambda x: tick(x) * len(type(CONFIG).__qualname__)
def change():
    Config.__qualname__ = "Settings"
""",
    "positions that a class matches by": """
class Config:
    __match_args__ = ("lr", "decay")
    lr, decay = 2.0, 3.0
CONFIG = Config()
def rate():
    match CONFIG:
        case Config(first):
            return first
make = lambda: lambda x: tick(x) * rate()
def change():
    Config.__match_args__ = ("decay", "lr")
""",
    "slots that a class names": """
class Config:
    __slots__ = ("lr",)
make = lambda: lambda x: tick(x) * (1.0 + len(Config.__slots__))
def change():
    Config.__slots__ = ("lr", "decay")
""",
    "abstract methods of a class": """
import abc
class Config(abc.ABC):
    @abc.abstractmethod
    def lr(self): ...
make = lambda: lambda x: tick(x) * (1.0 + len(Config.__abstractmethods__))
def change():
    Config.__abstractmethods__ = frozenset()
""",
    "bases that a class was written with": """
class Config: pass
Config.__orig_bases__ = (object,)
make = lambda: lambda x: tick(x) * len(Config.__orig_bases__)
def change():
    Config.__orig_bases__ = (object, object)
""",
    "fields of a dataclass": """
import dataclasses
@dataclasses.dataclass(frozen=True)
class Config:
    lr: float = 2.0
make = lambda: lambda x: tick(x) * (1.0 + len(Config.__dataclass_fields__))
def change():
    Config.__dataclass_fields__ = {}
""",
    "globals of a function": """
LR = 2.0
def helper(): pass
make = lambda: lambda x: tick(x) * helper.__globals__["LR"]
def change():
    global LR
    LR = 3.0
""",
    **{
        f"chance of a module {where}": f"""
import random, types
SEED = 0
{before}
def make():
    random.seed(SEED)
    {inside}
    def f(x):
        {body}
        return tick(x) * {reads}
    return f
def change():
    global SEED
    SEED = 1
"""
        for where, before, inside, body, reads in [
            ("in a closure", "", "held = random", "pass", "held.random()"),
            ("in a container", "HELD = {'module': random}", "pass", "pass", "HELD['module'].random()"),
            ("as an attribute", "HELD = types.SimpleNamespace(module=random)", "pass", "pass", "HELD.module.random()"),
            ("that the body imports", "", "pass", "import random", "random.random()"),
            ("of which the body imports a name", "", "pass", "from random import random", "random()"),
            ("as an argument of a helper", "def by(m): return m.random()", "pass", "pass", "by(random)"),
            ("in a default", "", "pass", "pass", "(lambda m=random: m.random())()"),
        ]
    },
    **{
        f"environment {where}": f"""
import os
os.environ["LR_OF_THE_USER"] = "2.0"
def make():
    {inside}
    def f(x):
        {body}
        return tick(x) * float({reads})
    return f
def change():
    os.environ["LR_OF_THE_USER"] = "3.0"
def restore():
    os.environ.pop("LR_OF_THE_USER", None)
"""
        for where, inside, body, reads in [
            ("by a closure", "held = os", "pass", "held.environ['LR_OF_THE_USER']"),
            ("by an import", "pass", "from os import environ", "environ['LR_OF_THE_USER']"),
            ("by a function", "held = os", "pass", "held.getenv('LR_OF_THE_USER')"),
            ("by an import of a module below", "pass", "import os.path", "os.environ['LR_OF_THE_USER']"),
        ]
    },
}
PROGRAMS = PROVEN | UNPROVEN

HEADER = """
def tick(x):
    TRACES.tick()
    return x
"""
_names = (f"program_of_the_user_{i}" for i in itertools.count())


@pytest.fixture
def program(tmp_path: pathlib.Path) -> Iterator[Callable[..., types.ModuleType]]:
    """Imports a program as a module of its own."""
    modules: list[types.ModuleType] = []
    silent = TraceCounter()

    def load(source: str, traces: TraceCounter | None = None) -> types.ModuleType:
        name = next(_names)
        file = tmp_path / f"{name}.py"
        file.write_text(HEADER + source)
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        module.TRACES = silent if traces is None else traces  # type: ignore[attr-defined]
        sys.modules[name] = module
        spec.loader.exec_module(module)
        modules.append(module)
        return module

    yield load
    for module in modules:
        getattr(module, "restore", lambda: None)()
        sys.modules.pop(module.__name__)


class Holder(eqx.Module):
    weight: Any
    fun: Any = eqx.field(static=True)


Call = Callable[[Any, Any], Any]


def call_static() -> Call:
    return filter_jit(lambda fun, x: fun(x))


def call_in_a_static_field() -> Call:
    step = filter_jit(lambda holder: holder.fun(holder.weight))
    return lambda fun, x: step(Holder(x, fun))


def call_closed_over() -> Call:
    return lambda fun, x: filter_jit(lambda y: fun(y))(x)


WAYS: dict[str, Callable[[], Call]] = {
    "direct": lambda: lambda fun, x: filter_jit(fun)(x),
    "static argument": call_static,
    "partial": lambda: lambda fun, x: filter_jit(functools.partial(fun))(x),
    "gradient": lambda: lambda fun, x: filter_jit(filter_grad(fun))(x),
    "in a static field": call_in_a_static_field,
    "closed over": call_closed_over,
}
# Whether the functions made before are alive makes no difference.
PLACES = [("direct", False), ("static argument", True), ("partial", False), ("in a static field", False)]
FEW_PLACES = [("direct", True), ("static argument", False), ("gradient", False), ("closed over", False)]


def answers(module: types.ModuleType, call: Call, *, keep: bool) -> list[float]:
    """Two calls, a change, two calls: the function is made anew for each."""
    x = jnp.float32(0.5)
    found, kept = [], []
    for change in (False, False, True, False):
        if change:
            module.change()
        fun = module.make()
        found.append(float(call(fun, x)))
        if keep:
            kept.append(fun)
        del fun
        gc.collect(0)
    return found


@pytest.mark.parametrize(
    ("name", "way", "keep"),
    [
        (name, *place)
        for names, places in [(PROVEN, PLACES), (UNPROVEN, FEW_PLACES)]
        for name in names
        for place in places
    ],
)
def test_a_function_made_anew_sees_what_has_changed(
    name: str, way: str, keep: bool, program: Callable[..., types.ModuleType]
) -> None:
    is_gradient = way == "gradient"
    plain: Call = (lambda fun, x: jax.grad(fun)(x)) if is_gradient else (lambda fun, x: fun(x))
    jitted: Call = lambda fun, x: jax.jit(jax.grad(fun) if is_gradient else fun)(x)
    expected = answers(program(PROGRAMS[name]), plain, keep=keep)
    assert expected[1] != expected[2]  # else the program tests nothing
    if way == "direct":
        assert answers(program(PROGRAMS[name]), jitted, keep=keep) == pytest.approx(expected, rel=1e-6)
    assert answers(program(PROGRAMS[name]), WAYS[way](), keep=keep) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("way", "keep"), PLACES)
@pytest.mark.parametrize("name", [name for name, source in PROVEN.items() if "UNPROVEN = True" not in source])
def test_a_function_made_anew_does_not_retrace_where_nothing_has_changed(
    name: str, way: str, keep: bool, program: Callable[..., types.ModuleType], traces: TraceCounter
) -> None:
    if "array" in name and not keep:
        pytest.skip("a trace that holds an array of a dead function is dropped")
    module, call, kept = program(PROVEN[name], traces), WAYS[way](), list[Any]()
    for changes in range(2):
        for _ in range(3):
            fun = module.make()
            call(fun, jnp.float32(0.5))
            if keep:
                kept.append(fun)
            del fun
        assert traces.count == changes + 1
        module.change()


@pytest.mark.parametrize("way", WAYS.keys())
def test_a_sweep_in_a_loop(way: str) -> None:
    call = WAYS[way]()
    found = []
    for scale in (2.0, 3.0, 2.0, 5.0):
        globals()["SWEPT"] = scale
        found.append(float(call(lambda x: x * SWEPT, jnp.float32(1))))  # noqa: F821
    assert found == [1.0 * n for n in (2, 3, 2, 5)]


def by_debug_callback(settings: dict[str, float]) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        jax.debug.callback(lambda y: logging.getLogger("host").critical("%s", settings["scale"] * float(y)), x)
        return x

    return f


def on_the_host(function: Callable[..., Any]) -> Callable[[dict[str, float]], Callable[[Any], Any]]:
    def make(settings: dict[str, float]) -> Callable[[Any], Any]:
        def f(x: Any) -> Any:
            y = function(lambda y: np.float32(settings["scale"] * y), jax.ShapeDtypeStruct((), jnp.float32), x)
            jax.debug.callback(lambda y: logging.getLogger("host").critical("%s", float(y)), y)
            return y

        return f

    return make


HOST = {
    "jax.debug.callback": by_debug_callback,
    "jax.pure_callback": on_the_host(jax.pure_callback),
    "io_callback": on_the_host(io_callback),
    "equinox.filter_pure_callback": on_the_host(
        lambda function, shape, x: eqx.filter_pure_callback(function, x, result_shape_dtypes=shape)
    ),
}


@pytest.mark.parametrize("way", ["direct", "static argument", "partial", "in a static field", "closed over"])
@pytest.mark.parametrize("make", HOST.values(), ids=HOST.keys())
def test_a_callback_reads_when_the_program_runs_what_its_own_function_holds(
    make: Callable[[dict[str, float]], Callable[[Any], Any]], way: str, caplog: pytest.LogCaptureFixture
) -> None:
    call, one, other = WAYS[way](), {"scale": 2.0}, {"scale": 2.0}
    functions = [make(one), make(other)]
    for fun in functions:
        call(fun, jnp.float32(1))
    one["scale"] = 3.0
    call(functions[1], jnp.float32(1))
    jax.effects_barrier()
    assert [record.getMessage() for record in caplog.records if record.name == "host"] == ["2.0", "2.0", "2.0"]
