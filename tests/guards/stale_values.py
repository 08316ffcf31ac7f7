"""Guards the promise that two values are one only if no program can tell them apart, whatever their `==` says."""

from __future__ import annotations

from programs import PRELUDE, parts_of

from short_programs import rows_of

rows = rows_of(globals())

SETUP = """
class Text(str): pass
class Int(int): pass
class Float(float): pass
class Pair(tuple): pass
class One(typing.NamedTuple): k: int
class Two(typing.NamedTuple): k: int
class Slow(enum.IntEnum): A = 1
class Fast(enum.IntEnum): A = 1
class Word(enum.StrEnum): A = "a"
@dataclasses.dataclass(frozen=True)
class Hidden:
    a: int
    k: float = dataclasses.field(compare=False)
@dataclasses.dataclass(frozen=True)
class Shown: k: object
@dataclasses.dataclass(frozen=True, eq=False)
class NoEq: k: object
@dataclasses.dataclass(frozen=True, order=True)
class Own:
    k: float
    def __eq__(self, other): return type(other) is Own
    def __hash__(self): return 1
def text(s, k):
    s = Text(s)
    s.k = k
    return s
def added(*items):
    s = set()
    for item in items: s.add(item)
    return s
def is_exact(v, t): return 3.0 if type(v) is t else 2.0
def nan(bits): return struct.unpack("d", struct.pack("Q", bits))[0]
"""
UTC, LATER = "datetime.timezone.utc", "datetime.timezone(datetime.timedelta(hours=1))"
# One value → another → a number that tells them apart; `v` is the value.
_VALUES: dict[str, str] = rows(r"""
empty ranges: range(0) → range(5, 5) → (1.0 + v.start)
step of a range: range(0, 1, 2) → range(0, 1, 3) → v.step
digits of a Decimal: Decimal('2.50') → Decimal('2.5') → len(str(v))
sign of a Decimal zero: Decimal('0') → Decimal('-0') → math.copysign(2.0, v)
Decimal and int: Decimal(2) → 2 → is_exact(v, int)
Fraction and int: Fraction(2) → 2 → is_exact(v, int)
zone of a datetime: datetime.datetime(2020, 1, 1, 12, tzinfo={UTC}) → datetime.datetime(2020, 1, 1, 13, tzinfo={LATER})
  → v.hour
fold of a datetime: datetime.datetime(2020, 1, 1) → datetime.datetime(2020, 1, 1, fold=1) → (1.0 + v.fold)
name of a zone: datetime.timezone(datetime.timedelta(0), 'ab') → datetime.timezone(datetime.timedelta(0), 'abc')
  → len(v.tzname(None))
two names of one time zone: datetime.datetime(2020, 1, 1, tzinfo=zoneinfo.ZoneInfo('UTC')) → datetime.datetime(2020, 1,
  1, tzinfo=zoneinfo.ZoneInfo('Etc/UTC')) → len(v.tzinfo.key)
metadata of a dtype: np.dtype('f4', metadata={'k': 2.0}) → np.dtype('f4', metadata={'k': 3.0}) → v.metadata['k']
alignment of a dtype: np.dtype([('a', 'f4')], align=True) → np.dtype([('a', 'f4')]) → (3.0 if v.isalignedstruct else
  2.0)
order of a union: int | bytes → bytes | int → len(v.__args__[0].__name__)
argument of list[]: list[1] → list[True] → is_exact(v.__args__[0], int)
argument of tuple[]: tuple[0.0, ...] → tuple[-0.0, ...] → math.copysign(2.0, v.__args__[0])
order of a Literal: typing.Literal[1, 2] → typing.Literal[2, 1] → v.__args__[0]
data of an Annotated: typing.Annotated[int, 1] → typing.Annotated[int, True] → is_exact(v.__metadata__[0], int)
case of a PureWindowsPath: pathlib.PureWindowsPath('A') → pathlib.PureWindowsPath('a') → (3.0 if str(v) == 'a' else 2.0)
safety of a UUID: uuid.UUID(int=1) → uuid.UUID(int=1, is_safe=uuid.SafeUUID.safe) → len(v.is_safe.name)
order of a set: added(0, 8) → added(8, 0) → (1.0 + [*v][0])
order of a frozenset: frozenset([0, 8]) → frozenset([8, 0]) → (1.0 + [*v][0])
type in a frozenset: frozenset([1]) → frozenset([True]) → is_exact([*v][0], int)
order of a dictionary: {'a': 2.0, 'b': 3.0} → {'b': 3.0, 'a': 2.0} → [*v.values()][0]
type of a dictionary's key: {1: 0} → {True: 0} → is_exact([*v][0], int)
type of a dictionary's value: {'a': 1} → {'a': True} → is_exact(v['a'], int)
type in a slice: slice(0, 1) → slice(0, 1.0) → is_exact(v.stop, int)
Counter: collections.Counter(a=1) → collections.Counter(a=True) → is_exact(v['a'], int)
factory of a defaultdict: collections.defaultdict(int) → collections.defaultdict(list) → len(v.default_factory.__name__)
length of a deque: collections.deque([1], 3) → collections.deque([1], 4) → v.maxlen
OrderedDict and dict: collections.OrderedDict(a=1) → dict(a=1) → is_exact(v, dict)
ChainMap: collections.ChainMap({'a': 1}) → collections.ChainMap({}, {'a': 1}) → len(v.maps)
SimpleNamespace: types.SimpleNamespace(a=1) → types.SimpleNamespace(a=True) → is_exact(v.a, int)
mapping proxy: types.MappingProxyType({'a': 1}) → types.MappingProxyType({'a': True}) → is_exact(v['a'], int)
field that does not compare: Hidden(1, 2.0) → Hidden(1, 3.0) → v.k
frozen dataclass's number: Shown(1) → Shown(True) → is_exact(v.k, int)
frozen dataclass without equality: NoEq(2.0) → NoEq(3.0) → v.k
frozen dataclass with its own equality: Own(2.0) → Own(3.0) → v.k
attribute set on a frozen dataclass: Shown(1) → (lambda s: (object.__setattr__(s, 'extra', 3.0), s)[1])(Shown(1))
  → getattr(v, 'extra', 2.0)
sign of zero: 0.0 → -0.0 → math.copysign(2.0, v)
sign in a complex number: complex(1, 0.0) → complex(1, -0.0) → math.copysign(2.0, v.imag)
bits of a NaN: nan(0x7ff8000000000001) → nan(0x7ff8000000000002) → (struct.unpack('Q', struct.pack('d', v))[0] & 7)
bool and int: 1 → True → is_exact(v, int)
float and int: 2 → 2.0 → is_exact(v, int)
nested bool and int: ((1, (0,)),) → ((1, (False,)),) → is_exact(v[0][1][0], int)
bytes and bytearray: b'ab' → bytearray(b'ab') → is_exact(v, bytes)
number of NumPy: np.float64(2) → 2.0 → is_exact(v, float)
two numbers of NumPy: np.float32(2) → np.float64(2) → v.dtype.itemsize
text of NumPy: np.str_('a') → 'a' → is_exact(v, str)
truth of NumPy: (np.bool_(True),) → (True,) → is_exact(v[0], bool)
unit of a datetime64: np.datetime64('2020', 'Y') → np.datetime64('2020-01-01', 'D') → len(str(v))
text of one's own: text('a', 2.0) → text('a', 3.0) → v.k
number of one's own: Int(1) → 1 → is_exact(v, int)
float of one's own: (Float(1),) → (1.0,) → is_exact(v[0], float)
two NamedTuples: One(1) → Two(1) → is_exact(v, One)
tuple of one's own: Pair((1,)) → (1,) → is_exact(v, tuple)
NamedTuple's number: One(1) → One(True) → is_exact(v.k, int)
members of two enumerations: Slow.A → Fast.A → is_exact(v, Slow)
member and number: Slow.A → 1 → is_exact(v, int)
flags of a pattern: re.compile('a') → re.compile('a', re.I) → (1.0 + v.flags)
text and bytes of a pattern: re.compile('a') → re.compile(b'a') → is_exact(v.pattern, str)
weak type of a shape: jax.ShapeDtypeStruct((), jnp.float32, weak_type=True) → jax.ShapeDtypeStruct((), jnp.float32)
  → (3.0 if v.weak_type else 2.0)
itemgetter: operator.itemgetter(1) → operator.itemgetter(True) → is_exact(v.__reduce__()[1][0], int)
data of an array: array.array('d', [2.0]) → array.array('d', [3.0]) → v[0]
""")
PLACES = rows(r"""
closure: def made(v): return lambda x: x * {read}\nmake = lambda: made(V)
argument: make = lambda: lambda x, v: x * {read}\narguments = lambda: (V,)
default: make = lambda: lambda x, *, v=V: x * {read}
global: make = lambda: lambda x: x * (lambda v: {read})(V)
partial: make = lambda: functools.partial(lambda v, x: x * {read}, V)
""") | {
    "aux data": (
        """
@jax.tree_util.register_pytree_node_class
class Node:
    def __init__(self, v): self.v = v
    def tree_flatten(self): return (), self.v
    @classmethod
    def tree_unflatten(cls, v, children): return cls(v)
def step(x, node):
    v = node.v
    return x * {read}
make = lambda: lambda x, node: step(x, node)
arguments = lambda: (Node(V),)"""
    ),
}
# What partax refuses as an argument (no hash), traces (NumPy's scalars), or jax sorts (a dictionary).
_NO_ARGUMENT = {"NumPy", "slice", "Counter", "deque", "ChainMap", "SimpleNamespace", "mapping", "Annotated", "array"}
_NO_ARGUMENT |= {"dictionary", "datetime64", "timedelta64"}
_OTHER_PLACES = [place for place in PLACES if place != "closure"]


def in_place(place: str, one: str, other: str, read: str) -> str:
    body = PLACES[place].replace("{read}", f"({read})")
    return f"{PRELUDE}{SETUP}\nV = {one}\n{body}\ndef change():\n    global V\n    V = {other}\n"


def places(i: int, name: str) -> list[str]:
    if _NO_ARGUMENT.isdisjoint(name.replace("'", " ").split()):
        return sorted({"closure", "argument", _OTHER_PLACES[i % 5]})
    return ["closure", "aux data" if {"slice", "Counter"} & {*name.split()} else ["global", "default"][i % 2]]


KINDS: dict[str, dict[str, str]] = {
    "value": {
        f"{name}, {place}": in_place(place, *parts_of(row))
        for i, (name, row) in enumerate(_VALUES.items())
        for place in places(i, name)
    }
}
