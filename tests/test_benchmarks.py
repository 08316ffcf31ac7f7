"""Guards the promise that the benchmarks of other libraries' trees measure what they say, and notice a difference."""

from __future__ import annotations

import importlib
import json
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

BENCH = Path(__file__).parents[1] / "bench"
sys.path.append(str(BENCH))
for needed in ("equinox", "optax", "rich", "sklearn", "tqdm"):
    pytest.importorskip(needed)
family_trees = importlib.import_module("family_trees")


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], cwd=BENCH, capture_output=True, text=True, timeout=600)


@pytest.mark.filterwarnings("ignore")  # of the libraries, as they are imported
@pytest.mark.parametrize("family", family_trees.FAMILIES, ids=lambda family: family.name)
def test_a_family_holds_as_many_arrays_as_the_others(family: Any) -> None:
    try:
        trees = family.trees()
    except ImportError as error:
        assert family.install
        pytest.skip(str(error))
    pairs = family_trees.pairs()
    tree = trees.build(pairs)
    # Adam has a counter beside its moments.
    assert len(jax.tree.leaves(tree)) // 2 == family_trees.NODES == len(pairs)
    changed = jax.tree.map(lambda array: array + 1, tree)
    assert any(trees.an_array(changed) is array for array in jax.tree.leaves(changed))


def test_a_row_of_families_is_measured_and_written(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    done = run("families.py", "--quick", "--rows", "NamedTuple, in", "--json", str(file))
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(file.read_text())["rows"]
    assert (row["work"], row["unit"], set(row["seconds"])) == (
        "NamedTuple, in",
        "x floor",
        {"floor", "jax.jit", "partax"},
    )
    assert row["measured"] == row["seconds"]["partax"] / row["seconds"]["floor"]


def test_a_family_whose_library_is_missing_is_left_out_with_what_to_install() -> None:
    code = "import sys; sys.modules['chex'] = None; sys.argv = ['families.py', '--quick', '--rows', 'NamedTuple, in']\n"
    done = run("-c", code + "import families; families.main()")
    assert done.returncode == 0, done.stderr
    assert "chex.dataclass, frozen is left out" in done.stdout and "run pip install chex" in done.stdout


def arrays(tree: Any) -> dict[str, np.ndarray]:
    return {jax.tree_util.keystr(path): np.array(leaf) for path, leaf in jax.tree.leaves_with_path(tree)}


def differ(some: dict[str, np.ndarray], others: dict[str, np.ndarray]) -> set[str]:
    """The paths that are in one alone, or whose bits differ."""
    same = {path for path in some.keys() & others.keys() if some[path].tobytes() == others[path].tobytes()}
    return (some.keys() | others.keys()) - same


@pytest.mark.parametrize("work", ["idle", "training"])
def test_all_ways_to_update_nnx_objects_change_the_same_variables_to_the_same_bits(work: str) -> None:
    nnx = pytest.importorskip("flax.nnx")
    bench = runpy.run_path(str(BENCH / "nnx.py"))
    wanted = bench[work](2)
    made: list[Any] = []

    def objects() -> Any:
        made.append(wanted.objects())
        return made[-1]

    for loop in bench["loops_of"](replace(wanted, objects=objects)).values():
        loop(3)
    # The first two, the floor and the one by hand, carry what changes from call to call.
    first, *others = (arrays(nnx.state(updated)) for updated in made[2:])
    assert len(others) >= 4
    assert all(not differ(first, other) for other in others)
    new = wanted.objects()
    assert differ(arrays(nnx.state(new)), first) == arrays(nnx.state(new, wanted.changed)).keys()


@pytest.mark.parametrize("path", ["a", "b"])
def test_training_digits_with_flax_notices_one_bit_and_one_path(path: str) -> None:
    pytest.importorskip("flax.nnx")
    compare = importlib.import_module("train_flax_digits").compare
    bits = {"a": np.zeros(3, np.uint8), "b": np.zeros(1, np.uint8)}
    off = bits | {path: bits[path] + np.uint8(1)}
    lacks = {name: value for name, value in bits.items() if name != path}
    assert compare({"one": bits, "two": dict(bits)})[0]
    for wrong in (off, lacks):
        agree, verdict = compare({"one": bits, "two": dict(bits), "three": wrong})
        assert not agree
        assert "three" in verdict and repr(path)[1:-1] in verdict
