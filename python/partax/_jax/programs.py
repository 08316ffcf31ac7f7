"""Reads, runs, serializes and loads the programs of jax, by private names of jax."""

import contextlib
import copyreg
import dataclasses
import functools
import io
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.extend.core import Literal

from partax._jax.private import _attribute, _name, array_type, runs_without_jit, trace_context, under_trace

_context = _name("jax._src.core.trace_ctx")


def open_equations() -> list[Any] | None:
    """The equations so far of the program that this thread traces, or None. To ask jax for the finished program takes 3
    microseconds for each argument.
    """
    records = _attribute(_attribute(_attribute(_context, "trace"), "frame"), "tracing_eqns")
    if not isinstance(records, list):
        return None
    references = (record() if callable(record) else record for record in records)
    equations = [equation for equation in references if equation is not None]
    return equations if all(hasattr(equation, "params") for equation in equations) else None


def open_constants() -> list[Any] | None:
    """The arrays that the program which this thread traces, and programs in it, have captured so far, or None."""
    by_variable = _attribute(_attribute(_attribute(_context, "trace"), "frame"), "constvar_to_val")
    equations = open_equations()
    if not isinstance(by_variable, dict) or equations is None:
        return None
    constants = list(by_variable.values())
    for equation in every_equation(equations):
        operands = getattr(equation, "invars", None) or [tracer.val for tracer in getattr(equation, "in_tracers", ())]
        literals = (operand for operand in operands if isinstance(operand, Literal))
        constants += [literal.val for literal in literals if getattr(literal.aval, "shape", ())]
        for _, holder, _ in held_programs(equation):
            constants += getattr(holder, "consts", ())
    return constants


def frames_of(equation: Any) -> tuple[list[types.CodeType], list[int]]:
    """The code and the instructions of the frames that an equation comes from, its own first; empty if unknown."""
    traceback = getattr(getattr(equation, "source_info", None), "traceback", None)
    frames = getattr(traceback, "raw_frames", None)
    return ([], []) if frames is None else frames()


def with_trees(compiled: Any, in_tree: Any, out_tree: Any) -> Any:
    """A compiled program with other trees of arguments and results, of as many leaves, or None."""
    executable = _attribute(compiled, "_executable")
    constants = _attribute(_attribute(compiled, "_params"), "const_args")
    if executable is None or constants is None:
        return None
    infos = in_tree.unflatten(jax.tree.leaves(compiled.args_info))
    try:
        return jax.stages.Compiled(executable, constants, infos, out_tree)
    except TypeError:
        return None


_pjit = _name("jaxlib._jax.pjit")
_cache_keys = _name("jax._src.interpreters.pxla.JitGlobalCppCacheKeys")
_registry = _name("jax._src.tree_util.dispatch_registry")
_shard_arg = _name("jax._src.interpreters.pxla.cc_shard_arg")
_replicated = _name("jax._src.interpreters.pxla.ExecuteReplicated")


def _native(name: str, function: Callable[..., Any], miss: Callable[..., tuple[Any, Any, bool]]) -> Any:
    """A function that runs what `miss` returns for a signature of arrays by jax's native dispatch, or None. jax calls
    `function` if its check of the results, as for NaN, fails.
    """
    if _pjit is None or None in (_cache_keys, _registry, _shard_arg):
        return None
    call = _pjit(name, function, miss, [], [], _cache_keys(), _registry, _shard_arg)  # pyright: ignore
    call._fun = function
    return call


def dispatched(name: str, choose: Callable[[tuple[Any, ...]], Callable[..., Any]]) -> Callable[..., Any]:
    """A function that asks `choose` once for each signature of arrays for its `jax.stages.Compiled`, or for another
    function, which is called once. The fallback asks in each call.
    """

    def miss(*args: Any) -> tuple[Any, Any, bool]:
        program = choose(args)
        create_call = _attribute(_attribute(program, "_executable"), "create_cpp_call")
        run = create_call and _attribute(create_call(program._params), "_cache_miss")  # type: ignore[attr-defined]
        return (program(*args), None, False) if run is None else run(*args)

    def run_uncached(*args: Any) -> Any:
        return miss(*args)[0]

    return _native(name, run_uncached, miss) or run_uncached


