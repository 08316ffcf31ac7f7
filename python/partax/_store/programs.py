"""The programs of one static key: loaded where an equal call of another process has stored them, else made and stored.

A program is found by a digest of all that it depends on, so a stored one is never another's.
"""

import contextlib
import pickle
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from partax import _core
from partax._explain.explain import explaining, report_line
from partax._explain.history import history_of
from partax._explain.results import LoadReport
from partax._jax.private import configuration
from partax._jax.programs import (
    compile_uncached,
    compile_with_callbacks,
    compiled,
    dispatched,
    has_callbacks,
    host_callbacks,
    runs_compiled,
    serialized,
    with_trees,
)
from partax._jit.at_work import at_work, during
from partax._jit.build_target import TracedFunction
from partax._jit.forwarded_arrays import refuse_lost_in
from partax._jit.observers import observers
from partax._jit.options import Options
from partax._jit.runtime_errors import silence_callbacks
from partax._pytree.call_site import call_site, site_text
from partax._store import UnstoredError, placement, switch
from partax._store.agreement import all_have_loaded
from partax._store.callbacks import stored_callbacks
from partax._store.content import Proof, digest_of
from partax._store.folder import Folder
from partax._store.key import Wanted, what_changed
from partax._store.placement import Signature
from partax._store.records import Loading, Record, read_record
from partax._store.results import rebuilt, stored_result
from partax._store.switch import store as store
from partax._store.switch import store_or_warn as store_or_warn

observers.describe_result = stored_result
_COMPARED = 8  # stored programs of the same function, for what has changed


class _Search(NamedTuple):
    """What was looked for in a call."""

    begun: float
    site: tuple[str, int]
    call: _core.Call
    is_before_trace: bool
    signature: Signature
    name: str  # of the program
    proof: Callable[[], Proof]
    loading: Loading | None  # of the stored program


def stored_programs(options: Options, leaves: tuple[Any, ...], traced: TracedFunction) -> "Programs | None":
    """The programs of a new static key, for which jax would trace `traced`; None if none could be stored."""
    folder = switch.folder_of(options.store)
    if folder is None:
        return None
    programs = Programs(folder, options, traced)
    try:
        if runs_compiled(leaves):  # else it is called in a trace; a later call may not be
            programs.begin(leaves)
    except UnstoredError as error:
        programs.refuse(str(error))
        return None
    return programs


