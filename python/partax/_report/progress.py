"""How far long work has come: a bar on the terminal behind the standard error, and nothing anywhere else."""

import contextlib
import sys
import threading
from collections.abc import Callable, Generator
from typing import Any

from partax._pytree.short_text import one_line
from partax._report.table import is_terminal

_AFTER = 1.0  # seconds; what is done sooner shows nothing
_EVERY = 0.1  # seconds
_LONGEST = 50  # characters of a title


class Progress:
    def __init__(self, title: str, total: int) -> None:
        self.title = title
        self.total = total
        self.done = 0
        self.measure: Callable[[], int] | None = None  # tells `done`, in another thread, where the work itself does not

    def begin(self, title: str) -> None:
        """The first stage of the work, or the next one, which ends the one before."""
        self.done += bool(self.title)
        self.title = title


@contextlib.contextmanager
def progress(title: str, total: int, *, unit: str = "", is_long: bool = True) -> Generator[Progress]:
    """Shows how far the work in a block has come, once it has taken a second: in stages, or `B` for bytes.

    A thread draws the bar by rich on the standard error, where that is a terminal and rich is installed; it is gone
    when the block is left.
    """
    work = Progress(title, total)
    file = sys.stderr
    if not is_long or not is_terminal(file):
        yield work
        return
    over = threading.Event()
    thread = threading.Thread(target=_show, args=(work, unit, file, over), name="partax progress", daemon=True)
    try:
        with contextlib.suppress(RuntimeError):  # no thread can be started, as when the interpreter ends
            thread.start()
        yield work
    finally:
        over.set()
        if thread.ident is not None:
            thread.join()


def is_shown() -> bool:
    return is_terminal(sys.stderr)


def _show(work: Progress, unit: str, file: Any, over: threading.Event) -> None:
    if over.wait(_AFTER):
        return
    title = one_line(work.title, _LONGEST)  # before rich is imported, which may take as long as the work
    with contextlib.suppress(Exception), _bar(unit, file) as bar:  # no rich, a terminal that is gone: the work goes on
        task = bar.add_task(title, total=work.total)
        bar.tasks[0].start_time = bar.get_time() - _AFTER
        while True:
            done = work.done if work.measure is None else work.measure()
            title = one_line(work.title, _LONGEST)
            bar.update(task, description=title, completed=min(done, work.total), refresh=True)
            if over.wait(_EVERY):
                break


def _bar(unit: str, file: Any) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True) if unit else MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(file=file),
        transient=True,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    )