def chosen(
    jitted: Any, choose: Callable[[tuple[Any, ...]], Any], working: Callable[[], AbstractContextManager[None]]
) -> Any:
    """A `jax.jit` that asks `choose` once for each signature of arrays for the `jax.jit` whose program it runs. All of
    this is done within `working()`. The fallback asks in each call.
    """

    def of_chosen(method: str) -> Any:
        def run(*args: Any) -> Any:
            with working():
                return getattr(choose(args), method)(*args)

        return run

    call: Any = None
    if _attribute(jitted, "_cache_miss") is not None:
        call = _native(jitted.__name__, jitted._fun, of_chosen("_cache_miss"))
    if call is None:
        call = of_chosen("__call__")
    else:
        call._jit_info = jitted._jit_info
    call.__wrapped__, call.__name__, call.trace = jitted.__wrapped__, jitted.__name__, of_chosen("trace")
    return call


_dce: Callable[..., Any] | None = _name("jax.interpreters.partial_eval.dce_jaxpr")
_inner_shardings: Callable[[Any], Iterable[Any]] | None = _name("jax._src.dispatch.get_intermediate_shardings")
_memory_kinds: Callable[[Any], Sequence[Any]] | None = _name("jax._src.interpreters.pxla.jaxpr_transfer_mem_kinds")


def used_inputs(traced: Any) -> tuple[list[bool], bool]:
    """Which inputs a program uses, and whether something in it fixes the devices that it runs on. With the fallback no
    input is used and nothing is fixed.
    """
    program = traced.jaxpr.jaxpr
    used = [False] * len(program.invars)
    if _dce is not None:
        program, used = _dce(program, [True] * len(program.outvars))[:2]
    shardings = () if _inner_shardings is None else (sharding for sharding, _ in _inner_shardings(program))
    # Those of a `jit` inside are most often unspecified.
    is_placed = any(isinstance(sharding, jax.sharding.Sharding) for sharding in shardings)
    is_placed |= _memory_kinds is not None and any(True for _ in _memory_kinds(program))
    return list(used), is_placed


def _plain_call(executable: Any, params: Any) -> Any:
    """The call of an executable that only computes arrays from arrays; None if it has effects or callbacks."""
    call = executable.unsafe_call
    does_more = call.has_unordered_effects or call.ordered_effects or call.has_host_callbacks or executable._mut
    is_plain = isinstance(call, _replicated) and not does_more  # pyright: ignore[reportArgumentType]
    return call if is_plain and not params.is_high and not params.const_args else None


# The other settings that jax's dispatch reads: a hook after a run, as for `jax_debug_nans`; whether a function is being
# traced; and options of the compiler.
_settings = (
    _name("jax._src.api._post_hook_state"),
    _name("jax._src.core.trace_state"),
    _name("jax._src.config.device_context"),
    _name("jax._src.config.optimization_level"),
    _name("jax._src.config.memory_fitting_level"),
    _name("jax._src.config.jax_pallas_auto_assign_collective_ids"),
    _name("jax._src.config.jax_pallas_auto_assign_collective_ids_limit"),
)


class DirectRun(NamedTuple):
    """The parts with which the native wrapper runs a compiled program without jax's dispatch."""

    properties: tuple[Any, ...]  # read aval, sharding, committed and layout of an array
    read_context: Callable[[], tuple[Any, ...]]
    context: tuple[Any, ...]  # jax's configuration, by `read_context`
    settings: tuple[tuple[Any, Any, Any], ...]  # the reader of a setting, its object and its value
    execute: Any  # runs the program on a list of arrays
    handlers: Any  # of the results
    arguments: list[Any]  # with None for the free leaves
    places: tuple[int, ...]  # in `arguments`, of each free leaf; -1 if the program does not use it
    signatures: tuple[list[Any], ...]  # its properties; jax compares the layouts of committed arrays only


