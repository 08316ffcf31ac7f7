"""Guards the promise that what a script called first is loaded while it makes its arguments, and is never another's."""

import concurrent.futures
import json
import queue
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from test_store import process
from user_modules import start

from partax.__main__ import main
from partax._store import ahead
from partax._store.folder import Folder

pytestmark = pytest.mark.compiled_anew

SCRIPT = """
import os, pathlib, sys, threading, warnings
import jax, jax.numpy as jnp, partax

@partax.filter_jit
def first(x): return x * 2

@partax.filter_jit
def second(x): return x + 1

warnings.simplefilter("ignore", partax.RetraceWarning)
def multiple(k): return partax.filter_jit(lambda x: x * k)

def is_loading(): return [it for it in threading.enumerate() if it.name == "partax load ahead"]

x = jax.jit(lambda: jnp.arange(3.0))()  # compiles, as what makes a model does
for thread in is_loading():
    thread.join()
for program in pathlib.Path(os.environ["PARTAX_STORE"]).glob(sys.argv[1]):
    program.unlink()
print(first(x).tolist(), second(x).tolist(), first.cache_info().loads, second.cache_info().loads, end=" ")
more = [multiple(k) for k in range(20)]
assert all((each(x) == x * k).all() for k, each in enumerate(more))
print(sum(each.cache_info().loads for each in more))
"""
RIGHT = "[0.0, 2.0, 4.0] [1.0, 2.0, 3.0]"


@pytest.mark.slow
def test_all_that_a_script_called_is_loaded_before_it_is_called_again(tmp_path: Path) -> None:
    store = tmp_path / "programs"
    for delete, loads in (("none", "0 0 0"), ("*.partax", "1 1 20")):  # from memory where no file is left
        assert process(SCRIPT, tmp_path, delete, PARTAX_STORE=str(store))[0] == f"{RIGHT} {loads}"
    (noted,) = store.glob(".*.list")
    noted.write_bytes(b"\xff\xfe../script nothing")  # it is a hint
    assert process(SCRIPT, tmp_path, "none", PARTAX_STORE=str(store))[0] == f"{RIGHT} 0 0 0"
    assert len(json.loads(noted.read_text())["programs"]) == 22, "it is written again"


@pytest.mark.slow
def test_another_script_loads_what_it_called_itself(tmp_path: Path) -> None:
    store, other = tmp_path / "programs", tmp_path / "other"
    other.mkdir()
    process(SCRIPT, tmp_path, "none", PARTAX_STORE=str(store))
    for loads in ("0 0 0", "1 1 20"):
        assert process(SCRIPT, other, "*.partax", PARTAX_STORE=str(store))[0] == f"{RIGHT} {loads}"
    assert len([*store.glob(".*.list")]) == 2


TOGETHER = """
import pathlib, sys, time, jax.numpy as jnp, partax
partax.store("programs")
own = int(sys.argv[1])
pathlib.Path(f"begun{own}").touch()
while len([*pathlib.Path().glob("begun*")]) < 3:
    time.sleep(0.01)
print([float(partax.filter_jit(lambda x, by: x * by)(jnp.ones(2), by)[0]) for by in (1, own)])
"""


@pytest.mark.slow
def test_processes_of_one_run_share_a_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    started = [start(tmp_path, TOGETHER, str(by)) for by in (2, 3, 4)]
    assert [each.communicate()[0].strip() for each in started] == [f"[1.0, {by}.0]" for by in (2, 3, 4)]
    (noted,) = (tmp_path / "programs").glob(".*.list")
    assert len(json.loads(noted.read_text())["programs"]) == 4
    main(["store", str(tmp_path / "programs"), "--why", str(tmp_path / "script.py")])
    assert len(capsys.readouterr().out.splitlines()) <= 4
    (tmp_path / "begun2").unlink()
    start(tmp_path, TOGETHER, "2").communicate()
    assert len(json.loads(noted.read_text())["programs"]) == 2, "what an earlier run called is forgotten"


@pytest.mark.parametrize("end", ["another run", "exit"])
def test_loads_go_in_order_and_end(end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = queue.SimpleQueue[Any]()

    def begin_load(folder: Folder, name: str, devices: Any) -> Any:
        load = SimpleNamespace(name=name, size=0, program=concurrent.futures.Future[None]())
        begun.put(load)
        return load

    monkeypatch.setattr(ahead, "Loading", begin_load)
    folder, names = Folder(tmp_path, 1 << 30), [f"{number:040x}-0-0" for number in range(40)]
    for name in names:
        folder.write(name, b"a program")
    run = ahead.ahead_of(folder)
    folder.write_list(run._list, json.dumps({"programs": names, "calls": []}))
    run.load_more()
    first, wanted = begun.get(timeout=30), cast("Any", run.take(names[20], ()))
    assert begun.get(timeout=30) is wanted and first.name == names[0]
    first.program.set_result(None)
    with pytest.raises(queue.Empty):  # it waits for the program of the call
        begun.get(timeout=0.1)
    wanted.program.set_result(None)
    second = begun.get(timeout=30)
    second.size = ahead._LARGEST
    second.program.set_result(None)
    with pytest.raises(queue.Empty):  # so many bytes wait for a call
        begun.get(timeout=0.1)
    assert run.take(names[1], ()) is second
    for name in names[2:10]:
        load = begun.get(timeout=30)
        assert load.name == name
        load.program.set_result(None)
    last = begun.get(timeout=30)
    if end == "exit":
        monkeypatch.setattr(threading.main_thread(), "is_alive", lambda: False)
    run.note(names[30 if end == "another run" else 1], ())
    last.program.set_result(None)
    with pytest.raises(queue.Empty):
        begun.get(timeout=0.1)
    run.end()


@pytest.mark.parametrize("text", ["", "[]", "{", '{"programs": [1]}', '{"programs": [], "calls": [1]}', "[" * 9999])
def test_a_damaged_list_is_empty(text: str) -> None:
    assert ahead.read_run(text) == ([], {})
    assert ahead.read_run('{"programs": ["../a", "0a-1-2"], "calls": []}') == (["0a-1-2"], {})
