"""Guards the promise that long work, the doctor's too, shows how far it is on a terminal, and nothing anywhere else,
and that a terminal which fails never stops the work."""

import io
import os
import sys
import threading
import time
import types
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import pytest

import partax
from partax._doctor import doctor
from partax._doctor.program import Program
from partax._report import table as module
from partax._report.table import progress
from terminals import Terminal, terminal


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AFTER", 0)
    monkeypatch.setattr(module, "_EVERY", 0.01)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("TERM", "xterm")
    with terminal(100) as made:
        show_on(monkeypatch, made.file)
        yield made


def show_on(monkeypatch: pytest.MonkeyPatch, file: Any) -> None:
    """Has it for the standard error, which pytest sets anew before a test is called."""
    monkeypatch.setattr(module, "sys", types.SimpleNamespace(stderr=file))


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "partax progress"]


def test_a_bar_follows_the_work_and_goes(at_once: None, seen: Terminal) -> None:
    with progress("counting sheep", 4) as work:
        assert seen.wait_for("counting sheep") and seen.wait_for("0/4")
        work.done = 3
        assert seen.wait_for("3/4")
        work.title = "counting goats"
        assert seen.wait_for("counting goats")
        assert threads() != []
    assert threads() == []
    assert seen.wait_for(lambda _: is_gone(seen.raw))


def is_gone(written: str) -> bool:
    """Whether nothing is on the line, and the cursor is there."""
    cursor = "\x1b[?25l" not in written or "\x1b[?25h" in written.rpartition("\x1b[?25l")[2]
    return cursor and (written.endswith("\r") or "\x1b[2K" in written[-40:])


def test_a_pipe_gets_nothing_and_no_thread(at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    with open(read) as other:
        with open(write, "w") as pipe:
            for file in (pipe, None):
                show_on(monkeypatch, file)
                with progress("long", 2):
                    assert threads() == []
                    time.sleep(0.05)
        assert other.read() == ""


def refuse(self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("lacks", ["a second", "rich", "a thread"])
def test_nothing_is_shown_where_there_is_no_time_or_no_means(
    lacks: str, at_once: None, seen: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lacks == "a second":
        monkeypatch.setattr(module, "_AFTER", 1.0)
    elif lacks == "a thread":
        monkeypatch.setattr(threading.Thread, "start", refuse)
    else:
        for name in ("rich", "rich.console", "rich.progress"):
            monkeypatch.setitem(sys.modules, name, None)
    with progress("long", 2) as work:
        work.done = 1
        time.sleep(0.1)
    assert seen.raw == "" and threads() == []


def test_a_terminal_that_fails_does_not_stop_the_work(at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    class Broken(io.StringIO):
        """A terminal that is gone when something is written."""

        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            asked.set()
            raise OSError(5, "Input/output error")

    monkeypatch.setenv("TERM", "xterm")
    show_on(monkeypatch, Broken())
    with progress("long", 2) as work:
        assert asked.wait(10)
        work.done = 1
    assert threads() == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_work_that_ends_in_an_error_leaves_no_thread(at_once: None, seen: Terminal, error: Any) -> None:
    def work() -> None:
        with progress("long", 2):
            assert seen.wait_for("long")
            raise error

    with pytest.raises(error):
        work()
    assert threads() == []


def test_the_doctor_shows_each_of_its_stages(at_once: None, seen: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bool] = []

    def find(_: Program) -> list[partax.Finding]:  # before it are tracing, lowering and compiling
        told.append(seen.wait_for("looking at repeats") and seen.wait_for("3/5"))
        return []

    monkeypatch.setattr(doctor, "RULES", {"repeats": find})

    def step(x: Any) -> Any:
        told.append(seen.wait_for("tracing"))
        return x * 2

    partax.doctor(step, jnp.ones(3), compile=True)
    assert told == [True, True]
    assert seen.wait_for(lambda text: text.endswith("\r"))
