"""The programs of one static key: loaded where an equal call of another process has stored them, else made and stored.

A program is found by a digest of all that it depends on, so a stored one is never another's.
"""

import contextlib
import hashlib
import pickle
import threading
import time
from collections.abc import Callable
from typing import Any, TypedDict

import jax
import numpy as np
from jax.core import Tracer

from partax import _core
from partax._guards.content import content_of
from partax._jax.private import configuration, runs_without_jit, under_trace
from partax._jax.programs import compiled, compiled_anew, dispatched, has_callbacks, loaded, serialized
from partax._jit.build_target import TracedFunction
from partax._jit.options import Options
from partax._report.call_site import call_site, site_text
from partax._report.explain import explaining, report_line
from partax._store import switch
from partax._store.environment import environment
from partax._store.folder import Folder
from partax._store.results import rebuilt, taken


class Record(TypedDict):
    """What is stored of one program.

    Attributes:
      name: the function's name.
      seconds: how long it took to trace, lower and compile.
      result: of `results.taken`.
      donated: for each leaf a byte that is 1 where the program donates it.
      outputs: how many arrays it returns.
      program: of `serialized`.
    """

    name: str
    seconds: float
    result: bytes
    donated: bytes
    outputs: int
    program: bytes


def record_of(folder: Folder, key: str) -> Record | None:
    """What is stored by a key; None where nothing is, or what is there is damaged."""
    data = folder.read(key)
    try:
        return None if data is None else pickle.loads(data)  # covered by its digest, in a folder of the user's own
    except Exception:  # of another version
        return None


class UnstoredError(Exception):
    """Why a call has no program that could be stored."""


def stored_programs(options: Options, leaves: tuple[Any, ...], traced: TracedFunction) -> "Programs | None":
    """The programs of a new static key. Called by the native wrapper in a call, while something is to be stored.

    Args:
      options: the wrapper's.
      leaves: the array leaves.
      traced: what jax would trace.

    Returns:
      The programs; None where the call has none that could be stored.
    """
    folder = switch.folder()
    if folder is None or not _runs_compiled(leaves):
        return None
    programs = Programs(folder, options, traced)
    try:
        programs.begin(leaves)
    except UnstoredError as error:
        programs.tell(f"not stored: {error}")
        return None
    return programs