def direct_run(program: Any, leaves: Sequence[Any], free: Sequence[int]) -> DirectRun | None:
    """How to run a compiled program for new values of the leaves `free`, or None if jax's dispatch does more."""
    if trace_context is tuple or None in _settings[:2] or _settings[0].value is not None:
        return None
    try:
        executable: Any = _attribute(program, "_executable")
        call = _plain_call(executable, _attribute(program, "_params"))
        if call is None or call.pgle_profiler:
            return None
        arguments: list[Any] = []
        places = dict.fromkeys(free, -1)
        shardings, layouts = executable._in_shardings, executable._dispatch_in_layouts
        for place, i in enumerate(sorted(executable._kept_var_idx)):
            if i not in places:
                arguments.append(_shard_arg(leaves[i], shardings[place], layouts[place]))
            elif layouts[place] is None and leaves[i].sharding == shardings[place]:
                places[i] = place
                arguments.append(None)
            else:
                return None
        run, handlers = call.xla_executable.execute_sharded, call.out_handler.handlers
        properties = array_type.aval, array_type._sharding, array_type._committed, array_type._pjrt_layout
        readers = tuple([one.fget for one in properties])
        settings = tuple([(type(one).value.fget, one, one.value) for one in _settings if one is not None])
        context = trace_context()
        signatures = tuple([[read(leaves[i]) for read in readers[: 3 + leaves[i]._committed]] for i in free])
        by_leaf = tuple(places.values())
        return DirectRun(readers, trace_context, context, settings, run, handlers, arguments, by_leaf, signatures)
    except (AttributeError, TypeError):
        return None


def runs_compiled(leaves: Sequence[Any]) -> bool:
    """Whether a call runs a program: outside traces and transformations, and with jit enabled."""
    return not (runs_without_jit() or under_trace() or any(isinstance(leaf, Tracer) for leaf in leaves))


def held_programs(equation: Any) -> Iterator[tuple[str, Any, Any]]:
    """The `Jaxpr`s among the parameters of an equation: the parameter's name, its value, which may be a `ClosedJaxpr`,
    and the program.
    """
    for name, parameter in equation.params.items():
        for value in parameter if isinstance(parameter, (tuple, list)) else (parameter,):
            program = getattr(value, "jaxpr", value)
            if hasattr(program, "eqns"):
                yield name, value, program


def every_equation(equations: Iterable[Any]) -> Iterator[Any]:
    """The equations, and those of programs in them, each program once."""
    seen: set[int] = set()
    waiting = [equations]
    while waiting:
        for equation in waiting.pop():
            yield equation
            for _, _, program in held_programs(equation):
                if id(program) not in seen:
                    seen.add(id(program))
                    waiting.append(program.eqns)


def has_callbacks(program: Any) -> bool:
    """Whether a jaxpr, or one in it, calls Python when it runs."""
    names = (equation.primitive.name for equation in every_equation(program.eqns))
    return any("callback" in name or name == "debug_print" for name in names)


def host_callbacks(lowered: Any) -> Sequence[Any]:
    """The functions that a program calls in no fixed order; none if they have one, or are unknown."""
    arguments = _attribute(_attribute(lowered, "_lowering"), "compile_args") or {}
    can_load = _unpickler() is not None
    return arguments.get("host_callbacks", ()) if can_load and arguments.get("ordered_effects") == [] else ()


def _unpickler() -> Any:  # of a module that `import partax` leaves out
    return _name("jax.experimental.serialize_executable._JaxPjrtUnpickler")


def _without_callbacks(program: Any) -> Any:
    """A compiled program that names no functions: XLA's keeps them, jax can write it, and runs it as a `jax.jit`."""
    unloaded = _attribute(_attribute(program, "_executable"), "_unloaded_executable")
    if not getattr(unloaded, "host_callbacks", None):
        return program
    bare = dataclasses.replace(unloaded, host_callbacks=[]).load()
    return jax.stages.Compiled(bare, program._params.const_args, program.args_info, program.out_tree)


_auto_layout = _name("jax._src.layout.AutoLayout")


@functools.cache
def _keep_one_of_each() -> None:
    """Pickle by name a part of the array types that newer jax compares by identity."""
    if _auto_layout is not None and not isinstance(_auto_layout, type):
        copyreg.pickle(type(_auto_layout), lambda _: "AutoLayout")


# Of a backend, or a program, that cannot be serialized or loaded.
_UNSERIALIZED = ValueError, NotImplementedError, TypeError, AttributeError, jax.errors.JaxRuntimeError


