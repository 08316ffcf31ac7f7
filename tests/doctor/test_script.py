"""`python -m partax doctor script.py` runs a script unchanged and examines what it compiles and traces again."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examining import floats

from older_jax import IS_OLDER, not_on_older_jax
from partax import Finding
from partax.__main__ import main
from partax._doctor.compiled_programs import Program
from partax._doctor.lines import NOWHERE
from partax._doctor.script import Watch, diagnoses
from partax._doctor.traced_again import of_programs
from processes import python

WATCHED = [(library, name) for library in (np, jnp) for name in ("array", "asarray")]


def doctor(folder: Path, *arguments: str, script: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(script)
    # The warnings are of functions that are traced again.
    return python("-m", "partax", "doctor", *arguments, cwd=folder, code=None, PYTHONWARNINGS="ignore")


def test_what_cannot_be_written_is_said_before_the_script_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "script.py").write_text("print('it runs')")
    with pytest.raises(SystemExit, match=r"nowhere.*may write"):
        main(["doctor", "--json", str(tmp_path / "nowhere/found.json"), str(tmp_path / "script.py")])
    assert capsys.readouterr().out == ""


@pytest.fixture
def watch() -> Iterator[Watch]:
    before = [(owner, name, vars(owner)[name]) for owner, name in WATCHED]
    watch = Watch()
    assert all(vars(owner)[name] is not value for owner, name, value in before)
    yield watch
    watch.end()
    assert all(vars(owner)[name] is value for owner, name, value in before)  # a script's, and nobody else's


@pytest.mark.parametrize("method", ["_note", "costliest"])
def test_a_mistake_of_ours_is_not_the_script_s(
    method: str, watch: Watch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any) -> Any:
        raise ValueError("a mistake of ours")

    program = Program("name", object(), (), (), 1, Counter(lower=1.0, compile=1.0), NOWHERE)
    if method == "_note":
        monkeypatch.setattr(Watch, "_note", fails)
        assert float(jax.jit(lambda x: x * 17)(jnp.float32(2))) == 34
    else:
        monkeypatch.setattr(Watch, "costliest", lambda self: [program])
        assert diagnoses(watch) == []
    assert "please report this" in caplog.text


def test_programs_beyond_those_that_are_kept_are_counted(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("partax._doctor.script._MOST_PROGRAMS", -1)
    jax.jit(lambda x: x * 19)(jnp.float32(2))
    watch.end()
    assert all(it.jaxpr is None and it.seconds > 0 for it in watch.costliest()) and watch.programs
    assert diagnoses(watch) == []


def waits_in_a_long_loop(x: Any) -> Any:
    for _ in range(200):
        x = jnp.tanh(x) + jnp.sin(x)
    return jax.lax.scan(lambda c, _: (jax.pure_callback(np.cos, c, c), None), x, None, length=500)[0]


@pytest.mark.parametrize(("seconds", "kinds"), [(0.04, {"host"}), (0.4, {"host", "repeat"})])
def test_of_what_compiles_in_no_time_only_the_cost_of_its_calls_is_told(
    seconds: float, kinds: set[str], watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    jaxpr = jax.jit(waits_in_a_long_loop).trace(jnp.ones(3)).jaxpr
    program = Program("waits", jaxpr, (False,), ("x",), 1, Counter(compile=seconds))
    monkeypatch.setattr(Watch, "costliest", lambda self: [program])
    (diagnosis,) = diagnoses(watch, {"waits": waits_in_a_long_loop})
    assert {it.kind for it in diagnosis.findings} == kinds
    (host,) = [it for it in diagnosis.findings if it.kind == "host"]
    assert "500 times" in host.message and "no step waits for Python" in host.advice


AGAIN = """
import contextlib
import functools
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import partax
from flax import nnx

table = jnp.asarray(np.random.default_rng(0).random((600, 600), np.float32))

def deep(x):
    for _ in range(60):
        x = jnp.tanh(x @ x)  # here
    return x

@jax.jit
def by_shape(x):
    return deep(x)

@eqx.filter_jit
def by_number(x, n):
    return deep(x) * n

@partax.filter_jit(donate=("x",))
def by_rate(x, rate):
    return deep(x) * rate

@partax.filter_jit
def becomes_strong(x, y):
    return deep(x) * y, y * jnp.float32(2)

@functools.partial(jax.jit, static_argnames="mode")
def by_mode(x, mode, step):
    return deep(x) * step + (x if mode == "b" else 0)

class Net(nnx.Module):
    def __init__(self, n):
        self.w, self.n = nnx.Param(jnp.ones((3, 3))), n

@nnx.jit
def by_field(net, x):
    return deep(x @ net.w) * net.n

@eqx.filter_jit
def by_layer(layer, x):
    return layer(deep(x))

