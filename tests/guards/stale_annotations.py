"""Guards the promise that names in annotations count: those in texts, and those that others have set on a function."""

from __future__ import annotations

from programs import source_of

from short_programs import rows_of

rows = rows_of(globals())

CHECK = """
from beartype import beartype
from beartype.door import is_bearable
from jaxtyping import Float, jaxtyped
T, CV, W = float, list, Float[jax.Array, '2']
def passes(check):
    try: check()
    except Exception: return 3.0
    return 2.0
def inner(v: float): return v
def of_array(v: Float[jax.Array, '2']): return v
"""
# A class or function that is made in the body, by each decorator that reads annotations.
_MADE = rows(r"""
dataclass: @dataclasses.dataclass\n    class D
frozen dataclass: @dataclasses.dataclass(frozen=True)\n    class D
dataclass of Flax: @flax.struct.dataclass\n    class D
dataclass of chex: @chex.dataclass(mappable_dataclass=False)\n    class D
module of Equinox: class D(eqx.Module)
""")
_TEXTS = rows(r"""
text for beartype: {CHECK}def get():\n  @beartype\n  def f(v: 'T'): return v\n  return passes(lambda: f(2.0)) → get()
  → T = int
text for jaxtyped: {CHECK}def get():\n  @jaxtyped(typechecker=beartype)\n  def f(v: 'W'): return v
  \n  return passes(lambda: f(jnp.ones(2))) → get() → W = Float[jax.Array, '3']
text that is asked: {CHECK} → (2.0 if is_bearable(2.0, 'T') else 3.0) → T = int
function of another place, for beartype: {CHECK} → passes(lambda: beartype(inner)(2.0)) → inner.__annotations__['v'] =
  int
function of another place, for jaxtyped: {CHECK} → passes(lambda: jaxtyped(typechecker=beartype)(of_array)(jnp.ones(2)))
  → of_array.__annotations__['v'] = Float[jax.Array, '3']
maker that has another name: {CHECK}make_checked = [functools.partial(jaxtyped, typechecker=beartype)]
  → passes(lambda: make_checked[0](of_array)(jnp.ones(2))) → of_array.__annotations__['v'] = Float[jax.Array, '3']
""") | {
    **{
        f"text in a {name}": (
            f"{CHECK}def get():\n    {made}:\n        a: 'CV[int]' = 1.0\n        b: float = 2.0\n    return len(fields(D))"
            "\nfields = dataclasses.fields → get() → CV = typing.ClassVar"
        )
        for name, made in _MADE.items()
    },
}
_MISSING = {
    "what an abstract class has not": (
        "class A(eqx.Module):\n    k: eqx.AbstractClassVar[int]\n"
        "def get():\n    try: A()\n    except TypeError: return 2.0\n    return 3.0"
        " → get() → type.__setattr__(A, '__abstractclassvars__', frozenset())"
    ),
    "methods that an abstract class has not": (
        "class A(abc.ABC):\n    @abc.abstractmethod\n    def k(self): ...\n"
        "def get():\n    try: A()\n    except TypeError: return 2.0\n    return 3.0"
        " → get() → A.__abstractmethods__ = frozenset()"
    ),
}

KINDS: dict[str, dict[str, str]] = {
    kind: {name: source_of(row) for name, row in programs.items()}
    for kind, programs in {"annotation": _TEXTS, "missing": _MISSING}.items()
}
