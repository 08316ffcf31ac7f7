"""A pseudo-terminal to write to, and what was written to it."""

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

import pytest

CODE = re.compile(r"\x1b\[[?0-9;]*[A-Za-z]")


class Terminal:
    """The side of a pseudo-terminal that a program writes to, with what it has written."""

    def __init__(self, file: TextIO, master: int) -> None:
        self.file = file
        self._master = master
        self._seen = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            while data := os.read(self._master, 1 << 16):
                self._seen += data
        except OSError:  # nobody has the other side open any more
            pass

    @property
    def raw(self) -> str:
        return self._seen.decode(errors="replace")

    @property
    def text(self) -> str:
        """What was written, without codes for colours and the like."""
        return CODE.sub("", self.raw).replace("\r\n", "\n")

    def wait_for(self, said: str | Callable[[str], bool], seconds: float = 20) -> bool:
        """Whether something is said in that time."""
        is_said = said if callable(said) else lambda text: said in text
        end = time.monotonic() + seconds
        while not is_said(self.text):
            if time.monotonic() > end:
                return False
            time.sleep(0.005)
        return True

    def close(self) -> None:
        self.file.close()
        self._reader.join(10)


@contextmanager
def terminal(columns: int = 80, encoding: str = "utf-8") -> Iterator[Terminal]:
    """A terminal that is so wide; the test is skipped where the system has none."""
    pty, fcntl, termios = (pytest.importorskip(name) for name in ("pty", "fcntl", "termios"))
    import struct

    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    made = Terminal(os.fdopen(slave, "w", encoding=encoding), master)
    try:
        yield made
    finally:
        made.close()
        os.close(master)
