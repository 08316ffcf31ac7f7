"""Guards the promise that a function made anew never gets a result from before a change of something that it sees."""

from __future__ import annotations

import jax
import pytest
import stale_arguments
import stale_callables
import stale_classes
import stale_libraries
import stale_packages
import stale_values
from programs import WAYS, Load, answers, jitted, plain, program

__all__ = ["program"]

FILES = [stale_callables, stale_arguments, stale_libraries, stale_packages, stale_classes, stale_values]
KINDS = {kind: programs for file in FILES for kind, programs in file.KINDS.items()}
PROGRAMS = {f"{kind}: {name}": source for kind, programs in KINDS.items() for name, source in programs.items()}
OTHER_WAYS = [way for way in WAYS if way != "direct"]
# Each program in one other way too; all ways come to each kind.
EACH = [(name, OTHER_WAYS[i % len(OTHER_WAYS)]) for i, name in enumerate(PROGRAMS)]
# As arguments of one function these are equal for Python and for Equinox, whatever has changed in them.
EACH = [(name, way) for name, way in EACH if not (name.startswith(("method", "tree")) and way in ("argument", "field"))]


def assert_right(found: list[float], right: list[float], name: str) -> None:
    if "EVER_OTHER" in PROGRAMS[name]:
        assert found[0] != found[1]
    else:
        assert found == pytest.approx(right, rel=1e-6)


@pytest.mark.parametrize("name", PROGRAMS)
def test_plain_python_and_jax_see_the_change(name: str, program: Load) -> None:
    """Else the program would say nothing of partax."""
    right = answers(program(PROGRAMS[name]), plain)
    assert right[0] != right[1]
    assert_right(answers(program(PROGRAMS[name]), jitted), right, name)


@pytest.mark.parametrize(("name", "way"), [*[(name, "direct") for name in PROGRAMS], *EACH])
def test_a_change_is_seen(name: str, way: str, program: Load) -> None:
    right = answers(program(PROGRAMS[name]), (lambda f, *args: jax.grad(f)(*args)) if way == "gradient" else plain)
    assert_right(answers(program(PROGRAMS[name]), WAYS[way]()), right, name)
