"""Guards the promise that what users set on things of a library, or on a wrapper, counts where code reads it."""

from __future__ import annotations

from programs import source_of

from rows import rows_of

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

KINDS: dict[str, dict[str, str]] = {
    kind: {name: source_of(row) for name, row in programs.items()}
    for kind, programs in {
        "set on": {
            **{
                name: f"PLACE = {it}\nPLACE.mine = 2.0 → {it}.mine → PLACE.mine = 3.0 → {_UNDO}"
                for name, it in _ON.items()
            },
            **{
                f"{name}, by another name": f"PLACE = {it}\nPLACE.mine = 2.0 → PLACE.mine → PLACE.mine = 3.0 → {_UNDO}"
                for name, it in _ON.items()
            },
            **{
                f"{name}, in a list": (
                    f"PLACE = {it}\nPLACE.mine = [2.0]\nL = [PLACE] → L[0].mine[0] → PLACE.mine[0] = 3.0 → {_UNDO}"
                )
                for name, it in _ON.items()
            },
            "a class, read of an instance": (
                f"PLACE = eqx.nn.Identity\nPLACE.mine = 2.0\no = PLACE() → o.mine → PLACE.mine = 3.0 → {_UNDO}"
            ),
            "a class, by a method": (
                "PLACE = eqx.nn.Identity\nPLACE.mine = lambda self: 2.0\no = PLACE() → o.mine()"
                f" → PLACE.mine = lambda self: 3.0 → {_UNDO}"
            ),
            "a class, by a property": (
                f"PLACE = eqx.nn.Identity\nPLACE.mine = property(lambda self: K)\no = PLACE() → o.mine → K → {_UNDO}"
            ),
            **{
                f"a wrapper: {name}": f"PLACE = {it}\nPLACE.mine = 2.0 → PLACE.mine → PLACE.mine = 3.0"
                for name, it in _WRAPPERS.items()
            },
        },
        "a function on the list, set on": {
            name: f"PLACE = {it}\nPLACE.mine = jnp.sin → PLACE.mine(1.0) → PLACE.mine = jnp.cos → {_UNDO}"
            for name, it in _ON.items()
        },
        "set on an object": {
            name: f"PLACE = {it}\nPLACE.mine = 2.0 → PLACE.mine → PLACE.mine = 3.0"
            for name, it in rows(r"""
an ordered dictionary: collections.OrderedDict(a=1)
a static method: staticmethod(lambda: 1.0)
a class method: classmethod(lambda cls: 1.0)
a cached property: functools.cached_property(lambda self: 1.0)
a context: contextlib.contextmanager(lambda: (yield))()
a number of a class of one's own: type('F', (np.float64,), {})(2.0)
an integer of a class of one's own: type('F', (np.int32,), {})(2)
""").items()
        },
        "set on an object of jax's": {
            f"{name}, {how}": f"PLACE = {it}\n{before} → {read} → PLACE.mine = 3.0 → {_UNDO}"
            for name, it in _OBJECTS.items()
            for how, before, read in [
                ("read", "PLACE.mine = 2.0", "PLACE.mine"),
                ("asked with a default", "", "getattr(PLACE, 'mine', 2.0)"),
            ]
        },
        "not set on yet": {
            **{
                f"{name}, asked with a default": (
                    f"PLACE = {it} → getattr(PLACE, 'mine', 2.0) → PLACE.mine = 3.0 → {_UNDO}"
                )
                for name, it in (_ON | _WRAPPERS).items()
            },
            **{
                f"{name}, asked whether it is there": (
                    f"PLACE = {it} → (3.0 if hasattr(PLACE, 'mine') else 2.0) → PLACE.mine = None → {_UNDO}"
                )
                for name, it in (_ON | _WRAPPERS).items()
            },
            **{
                f"{name}, with an error that is handled": (
                    f"PLACE = {it}\ndef mine():\n    try: return PLACE.mine\n    except AttributeError: return 2.0"
                    f" → mine() → PLACE.mine = 3.0 → {_UNDO}"
                )
                for name, it in (_ON | _WRAPPERS).items()
            },
            **{
                f"a wrapper made anew: {name}": (
                    f"PLACE = {it} → getattr(PLACE, 'mine', 2.0) → PLACE = {it}; PLACE.mine = 3.0"
                )
                for name, it in _WRAPPERS.items()
            },
        },
    }.items()
}
