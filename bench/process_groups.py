"""Programs of several processes on `jax.distributed`: none of them hangs, and none is left behind."""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HEARTBEAT_SECONDS = 5
"""How long a process may be silent before jax ends the others with an error."""
GRACE_SECONDS = 60.0
"""How long the others may take to end after one has failed, on a busy machine."""


@dataclass(frozen=True)
class Ended:
    """How one process has ended."""

    rank: int
    returncode: int
    output: str
    seconds: float
    """After the first process that failed; 0 if none did."""
    killed: bool
    """It had not ended by itself in time."""


def join(rank: int, count: int, port: int, timeout: float) -> None:
    """In each process, before anything else of jax: connects it with the others, and bounds its life."""
    import jax

    faulthandler.dump_traceback_later(timeout, exit=True)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    if count > 1:
        jax.distributed.initialize(
            *(f"127.0.0.1:{port}", count, rank),
            initialization_timeout=60,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=60,
        )


def _end_with(parent: int) -> None:
    """Whoever started the processes may have been killed, and so cannot end them."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


def run_processes(script: Path, arguments: Sequence[str], count: int, devices: int, timeout: float) -> list[Ended]:
    """Runs `script RANK COUNT PORT TIMEOUT arguments...` in `count` processes with as many CPU devices each.

    They have ended when this returns, also by an exception: those that do not within `timeout`, or within
    `GRACE_SECONDS` of the first that fails, are killed with all that they have started.
    """
    environment = dict(os.environ)
    environment["JAX_PLATFORMS"] = "cpu"
    flags = re.sub(r"--xla_force_host_platform_device_count=\d+", "", environment.get("XLA_FLAGS", ""))
    environment["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={devices}".strip()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as directory:
        outputs = [Path(directory) / str(rank) for rank in range(count)]
        try:
            for rank, output in enumerate(outputs):
                command = [sys.executable, str(script), *map(str, (rank, count, port, timeout)), *arguments]
                with output.open("wb") as file:
                    processes.append(
                        subprocess.Popen(
                            command,
                            stdin=subprocess.DEVNULL,
                            stdout=file,
                            stderr=subprocess.STDOUT,
                            env=environment,
                            start_new_session=True,
                        )
                    )
            return _wait(processes, outputs, timeout)
        finally:
            for process in processes:
                _kill(process)


def _wait(processes: list[subprocess.Popen[bytes]], outputs: list[Path], timeout: float) -> list[Ended]:
    end = time.monotonic() + timeout
    failed_at: float | None = None
    ended: dict[int, Ended] = {}
    while len(ended) < len(processes):
        now = time.monotonic()
        for rank, process in enumerate(processes):
            late = now >= end
            if rank in ended or (process.poll() is None and not late):
                continue
            if process.poll() is None:
                _kill(process)
            else:
                late = False
            if process.returncode and failed_at is None:
                failed_at = now
                end = min(end, now + GRACE_SECONDS)
            after = 0.0 if failed_at is None else now - failed_at
            text = outputs[rank].read_text(errors="replace")
            ended[rank] = Ended(rank, process.returncode, text, after, late)
        time.sleep(0.05)
    return [ended[rank] for rank in range(len(processes))]


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
