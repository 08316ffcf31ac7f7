"""A folder of programs: a file for each, written at once or not at all, and believed only if its own digest holds."""

import contextlib
import hashlib
import os
import re
import shutil
import stat
import threading
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from partax._io.whole_file import UNFINISHED, replace_file

_ENDING = ".partax"
_DIGEST = "[0-9a-f]{40}"
_KEY, _LIST = re.compile(rf"\b{_DIGEST}-{_DIGEST}-{_DIGEST}\b"), re.compile(rf"\.({_DIGEST})\.list")
_MAGIC = b"partax store 1\n"
_HEADER = len(_MAGIC) + hashlib.sha256().digest_size
_LONGEST_WRITE = 3600  # seconds


class Stored(NamedTuple):
    key: str  # what it is found by
    path: Path
    size: int  # in bytes
    used: float  # when it was written or loaded last, in seconds since the epoch


class Folder:
    def __init__(self, path: str | os.PathLike[str], max_bytes: int) -> None:
        self.path = Path(path).expanduser().absolute()  # the same one wherever the process goes
        self.max_bytes = max_bytes  # how much may be in it; what was not used for longest goes first
        self._told: set[str] = set()
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """Makes the folder where it is not there; refuses one in which others may write programs, which run here."""
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
        """What is stored by a key; None where nothing is, or what is there is damaged, which it may drop."""
        path = self._file(key)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self.tell(f"nothing is loaded from `{self.path}`: {error.strerror}")
            return None
        header, content = data[:_HEADER], data[_HEADER:]
        if header != _header(key, content):
            if drops:
                with contextlib.suppress(OSError):  # a folder that may only be read
                    path.unlink()
            self.tell(f"`{path}` is damaged and is not loaded; it is written again")
            return None
        return content

    def has(self, key: str) -> bool:
        return self._file(key).exists()

    def note_use(self, key: str) -> None:
        with contextlib.suppress(OSError):  # a folder that may only be read
            os.utime(self._file(key))

    def likeliest(self, beginning: str) -> str | None:
        """The key that begins so and was used last; None where there is none."""
        return next((stored.key for stored in self.files(beginning)), None)

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
        """The keys of a list; none where there is none, or what is there is damaged."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return _KEY.findall(self._list(name).read_text("utf-8"))
        return []

    def write_list(self, name: str, keys: Iterable[str]) -> None:
        """Keeps a list of keys, as long as one of them has a program."""
        with contextlib.suppress(OSError):  # it spares time and nothing else
            replace_file(self._list(name), lambda unfinished: Path(unfinished).write_text("\n".join(keys)))

    def files(self, beginning: str = "") -> list[Stored]:
        """What is stored by keys that begin so, the latest used first."""
        entries: list[Stored] = []
        with contextlib.suppress(OSError):
            for entry in os.scandir(self.path):
                if entry.name.startswith(beginning) and entry.name.endswith(_ENDING):
                    with contextlib.suppress(OSError):  # another process has dropped it
                        info = entry.stat()
                        path = Path(entry.path)
                        entries.append(Stored(path.stem, path, info.st_size, info.st_mtime))
        return sorted(entries, key=lambda stored: -stored.used)

    def prune(self, max_bytes: int | None = None, older: float | None = None) -> int:
        """Drops what is too much, or was not used for so many seconds; gives the number of files."""
        size = dropped = 0
        for stored in self.files():
            size += stored.size
            if (max_bytes is not None and size > max_bytes) or (
                older is not None and time.time() - stored.used > older
            ):
                with contextlib.suppress(OSError):
                    stored.path.unlink()
                    dropped += 1
        self._drop_what_was_left()
        return dropped

    def _drop_what_was_left(self) -> None:
        """Drops what processes that were killed have not finished writing, and lists whose programs are gone."""
        with contextlib.suppress(OSError):
            for entry in os.scandir(self.path):
                is_list = _LIST.fullmatch(entry.name)
                if is_list and not any(map(self.has, self.read_list(is_list[1]))):
                    with contextlib.suppress(OSError):
                        os.unlink(entry.path)
                elif entry.name.startswith(".") and entry.name.endswith(UNFINISHED):
                    with contextlib.suppress(OSError):
                        if time.time() - entry.stat().st_mtime > _LONGEST_WRITE:
                            shutil.rmtree(entry.path, ignore_errors=True)

    def tell(self, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            warnings.warn(f"partax.store: {what}", RuntimeWarning, stacklevel=2)

    def _file(self, key: str) -> Path:
        return self.path / (key + _ENDING)

    def _list(self, name: str) -> Path:
        return self.path / f".{name}.list"


def _header(key: str, data: bytes) -> bytes:
    """What a file begins with that has this data, by this key."""
    return _MAGIC + hashlib.sha256(key.encode() + data).digest()