class Programs:
    """The programs of one static key, one for each signature of arrays. It keeps nothing of the user's.

    Attributes:
      program: what the native wrapper calls with the arrays.
      target: the jax.jit target, which traces; set before anything is called.
      donated: for each leaf a byte that is 1 where the program donates it; None while nobody knows.
    """

    def __init__(self, folder: Folder, options: Options, traced: TracedFunction) -> None:
        self.target: Any = None
        self.donated: bytes | None = None
        self._options = options
        self._name = traced.function.__name__
        self.program = dispatched(self._name, self._choose, self._instead)
        self._folder = folder
        self._takes_tuple = traced.takes_tuple
        self._known: dict[Any, Any] = {}  # the compiled programs, by signature and jax's configuration
        self._loaded: list[Any] = []  # those of them that came from the folder

    def begin(self, leaves: tuple[Any, ...]) -> None:
        """Looks for the program of the call under way.

        Raises:
          UnstoredError: there is none, and none can be.
        """
        record = record_of(self._folder, self._key(_signature(leaves)))
        if record is not None:
            self.donated = record["donated"]

    def tell(self, what: str) -> None:
        """Explains, where that is asked for."""
        if explaining():
            report_line(f"{site_text(call_site())} {self._name}: {what}")

    def _choose(self, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        """The program of a signature that is new to jax's native dispatch: see `dispatched`."""
        leaves: tuple[Any, ...] = arguments[0] if self._takes_tuple else arguments
        is_checked = any(getattr(jax.config, name) for name in ("jax_debug_nans", "jax_debug_infs"))
        if is_checked or not _runs_compiled(leaves):
            return self.target
        try:
            signature = _signature(leaves)
            known = (signature, *configuration().items())
            if known not in self._known:
                key = self._key(signature)
                is_on = switch.folder() is self._folder
                found = self._load(record_of(self._folder, key), leaves) if is_on else None
                self._known[known] = found or self._make(key, arguments, leaves)
            return self._known[known]
        except UnstoredError as error:
            self.tell(f"not stored: {error}")
            _core.forget_program()
            return self.target

    def _instead(self, program: Any) -> Callable[..., Any] | None:
        """The target, where the first run of a loaded program has failed: it may be another's machine code."""
        if program not in self._loaded:
            return None
        self._loaded.remove(program)
        self._folder.tell(f"a program of `{self._name}` does not run; it is traced")
        _core.forget_program()
        return self.target

    def _key(self, signature: tuple[Any, ...]) -> str:
        """The digest of all that the program of the call under way depends on, read now: it may have changed."""
        if self._options.in_shardings is not None or self._options.out_shardings is not None:
            raise UnstoredError("it has shardings of its own")
        try:
            return self._digest(signature)
        except (UnstoredError, MemoryError):
            raise
        except Exception as error:  # of whatever class of the user's that is looked at
            raise UnstoredError(f"it cannot be looked at: {error}") from error

    def _digest(self, signature: tuple[Any, ...]) -> str:
        nodes, statics, _ = _core.describe_call()[0]
        classes = dict.fromkeys(node[1] for node in nodes if node[1] is not None)
        values = [held[0] for held in statics if held]
        roots = (_core.called_function(), self._options.key, *classes, *values)
        content, unstored = content_of(roots)
        if unstored:
            raise UnstoredError(unstored)
        structure = tuple(map(_node_text, nodes))
        _, *given = _core.call_shape()  # which parameters the values are of
        present = tuple(map(bool, statics))
        whole = (structure, given, present, content, signature[1:], environment(signature[0]), self._takes_tuple)
        return hashlib.sha256(repr(whole).encode("utf-8", "surrogatepass")).hexdigest()

    def _load(self, record: Record | None, leaves: tuple[Any, ...]) -> Any:
        if record is None or record["donated"] != (self.donated or bytes(len(leaves))):
            return None
        begun = time.perf_counter()
        count = record["outputs"]
        # Each an object of its own, as tracers are.
        stand_ins = jax.device_put([np.float32(0)] * (len(leaves) + count))
        inputs, outputs = stand_ins[: len(leaves)], stand_ins[len(leaves) :]
        try:
            result = rebuilt(record["result"], inputs, outputs)
            node = _core.restore_output(result, tuple(inputs))
            given = (tuple(leaves),) if self._takes_tuple else tuple(leaves)
            trees = jax.tree.structure((given, {})), jax.tree.structure(node)
            if trees[1].num_leaves != count:
                return None
            program = loaded(record["program"], *trees, _device_of(leaves))
        except MemoryError:
            raise
        except Exception:  # whatever a loader, or a class of the user's, raises
            self._folder.tell(f"a program of `{self._name}` cannot be loaded; it is traced")
            return None
        self._loaded.append(program)
        seconds = time.perf_counter() - begun
        self.tell(f"loaded from the store in {seconds:.2f} s (saves {record['seconds']:.2g} s)")
        return program

    def _make(self, key: str, arguments: tuple[Any, ...], leaves: tuple[Any, ...]) -> Any:
        begun = time.perf_counter()
        traced = self.target.trace(*arguments)
        if traced.jaxpr.effects or has_callbacks(traced.jaxpr):
            raise UnstoredError("it calls Python when it runs, or has other effects")
        lowered = traced.lower()
        program, is_whole = compiled(lowered)
        seconds = time.perf_counter() - begun
        result = taken(traced.out_info)
        if result is None:
            self.tell("not stored: its result holds what another process has not")
            return program
        if self._key(_signature(leaves)) != key:
            self.tell("not stored: something that it reads has changed while it was traced")
            return program
        record: Record = {
            "name": self._name,
            "seconds": seconds,
            "result": result,
            "donated": self.donated or bytes(len(leaves)),
            "outputs": program.out_tree.num_leaves,
            "program": b"",
        }
        if switch.folder() is self._folder:
            given = (key, record, lowered, program, is_whole)
            threading.Thread(target=self._store, args=given, name="partax store").start()
        return program

    def _store(self, key: str, record: Record, lowered: Any, program: Any, is_whole: bool) -> None:
        """Beside the call, in a thread of its own."""
        try:
            if not is_whole:
                program, is_whole = compiled_anew(lowered)
            data = serialized(program) if is_whole else None
            if data is None:
                self._folder.tell(f"`{self._name}` is not stored: this backend, or jax's own cache, gives none whole")
            else:
                self._folder.write(key, pickle.dumps({**record, "program": data}))
        except RuntimeWarning:  # it has been told, and the user has it raised: nobody waits for this thread
            pass
        except Exception as error:  # whatever a compiler raises
            with contextlib.suppress(RuntimeWarning):
                self._folder.tell(f"a program of `{self._name}` is not stored: {error}")


def _runs_compiled(leaves: tuple[Any, ...]) -> bool:
    """Whether a call runs a program now: no trace or transformation is under way, and jit is not turned off."""
    return not (runs_without_jit() or under_trace() or any(isinstance(leaf, Tracer) for leaf in leaves))


def _node_text(node: tuple[Any, ...]) -> tuple[Any, ...]:
    kind, cls, name, arity, first_static, children, fields = node
    return (
        kind,
        None if cls is None else (cls.__module__, cls.__qualname__),
        name,
        arity,
        first_static,
        children,
        fields,
    )


def _device_of(leaves: tuple[Any, ...]) -> Any:
    return next((next(iter(leaf.devices())) for leaf in leaves if isinstance(leaf, jax.Array)), jax.devices()[0])


def _signature(leaves: tuple[Any, ...]) -> tuple[Any, ...]:
    """The one device of the arrays, and of each what a program is compiled for."""
    device = _device_of(leaves)
    found: list[Any] = [device]
    for leaf in leaves:
        if isinstance(leaf, jax.Array):
            if leaf.is_deleted():
                raise UnstoredError("an array is deleted")
            if not isinstance(leaf.sharding, jax.sharding.SingleDeviceSharding) or leaf.devices() != {device}:
                raise UnstoredError("arrays on several devices")
            weak = getattr(leaf, "weak_type", False)
            found.append((leaf.shape, str(leaf.dtype), weak, leaf.committed, leaf.sharding.memory_kind))
        elif isinstance(leaf, (np.ndarray, np.generic, bool, int, float, complex)):
            aval = jax.typeof(leaf)
            found.append((type(leaf).__name__, aval.shape, str(aval.dtype), aval.weak_type))
        else:
            raise UnstoredError(f"a `{type(leaf).__name__}` among the arrays")
    return tuple(found)
