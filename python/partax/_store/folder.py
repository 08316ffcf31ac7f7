"""A directory of programs: a file for each, written at once or not at all, and read only if its own digest holds."""

import contextlib
import hashlib
import os
import shutil
import stat
import threading
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from partax._io.whole_file import UNFINISHED, replace_file

_ENDING, _LIST = ".partax", ".list"
_MAGIC = b"partax store 1\n"
_LONGEST_WRITE = 3600  # seconds


class Stored(NamedTuple):
    key: str
    path: Path
    size: int  # in bytes
    used: float  # the time of the last write or load, in seconds since the epoch


class Folder:
    def __init__(self, path: str | os.PathLike[str], max_bytes: int) -> None:
        self.path = Path(path).expanduser().absolute()  # the same wherever the process goes
        self.max_bytes = max_bytes
        self.ahead: Any = None  # an `ahead.Ahead`, of the directory in which all programs are stored
        self._told: set[str] = set()
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """Create the directory; refuse one in which others may write programs, which run here."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.name != "posix":
            return
        status = self.path.stat()
        if status.st_uid not in (os.getuid(), 0) or stat.S_IMODE(status.st_mode) & 0o022:
            raise PermissionError(
                f"found a folder that others may write to, `{self.path}`, expected one of your own: a program that is "
                f"loaded from it runs as you do; `chmod 700` it, or name another"
            )

    def read(self, key: str, *, drops: bool = False) -> bytes | None:
        """What is stored by a key; None if it is absent or damaged, in which case it may be dropped."""
        path = self._file(key)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self.tell(f"nothing is loaded from `{self.path}`: {error.strerror}")
            return None
        content = data[len(_header(key, b"")) :]
        if data != _header(key, content) + content:
            if drops:
                with contextlib.suppress(OSError):  # a read-only directory
                    path.unlink()
            self.tell(f"`{path}` is damaged and is not loaded; it is written again")
            return None
        return content

    def has(self, key: str) -> bool:
        return os.path.exists(self._file(key))

    def note_use(self, key: str) -> None:
        with contextlib.suppress(OSError):  # a read-only directory
            os.utime(self._file(key))

    def write(self, key: str, data: bytes) -> None:
        whole = _header(key, data) + data
        if len(whole) > self.max_bytes:
            return
        try:
            replace_file(self._file(key), lambda unfinished: Path(unfinished).write_bytes(whole))
            with self._lock:
                self.prune(self.max_bytes)
        except OSError as error:
            self.tell(f"nothing is stored in `{self.path}`: {error.strerror}")

    def read_list(self, name: str) -> list[str]:
        """The keys of a list; none if it is absent or damaged."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return self._list(name).read_text("utf-8").split()
        return []

    def write_list(self, name: str, keys: Iterable[str]) -> None:
        """Keep a list of keys, as long as one of them has a program."""
        with contextlib.suppress(OSError):  # it only spares time
            replace_file(self._list(name), lambda unfinished: Path(unfinished).write_text("\n".join(keys)))

    def files(self, beginning: str = "") -> list[Stored]:
        """What is stored by keys that begin so, the latest used first."""
        entries: list[Stored] = []
        for path in self.path.glob(f"{beginning}*{_ENDING}"):
            with contextlib.suppress(OSError):  # another process has dropped it
                info = path.stat()
                entries.append(Stored(path.stem, path, info.st_size, info.st_mtime))
        return sorted(entries, key=lambda stored: -stored.used)

    def prune(self, max_bytes: int | None = None, older: float | None = None) -> int:
        """Drop the least recently used files, by their size or by seconds; return how many. Also drop what processes
        that were killed have not finished writing, and lists whose programs are gone.
        """
        size = dropped = 0
        for stored in self.files():
            size += stored.size
            is_old = older is not None and time.time() - stored.used > older
            if is_old or (max_bytes is not None and size > max_bytes):
                with contextlib.suppress(OSError):
                    stored.path.unlink()
                    dropped += 1
        for path in self.path.glob(".*"):
            with contextlib.suppress(OSError):
                if path.suffix == _LIST and not any(map(self.has, self.read_list(path.stem[1:]))):
                    path.unlink()
                if path.suffix == UNFINISHED and time.time() - path.stat().st_mtime > _LONGEST_WRITE:
                    shutil.rmtree(path, ignore_errors=True)
        return dropped

    def tell(self, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            warnings.warn(f"partax.store: {what}", RuntimeWarning, stacklevel=2)

    def _file(self, key: str) -> Path:
        return self.path / (key + _ENDING)

    def _list(self, name: str) -> Path:
        return self.path / f".{name}{_LIST}"


def _header(key: str, data: bytes) -> bytes:
    """What the file of this data begins with."""
    return _MAGIC + hashlib.sha256(key.encode() + data).digest()
