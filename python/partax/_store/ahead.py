"""What a script called first when it ran last, loaded while it still makes its arguments."""

import concurrent.futures
import contextlib
import functools
import hashlib
import os
import sys
import threading
from pathlib import Path
from typing import Any

import jax

from partax._jax.private import STAGE_OF
from partax._store.environment import machine
from partax._store.folder import Folder
from partax._store.records import Loading

_MOST = 8  # programs

_asked: set[tuple[Path, str]] = set()  # what this process has loaded already
_waiting: "Ahead | None" = None  # for jax to compile something: until then it may not be set up


class Ahead:
    """The programs of a directory that this process may call soon. Each call's key says whether one is right."""

    def __init__(self, folder: Folder) -> None:
        global _waiting
        self.folder = folder
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._names: list[str] = []  # the first programs that this process has loaded or stored
        self._begun: dict[str, Loading] = {}
        _listen()
        _waiting = self

    def end(self) -> None:
        with self._lock:
            self.folder.ahead = None
            self._begun.clear()

    def take(self, name: str) -> Loading | None:
        with self._lock:
            _asked.add((self.folder.path, name))
            return self._begun.pop(name, None)

    def note(self, name: str, devices: tuple[Any, ...]) -> None:
        """Note for the next process that this one calls a program, which is on these devices."""
        group, earlier = name.partition("-")[0], self._earlier_names  # which may ask a bucket
        with self._writing:
            with self._lock:
                for other in [key for key in self._begun if key.startswith(group)]:
                    del self._begun[other]  # which was a wrong guess
            if name in self._names or len(self._names) == _MOST or not {*devices} <= {*jax.devices()}:
                return
            self._names.append(name)
            if self._names != earlier[: len(self._names)]:
                self.folder.write_list(self._list, self._names)

    @functools.cached_property
    def _list(self) -> str:
        """The name of the list: of the script, and all that must be the same for machine code to be loaded."""
        # Of a prompt, the working directory.
        script = os.path.realpath(getattr(sys.modules.get("__main__"), "__file__", None) or "")
        return hashlib.sha256(repr((script, machine())).encode()).hexdigest()[:40]

    @functools.cached_property
    def _earlier_names(self) -> list[str]:
        return self.folder.read_list(self._list)

    def load(self) -> None:
        devices: tuple[Any, ...] = tuple(jax.devices())
        with contextlib.suppress(RuntimeError):  # the process ends
            for name in self._earlier_names:
                with self._lock:
                    if self.folder.ahead is not self or not threading.main_thread().is_alive():
                        return
                    if (self.folder.path, name) in _asked or not self.folder.has(name):
                        continue
                    _asked.add((self.folder.path, name))
                    self._begun[name] = loading = Loading(self.folder, name, devices)
                concurrent.futures.wait([loading.program])


@functools.cache
def _listen() -> None:
    jax.monitoring.register_event_duration_secs_listener(_on_duration)


def _on_duration(event: str, duration_secs: float, **details: Any) -> None:
    global _waiting
    if STAGE_OF.get(event) == "compile" and _waiting is not None:
        ahead, _waiting = _waiting, None
        with contextlib.suppress(RuntimeError):  # the process ends
            threading.Thread(target=ahead.load, name="partax load ahead", daemon=False).start()
