"""A directory of programs: a file for each, written at once or not at all, and read only if its own digest holds."""

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
import threading
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

_ENDING, _LIST, _UNFINISHED = ".partax", ".list", ".tmp"
_MAGIC = b"partax store 2\n"  # followed by the digest of all the rest, a signature, and the data
_DATA = len(_MAGIC) + 64  # where the data begin
_LONGEST_WRITE = 3600  # seconds
_LONGEST_LIST = 30 * 86400  # seconds for which a list is kept


class Stored(NamedTuple):
    key: str
    path: Path
    size: int  # in bytes
    used: float  # the time of the last write or load, in seconds since the epoch


class Folder:
    def __init__(self, path: str | os.PathLike[str], max_bytes: int, secret: bytes | None = None) -> None:
        self.path = Path(path).expanduser().absolute()  # the same wherever the process goes
        self.address = os.path.abspath(self.path)  # by which an option names it
        self.max_bytes = max_bytes
        self._secret = secret  # with which programs are signed
        self.ahead: Any = None  # an `ahead.Ahead`, of a directory in which this process stores programs
        self._told: set[str] = set()
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """Create the directory; refuse one in which others may write programs, which run here, if none are signed."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.name != "posix" or self._secret is not None:
            return
        status = self.path.stat()
        if status.st_uid not in (os.getuid(), 0) or stat.S_IMODE(status.st_mode) & 0o022:
            raise PermissionError(
                f"found a folder that others may write to, `{self.path}`, expected one of your own: a program that is "
                f"loaded from it runs as you do; `chmod 700` it, name another, or set a key, PARTAX_STORE_KEY"
            )

    def read(self, key: str, *, drops: bool = False) -> bytes | None:
        """What is stored by a key; None if it is absent, or may not be loaded: a damaged one may be dropped."""
        path = self._file(key)
        try:
            whole = self._get(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self.tell(f"nothing is loaded from `{self.path}`: {error.strerror}")
            return None
        signature, data = whole[_DATA - 32 : _DATA], whole[_DATA:]
        if whole[:_DATA] != _header(key, signature, data):
            if drops:
                with contextlib.suppress(OSError):  # a read-only directory
                    path.unlink()
            self.tell(f"`{path}` is damaged and is not loaded; it is written again")
        elif self._secret and not hmac.compare_digest(signature, _signature(self._secret, key, data)):
            self.tell(f"programs of `{self.address}` are not signed with the key of this process, and are not loaded")
        else:
            return data
        return None

    def has(self, key: str) -> bool:
        return os.path.exists(self._file(key))

    def note_use(self, key: str) -> None:
        with contextlib.suppress(OSError):  # a read-only directory
            os.utime(self._file(key))

    def write(self, key: str, data: bytes) -> None:
        signature = _signature(self._secret, key, data) if self._secret else bytes(32)
        whole = _header(key, signature, data) + data
        if len(whole) > self.max_bytes:
            return
        try:
            self._put(self._file(key), whole)
        except OSError as error:
            self.tell(f"nothing is stored in `{self.path}`: {error.strerror}")

    def read_list(self, beginning: str, since: float = 0) -> str:
        """The list that was written last of those whose names begin so; empty if there is none from that time on."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            path = max(self.path.glob(f".{beginning}*{_LIST}"), key=os.path.getmtime, default=self._list(beginning))
            if not since or os.path.getmtime(path) >= since:
                return self._get(path).decode()
        return ""

    def write_list(self, name: str, text: str) -> None:
        with contextlib.suppress(OSError):  # it only spares time
            self._put(self._list(name), text.encode())

    def _get(self, path: Path) -> bytes:
        return path.read_bytes()

    def _put(self, path: Path, data: bytes) -> None:
        """Replace a file atomically. No link is followed: others may have put it into the directory."""
        fresh = path.with_name(f".{path.name[:50]}.{secrets.token_hex(8)}{_UNFINISHED}")
        try:
            with open(fresh, "xb") as file:
                file.write(data)
                file.flush()
                if path.suffix != _LIST:  # which several processes read and replace at once
                    os.fsync(file.fileno())
            fresh.replace(path)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
        with self._lock:
            self.prune(self.max_bytes)

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
        that were killed have not finished writing, and the lists of scripts that have not run for long.
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
                age = time.time() - path.stat().st_mtime
                if path.suffix == _LIST and (max_bytes == 0 or age > _LONGEST_LIST):
                    path.unlink()
                if path.suffix == _UNFINISHED and age > _LONGEST_WRITE:
                    path.unlink()
        return dropped

    def tell(self, what: str, topic: str = "") -> None:
        if (topic or what) not in self._told:
            self._told.add(topic or what)
            warnings.warn(f"partax.store: {what}", RuntimeWarning, stacklevel=2)

    def _file(self, key: str) -> Path:
        return self.path / (key + _ENDING)

    def _list(self, name: str) -> Path:
        return self.path / f".{name}{_LIST}"


def _header(key: str, signature: bytes, data: bytes) -> bytes:
    """What the file of this data begins with."""
    return _MAGIC + hashlib.sha256(key.encode() + signature + data).digest() + signature


def _signature(secret: bytes, key: str, data: bytes) -> bytes:
    return hmac.digest(secret, key.encode() + b"\0" + data, "sha256")