def serialized(program: Any) -> bytes | None:
    """A compiled program as bytes; None if this backend or this program cannot be serialized."""
    _keep_one_of_each()
    from jax.experimental import serialize_executable  # imported late: few programs are stored

    try:
        return serialize_executable.serialize(program)[0]
    except _UNSERIALIZED:
        return None


def loaded(data: bytes, in_tree: Any, out_tree: Any, devices: Sequence[Any], callbacks: Sequence[Any] = ()) -> Any:
    """The compiled program of `serialized` for these devices, trees and functions. Raises any exception for others."""
    from jax.experimental import serialize_executable

    if b"lapack_" in data:  # jaxlib looks up these functions when it lowers a call of one, which takes 0.6 s
        lower: Any = functools.partial(jax.jit(jnp.linalg.cholesky).lower, jnp.eye(1))
        (_name("jaxlib.cpu._lapack.initialize") or lower)()
    if b"hybrid_" in data:
        initialize_hybrid: Any = _name("jaxlib.gpu_solver.initialize_hybrid_kernels") or tuple
        initialize_hybrid()
    client = devices[0].client
    if callbacks:

        class Unpickler(_unpickler()):
            def persistent_load(self, pid: Any) -> Any:
                if pid[0] != "exec":
                    return super().persistent_load(pid)
                places = self.execution_devices
                return client.deserialize_executable(pid[1], executable_devices=places, host_callbacks=callbacks)

        program, infos, _ = Unpickler(io.BytesIO(data), client, devices).load()
        return jax.stages.Compiled(program.load(), [], in_tree.unflatten(infos), out_tree)
    return serialize_executable.deserialize_and_load(data, in_tree, out_tree, client, devices)


_hits = threading.local()


def _count_hits(event: str, **details: Any) -> None:
    _hits.count = getattr(_hits, "count", 0) + (event == "/jax/compilation_cache/cache_hits")


jax.monitoring.register_event_listener(_count_hits)


def compiled(lowered: Any, options: dict[str, Any] | None = None) -> tuple[Any, bool]:
    """Compile a program. Also returns whether XLA compiled it now: on a CPU, a program from jax's compilation cache
    that is serialized once more loads, but does not run.
    """
    before = getattr(_hits, "count", 0)
    program = lowered.compile(compiler_options=options)
    return _without_callbacks(program), getattr(_hits, "count", 0) == before or jax.default_backend() != "cpu"


def compile_uncached(lowered: Any) -> tuple[Any, bool]:
    """Compile a program without jax's compilation cache, by an option that does not change the program."""
    return compiled(lowered, {"xla_cpu_parallel_codegen_split_count": 31})


_executable: ContextVar[list[bytes | None] | None] = ContextVar("executable", default=None)


@functools.cache
def _loads_executables() -> bool:
    """Have jax's compiler look for an executable in `_executable`. With the fallback there is none."""
    compiler = _name("jax._src.compiler")
    compile_and_load: Any = _attribute(compiler, "backend_compile_and_load")

    def load_or_compile(backend: Any, module: Any, devices: Any, options: Any, host_callbacks: Any) -> Any:
        data = _executable.get()
        if data is not None and data[0] is not None:
            with contextlib.suppress(*_UNSERIALIZED):
                callbacks = tuple(host_callbacks)
                return backend.deserialize_executable(data[0], executable_devices=devices, host_callbacks=callbacks)
        program = compile_and_load(backend, module, devices, options, host_callbacks)
        if data is not None:
            data[0] = None
            with contextlib.suppress(*_UNSERIALIZED):
                data[0] = backend.serialize_executable(program)
        return program

    if compile_and_load is not None:
        compiler.backend_compile_and_load = load_or_compile
    return compile_and_load is not None


def compile_with_callbacks(lowered: Any, data: bytes | None) -> bytes | None:
    """Compile a program that calls Python, or load its executable from bytes, for the call of jax that follows. Return
    the executable as bytes, which are the same ones if it was loaded; None if it is not serialized.
    """
    executable = [data]
    if _loads_executables():
        token = _executable.set(executable)
        try:
            lowered.compile()
        finally:
            _executable.reset(token)
    return executable[0]
