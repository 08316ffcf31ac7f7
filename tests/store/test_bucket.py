"""Guards the promise that programs are shared by a bucket, and that whatever becomes of it costs a call one wait."""

import contextlib
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

import pytest
from user_modules import SOURCE, run

import partax
from partax._store import bucket
from processes import python

pytestmark = pytest.mark.compiled_anew
ADDRESS = "s3://bucket/programs"


def test_machines_share_what_is_whole_and_signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = tmp_path / "remote"
    remote.mkdir()
    monkeypatch.setattr(bucket, "_remote", lambda address: remote)

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


def test_an_address_that_cannot_be_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError if find_spec("etils") else ImportError, match="'nope://programs'"):
        partax.store("nope://programs")
    monkeypatch.setattr(bucket, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'partax\[cloud\]'"):
        partax.store(ADDRESS)


SCRIPT = """
import sys, time, jax, jax.numpy as jnp, partax
x = jax.jit(lambda: jnp.arange(3.0))()
time.sleep(float(sys.argv[1]))
@partax.filter_jit
def step(x): return x * NUMBER
begun = time.perf_counter()
print(step(x)[1], step.cache_info().traces, step.cache_info().loads, time.perf_counter() - begun)
"""


class Machines:
    """Processes, each on a machine of its own, and a server of S3 on this one."""

    def __init__(self, folder: Path) -> None:
        pytest.importorskip("s3fs", reason="the extra cloud is not installed")
        pytest.importorskip("moto.server", reason="moto is not installed")
        self.folder, self.log = folder, folder / "log"
        (folder / "config").write_text("[default]\ns3 =\n  addressing_style = path\n")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        with self.log.open("w") as log:
            command = [sys.executable, "-m", "moto.server", "-p", str(self.port)]
            self.server = subprocess.Popen(command, stdout=log, stderr=log)

    def make_bucket(self) -> None:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/bucket", method="PUT")
        for _ in range(300):
            with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=30):
                break
            time.sleep(0.1)  # it starts

    def run(self, machine: str, number: int = 2, wait: float = 0.0, **environment: str) -> tuple[list[float], str]:
        """What a process prints, and what it says."""
        (self.folder / "script.py").write_text(SCRIPT.replace("NUMBER", str(number)))
        environment |= {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
        environment |= {"AWS_CONFIG_FILE": str(self.folder / "config"), "PARTAX_STORE": ADDRESS}
        environment |= {
            "AWS_ENDPOINT_URL": f"http://localhost:{self.port}",
            "XDG_CACHE_HOME": f"{self.folder}/{machine}",
        }
        done = python(str(self.folder / "script.py"), str(wait), **environment)
        return [float(word) for word in done.stdout.split()], done.stderr

    def reads(self) -> int:
        return len(re.findall(r"(?:HEAD|GET) /bucket/programs/\S+\.partax ", self.log.read_text()))


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    machines = Machines(tmp_path)
    try:
        machines.make_bucket()
        yield machines
    finally:
        machines.server.kill()
        machines.server.wait()


@pytest.mark.slow
def test_a_hit_costs_a_request_and_a_miss_none(machines: Machines) -> None:
    assert machines.run("a")[0][:3] == [2, 1, 0]
    assert machines.run("b")[0][:3] == [2, 0, 1] and machines.reads() == 1
    assert machines.run("c", wait=3)[0][:3] == [2, 0, 1] and machines.reads() == 2  # early, by its first calls
    assert machines.run("c", number=3)[0][:3] == [3, 1, 0] and machines.reads() == 2
    assert machines.run("c", PARTAX_STORE_KEY="key")[0][:3] == [2, 1, 0], "it is not signed"


class Broken(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(500)

    do_HEAD = do_PUT = do_GET


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dead", "silent", "broken"])
def test_a_server_that_fails_costs_one_wait_and_one_warning(kind: str, machines: Machines) -> None:
    machines.run("a")
    machines.server.kill()
    machines.server.wait()
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadingHTTPServer(("127.0.0.1", 0), Broken) as broken:
        Thread(target=broken.serve_forever, daemon=True).start()
        ports = {"dead": machines.port, "silent": silent.getsockname()[1], "broken": broken.server_port}
        machines.port = ports[kind]
        begun = time.perf_counter()
        (value, traces, _, seconds), said = machines.run("b", wait=0.5)
        assert (value, traces) == (2, 1) and said.count("RuntimeWarning") == 1, said
        assert seconds < bucket._PATIENCE + 3 and time.perf_counter() - begun < 60
        assert machines.run("b")[0][:3] == [2, 0, 1], "from the directory of this machine"
        broken.shutdown()