class Programs:
    """The programs of one static key, one for each signature of arrays. It keeps no object of the user's."""

    def __init__(self, folder: Folder, options: Options, traced: TracedFunction) -> None:
        self.target: Any = None  # the `jax.jit`; set before anything is called
        self.donated: bytes | None = None  # for each leaf 1 if the program donates it, once that is known
        self._program = traced.program
        self._options = options
        self._name = traced.function.__name__
        self._folder = folder
        self._takes_tuple = traced.takes_tuple
        self._known: dict[Any, Any] = {}  # compiled programs by signature and jax's configuration
        self._proven: list[tuple[weakref.ref[Any], str]] = []  # traced, with the names without arguments
        self._first: _Search | None = None  # that of `begin`, for the call that runs then

    @property
    def program(self) -> Callable[..., Any]:
        """The callable for the arrays, which keeps this object alive."""
        return dispatched(self._name, self.choose)

    @property
    def _call(self) -> Any:
        return self._program.running_call

    def begin(self, leaves: tuple[Any, ...]) -> None:
        """Look for the program of the call; raise if there can be none."""
        self._first = search = self._search(placement.signature(leaves, self._options))
        record = search.loading and search.loading.record.result()
        if record is not None:
            self.donated = record["donated"]
        elif explaining() and (changed := self._what_changed(search)):
            self.tell(changed)

    def _what_changed(self, search: _Search) -> str:
        similar = self._folder.files(search.name.partition("-")[0])
        keys = [file.key for file in similar if file.key != search.name][:_COMPARED]
        records = [read_record(self._folder, key) for key in keys]
        changed = what_changed([record["proof"] for record in records if record], search.proof())
        return changed and f"traced, since {changed} has changed"

    def tell(self, what: str) -> None:
        site, text = call_site(), f"{self._name}: {what}"
        self._folder.ahead.note_call(site, text)
        if explaining():
            report_line(site, text)

    def refuse(self, reason: str) -> None:
        self.tell(f"not stored: {reason}")

    def choose(self, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        """The program for a signature that is new to jax's native dispatch: see `dispatched`."""
        leaves: tuple[Any, ...] = arguments[0] if self._takes_tuple else arguments
        is_checked = any(getattr(jax.config, name) for name in ("jax_debug_nans", "jax_debug_infs"))
        if is_checked or self._call is None or not runs_compiled(leaves):
            return self.target
        try:
            signature = placement.signature(leaves, self._options)
            key = (signature, *configuration().items())
            if key not in self._known:
                with during(at_work, self._call):
                    search = self._search_of_call(signature)
                    self._known[key] = self._load(search, leaves) or self._make(search, arguments, leaves)
            return self._known[key]
        except UnstoredError as error:
            self.refuse(str(error))
            self._call.forget_program()
            return self.target

    def _search_of_call(self, signature: Signature) -> _Search:
        """That of `begin` if it was in this call. Otherwise what it depends on may have changed."""
        first, self._first = self._first, None
        is_such = first is not None and first.call is self._call
        return first if first is not None and is_such and first.signature == signature else self._search(signature)

    def _search(self, signature: Signature) -> _Search:
        begun, site = time.perf_counter(), call_site()
        call = self._call
        try:
            wanted = Wanted(call, self._options, signature, self._takes_tuple)
            # The likeliest one is loaded while the proof is made, and most often is the right one.
            likeliest = next((file.key for file in self._folder.files(wanted.nearest)), None)
            loading = self._loading(likeliest, signature)
            name, proof = wanted.key()
        except (UnstoredError, MemoryError):
            raise
        except Exception as error:  # of whatever class of the user's that is looked at
            raise UnstoredError(f"it cannot be looked at: {error}") from error
        if loading is None or loading.name != name:
            if loading is not None:
                loading.program.cancel()
            loading = self._loading(name, signature)
        return _Search(begun, site, call, not call.has_traced, signature, name, proof, loading)

    def _loading(self, name: str | None, signature: Signature) -> Loading | None:
        if name is None or switch.folder_of(self._options.store) is not self._folder:
            return None
        try:
            return self._folder.ahead.take(name, signature.devices)
        except RuntimeError as error:
            raise UnstoredError("the process ends, and has no threads any more") from error

    def _load(self, search: _Search, leaves: tuple[Any, ...]) -> Any:
        record = search.loading and search.loading.record.result()
        program = None if record is None else self._restored(search, record, leaves)
        is_agreed = not search.signature.is_shared or all_have_loaded(search.name, program is not None)
        if record is None or program is None:
            return None
        if not is_agreed:
            self.tell("traced, since not all processes could load it")
            return None
        self._folder.note_use(search.name)
        self._folder.ahead.note(search.name, search.signature.devices)
        seconds = time.perf_counter() - search.begun
        self._call.count_load()
        history_of(self._call).loads.append(LoadReport(site_text(call_site()), seconds, record["seconds"]))
        self.tell(f"loaded from the store in {seconds:.2f} s (saves {record['seconds']:.2g} s)")
        return program

    def _restored(self, search: _Search, record: Record, leaves: tuple[Any, ...]) -> Any:
        """The program of a record with the trees of the call, or None."""
        if search.loading is None or record["donated"] != self.donated:
            return None
        # Each an object of its own, as tracers are.
        stand_ins = jax.device_put([np.float32(0)] * (len(leaves) + record["outputs"]))
        inputs, outputs = stand_ins[: len(leaves)], stand_ins[len(leaves) :]
        try:
            result = rebuilt(self._call, record["result"], inputs, outputs)
            program = search.loading.program.result()
            raises_errors = [callback.rebuild() for callback in search.loading.callbacks]
            if any(raises_errors):
                silence_callbacks()
                self._call.wait_for_results()
        except MemoryError:
            raise
        except Exception:  # whatever a loader, or a class of the user's, raises
            self._folder.tell(f"a program of `{self._name}` cannot be loaded; it is traced")
            return None
        node = self._call.restore_output(result, tuple(inputs))
        if isinstance(node, _core.OutputNode):
            if record["through"]:
                node = _core.with_leaves_through(node, tuple(outputs), record["through"])
            refuse_lost_in(node, self.target, leaves, record["donated"])
        positional = (tuple(leaves),) if self._takes_tuple else tuple(leaves)
        trees = jax.tree.structure((positional, {})), jax.tree.structure(node)
        return with_trees(program, *trees) if trees[1].num_leaves == record["outputs"] else None

    def trace(self, *arguments: Any) -> Any:
        """What jax traces for a call that is not run. A later call that runs it stores it."""
        leaves: tuple[Any, ...] = arguments[0] if self._takes_tuple else arguments
        try:
            return self._traced(self._search_of_call(placement.signature(leaves, self._options)), arguments)
        except UnstoredError:
            return self.target.trace(*arguments)

    def _traced(self, search: _Search, arguments: tuple[Any, ...]) -> Any:
        traced = self.target.trace(*arguments)
        if search.is_before_trace and self._call.has_traced:
            self._proven.append((weakref.ref(traced.jaxpr), search.name.partition("-")[2]))
        return traced

    def _make(self, search: _Search, arguments: tuple[Any, ...], leaves: tuple[Any, ...]) -> Any:
        begun = time.perf_counter()
        traced = self._traced(search, arguments)
        lowered, node, read = traced.lower(), traced.out_info, search.name.partition("-")[2]
        result = _core.stored_result(node) if isinstance(node, _core.OutputNode) else b""
        is_proven = any(proven() is traced.jaxpr and name == read for proven, name in self._proven)
        callbacks: tuple[bytes, ...] = ()
        if traced.jaxpr.effects or has_callbacks(traced.jaxpr):
            if is_proven and result is not None and not search.signature.is_shared:
                callbacks = stored_callbacks(host_callbacks(lowered))
            if not callbacks:
                self._compile_with_callbacks(search, lowered)
                self._call.forget_program()
                return self.target
        program, is_whole = compiled(lowered)
        seconds = time.perf_counter() - begun
        if result is None:
            self.refuse("its result holds what another process has not")
        elif not is_proven:
            self.refuse("it was traced before, by a call that did not store it")
        elif switch.folder_of(self._options.store) is self._folder:
            record: Record = {
                "name": self._name,
                "seconds": seconds,
                "result": result,
                "donated": self.donated or bytes(len(leaves)),
                "outputs": program.out_tree.num_leaves,
                "through": _core.output_info(node)[2],
                "devices": tuple(device.id for device in self._devices_of(program, search.signature)),
                "proof": search.proof(),
                "callbacks": callbacks,
                "program": b"",
            }
            self._folder.ahead.note(search.name, search.signature.devices)
            self._in_thread(self._store, search, record, lowered, program, is_whole)
        return program

    @staticmethod
    def _in_thread(do: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the process ends
            threading.Thread(target=do, args=arguments, name="partax store", daemon=False).start()

    def _compile_with_callbacks(self, search: _Search, lowered: Any) -> None:
        """Compile a program that calls Python; its executable is stored by its text, which has no callback in it."""
        begun = time.perf_counter()
        text = digest_of((lowered.as_text(), self._options.compiler_options)).hex()
        name = f"callbacks-{search.name.split('-')[1]}-{text}"
        stored = read_record(self._folder, name, drops=True)
        # Over several processes, some would run it while others compile it.
        data = None if search.signature.is_shared else compile_with_callbacks(lowered, stored and stored["program"])
        if data is None:
            raise UnstoredError("it calls Python when it runs")
        if stored is not None and data is stored["program"]:
            self._folder.note_use(name)
            self.tell("traced, since it calls Python when it runs, but not compiled")
        else:
            record = {"name": self._name, "seconds": time.perf_counter() - begun, "program": data}  # all that is read
            self._in_thread(self._folder.write, name, pickle.dumps(record))
            self.tell("stored for a process that traces it again: it calls Python when it runs")

    @staticmethod
    def _devices_of(program: Any, signature: Signature) -> Any:
        """The devices that a compiled program runs on, in its order."""
        if not signature.is_shared:
            return program.runtime_executable().local_devices()
        shardings = jax.tree.leaves((program.input_shardings, program.output_shardings))
        mesh: Any = next((one.mesh for one in shardings if isinstance(one, jax.sharding.NamedSharding)), None)
        if mesh is None:
            raise UnstoredError("its arrays lie over several processes, but not on a mesh")
        return mesh.devices.flat

    def _store(self, search: _Search, record: Record, lowered: Any, program: Any, is_whole: bool) -> None:
        # The program's first run has the processors to itself; a process that ends meanwhile does not wait.
        threading.main_thread().join(min(record["seconds"], 1.0))
        what = ""
        with contextlib.suppress(RuntimeWarning):  # which the user made an error, and no caller waits for this thread
            try:
                if not is_whole:
                    program, is_whole = compile_uncached(lowered)
                data = serialized(program) if is_whole else None
                if data is None:
                    raise UnstoredError("this backend, or jax's own cache, gives none whole")
                self._folder.write(search.name, pickle.dumps({**record, "program": data}))
                what = self._what_changed(search) or "traced, since nothing was stored for such arguments"
            except Exception as error:  # whatever a compiler raises
                what = f"not stored: {error}"
                self._folder.tell(f"a program of `{self._name}` is not stored: {error}")
        self._folder.ahead.note_call(search.site, f"{self._name}: {what}")