@jax.jit
def once(x, i):
    return deep(x) + table[i, 0]

@jax.jit
def by_device(x):
    return deep(x)

@partax.filter_jit
def by_trial(x):
    if x.shape[0] > 3:
        raise ValueError("too large")
    return deep(x)

def renewed():
    @jax.jit
    def by_renewal(x):
        return deep(x)

    return by_renewal

def made(shift):
    @partax.filter_jit
    def twin(x, rate):
        return deep(x) * rate + shift

    return twin

y = jnp.asarray(1.0)
for n in range(3, 8):
    by_shape(jnp.ones((n, n)))
for n in range(2, 5):
    by_number(jnp.ones((3, 3)), n)
    by_rate(jnp.ones((3, 3)), float(n))
    by_mode(jnp.ones((3, 3)), mode="aabc"[n - 1], step=n)
    by_field(Net(n), jnp.ones((3, 3)))
    by_layer(eqx.nn.Lambda([jnp.sin, jnp.cos, jnp.exp][n - 2]), jnp.ones((3, 3)))
    renewed()(jnp.ones((3, 3)))
    _, y = becomes_strong(jnp.ones((3, 3)), y)
    once(jnp.ones((3, 3)), 0)
for n in (2, 4, 5, 3):
    with contextlib.suppress(ValueError):
        by_trial(jnp.ones((n, n)))
for twin in (made(1.0), made(2.0)):
    for n in range(3):
        twin(jnp.ones((3, 3)), float(n))
for device in jax.devices()[:4]:
    by_device(jax.device_put(jnp.ones((3, 3)), device))
jax.jit(lambda x: x)(y)
print("the script's own output", sys.argv[1:])
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str, str]:
    """What is found in functions that are traced again: by name, as text and as a page."""
    folder = tmp_path_factory.mktemp("again")
    done = doctor(folder, "--json", "found.json", "--html", "found.html", "script.py", "3", script=AGAIN)
    assert done.returncode == 3, done.stderr
    assert done.stdout == "the script's own output ['3']\n"
    found = {it["name"]: it for it in json.loads((folder / "found.json").read_text())}
    return found, done.stderr, (folder / "found.html").read_text()


@pytest.mark.parametrize(
    ("name", "traces", "severity", "reason"),
    [
        ("by_shape", 5, "low", "x: float32[5,5] -> float32[6,6]; x: float32[6,6] -> float32[7,7]"),
        ("by_number", 3, "medium", "2 with arrays of the types of an earlier one: n: static int 3 -> 4."),
        ("by_mode", 3, "low", "an earlier one: mode: static str 'b' -> 'c'."),
        pytest.param("by_field", 3, "medium", "an earlier one: net.n: static int 3 -> 4.",
            marks=not_on_older_jax("has a Flax that does not name the attributes of a graph")),
        ("by_layer", 3, "medium", "an earlier one: layer.fn: PjitFunction of exp "),
        ("by_renewal", 3, "medium", "an earlier one: it was made anew, for arguments of the same types."),
        ("by_rate", 3, "medium",
            'rate: static float 2.0 -> 3.0 (2 traces so far: pass jnp.asarray(rate), or trace=("rate",))'),
        ("becomes_strong", 2, "medium", "y: weak float32 -> float32"),
    ],
)  # fmt: skip
def test_a_function_that_was_traced_again_is_a_finding(
    again: tuple[dict[str, Any], str, str], name: str, traces: int, severity: str, reason: str
) -> None:
    found, text, _ = again
    (finding,) = [it for it in found[name]["findings"] if it["kind"] == "retrace"]
    assert finding["figures"]["traces"] == traces and finding["figures"]["again_seconds"] > 0
    assert finding["severity"] == severity
    assert ("such as powers of two" in finding["advice"]) is (name == "by_shape")
    assert reason in finding["message"] and finding["message"] in text
    assert Path(finding["file"]).name == "script.py" and finding["source"].startswith("@")


@pytest.mark.parametrize("name", ["by_shape", "by_number", "by_rate"])  # of jax, Equinox and partax
def test_a_program_is_examined_whatever_has_compiled_it(again: tuple[dict[str, Any], str, str], name: str) -> None:
    found, text, _ = again
    (repeat,) = [it for it in found[name]["findings"] if it["kind"] == "repeat"]
    assert repeat["figures"]["repetitions"] == 60 and f"script.py:{repeat['line']}" in text
    assert repeat["source"].endswith("# here") and Path(repeat["file"]).name == "script.py"
    rows = text[: text.index("\n\n", text.index("seconds"))].splitlines()
    names = [row.split()[-1] for row in rows if row.strip() and row.strip()[0].isdigit()]
    assert names.index(name) < names.index("<lambda>")  # the costliest come first


