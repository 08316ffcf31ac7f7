"""The jax.jit target behind each static key."""

import functools
import inspect
import types
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from partax import _core
from partax._families.objects import attribute_of, unwrapped
from partax._jit.at_work import at_work, during
from partax._jit.options import names_of
from partax._jit.placed_target import placed_target
from partax._jit.runtime_errors import FRAME_ID, silence_callbacks
from partax._jit.shardings import leaf_in_shardings
from partax._pytree.spec_data import leaf_owners, leaf_paths

_MANY = 1000
"""More leaves than this go to jax as one tuple: jax traces it sooner, as it works for each argument."""


class _LeafSignature(inspect.Signature):
    """The signature of `*leaves`, or of a tuple of them. It binds each leaf to its path, which is not an identifier."""

    def __init__(self, names: Sequence[str], takes_tuple: bool):
        super().__init__([inspect.Parameter("leaves", inspect.Parameter.VAR_POSITIONAL)])
        self.names = names
        self._takes_tuple = takes_tuple

    def bind(self, *arguments: Any) -> inspect.BoundArguments:
        leaves = arguments[0] if self._takes_tuple else arguments
        return inspect.BoundArguments(self, OrderedDict(zip(self.names, leaves, strict=True)))

    def __eq__(self, other: object) -> bool:
        return self is other  # the parameters of two are alike

    def __hash__(self) -> int:
        return id(self)


def _source_of(fun: Any) -> Callable[..., Any] | None:
    """A function that is `fun` only by name and place: jax names them in its errors."""
    fun = unwrapped(fun)
    code = attribute_of(fun, "__code__") or attribute_of(attribute_of(type(fun), "__call__"), "__code__")
    if not isinstance(code, types.CodeType):
        return None
    closure = tuple(types.CellType() for _ in code.co_freevars)
    return types.FunctionType(code, {}, names_of(fun)[0], None, closure)


_NUMBER_WANTED = (
    "partax traces each array: where its value decides a shape or a branch, pass a Python number in its place, which "
    "is static by itself (partax has no static_argnums to set)"
)
_WANTED_ERRORS = jax.errors.ConcretizationTypeError, jax.errors.TracerIntegerConversionError
_WANTED_WORDS = "static_argnums", "must be static integers", "must have static start", "not hashable: (JitTracer"


def _new_target_function(
    fun: Any, paths: Sequence[str], takes_tuple: bool, trace: Callable[[tuple[Any, ...]], Any], note: str | None
) -> Callable[..., Any]:
    def call_with_leaves(*leaves: Any) -> Any:
        __equinox_jit_id__ = FRAME_ID  # noqa: F841  # where the stack of an error of Equinox's ends
        silence_callbacks()
        try:
            return trace(leaves)
        except (TypeError, IndexError) as error:
            wants_number = isinstance(error, _WANTED_ERRORS) or any(words in str(error) for words in _WANTED_WORDS)
            if note is not None and wants_number and note not in getattr(error, "__notes__", ()):
                error.add_note(note)  # jax advises its own option
            raise

    target: Callable[..., Any] = (lambda leaves: call_with_leaves(*leaves)) if takes_tuple else call_with_leaves
    # It keeps nothing of the user's: the arguments and the function come from the call that runs the program.
    target.__name__, target.__qualname__ = names_of(fun)
    # jax's errors name the arguments by the signature and the function by what it wraps.
    if len(set(paths)) < len(paths):  # `x` may be a parameter by position only and a keyword of **kwargs too
        counts = Counter(paths)
        paths = [path if counts[path] == 1 else f"{path} (array {i})" for i, path in enumerate(paths)]
    target.__signature__ = _LeafSignature(paths, takes_tuple)  # type: ignore[attr-defined]
    source = _source_of(fun)
    if source is not None:
        target.__wrapped__ = source  # type: ignore[attr-defined]
    return target


class TracedFunction(NamedTuple):
    """The function that JAX traces for a static key, of the leaves or of one tuple of them."""

    function: Callable[..., Any]
    keywords: dict[str, Any]  # of its jax.jit
    donatable: frozenset[int]  # the leaves that the options donate, if they do not come back as they are
    takes_tuple: bool
    shards_outputs: bool  # the options have shardings for the result
    not_forwardable: bytes  # for each leaf 1 if it goes through XLA, though it comes back as it is
    program: _core.Program


def traced_function(call: _core.Call, trace: Callable[[_core.Program, tuple[Any, ...]], Any]) -> TracedFunction:
    """What jax traces for the new static key of a call, which calls `trace` with its program and the leaves."""
    options, fun, leaves, program = call.options, call.function, call.leaves, call.program
    described, _ = call.describe()
    donated_values = options.donated_values(call.shape)
    # Nothing is asked of single leaves then.
    alike = not donated_values and options.in_shardings is None and options.out_shardings is None
    takes_tuple = alike and len(leaves) > _MANY
    is_jit = options.static_parameters is not None  # whose arguments can be named static, as jax advises
    note = None if is_jit else _NUMBER_WANTED
    function = _new_target_function(fun, leaf_paths(described), takes_tuple, functools.partial(trace, program), note)
    settings = {name: getattr(options, name) for name in ("inline", "keep_unused", "compiler_options")}
    keywords = {name: value for name, value in settings.items() if value is not None and value is not False}
    through_xla = bytearray([is_jit]) * len(leaves)  # in `jit` each result is an array of its own, as in jax.jit
    if options.in_shardings is not None:
        shardings = leaf_in_shardings(options, call.shape, call.values)
        keywords["in_shardings"] = tuple(shardings)
        for i, sharding in enumerate(shardings):
            through_xla[i] |= sharding is not None
    owners = leaf_owners(described)[: len(leaves)] if donated_values else []
    donatable = frozenset(i for i, owner in enumerate(owners) if owner in donated_values)
    function.program = program  # type: ignore[attr-defined]
    function.to_donate = donatable  # type: ignore[attr-defined]  # for errors
    function.warns_of_donation = options.warns_of_donation  # type: ignore[attr-defined]
    for i in donatable if options.donates_returned else ():
        through_xla[i] = True
    shards = options.out_shardings is not None
    return TracedFunction(function, keywords, donatable, takes_tuple, shards, bytes(through_xla), program)


def build_target(
    traced: TracedFunction, leaves: tuple[Any, ...], forwarded_leaves: tuple[int, ...], stored_donated: bytes | None
) -> tuple[Callable[..., Any], bytes]:
    """The jax.jit target of a new static key, and for each leaf a byte that is 1 where it is donated: `stored_donated`
    if there is a stored program, which has that. All leaves in `forwarded_leaves` come back unchanged in some trace.
    """
    function, keywords, donated = traced.function, dict(traced.keywords), traced.donatable
    if stored_donated is not None and not any(stored_donated[i] for i in forwarded_leaves):
        donated = frozenset(i for i, is_donated in enumerate(stored_donated) if is_donated)
    elif donated:  # what comes back depends on the result; the target has this trace too, as jax keeps it by function
        with during(at_work, traced.program.running_call):
            first = jax.jit(function, **keywords).trace(*leaves)
        donated -= {*_core.output_info(first.out_info)[0], *forwarded_leaves}
    if donated:
        keywords["donate_argnums"] = tuple(sorted(donated))
    target = placed_target(function, keywords, traced.takes_tuple, traced.shards_outputs)
    return target, bytes(i in donated for i in range(len(leaves)))
