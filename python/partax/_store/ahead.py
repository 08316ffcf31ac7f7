"""What a script called when it ran last: loaded while it still makes its arguments, and what became of each call."""

import atexit
import collections
import concurrent.futures
import contextlib
import functools
import hashlib
import json
import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jax

from partax._explain.explain import report_line
from partax._jax.private import STAGE_OF
from partax._store.environment import machine
from partax._store.folder import Folder
from partax._store.records import Loading

_MOST = 1000  # programs of a run, and calls
_LARGEST = 256 << 20  # bytes of programs that are loaded and not called yet

Calls = dict[tuple[str, int, str], None]  # the file, the line, and the function with what became of it, each once
_all: dict[Path, "Ahead"] = {}  # of this process, by directory


def ahead_of(folder: Folder) -> "Ahead":
    _listen()
    ahead = _all.setdefault(folder.path, Ahead(folder))
    ahead.folder, ahead.is_on = folder, True
    return ahead


class Ahead:
    """The calls of this run in a directory, and the programs that it may call soon, for which jax has to be set up.
    Each call's key says whether one is right.
    """

    def __init__(self, folder: Folder) -> None:
        self.folder, self.is_on = folder, True
        self.calls: Calls = {}
        self._since = time.time()
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._names: dict[str, None] = {}  # the programs that this process has loaded or stored, by their first use
        self._asked: set[str] = set()  # what it has loaded already
        self._begun: dict[str, Loading] = {}
        self._places: dict[str, int] = {}  # of the programs of the last run
        self._waiting: collections.deque[str] | None = None  # those that may be loaded yet, once they are known
        self._wanted: Loading | None = None  # by a call, which other programs must not delay
        self._hits = 0
        self._is_loading = self._is_changed = False

    def end(self) -> None:
        with self._lock:
            self.is_on = False
            self._begun.clear()

    def take(self, name: str, devices: tuple[Any, ...]) -> Loading | None:
        """Load the program of a call, if it is stored."""
        with self._lock:
            self._asked.add(name)
            loading = self._begun.pop(name, None)
            self._hits += loading is not None
        if loading is None and self.folder.has(name):
            loading = Loading(self.folder, name, devices)
        self.load_more(loading)
        return loading

    def note(self, name: str, devices: tuple[Any, ...]) -> None:
        """Note for the next process that this one calls a program, which is on these devices."""
        with self._lock:
            place = self._places.get(name)
            if place is None:
                for other in [key for key in self._begun if key.startswith(name.partition("-")[0])]:
                    del self._begun[other]  # which was a wrong guess
            elif sum(self._places[other] < place for other in self._begun) >= max(8, self._hits):
                self._waiting = collections.deque()  # it is not the run that the last one was
            if {*devices} <= {*jax.devices()} and len(self._names) < _MOST:
                self._names[name] = None
            self._change()

    def note_call(self, site: tuple[str, int], what: str) -> None:
        """Note for `python -m partax store DIR --why` what became of a call."""
        with self._lock:
            if len(self.calls) < _MOST:
                self.calls[(*site, what[:500])] = None
                self._change()

    def _change(self) -> None:
        _ = self._list  # while the script is `__main__`
        if not self._is_changed:
            self._is_changed = True
            with contextlib.suppress(RuntimeError):  # the process ends
                threading.Thread(target=self._write, name="partax store list", daemon=False).start()

    def _write(self) -> None:
        threading.main_thread().join(1.0)  # more calls follow; a process that ends meanwhile does not wait
        with self._writing:
            with self._lock:
                self._is_changed = False
                own_names, own_calls = [*self._names], [*self.calls]
            names, calls = read_run(self.folder.read_list(self._list, self._since))  # of other processes of this run
            kinds = set(map(_without_numbers, own_calls))
            calls = [*own_calls, *(call for call in calls if _without_numbers(call) not in kinds)][:_MOST]
            names = [*dict.fromkeys([*names, *own_names])][:_MOST]
            self.folder.write_list(self._list, json.dumps({"programs": names, "calls": calls}))

    @functools.cached_property
    def _list(self) -> str:
        """The name of the list: of the script, and all that must be the same for machine code to be loaded."""
        script = getattr(sys.modules.get("__main__"), "__file__", None) or ""  # of a prompt, the working directory
        return f"{list_of(script)}{hashlib.sha256(repr(machine()).encode()).hexdigest()[:20]}"

    def load_more(self, wanted: Loading | None = None) -> None:
        with self._lock, contextlib.suppress(RuntimeError):  # the process ends
            if not self._is_loading and self._may_load():
                threading.Thread(target=self._load, name="partax load ahead", daemon=False).start()
                self._is_loading = True
            if self._is_loading:
                self._wanted = wanted or self._wanted

    def _may_load(self) -> bool:
        has_more = self._waiting is None or len(self._waiting) > 0
        has_space = sum(loading.size for loading in self._begun.values()) < _LARGEST
        return self.is_on and has_more and has_space and threading.main_thread().is_alive()

    def _load(self) -> None:
        devices: tuple[Any, ...] = tuple(jax.devices())
        if self._waiting is None:
            names, _ = read_run(self.folder.read_list(self._list))
            with self._lock:
                self._places, self._waiting = {name: i for i, name in enumerate(names)}, collections.deque(names)
        with contextlib.suppress(RuntimeError):  # the process ends
            while True:
                with self._lock:
                    loading, self._wanted = self._wanted, None
                    if loading is None:
                        if not self._may_load():
                            self._is_loading = False
                            return
                        name = self._waiting.popleft()
                        if name in self._asked or not self.folder.has(name):
                            continue
                        self._asked.add(name)
                        self._begun[name] = loading = Loading(self.folder, name, devices)
                concurrent.futures.wait([loading.program])


def _without_numbers(call: tuple[str, int, str]) -> tuple[str, int, str]:
    return *call[:2], re.sub(r"\d", "", call[2])  # such as seconds


def list_of(script: str) -> str:
    """What the names of the lists of a script begin with."""
    return hashlib.sha256(os.path.realpath(script).encode()).hexdigest()[:20] + "-"


def read_run(text: str) -> tuple[list[str], Calls]:
    """The programs of a run and its calls, from a list; none from one that is damaged."""
    with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):
        run = json.loads(text)
        # Others may write to a list, and would choose which file is read.
        names = [name for name in run["programs"] if re.fullmatch(r"[0-9a-f-]+", name)]
        return names, {(str(file), int(line), str(what)): None for file, line, what in run["calls"]}
    return [], {}


@functools.cache
def _listen() -> None:
    jax.monitoring.register_event_duration_secs_listener(_on_duration)
    atexit.register(_end)


def _end() -> None:
    calls: Calls = {}
    for ahead in list(_all.values()):
        calls |= ahead.calls
    if calls and all(": not stored: " in what for _, _, what in calls):
        file, line, what = next(iter(calls))
        report_line((file, line), f"{what} (the store has neither stored nor loaded anything in this process)")


def _on_duration(event: str, duration_secs: float, **details: Any) -> None:
    if STAGE_OF.get(event) == "compile":
        for ahead in list(_all.values()):
            ahead.load_more()