def test_functions_of_one_line_are_told_each_and_traces_that_raised_are_none(again: tuple[Any, str, str]) -> None:
    by_device = {} if IS_OLDER else {"by_device": []}  # an older jax traces for each
    for name, traces in {"twin": [3, 3], "once": [], "by_trial": [], **by_device}.items():
        assert [it["figures"]["traces"] for it in again[0][name]["findings"] if it["kind"] == "retrace"] == traces


def test_the_figures_are_measured_of_all_programs_together(again: tuple[dict[str, Any], str, str]) -> None:
    found, text, page = again
    for name, times in (("by_rate", 3), ("by_shape", 5), ("once", 1)):
        figures = found[name]["figures"]
        assert figures["times"] == times
        for stage in ("trace", "lower", "compile"):
            assert figures[f"{stage}_seconds"] > 0, (name, stage)
        (row,) = [line.split() for line in text.splitlines() if line.endswith(f"  {name}")]
        assert float(row[1]) == pytest.approx(figures["trace_seconds"], abs=1e-4)
        assert float(row[0]) == pytest.approx(sum(map(float, row[1:4])), abs=3e-4)
    assert "<dt>trace</dt>" in page and "<dt>times</dt>" in page


def test_a_captured_array_has_its_name_in_a_script_too(again: tuple[dict[str, Any], str, str]) -> None:
    assert [it["path"] for it in again[0]["once"]["findings"] if it["kind"] == "constant"] == ["table"]


def test_libraries_come_last_and_the_page_begins_with_the_costliest_function(
    again: tuple[dict[str, Any], str, str],
) -> None:
    found, text, page = again
    assert " of jax and libraries (" in text and "; most at script.py:" in text
    stages = ("trace_seconds", "lower_seconds", "compile_seconds")
    costliest = max(found.values(), key=lambda it: sum(it["figures"].get(stage, 0) for stage in stages))
    summary = page[page.index('<p class="summary">') :].split("</p>")[0]
    assert f"The costliest function is <code>{costliest['name']}</code> (script.py:" in summary
    assert f"traced {costliest['figures']['times']} times" in summary
    assert "/script.py" not in page  # paths are relative


MADE_ANEW = "make the function once"
PAD = "such as powers of two"


def forward(x: Any, train: Any) -> Any:
    return jax.tree.map(jnp.tanh, x) if train else x


def findings_of(calls: Sequence[tuple[Any, bool]], times: int = 1) -> list[Finding]:
    """Of the programs of these calls, each of which was compiled so often."""
    traced = [jax.jit(forward, static_argnums=1).trace(x, train).jaxpr for x, train in calls]
    paths = [tuple(map(str, it.jaxpr.debug_info.arg_names)) for it in traced]
    programs = [
        Program("forward", it, (False,) * len(names), names, times, Counter(compile=1.0))
        for it, names in zip(traced, paths, strict=True)
    ]
    return [finding for it in of_programs(programs, ()) for finding in it.findings]


def sizes(*lengths: int, dtype: str = "float32") -> list[tuple[Any, bool]]:
    return [(floats(length, dtype=dtype), True) for length in lengths]


@pytest.mark.parametrize(
    ("calls", "times", "severity", "advice"),
    [
        (sizes(*range(1, 10)), 1, "low", PAD),
        (sizes(*range(5, 10)), 1, "low", PAD),
        (sizes(*range(1, 11)), 1, "high", PAD),
        ([(dict.fromkeys(names, floats(3)), True) for names in ("a", "ab", "b", "bc", "abc")], 1, "low", PAD),
        (sizes(8, 16, 32), 2, "medium", MADE_ANEW),
        ([*sizes(8, 16), *sizes(32, dtype="float16")], 1, "medium", MADE_ANEW),
        ([*sizes(8, 16), (floats(16), False)], 1, "medium", MADE_ANEW),  # a static argument alone
        ([*sizes(8), *sizes(9, dtype="float16")], 1, "", ""),  # as it should be, from here on
        (sizes(8, 16, 32, 64, 128, 256), 1, "", ""),
        (sizes(*range(32, 320, 32)), 1, "", ""),
        ([*sizes(64, 58), (floats(64), False), (floats(58), False)], 1, "", ""),  # two modes, and a last batch
        ([(floats(length), train) for length in (9, 7) for train in (True, False)], 1, "", ""),
    ],
)
def test_a_few_sizes_are_of_low_severity_and_buckets_of_none(
    calls: Any, times: int, severity: str, advice: str
) -> None:
    found = findings_of(calls, times)
    assert [(it.kind, it.severity) for it in found] == ([("retrace", severity)] if severity else [])
    assert all(advice in it.advice for it in found)
