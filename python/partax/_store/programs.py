"""The programs of one static key: loaded where an equal call of another process has stored them, else made and stored.

A program is found by a digest of all that it depends on, so a stored one is never another's.
"""

import contextlib
import pickle
import threading
import time
from collections.abc import Callable
from typing import Any, TypedDict

import jax
import numpy as np

from partax import _core
from partax._jax.private import configuration
from partax._jax.programs import compiled, compiled_anew, dispatched, has_callbacks, loaded, runs_compiled, serialized
from partax._jit.build_target import TracedFunction
from partax._jit.options import Options
from partax._pytree.call_site import call_site, site_text
from partax._report.explain import explaining, report_line
from partax._report.history import History as History  # which the first load makes
from partax._report.report import LoadReport
from partax._store import placement, switch
from partax._store.folder import Folder
from partax._store.key import Key, Proof, key_of_call, what_changed
from partax._store.placement import Signature, UnstoredError
from partax._store.results import rebuilt, stored_result_of
from partax._store.switch import store as store
from partax._store.switch import store_as_told as store_as_told

_COMPARED = 8  # stored programs of the same function that a call which is traced is compared with


class Record(TypedDict):
    """What is stored of one program.

    Attributes:
      name: the function's name.
      seconds: how long it took to trace, lower and compile.
      result: of `results.stored_result_of`.
      donated: for each leaf a byte that is 1 where the program donates it.
      outputs: how many arrays it returns.
      devices: the numbers of those that it runs on, in their order.
      proof: what it depends on.
      program: of `serialized`.
    """

    name: str
    seconds: float
    result: bytes
    donated: bytes
    outputs: int
    devices: tuple[int, ...]
    proof: Proof
    program: bytes


def record_of(folder: Folder, key: str) -> Record | None:
    """What is stored by a key; None where nothing is, or what is there is damaged."""
    data = folder.read(key)
    try:
        return None if data is None else pickle.loads(data)  # covered by its digest, in a folder of the user's own
    except Exception:  # of another version
        return None


def stored_programs(options: Options, leaves: tuple[Any, ...], traced: TracedFunction) -> "Programs | None":
    """The programs of a new static key. Called by the native wrapper in a call, while something is to be stored.

    Args:
      options: the wrapper's.
      leaves: the array leaves.
      traced: what jax would trace.

    Returns:
      The programs; None where the call has none that could be stored.
    """
    folder = switch.folder_of(options.store)
    if folder is None or not runs_compiled(leaves):
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
        self.program = dispatched(self._name, self.choose, self._instead)
        self._folder = folder
        self._takes_tuple = traced.takes_tuple
        self._known: dict[Any, Any] = {}  # the compiled programs, by signature and jax's configuration
        self._loaded: list[Any] = []  # those of them that came from the folder
        self._read: dict[str, Record] = {}  # what `begin` has read, by its key

    def begin(self, leaves: tuple[Any, ...]) -> None:
        """Looks for the program of the call under way.

        Raises:
          UnstoredError: there is none, and none can be.
        """
        key = self._key(placement.signature(leaves))
        record = record_of(self._folder, key.name)
        if record is not None:
            self.donated, self._read = record["donated"], {key.name: record}
        elif explaining():
            alike = [it.key for it in self._folder.files() if it.key.startswith(key.group)][:_COMPARED]
            records = [record_of(self._folder, name) for name in alike]
            changed = what_changed([record["proof"] for record in records if record is not None], key.proof())
            if changed:
                self.tell(f"traced, since {changed} has changed")

    def tell(self, what: str) -> None:
        """Explains, where that is asked for."""
        if explaining():
            report_line(call_site(), f"{self._name}: {what}")

    def prepare(self, arguments: tuple[Any, ...]) -> bool:
        """Loads or compiles the program of the call under way, and does not run it; tells whether it has one."""
        return self.choose(arguments) is not self.target

    def choose(self, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        """The program of a signature that is new to jax's native dispatch: see `dispatched`."""
        leaves: tuple[Any, ...] = arguments[0] if self._takes_tuple else arguments
        is_checked = any(getattr(jax.config, name) for name in ("jax_debug_nans", "jax_debug_infs"))
        if is_checked or not runs_compiled(leaves):
            return self.target
        try:
            signature = placement.signature(leaves)
            known = (signature, *configuration().items())
            if known not in self._known:
                key = self._key(signature)
                is_on = switch.folder_of(self._options.store) is self._folder
                read, self._read = self._read.get(key.name), {}
                record = (read or record_of(self._folder, key.name)) if is_on else None
                found = None if record is None else self._load(record, leaves, signature.devices)
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

    def _key(self, signature: Signature) -> Key:
        """That of the call under way, read now: what it depends on may have changed."""
        return key_of_call(self._options, signature, self._takes_tuple)

    def _load(self, record: Record, leaves: tuple[Any, ...], devices: tuple[Any, ...]) -> Any:
        if record["donated"] != (self.donated or bytes(len(leaves))):
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
            program = loaded(record["program"], *trees, placement.by_number(record["devices"], devices))
        except MemoryError:
            raise
        except Exception:  # whatever a loader, or a class of the user's, raises
            self._folder.tell(f"a program of `{self._name}` cannot be loaded; it is traced")
            return None
        self._loaded.append(program)
        seconds = time.perf_counter() - begun
        load = LoadReport(site_text(call_site()), seconds, record["seconds"])
        _core.note_load().loads.append((begun, load))
        self.tell(f"loaded from the store in {seconds:.2f} s (saves {record['seconds']:.2g} s)")
        return program

    def _make(self, key: Key, arguments: tuple[Any, ...], leaves: tuple[Any, ...]) -> Any:
        begun = time.perf_counter()
        traced = self.target.trace(*arguments)
        if traced.jaxpr.effects or has_callbacks(traced.jaxpr):
            raise UnstoredError("it calls Python when it runs, or has other effects")
        lowered = traced.lower()
        program, is_whole = compiled(lowered)
        seconds = time.perf_counter() - begun
        result, devices = stored_result_of(traced.out_info), placement.numbers_of(program)
        if result is None:
            self.tell("not stored: its result holds what another process has not")
            return program
        if self._key(placement.signature(leaves)).name != key.name:
            self.tell("not stored: something that it reads has changed while it was traced")
            return program
        record: Record = {
            "name": self._name,
            "seconds": seconds,
            "result": result,
            "donated": self.donated or bytes(len(leaves)),
            "outputs": program.out_tree.num_leaves,
            "devices": devices,
            "proof": key.proof(),
            "program": b"",
        }
        if switch.folder_of(self._options.store) is self._folder:
            given = (key.name, record, lowered, program, is_whole)
            threading.Thread(target=self._store, args=given, name="partax store").start()
        return program

    def _store(self, key: str, record: Record, lowered: Any, program: Any, is_whole: bool) -> None:
        """After the call, in a thread of its own."""
        # The program's first run has the processors to itself; a process that ends meanwhile does not wait.
        threading.main_thread().join(min(record["seconds"], 1.0))
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
