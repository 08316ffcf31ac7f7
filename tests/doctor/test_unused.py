"""Guards the promise that a large argument that nothing reads is found, and one that is returned or small is not."""

from __future__ import annotations

import inspect
from typing import Any

import jax
import pytest
from examining import floats, found_by

from partax import filter_jit
from partax._doctor.arguments import find_unused

found = found_by(find_unused)

LARGE = (4 << 20) // 4
JITS = pytest.mark.parametrize("jit", [jax.jit, filter_jit], ids=["jax", "partax"])


def masked(x: Any, mask: Any) -> Any:
    return x * 2


@JITS
@pytest.mark.parametrize(("size", "count"), [(LARGE - 1, 0), (LARGE, 1)])
def test_it_is_found_from_a_size_on(jit: Any, size: int, count: int) -> None:
    findings = found(jit(masked), floats(), floats(size))
    assert len(findings) == count
    for finding in findings:
        assert (finding.kind, finding.severity, finding.path) == ("unused", "low", "mask")
        assert finding.figures == {"bytes": size * 4, "arrays": 1}
        assert (finding.file, finding.line) == (__file__, inspect.getsourcelines(masked)[1])


@JITS
def test_what_is_only_returned_is_used(jit: Any) -> None:
    assert found(jit(lambda x, y: (x, y.sum())), floats(LARGE), floats(3)) == []
    assert found(jit(lambda x: {"same": x}), floats(LARGE)) == []


@JITS
def test_what_a_call_or_a_loop_takes_is_used(jit: Any) -> None:
    assert found(jit(lambda x: jax.jit(lambda x: x.sum())(x)), floats(LARGE)) == []
    assert found(jit(lambda x, n: jax.lax.fori_loop(0, 3, lambda i, c: c + x.sum(), n)), floats(LARGE), floats()) == []


@JITS
def test_what_a_call_takes_and_does_not_read_is_unused(jit: Any) -> None:
    def outer(x: Any, mask: Any) -> Any:
        return jax.jit(masked, keep_unused=True)(x, mask)

    (finding,) = found(jit(outer), floats(), floats(LARGE))
    assert finding.path == "mask"


@JITS
def test_a_part_is_found_where_it_is_most_of_the_argument(jit: Any) -> None:
    def encode(batch: Any) -> Any:
        return batch["x"] * 2

    (finding,) = found(jit(encode), {"x": floats(LARGE), "y": floats(LARGE + 1), "z": floats(3)})
    assert finding.path == "batch['y']" and finding.figures == {"bytes": (LARGE + 4) * 4, "arrays": 2}
    assert found(jit(encode), {"x": floats(LARGE + 1), "y": floats(LARGE + 1)}) == []
