"""Guards the promise that programs are shared by a bucket, and that whatever becomes of it costs a call one wait."""

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from test_faults import small_disk
from user_modules import IS_SHORT, PACKAGE, SOURCE, damaged, run, writer

import partax
from partax._store import bucket

pytestmark = pytest.mark.compiled_anew
ADDRESS = "s3://bucket/programs"


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of the bucket."""
    folder = tmp_path / "remote"
    folder.mkdir()
    monkeypatch.setattr(bucket, "_remote", lambda address: folder)
    return folder


def test_machines_share_what_is_whole_and_signed(remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def traces(machine: str, key: str = "one") -> int:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / machine))
        monkeypatch.setenv("PARTAX_STORE_KEY", key)
        return run(SOURCE, tmp_path, ADDRESS).traces  # type: ignore

    assert [traces("a"), traces("b"), traces("b")] == [1, 0, 0]
    (file,) = remote.glob("*.partax")
    file.write_bytes(file.read_bytes()[:-1])
    for machine, key, reason in (("c", "one", "is damaged"), ("d", "other", "not signed")):
        with pytest.warns(RuntimeWarning, match=reason):
            assert traces(machine, key) == 1
        assert traces(machine + "0", key) == 0, "it is written again"
    assert [folder.stat().st_mode & 0o777 for folder in tmp_path.glob("?/partax/*")] == [0o700] * 4


def test_a_program_damaged_in_the_bucket_is_traced_and_written_again(
    remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def traces(machine: str) -> int:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / machine))
        return run(SOURCE, tmp_path, ADDRESS).traces  # type: ignore

    assert traces("first") == 1
    (file,) = remote.glob("*.partax")
    for count, data in enumerate(damaged(file.read_bytes())):
        file.write_bytes(data)
        with pytest.warns(RuntimeWarning, match="is damaged"):
            assert traces(f"{count}") == 1
        assert traces(f"other {count}") == 0
    with small_disk(tmp_path / "full"):
        (tmp_path / "full" / "other").write_bytes(bytes(64 << 10))
        assert traces("full") == 0, "what cannot be kept here is loaded all the same"


def test_an_address_that_cannot_be_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError if find_spec("etils") else ImportError, match="'nope://programs'"):
        partax.store("nope://programs")
    monkeypatch.setattr(bucket, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'partax\[cloud\]'"):
        partax.store(ADDRESS)


SCRIPT = """
import s3fs, sys, time, jax, jax.numpy as jnp, partax  # the first takes seconds, which are not the server's
x = jax.jit(lambda: jnp.arange(3.0))()
@partax.filter_jit
def step(x, by): return x * by
print(input("ready\\n"))
for by in sys.argv[1:]:
    begun = time.perf_counter()
    assert step(x, int(by))[1] == int(by)
    print(step.cache_info().traces, time.perf_counter() - begun)
"""


class Machines:
    """A server of S3, and processes on machines that have nothing but a name."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port, self.log = folder, port, folder / "log"
        (folder / "config").write_text("[default]\ns3 =\n  addressing_style = path\n")
        with self.log.open("w") as log:
            self.server = subprocess.Popen([sys.executable, "-m", "moto.server", "-p", str(port)], stderr=log)
        request = urllib.request.Request(f"http://127.0.0.1:{port}/bucket", method="PUT")
        for _ in range(300):
            with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=30):
                break
            time.sleep(0.1)  # it starts

    def requests(self, pattern: str) -> int:
        return len(re.findall(pattern, self.log.read_text()))

    def variables(self, machine: str) -> dict[str, str]:
        """The environment of a process on a machine."""
        return {
            "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_CONFIG_FILE": f"{self.folder}/config", "AWS_ENDPOINT_URL": f"http://localhost:{self.port}",
            "XDG_CACHE_HOME": f"{self.folder}/{machine}", "PARTAX_STORE": ADDRESS, "PYTHONPATH": str(PACKAGE),
        }  # fmt: skip

    def run(
        self, machine: str, *by: int, before: Callable[[], object] = lambda: None, **environment: str
    ) -> tuple[int, list[float], str]:
        """How often a process traces, the seconds of its calls, and what it says."""
        (self.folder / "script.py").write_text(SCRIPT)
        process = subprocess.Popen(
            [sys.executable, str(self.folder / "script.py"), *map(str, by)],
            **dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE),
            env=os.environ | {"JAX_PLATFORMS": "cpu"} | self.variables(machine) | environment,
            text=True,
        )
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        before()
        printed, said = process.communicate("\n", timeout=120)
        assert process.returncode == 0, said
        calls = [line.split() for line in printed.split("\n") if line]
        return int(calls[-1][0]), [float(seconds) for _, seconds in calls], said


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    for name in ("s3fs", "moto.server"):
        pytest.importorskip(name, reason="the extra cloud, or moto, is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    machines = Machines(tmp_path, port)
    yield machines
    machines.server.kill()
    machines.server.wait()


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)


READS = r"(?:HEAD|GET) /bucket/programs/\S+\.partax "


@pytest.mark.slow
def test_a_hit_costs_a_request_and_a_miss_none(machines: Machines) -> None:
    assert machines.run("a", 2, 3)[0] == 2
    wait = lambda: wait_for(lambda: machines.requests(READS) == 2)
    assert machines.run("b", 3, 2, before=wait)[0] == 0 and machines.requests(READS) == 2, "by the list of first calls"
    assert machines.run("b", 3, 2, 4)[0] == 1 and machines.requests(READS) == 2
    assert machines.run("b", 2, PARTAX_STORE_KEY="key")[0] == 1, "it is not signed"


@pytest.mark.slow
def test_machines_that_write_at_once_or_are_killed_leave_a_whole_bucket(machines: Machines, tmp_path: Path) -> None:
    def started(machine: str) -> subprocess.Popen[str]:
        return writer(tmp_path, 12, **machines.variables(machine), PYTHONWARNINGS="ignore")

    chance = np.random.default_rng(0)
    for count in range(1 if IS_SHORT else 20):
        killed = started(f"killed {count}")
        assert killed.stdout is not None and killed.stdout.readline() == "begun\n"
        time.sleep(float(chance.uniform(0, 2)))
        killed.kill()
        killed.communicate()
    writers = [started(f"{count}") for count in range(2 if IS_SHORT else 8)]
    for process in writers:
        printed, said = process.communicate()
        assert printed.startswith("begun\ndone") and "damaged" not in said, said
    printed, said = started("reader").communicate()
    assert printed == "begun\ndone 1\n" and "damaged" not in said, said


class Broken(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(500)

    do_HEAD = do_PUT = do_GET


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dead", "silent", "broken"])
def test_a_server_that_fails_costs_one_wait_and_one_warning(kind: str, machines: Machines) -> None:
    def kill() -> None:
        wait_for(lambda: machines.requests(READS) == 1)  # of what the last process called
        machines.server.kill()
        machines.server.wait()

    machines.run("a", 2)
    machines.run("a", 4)
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadingHTTPServer(("127.0.0.1", 0), Broken) as broken:
        Thread(target=broken.serve_forever, daemon=True).start()
        machines.port = {"silent": silent.getsockname()[1], "broken": broken.server_port}.get(kind, machines.port)
        traces, seconds, said = machines.run("b", 2, 3, before=kill if kind == "dead" else lambda: None)
        assert traces == 2 and said.count("RuntimeWarning") == 1, said
        assert seconds[0] < bucket._PATIENCE + 3 > 3 > seconds[1]
        assert machines.run("b", 2, 3)[0] == 0, "from the directory of this machine"
        broken.shutdown()
