"""Programs in a bucket: read through a directory of this machine, and written behind. No call waits long for it."""

import atexit
import contextlib
import functools
import hashlib
import importlib
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from partax._pytree.short_text import one_line
from partax._store.folder import Folder

_PATIENCE = 5.0  # seconds that a call waits for a bucket
_SLOWEST = 1 << 20  # bytes per second that it has to accept
_PAUSE = 60.0  # seconds without requests after one has failed; also to list what there is, while no call waits


class Bucket(Folder):
    def __init__(self, address: str, max_bytes: int, secret: bytes | None) -> None:
        self._remote = _remote(address)
        cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
        super().__init__(cache / "partax" / hashlib.sha256(address.encode()).hexdigest()[:20], max_bytes, secret)
        self.address = address
        self._names: set[str] | None = None  # of its files, once they are listed
        self._listing = threading.Lock()
        self._resume = {"read": 0.0, "write": 0.0}  # when it may be asked again

    def prepare(self) -> None:
        super().prepare()
        _register_join()
        threading.Thread(target=self._ask, args=("read", _PAUSE, self._list_names), daemon=True).start()

    def has(self, key: str) -> bool:
        """Whether it may have a program. That needs no request."""
        if super().has(key):
            return True
        return time.monotonic() >= self._resume["read"] and (self._names is None or self._file(key).name in self._names)

    def _get(self, path: Path) -> bytes:
        with contextlib.suppress(FileNotFoundError):
            return super()._get(path)
        data = self._ask("read", _PATIENCE, lambda: self._download(path.name))
        if data is None:
            raise FileNotFoundError
        with contextlib.suppress(OSError):  # a full disk
            super()._put(path, data)
        return data

    def _put(self, path: Path, data: bytes) -> None:
        try:
            super()._put(path, data)
        finally:
            seconds = 4 * _PATIENCE + len(data) / _SLOWEST  # for no call, but a process that ends
            self._ask("write", seconds, lambda: (self._remote / path.name).write_bytes(data))

    def _download(self, name: str) -> bytes | None:
        with contextlib.suppress(FileNotFoundError):
            return (self._remote / name).read_bytes() if name in self._list_names() else None

    def _list_names(self) -> set[str]:
        with self._listing:
            if self._names is None:
                names = set[str]()
                with contextlib.suppress(FileNotFoundError):  # nothing is stored yet
                    names.update(path.name for path in self._remote.iterdir())
                self._names = names
            return self._names

    def _ask(self, kind: str, seconds: float, request: Callable[[], Any]) -> Any:
        """What a request gives, or None if it fails or takes too long: then the bucket is left alone for a while, or
        only nothing is written if it did not accept something.
        """
        if time.monotonic() < self._resume[kind]:
            return None
        answer: Future[Any] = Future()

        def run() -> None:
            try:
                answer.set_result(request())
            except Exception as error:
                answer.set_exception(error)

        try:
            # One that hangs does not keep the process from ending.
            threading.Thread(target=run, name="partax bucket", daemon=True).start()
            return answer.result(seconds)
        except Exception as error:  # whatever a client raises
            self._resume.update(dict.fromkeys({kind, "write"}, time.monotonic() + _PAUSE))
            reason = f"no answer in {seconds:.0f} s" if isinstance(error, TimeoutError) else one_line(repr(error), 300)
            what = "is not asked" if kind == "read" else "stores nothing"
            self.tell(f"`{self.address}` fails, and {what} for a minute: {reason}", "bucket")


def _remote(address: str) -> Any:
    """The path of an address; raise if what reads it is not installed."""
    client = {"gs://": "gcsfs", "s3://": "s3fs"}.get(address[:5], "etils")
    if find_spec("etils") is None or (find_spec(client) is None and find_spec("tensorflow") is None):
        raise ImportError(f"found {address!r} without what reads it: `pip install 'partax[cloud]'`", name=client)
    try:
        return importlib.import_module("etils.epath").Path(address)
    except KeyError:
        raise ValueError(f"found {address!r}, expected one such as gs://bucket/programs, or a directory") from None


@functools.cache
def _register_join() -> None:
    """A process that ends waits for its uploads while clients can still use executors, for example to find a host."""

    def join() -> None:
        while threads := [thread for thread in threading.enumerate() if thread.name.startswith("partax store")]:
            threads[0].join()

    importlib.import_module("concurrent.futures.thread")  # executors end in the reverse order
    getattr(threading, "_register_atexit", atexit.register)(join)  # private
