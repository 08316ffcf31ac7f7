"""What a stored program is found by: a digest of all that it depends on, read of a call."""

import dataclasses
import types
from collections.abc import Callable, Sequence

from partax import _core
from partax._families.objects import attribute_of, unwrapped
from partax._jit.options import Options
from partax._pytree.spec_data import static_values
from partax._store import placement
from partax._store.content import Proof, code_digest, content_of, digest_of
from partax._store.environment import environment
from partax._store.placement import Signature


class Wanted:
    """The program that a call wants, as far as it is known without reading its code."""

    def __init__(self, call: _core.Call, options: Options, signature: Signature, takes_tuple: bool) -> None:
        described = call.describe()[0]
        nodes, statics, _ = described
        function = call.function
        asked, devices = placement.of_options(options)
        values = static_values(described)
        self._classes = dict.fromkeys(node[1] for node in nodes if node[1] is not None)
        # Shardings may hold what only this process knows; `asked` has them in other terms.
        unplaced = dataclasses.replace(options, in_shardings=None, out_shardings=None, store=None)
        self._roots = [("", function), ("", unplaced.key)]
        self._roots += [(path, value) for path, value in values.items() if value is not None]
        _, *parameters = call.shape  # which parameters the values are of
        named = attribute_of(function, "__module__"), attribute_of(function, "__qualname__")
        texts = [(kind, cls and (cls.__module__, cls.__qualname__), *fields) for kind, cls, *fields in nodes]
        arguments = (texts, parameters, tuple(map(bool, statics)))
        # With this begin the names of all programs for such arguments.
        group = digest_of((named, arguments, signature.arrays, asked, takes_tuple)).hex()
        self._environment = environment((*signature.devices, *devices))
        code = attribute_of(unwrapped(function), "__code__")
        own = code_digest(code) if type(code) is types.CodeType else b""
        # Of those that the same code of the function itself has in the same environment.
        self.nearest = f"{group}-{digest_of((self._environment, own)).hex()}"

    def key(self) -> tuple[str, Callable[[], Proof]]:
        """The name of the program, and a function that returns its proof and keeps none of the call's values alive."""
        digest, read_proof = content_of(self._roots, self._classes)
        items = self._environment.items()
        return f"{self.nearest}-{digest}", lambda: [(name, digest_of(value)) for name, value in items] + read_proof()


def what_changed(earlier: Sequence[Proof], now: Proof) -> str:
    """The first difference from the most similar of some proofs, in words; empty without proofs."""
    differences = [[text for (_, old), (text, new) in zip(proof, now, strict=False) if old != new] for proof in earlier]
    nearest = min(differences, key=len, default=None)
    return "" if nearest is None else next(iter(nearest), "") or "what its code reads"
