"""Guards the promise that what users set on things of a library, or on a wrapper, counts where code reads it."""

from __future__ import annotations

from programs import source_of

from short_programs import rows_of

rows = rows_of(globals())

# What of a library something is set on; the code reads it there, of a variable, or of what holds it.
_ON = rows(r"""
a function: optax.sgd
a function of jax: jax.vmap
a function with rules: jax.nn.relu
a class: eqx.nn.Linear
a class of Flax: nnx.Linear
a class of Linen: nn.Dense
a base class: eqx.Module
a class of the standard library: enum.Enum
a module: optax
a module of the standard library: math
""")
_UNDO = "hasattr(PLACE, 'mine') and delattr(PLACE, 'mine')"
_WRAPPERS = rows(r"""
jax.jit: jax.jit(lambda x: x)
filter_jit: partax.filter_jit(lambda x: x)
jax.custom_jvp: jax.custom_jvp(lambda x: x)
a partial: functools.partial(lambda x: x)
""")
# What is known by identity or by its own `==`.
_OBJECTS = rows(r"""
an array: jnp.ones(3)
a key: jax.random.key(0)
a sharding: jax.sharding.NamedSharding(jax.make_mesh((1,), ('a',)), jax.P())
a sharding of one device: jax.sharding.SingleDeviceSharding(jax.devices()[0])
an annotation: jaxtyping.Float[jax.Array, 'of_mine']
a dtype of an annotation: jaxtyping.Float
a scalar type: jnp.float32
a ufunc: np.sin
""")

# What is set there, and how the code reads it.
_SET = rows(r"""
by its own name: PLACE = IT\nPLACE.mine = 2.0 → IT.mine → PLACE.mine = 3.0 → {_UNDO}
by another name: PLACE = IT\nPLACE.mine = 2.0 → PLACE.mine → PLACE.mine = 3.0 → {_UNDO}
in a list: PLACE = IT\nPLACE.mine = [2.0]\nL = [PLACE] → L[0].mine[0] → PLACE.mine[0] = 3.0 → {_UNDO}
a function on the list: PLACE = IT\nPLACE.mine = jnp.sin → PLACE.mine(1.0) → PLACE.mine = jnp.cos → {_UNDO}
""")
_NOT_YET = rows(r"""
asked with a default: PLACE = IT → getattr(PLACE, 'mine', 2.0) → PLACE.mine = 3.0 → {_UNDO}
asked whether it is there: PLACE = IT → (3.0 if hasattr(PLACE, 'mine') else 2.0) → PLACE.mine = None → {_UNDO}
with an error that is handled: PLACE = IT\ndef mine():\n  try: return PLACE.mine\n  except AttributeError: return 2.0
  → mine() → PLACE.mine = 3.0 → {_UNDO}
""")
_ANEW = {"made anew": "PLACE = IT → getattr(PLACE, 'mine', 2.0) → PLACE = IT; PLACE.mine = 3.0"}
_READ = {"read": _SET["by another name"]}
_INSTANCE = rows(r"""
of an instance: PLACE = eqx.nn.Identity\nPLACE.mine = 2.0\no = PLACE() → o.mine → PLACE.mine = 3.0 → {_UNDO}
by a method: PLACE = eqx.nn.Identity\nPLACE.mine = lambda self: 2.0\no = PLACE() → o.mine()
  → PLACE.mine = lambda self: 3.0 → {_UNDO}
by a property: PLACE = eqx.nn.Identity\nPLACE.mine = property(lambda self: K)\no = PLACE() → o.mine → K → {_UNDO}
""")
# Objects that have attributes of their own.
_OWN = rows(r"""
an ordered dictionary: collections.OrderedDict(a=1)
a static method: staticmethod(lambda: 1.0)
a class method: classmethod(lambda cls: 1.0)
a cached property: functools.cached_property(lambda self: 1.0)
a context: contextlib.contextmanager(lambda: (yield))()
a number of a class of one's own: type('F', (np.float64,), {})(2.0)
an integer of a class of one's own: type('F', (np.int32,), {})(2)
""")
_ASKED = {"asked with a default": _NOT_YET["asked with a default"]}

KINDS: dict[str, dict[str, str]] = {
    kind: {f"{name}, {how}": source_of(row.replace("IT", it)) for name, it in on.items() for how, row in ways.items()}
    for kind, on, ways in [
        ("set on", _ON, _SET | _NOT_YET),
        ("set on a wrapper", _WRAPPERS, _READ | _NOT_YET | _ANEW),
        ("set on an object", _OWN, _READ),
        ("set on an object of jax's", _OBJECTS, _READ | _ASKED),
        ("set on a class, read", {"eqx.nn.Identity": ""}, _INSTANCE),
    ]
}
